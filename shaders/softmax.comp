#version 450
// SPDX-License-Identifier: Apache-2.0
//! variant softmax -DWIDE=0
// Masked softmax. Three passes over a row: score and maximum, exponentials and sum, quotient; the
// output row holds what a pass leaves for the next, each element touched by one invocation only. Or
// registers hold it (kHeld): then a row is read once and written once. Or exponentials are computed
// twice (kAgain): then a row is read three times and written once. The order is scale, softcap,
// bias, mask.
//
// A key masked with fill -inf leaves the weight -0.0, which no exponential gives: the product with
// the values knows by it what to pass over. A row whose largest score is -inf has no key left and
// gets weights of 0.
#extension GL_GOOGLE_include_directive : require
#extension GL_KHR_shader_subgroup_arithmetic : require
#define SUBGROUPS
#include "common/fours.glsl"
#include "softmax.h"

layout(local_size_x_id = 0) in;
layout(constant_id = kSoftmaxSpecLanes) const uint kLanes = 1;
layout(constant_id = kSoftmaxSpecMask) const uint kMask = 0;
layout(constant_id = kSoftmaxSpecTerm) const uint kTerm = kSoftmaxTermNone;
layout(constant_id = kSoftmaxSpecCausal) const uint kCausal = 0;
layout(constant_id = kSoftmaxSpecSoftcap) const uint kSoftcap = 0;
layout(constant_id = kSoftmaxSpecOutput) const uint kOutput = kSoftmaxOutputWeights;
layout(constant_id = kSoftmaxSpecFours) const uint kFours = 0;
layout(constant_id = kSoftmaxSpecHeld) const uint kHeld = 0;
layout(constant_id = kSoftmaxSpecAgain) const uint kAgain = 0;

layout(push_constant) uniform Push { SoftmaxPush p; };
layout(set = 0, binding = kSoftmaxBindingScores) readonly buffer Scores { float scores[]; };
FOURS_IN(kSoftmaxBindingScores, ScoresFours, scores_fours)
layout(set = 0, binding = kSoftmaxBindingMask) readonly buffer Mask { uint mask[]; };
layout(set = 0, binding = kSoftmaxBindingMask) readonly buffer MaskFours { uvec4 mask_fours[]; };
layout(set = 0, binding = kSoftmaxBindingTerm) readonly buffer Term { float term[]; };
layout(set = 0, binding = kSoftmaxBindingTerm) readonly buffer TermFours { vec4 term_fours[]; };
layout(set = 0, binding = kSoftmaxBindingOut) buffer Out { float result[]; };
FOURS_IN_OUT(kSoftmaxBindingOut, OutFours, result_fours)

#include "common/dispatch.glsl"
#include "common/log_sum_exp.glsl"
#include "common/row.glsl"
#include "common/run_sum.glsl"
#include "common/held.glsl"

struct Row {
    uint scores;
    uint result;
    uint mask;
    uint term;
    int position;   // the key at which the query stands
    int first_key;  // causal: keys before this one and after `position` are masked
};

Row find_row(uint index) {
    Row row;
    row.scores = p.scores_offset + index * p.keys;
    row.result = p.out_offset + index * p.keys;
    uint rest = index;
    uint query = take_dimension(rest, p.size[3]);
    uint i2 = take_dimension(rest, p.size[2]);
    uint i1 = take_dimension(rest, p.size[1]);
    row.mask = p.mask_offset + query * p.mask_stride[3] + i2 * p.mask_stride[2] + i1 * p.mask_stride[1] + rest * p.mask_stride[0];
    row.term = p.term_offset + query * p.term_stride[3] + i2 * p.term_stride[2] + i1 * p.term_stride[1] + rest * p.term_stride[0];
    row.position = int(query) + p.causal_shift;
    row.first_key = p.window == 0u ? 0 : row.position - int(p.window) + 1;
    return row;
}

float biased_score(Row row, uint key) {
    float score = scores[row.scores + key] * p.scale;
    if (kSoftcap != 0u) {
        score = p.softcap * safe_tanh(score / p.softcap);
    }
    if (kTerm == kSoftmaxTermBias) {
        score += term[row.term + key * p.term_stride[4]];
    } else if (kTerm == kSoftmaxTermSlopes) {
        score -= term[row.term + key * p.term_stride[4]] * float(abs(row.position - int(key)));
    }
    return score;
}

