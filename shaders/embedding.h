// SPDX-License-Identifier: Apache-2.0
// Parameters of embedding.comp: rows of a table (or of one window on a table too large for one
// binding) by id.
#ifndef VKF_SHADERS_EMBEDDING_H
#define VKF_SHADERS_EMBEDDING_H

#include "common/packed.h"
#include "common/types.h"

VKF_CONSTANT(kEmbeddingBindingIds, 0)
VKF_CONSTANT(kEmbeddingBindingTable, 1)
VKF_CONSTANT(kEmbeddingBindingOut, 2)

// A kPacked... of common/packed.h. Packed, table_row and table_offset are words, and table_column
// is not looked at.
VKF_CONSTANT(kEmbeddingSpecPacked, 1)
VKF_CONSTANT(kEmbeddingSpecWhole, 2)  // 1: every row of the table in turn; there are no ids

VKF_PUSH_BEGIN(EmbeddingPush)
    uint count;         // ids x width
    uint width;
    uint first_row;     // first row of this window
    uint rows;          // rows in this window
    uint all_rows;      // rows in the whole table
    uint part_first;    // the rows that all windows together have
    uint part_end;
    uint ids_size[5];
    uint ids_stride[5];
    uint ids_offset;
    uint table_offset;
    uint table_row;
    uint table_column;
    uint out_offset;
    float scale;
VKF_PUSH_END(EmbeddingPush)

#endif
