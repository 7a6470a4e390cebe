// SPDX-License-Identifier: Apache-2.0
// The score mod that changes nothing. Shaders include this file where a caller's takes its place;
// the functions of common/numeric.glsl are known there.

float score_mod(float score, uint batch, uint head, uint query, uint key) {
    return score;
}
