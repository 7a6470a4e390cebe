// SPDX-License-Identifier: Apache-2.0
// Parameters of score_mod.comp: a caller's score_mod() over dense scores (batch, head, query, key).
#ifndef VKF_SHADERS_SCORE_MOD_H
#define VKF_SHADERS_SCORE_MOD_H

#include "common/types.h"

VKF_CONSTANT(kScoreModBindingScores, 0)
VKF_CONSTANT(kScoreModBindingOut, 1)

// Specialization constants.
VKF_CONSTANT(kScoreModSpecEach, 1)  // scores an invocation takes

VKF_PUSH_BEGIN(ScoreModPush)
    uint count;
    uint heads;
    uint queries;
    uint keys;
    uint scores_offset;
    uint out_offset;
VKF_PUSH_END(ScoreModPush)

#endif