float masked_score(Row row, uint key) {
    bool keep = true;
    if (kMask != 0u) {
        keep = (mask[row.mask + key * p.mask_stride[4]] != 0u) == (kMask == 1u);
    }
    if (kCausal != 0u) {
        keep = keep && int(key) >= row.first_key && int(key) <= row.position;
    }
    float score = biased_score(row, key);
    return keep ? score : p.fill;
}

bool is_masked(float score) {  // by its bits: a comparison with -inf may be folded away
    return floatBitsToUint(score) == floatBitsToUint(negative_infinity());
}

void write_weights(Row row, uint keys) {
    float largest = kTerm == kSoftmaxTermSinks ? term[row.term] : negative_infinity();
    float sink = largest;
    for (uint key = row_lane(); key < keys; key += kLanes) {
        float score = masked_score(row, key);
        result[row.result + key] = score;
        largest = max_or_nan(largest, score);
    }
    largest = row_max(largest);

    RunSum part = RunSum(0.0, 0.0);
    for (uint key = row_lane(), turn = 0u; key < keys; key += kLanes, ++turn) {
        float score = result[row.result + key];
        bool masked = is_masked(score);
        float e = safe_exp(score - largest);
        add(part, turn, masked ? 0.0 : e);
        result[row.result + key] = masked ? uintBitsToFloat(kSignBit) : e;
    }
    float sum = row_sum(part.runs + part.run);
    if (kTerm == kSoftmaxTermSinks) {
        sum += safe_exp(sink - largest);
    }

    float scale = is_masked(largest) ? 0.0 : 1.0 / sum;
    for (uint key = row_lane(); key < keys; key += kLanes) {
        float e = result[row.result + key];
        bool masked = floatBitsToUint(e) == kSignBit;
        result[row.result + key] = masked ? e : e * scale;
    }
}

// True where nothing but a scale changes the scores: then they are read again instead of kept. (As
// a constant, glslang 11 loses its definition.)
bool plain() {
    return kMask == 0u && kCausal == 0u && kSoftcap == 0u && kTerm != kSoftmaxTermBias && kTerm != kSoftmaxTermSlopes;
}

// Exponentials are computed twice.
bool again() {
    return kAgain != 0u && plain();
}

// Where a row's parts begin, by fours.
struct RowFours {
    uint scores;
    uint result;
    uint mask;
    uint term;
};

RowFours by_fours(Row row) {
    return RowFours(row.scores / 4u, row.result / 4u, row.mask / 4u, row.term / 4u);
}

vec4 plain_scores(RowFours at, uint four) {
    return VKF_FOUR(scores_fours, at.scores + four) * p.scale;
}

vec4 masked_scores(Row row, RowFours at, uint four) {
    vec4 s = plain_scores(at, four);
    if (kSoftcap != 0u) {
        s /= p.softcap;
        s = p.softcap * vec4(safe_tanh(s.x), safe_tanh(s.y), safe_tanh(s.z), safe_tanh(s.w));
    }
    ivec4 keys = int(4u * four) + ivec4(0, 1, 2, 3);
    if (kTerm == kSoftmaxTermBias) {
        s += term_fours[at.term + four];
    } else if (kTerm == kSoftmaxTermSlopes) {
        s -= term[row.term] * vec4(abs(row.position - keys));
    }
    if (kMask != 0u) {
        bvec4 set = notEqual(mask_fours[at.mask + four], uvec4(0u));
        s = kMask == 1u ? mix(vec4(p.fill), s, set) : mix(s, vec4(p.fill), set);
    }
    if (kCausal != 0u) {
        s = mix(s, vec4(p.fill), lessThan(keys, ivec4(row.first_key)));
        s = mix(s, vec4(p.fill), greaterThan(keys, ivec4(row.position)));
    }
    return s;
}

