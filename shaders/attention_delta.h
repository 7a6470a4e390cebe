// SPDX-License-Identifier: Apache-2.0
// Parameters of attention_delta.comp: what attention's gradient needs of each row of queries.
#ifndef VKF_SHADERS_ATTENTION_DELTA_H
#define VKF_SHADERS_ATTENTION_DELTA_H

#include "common/types.h"

// Stage 0: delta = sum y dy - dlse. Stage 1: -exp(sink - lse) delta, which a row adds to the
// gradient of its sink.
VKF_CONSTANT(kAttentionDeltaBindingY, 0)      // (batch, head, query, width), strided
VKF_CONSTANT(kAttentionDeltaBindingDy, 1)     // the same
VKF_CONSTANT(kAttentionDeltaBindingLse, 2)    // dlse (batch, head, query), dense; delta
VKF_CONSTANT(kAttentionDeltaBindingParts, 3)  // the log-sum-exp and its rest, dense
VKF_CONSTANT(kAttentionDeltaBindingSinks, 4)  // (batch, head)
VKF_CONSTANT(kAttentionDeltaBindingDelta, 5)  // (batch, head, query), dense

VKF_CONSTANT(kAttentionDeltaSpecStage, 1)
VKF_CONSTANT(kAttentionDeltaSpecLse, 2)    // 1: there is a dlse
VKF_CONSTANT(kAttentionDeltaSpecSinks, 3)  // 1: there are sinks
// 1: dy is rounded to f16, as where it is multiplied by the values: in ds the two are to cancel
VKF_CONSTANT(kAttentionDeltaSpecHalves, 4)

VKF_PUSH_BEGIN(AttentionDeltaPush)
    uint rows;
    uint heads;
    uint queries;
    uint width;
    uint y_batch;
    uint y_head;
    uint y_row;
    uint y_offset;
    uint dy_batch;
    uint dy_head;
    uint dy_row;
    uint dy_column;
    uint dy_offset;
    uint sinks_batch;
    uint sinks_head;
    uint sinks_offset;
    uint parts_offset;
    uint lse_offset;
    uint delta_offset;
VKF_PUSH_END(AttentionDeltaPush)

#endif
