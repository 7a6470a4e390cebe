// SPDX-License-Identifier: Apache-2.0
// Parameters of embedding_gradient.comp: rows of a gradient summed by id.
#ifndef VKF_SHADERS_EMBEDDING_GRADIENT_H
#define VKF_SHADERS_EMBEDDING_GRADIENT_H

#include "common/types.h"

VKF_CONSTANT(kEmbeddingGradientBindingIds, 0)
// of each place: the next one with the same id, or their count; and a bit where it is the first
VKF_CONSTANT(kEmbeddingGradientBindingLinks, 1)
VKF_CONSTANT(kEmbeddingGradientBindingDy, 2)
VKF_CONSTANT(kEmbeddingGradientBindingTable, 3)

VKF_CONSTANT(kEmbeddingGradientSpecStage, 1)  // 0: Links is filled in; 1: the sums

VKF_CONSTANT(kEmbeddingGradientFirst, 0x80000000)

VKF_PUSH_BEGIN(EmbeddingGradientPush)
    uint places;
    uint width;
    uint table_rows;
    uint ids_offset;
    uint links_offset;
    uint dy_offset;
    uint table_offset;
    float scale;
VKF_PUSH_END(EmbeddingGradientPush)

#endif