// Exponentials of scores, which are added to `part`; -0.0 for masked ones. The exponential of a
// masked score is 0, unless the largest is -inf too and there is no use for the sum.
vec4 exponentials(vec4 s, float largest, inout vec4 part) {
    bvec4 masked = equal(floatBitsToUint(s), uvec4(kInfinityBits | kSignBit));
    s -= largest;
    s = vec4(exp_of_number(s.x), exp_of_number(s.y), exp_of_number(s.z), exp_of_number(s.w));
    part += s;
    return mix(s, vec4(uintBitsToFloat(kSignBit)), masked);
}

// Fours of a row are taken in turns. With kWide a turn is a line of the cache, and its loads all go
// before its stores to another buffer, lest these drive out lines of which more is wanted (rows of
// 4 KiB all fall on the same few places of a cache). Elsewhere a turn is one four, and no array,
// which some compilers keep in memory; EACH then declares its number, so each has another name.
#define WRITE_WEIGHTS write_weights_by_fours
#define TURN 1u
#define TURN_OF(e) e
#define EACH(i) const uint i = 0u;
#define AT(e, i) e
#include "common/softmax_fours.glsl"
#ifdef WIDE
#undef WRITE_WEIGHTS
#undef TURN
#undef TURN_OF
#undef EACH
#undef AT
#define WRITE_WEIGHTS write_weights_in_turns
#define TURN kFours
#define TURN_OF(e) e[kSoftmaxMostFours]
#define EACH(i) for (uint i = 0u; i < kFours; ++i)
#define AT(e, i) e[i]
#include "common/softmax_fours.glsl"
#endif

// Masked scores of the lane's i-th four; -inf beyond the row.
vec4 held_scores(Row row, uint i) {
    vec4 s;
    if (kFours != 0u) {
        s = masked_scores(row, by_fours(row), held_four_from(i, p.keys));
    } else {
        uvec4 keys = held_from(i, p.keys);
        s = vec4(masked_score(row, keys.x), masked_score(row, keys.y), masked_score(row, keys.z),
                 masked_score(row, keys.w));
    }
    return mix(vec4(negative_infinity()), s, held_inside(i, p.keys));
}

HELD_STORE(store_weights, result_fours, result)

// As write_weights_by_fours(), for rows of any length that registers hold.
void write_weights_held(Row row, bool there) {
    float sink = kTerm == kSoftmaxTermSinks ? term[row.term] : negative_infinity();
    vec4 held[kMostHeld];
    for (uint i = 0u; i < kHeld; ++i) {
        held[i] = vec4(negative_infinity());
    }
    if (there) {
        for (uint i = 0u; i < kHeld; ++i) {
            held[i] = held_scores(row, i);
        }
    }
    vec4 maxima = vec4(negative_infinity());
    uvec4 magnitudes = uvec4(0u);
    for (uint i = 0u; i < kHeld; ++i) {
        maxima = max(maxima, held[i]);
        magnitudes = max(magnitudes, floatBitsToUint(held[i]) & kMagnitudeBits);
    }
    uint magnitude = max(max(magnitudes.x, magnitudes.y), max(magnitudes.z, magnitudes.w));
    float largest = max(max(maxima.x, maxima.y), max(maxima.z, maxima.w));
    largest = row_max(max_or_nan(sink, magnitude > kInfinityBits ? quiet_nan() : largest));

    vec4 sums = vec4(0.0);
    for (uint i = 0u; i < kHeld; ++i) {
        bvec4 masked = equal(floatBitsToUint(held[i]), uvec4(kInfinityBits | kSignBit));
        vec4 s = held[i] - largest;
        s = vec4(exp_of_number(s.x), exp_of_number(s.y), exp_of_number(s.z), exp_of_number(s.w));
        sums += s;
        held[i] = mix(s, vec4(uintBitsToFloat(kSignBit)), masked);
    }
    float sum = row_sum((sums.x + sums.y) + (sums.z + sums.w));
    if (kTerm == kSoftmaxTermSinks) {
        sum += exp_of_number(sink - largest);
    }

    float scale = is_masked(largest) ? 0.0 : (is_finite(largest) ? 1.0 / sum : quiet_nan());
    if (there) {
        for (uint i = 0u; i < kHeld; ++i) {
            bvec4 masked = equal(floatBitsToUint(held[i]), uvec4(kSignBit));
            store_weights(row.result, i, p.keys, mix(held[i] * scale, held[i], masked));
        }
    }
}

