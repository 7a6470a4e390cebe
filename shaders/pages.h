// SPDX-License-Identifier: Apache-2.0
// Rows of tokens between a pool of pages and where they lie in order. Row b of the table names the
// pages of sequence b.
#ifndef VKF_SHADERS_PAGES_H
#define VKF_SHADERS_PAGES_H

#include "common/types.h"

VKF_CONSTANT(kPagesBindingTable, 0)   // (batch, pages of a sequence)
// (batch): how many rows a sequence has with the last written; any buffer when gathering
VKF_CONSTANT(kPagesBindingEnds, 1)
// gathering: the pool (pages, page size, heads, width); scattering: rows (batch, tokens, heads,
// width)
VKF_CONSTANT(kPagesBindingFrom, 2)
VKF_CONSTANT(kPagesBindingTo, 3)      // the other

// 0: rows in order are read from the pool; 1: rows are written to it
VKF_CONSTANT(kPagesSpecScatter, 1)

// clang-format off
VKF_PUSH_BEGIN(PagesPush)
    uint count;         // elements of the rows
    uint tokens;        // tokens of a batch
    uint heads;
    uint width;
    uint rows_batch;    // strides of the rows in order
    uint rows_token;
    uint rows_head;
    uint rows_column;
    uint rows_offset;
    uint pool_page;     // strides of the pool
    uint pool_token;
    uint pool_head;
    uint pool_column;
    uint pool_offset;
    uint pages;         // pages in the pool
    uint page_size;
    uint table_row;
    uint table_column;
    uint table_offset;
    uint table_width;
    uint ends_stride;
    uint ends_offset;
VKF_PUSH_END(PagesPush)
// clang-format on

#endif
