// SPDX-License-Identifier: Apache-2.0
// softmax.comp's weights of a row by fours, as the function WRITE_WEIGHTS: TURN fours in a turn.
// Included once for each kind of turn.

// NaN is not carried through the exponentials here but by the quotient: the largest score tells of
// it.
void WRITE_WEIGHTS(Row row, uint fours) {
    float sink = kTerm == kSoftmaxTermSinks ? term[row.term] : negative_infinity();
    vec4 maxima = vec4(negative_infinity());
    uvec4 magnitudes = uvec4(0u);
    RowFours at = by_fours(row);
    for (uint first = row_lane(); first < fours; first += TURN * kLanes) {
        vec4 TURN_OF(s);
        EACH(i) {
            AT(s, i) = masked_scores(row, at, first + i * kLanes);
            maxima = max(maxima, AT(s, i));
            magnitudes = max(magnitudes, floatBitsToUint(AT(s, i)) & kMagnitudeBits);
        }
        if (!plain()) {
            EACH(j) {
                VKF_PUT_FOUR(result_fours, at.result + first + j * kLanes, AT(s, j));
            }
        }
    }
    uint magnitude = max(max(magnitudes.x, magnitudes.y), max(magnitudes.z, magnitudes.w));
    float largest = max(max(maxima.x, maxima.y), max(maxima.z, maxima.w));
    largest = row_max(max_or_nan(sink, magnitude > kInfinityBits ? quiet_nan() : largest));

    // As RunSum does, in runs of as many fours whatever a turn has.
    vec4 sums = vec4(0.0);
    for (uint run = row_lane(); run < fours; run += kRunOfSum * kLanes) {
        vec4 part = vec4(0.0);
        uint end = min(fours, run + kRunOfSum * kLanes);
        for (uint first = run; first < end; first += TURN * kLanes) {
            vec4 TURN_OF(e);
            EACH(i) {
                uint four = first + i * kLanes;
                AT(e, i) = plain() ? plain_scores(at, four) : VKF_FOUR(result_fours, at.result + four);
            }
            EACH(j) {
                AT(e, j) = exponentials(AT(e, j), largest, part);
            }
            if (!again()) {
                EACH(k) {
                    VKF_PUT_FOUR(result_fours, at.result + first + k * kLanes, AT(e, k));
                }
            }
        }
        sums += part;
    }
    float sum = row_sum((sums.x + sums.y) + (sums.z + sums.w));
    if (kTerm == kSoftmaxTermSinks) {
        sum += exp_of_number(sink - largest);
    }

    float scale = is_masked(largest) ? 0.0 : (is_finite(largest) ? 1.0 / sum : quiet_nan());
    for (uint first = row_lane(); first < fours; first += TURN * kLanes) {
        vec4 TURN_OF(e);
        EACH(i) {
            uint four = first + i * kLanes;
            if (again()) {
                AT(e, i) = plain_scores(at, four);
            } else {
                AT(e, i) = VKF_FOUR(result_fours, at.result + four);
            }
        }
        EACH(j) {
            if (again()) {
                AT(e, j) = exponentials(AT(e, j), largest, sums);
            }
            AT(e, j) = mix(AT(e, j) * scale, AT(e, j), equal(floatBitsToUint(AT(e, j)), uvec4(kSignBit)));
        }
        EACH(k) {
            VKF_PUT_FOUR(result_fours, at.result + first + k * kLanes, AT(e, k));
        }
    }
}