void write_log_sum_exp(Row row, uint keys, uint index) {
    float largest = kTerm == kSoftmaxTermSinks ? term[row.term] : negative_infinity();
    float sink = largest;
    for (uint key = row_lane(); key < keys; key += kLanes) {
        largest = max_or_nan(largest, masked_score(row, key));
    }
    largest = row_max(largest);
    RunSum part = RunSum(0.0, 0.0);
    for (uint key = row_lane(), turn = 0u; key < keys; key += kLanes, ++turn) {
        float score = masked_score(row, key);
        add(part, turn, is_masked(score) ? 0.0 : safe_exp(score - largest));
    }
    float sum = row_sum(part.runs + part.run);
    if (kTerm == kSoftmaxTermSinks) {
        sum += safe_exp(sink - largest);
    }
    vec2 parts = is_finite(largest) ? log_sum_exp_parts(largest, log(sum)) : vec2(largest, 0.0);
    // the mean of what is left below the largest, which loses nothing to a common offset
    if (kOutput == kSoftmaxOutputSmoothed) {
        RunSum below = RunSum(0.0, 0.0);
        for (uint key = row_lane(), turn = 0u; key < keys; key += kLanes, ++turn) {
            add(below, turn, largest - masked_score(row, key));
        }
        float above_mean = log(sum) + row_sum(below.runs + below.run) / float(keys);
        parts.y = (1.0 - p.smoothing) * parts.y + p.smoothing * above_mean;
    }
    if (row_lane() == 0u && index < p.rows) {
        if (kOutput == kSoftmaxOutputSinkWeight) {
            float weight = is_finite(largest) ? safe_exp(sink - largest) / sum : quiet_nan();
            result[p.out_offset + index] = is_masked(largest) ? 0.0 : weight;
        } else if (kOutput == kSoftmaxOutputLogSumExp) {
            result[p.out_offset + index] = parts.x;
        } else {
            result[p.out_offset + index * 2u] = parts.x;
            result[p.out_offset + index * 2u + 1u] = parts.y;
        }
    }
}

void write_hard(Row row, uint keys) {
    float largest = negative_infinity();
    for (uint key = row_lane(); key < keys; key += kLanes) {
        largest = max_or_nan(largest, masked_score(row, key));
    }
    largest = row_max(largest);
    float first = negative_infinity();  // minus the lowest key that has it; exact below 2^24 keys
    for (uint key = row_lane(); key < keys; key += kLanes) {
        float score = masked_score(row, key);
        bool found = is_nan(largest) ? is_nan(score) : score == largest;
        first = found && !is_masked(score) ? max(first, -float(key)) : first;
    }
    first = row_max(first);
    for (uint key = row_lane(); key < keys; key += kLanes) {
        bool masked = is_masked(masked_score(row, key));
        result[row.result + key] = masked ? uintBitsToFloat(kSignBit) : (-float(key) == first ? 1.0 : 0.0);
    }
}

void main() {
    uint group = group_index();
    if (group >= p.group_count) {
        return;
    }
    uint index = row_of(group);
    bool inside = index < p.rows;
    Row row = find_row(inside ? index : 0u);
    uint keys = inside ? p.keys : 0u;
    if (kOutput == kSoftmaxOutputScores) {
        for (uint key = row_lane(); key < keys; key += kLanes) {
            result[row.result + key] = masked_score(row, key);
        }
    } else if (kOutput == kSoftmaxOutputLogSumExp || kOutput == kSoftmaxOutputSmoothed ||
               kOutput == kSoftmaxOutputLogSumExpParts || kOutput == kSoftmaxOutputSinkWeight) {
        write_log_sum_exp(row, keys, index);
    } else if (kOutput == kSoftmaxOutputHard) {
        write_hard(row, keys);
    } else if (kHeld != 0u) {
        write_weights_held(row, inside);
    } else if (kFours != 0u) {
#ifdef WIDE
        if (kWide != 0u) {
            write_weights_in_turns(row, keys / 4u);
            return;
        }
#endif
        write_weights_by_fours(row, keys / 4u);
    } else {
        write_weights(row, keys);
    }
}
