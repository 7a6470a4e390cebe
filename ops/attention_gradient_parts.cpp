// SPDX-License-Identifier: Apache-2.0
#include "ops/attention_gradient_parts.h"

#include <algorithm>

#include "attention_bias_gradient.spv.h"
#include "attention_ranges.spv.h"
#include "ops/attention_operands.h"
#include "ops/pushed_mask.h"
#include "ops/sequence_table.h"
#include "runtime/base/numbers.h"
#include "shaders/attention.h"
#include "shaders/attention_bias_gradient.h"
#include "shaders/attention_gradient.h"
#include "shaders/attention_ranges.h"

namespace vkf {

namespace {

using namespace shader;
using namespace support;

const Shader kRanges{"attention_ranges", spirv::kAttentionRangesSpirv};
const Shader kBiasGradient{"attention_bias_gradient", spirv::kAttentionBiasGradientSpirv};

constexpr uint kLocalSize = 64;
/// Chunks are an eighth of the queries, but neither so small that groups do little beside loading
/// and storing what they add to, nor larger than it takes to make that small.
constexpr std::int64_t kLeastChunk = 128;
constexpr std::int64_t kMostChunk = 256;
/// A chunk so small is worse than computing weights twice.
constexpr std::int64_t kWorthKeeping = 64;
constexpr std::int64_t kMostKeptBytes = std::int64_t{64} << 20;
/// Keys that an invocation sums over where there is one sum for many queries.
constexpr std::int64_t kKeysOfPart = 16;

bool is_summed(const AttentionParams& a, uint dimension) { return (a.bias_present & dimension) == 0; }

/// The most heads that a sum over `a`'s bias goes through. A bound: where the bias has batches or
/// heads of its own there are fewer.
std::int64_t heads_of_a_sum(const AttentionParams& a) {
    const bool some = is_summed(a, kAttentionPresentBatch) || is_summed(a, kAttentionPresentHead);
    return some ? std::max<std::int64_t>(a.most_heads, 1) : 1;
}

/// Most rounds that an invocation of attention_bias_gradient.comp may spend on a head.
std::int64_t rounds_a_head(const AttentionParams& a) { return kMostRounds / heads_of_a_sum(a) - 4; }

/// Keys of the parts in which a sum over chunks of so many queries is made; 0: not even one may be.
uint keys_of_part(const AttentionParams& a, std::int64_t queries) {
    const bool of_queries = !is_summed(a, kAttentionPresentQuery);
    const std::int64_t most = rounds_a_head(a) / ((of_queries ? 1 : queries) + 2);
    const std::int64_t wanted = !is_summed(a, kAttentionPresentKey) ? 1
                                : of_queries                        ? std::max<std::int64_t>(a.most_keys, 1)
                                                                    : kKeysOfPart;
    const std::int64_t part = std::max<std::int64_t>(std::min(wanted, most), 0);
    const bool fits = part != 0 && (!is_summed(a, kAttentionPresentKey) || a.most_keys / part < kMostRounds / 4);
    return fits ? static_cast<uint>(part) : 0;
}

void prepare_ranges(const Operands& operands, Command& command) noexcept {
    const View& q = operands[kRangesBindingRanges + 1];
    const View& k = operands[kRangesBindingRanges + 2];
    AttentionRangesPush push{};
    push.queries = q.dim(1);
    push.keys = k.dim(1);
    push.count = q.size[1] * (push.queries + push.keys);
    push.sequences = operands[kRangesBindingTable].dim(1);
    command.push(push);
    command.groups(divide_up(push.count, kLocalSize));
    command.cost(push.count * 40.0, push.count * 8.0);
}

/// Words of the two below: keys of a part, whether parts are but parts of sums, the chunk's first
/// query and its most queries, and the planes of ds, of which the last is read.
enum Word : std::size_t { kPart, kInParts, kFirst, kChunkQueries, kPlanes };

void finish_sums(AttentionBiasGradientPush& push, const AttentionParams& a, const View& out,
                 Command& command) noexcept {
    push.count = push.parts * (is_summed(a, kAttentionPresentBatch) ? 1 : push.batches) *
                 (is_summed(a, kAttentionPresentHead) ? 1 : push.heads) *
                 (is_summed(a, kAttentionPresentQuery) ? 1 : push.queries);
    push.out_offset += out.offset;
    command.push(push);
    command.groups(divide_up(push.count, kLocalSize));
    const double terms = static_cast<double>(push.batches) * push.heads * push.queries * push.keys;
    command.cost(terms, terms * 4);
}

/// Operands: those of shaders/attention_bias_gradient.h, out either the bias's gradient or (batch,
/// head, query, part), dense; then queries and keys.
void prepare_chunk(const Operands& operands, Command& command) noexcept {
    const auto& a = operands.params<AttentionGradientParams>().attention;
    const View& out = operands[kBiasGradientBindingOut];
    const View& q = operands[kBiasGradientBindingOut + 1];
    const View& k = operands[kBiasGradientBindingOut + 2];
    const uint first = operands.words[kFirst], most = operands.words[kChunkQueries], part = operands.words[kPart];
    const bool of_queries = !is_summed(a, kAttentionPresentQuery);
    AttentionBiasGradientPush push{};
    push.batches = q.size[1];
    push.heads = q.dim(2);
    push.queries = first >= q.dim(1) ? 0 : std::min(q.dim(1) - first, most);
    push.keys = k.dim(1);
    push.group = a.group;
    push.part = part;
    // a sum of no keys is 0
    push.parts =
        !is_summed(a, kAttentionPresentKey) ? push.keys : std::max(1u, static_cast<uint>(divide_up(push.keys, part)));
    push.ds_head = 1;
    push.ds_query = a.group;
    push.ds_key = operands.words[kPlanes] * most * a.group;
    push.ds_group = push.keys * push.ds_key;
    push.ds_batch = k.dim(2) * push.ds_group;
    push.ds_offset = operands[kBiasGradientBindingDs].offset + (operands.words[kPlanes] - 1) * most * a.group;
    push.out_batch = out.step(3);
    push.out_head = out.step(2);
    push.out_query = out.step(1);
    push.out_part = out.step(0);
    push.more = first != 0 && !of_queries ? 1 : 0;
    push.out_offset = of_queries && operands.words[kInParts] == 0 ? first * out.step(1) : 0;
    finish_sums(push, a, out, command);
    if (first != 0 && push.queries == 0) {
        command.groups(0);
    }
}

/// The same, ds being (batch, head, query, part) as prepare_chunk() left it.
void prepare_parts(const Operands& operands, Command& command) noexcept {
    const auto& a = operands.params<AttentionGradientParams>().attention;
    const View& ds = operands[kBiasGradientBindingDs];
    const View& out = operands[kBiasGradientBindingOut];
    const View& q = operands[kBiasGradientBindingOut + 1];
    const View& k = operands[kBiasGradientBindingOut + 2];
    const uint first = operands.words[kFirst], most = operands.words[kChunkQueries], part = operands.words[kPart];
    AttentionBiasGradientPush push{};
    push.batches = is_summed(a, kAttentionPresentBatch) ? 1 : q.size[1];
    push.heads = is_summed(a, kAttentionPresentHead) ? 1 : q.dim(2);
    push.queries = is_summed(a, kAttentionPresentQuery) ? 1 : first >= q.dim(1) ? 0 : std::min(q.dim(1) - first, most);
    push.keys = std::max(1u, static_cast<uint>(divide_up(k.dim(1), part)));
    push.group = 1;
    push.part = push.keys;
    push.parts = 1;
    push.ds_batch = ds.step(3);
    push.ds_group = ds.step(2);
    push.ds_query = ds.step(1);
    push.ds_key = ds.step(0);
    push.ds_offset = ds.offset;
    push.out_batch = out.step(3);
    push.out_head = out.step(2);
    push.out_query = out.step(1);
    push.out_offset = first * out.step(1);
    finish_sums(push, a, out, command);
}

}  // namespace

bool is_wanted(const AttentionGradientParams& p, int at) {
    return at >= 0 && std::find(p.wanted.begin(), p.wanted.end(), static_cast<std::size_t>(at)) != p.wanted.end();
}

GradientChunks plan_chunks(const Capabilities& device, const AttentionGradientParams& p) {
    const AttentionParams& a = p.attention;
    const bool of_bias = is_wanted(p, a.bias);
    GradientChunks chunks;
    if (!of_bias && !(is_wanted(p, 0) && (is_wanted(p, 1) || is_wanted(p, 2)))) {
        return chunks;
    }
    chunks.keep = !of_bias         ? kAttentionGradientKeepSeen
                  : a.softcap == 0 ? kAttentionGradientKeepAll
                                   : kAttentionGradientKeepBoth;
    const auto fitting = [](std::int64_t bytes, std::int64_t each) { return bytes / std::max<std::int64_t>(each, 1); };
    const auto bytes =
        static_cast<std::int64_t>(sizeof(float)) * attention_gradient_planes(chunks.keep) * a.most_heads * a.most_keys;
    const auto most_bytes = std::min<std::int64_t>(kMostKeptBytes, static_cast<std::int64_t>(device.storage_range));
    std::int64_t queries = std::clamp(a.most_queries / 8, kLeastChunk, kMostChunk);
    queries = std::min({queries, fitting(most_bytes, bytes), std::max<std::int64_t>(a.most_queries + 31, 32)});
    if (of_bias) {
        if (is_summed(a, kAttentionPresentQuery)) {
            queries = std::min(queries, rounds_a_head(a) - 2);
        }
        if (queries < 32 || keys_of_part(a, queries) == 0) {
            chunks.refused = "its bias has a gradient, for which there are too many heads and keys";
            return chunks;
        }
    } else if (queries < 32 || queries < std::min(kWorthKeeping, a.most_queries)) {
        chunks.keep = kAttentionGradientKeepNone;
        return chunks;
    }
    queries = std::max<std::int64_t>(queries / 32 * 32, 32);
    chunks.queries = static_cast<uint>(queries);
    chunks.count = static_cast<uint>(std::max<std::int64_t>(1, (a.most_queries + queries - 1) / queries));
    return chunks;
}

ValueId make_ranges(Lowering& l, const AttentionParams& a) {
    const SequenceTable t = sequences_of(l, a);
    const ValueId table = make_sequence_table(l, t);
    const Shape &q = l.info(t.query).shape, &k = l.info(t.key).shape;
    const ValueId ranges = l.scratch(DType::i32, {q[0], q[2] + k[2], 2});
    l.dispatch({{&kRanges,
                 {kLocalSize,
                  {{kRangesSpecPacked, t.packed_queries ? 1u : 0u},
                   {kRangesSpecCausal, causal_constant(a.causal)},
                   {kRangesSpecWindow, window_constant(a.window)}}},
                 "what each query and key sees"}},
               {{table, Access::read}, {ranges, Access::write}}, prepare_ranges)
        .sizes_of = {t.query, t.key};
    return ranges;
}

BiasGradient::BiasGradient(Lowering& l, const AttentionGradientParams& p, const GradientChunks& chunks, ValueId out)
    : l_(l), attention_(p.attention), chunks_(chunks), out_(out), partial_(out) {
    part_ = keys_of_part(attention_, chunks.queries);
    in_parts_ = is_summed(attention_, kAttentionPresentKey) && part_ < attention_.most_keys;
    if (in_parts_) {
        const Shape& q = l.info(l.input(0)).shape;
        const auto size = [&](uint dimension, const Dim& d) { return is_summed(attention_, dimension) ? Dim(1) : d; };
        const auto parts = divide_up(static_cast<std::uint64_t>(attention_.most_keys), part_);
        partial_ = l.scratch(
            DType::f32, {size(kAttentionPresentBatch, q[0]), size(kAttentionPresentHead, q[1]),
                         size(kAttentionPresentQuery, Dim(chunks.queries)), Dim(static_cast<std::int64_t>(parts))});
    }
}

void BiasGradient::take(ValueId ds, uint chunk) {
    const uint planes = attention_gradient_planes(chunks_.keep);
    const bool adds = chunk != 0 && (in_parts_ ? is_summed(attention_, kAttentionPresentQuery) : true);
    l_.dispatch({{&kBiasGradient, {kLocalSize, {{kBiasGradientSpecPresent, attention_.bias_present}}}, "of the bias"}},
                {{ds, Access::read}, {partial_, adds ? Access::read_write : Access::write}}, prepare_chunk,
                {part_, in_parts_ ? 1u : 0u, chunk * chunks_.queries, chunks_.queries, planes})
        .sizes_of = {l_.input(0), l_.input(1)};
    if (in_parts_ && !is_summed(attention_, kAttentionPresentQuery)) {
        put_together(chunk);
    }
}

void BiasGradient::finish() {
    if (in_parts_ && is_summed(attention_, kAttentionPresentQuery)) {
        put_together(0);
    }
}

void BiasGradient::put_together(uint chunk) {
    l_.dispatch({{&kBiasGradient,
                  {kLocalSize, {{kBiasGradientSpecPresent, attention_.bias_present}}},
                  "of the bias, parts put together"}},
                {{partial_, Access::read}, {out_, chunk != 0 ? Access::read_write : Access::write}}, prepare_parts,
                {part_, 0, chunk * chunks_.queries, chunks_.queries})
        .sizes_of = {l_.input(0), l_.input(1)};
}

}  // namespace vkf
