#version 450
// SPDX-License-Identifier: Apache-2.0
// An element an invocation; buffers are words. Whatever the table and the lengths say, nothing
// outside the pool is touched: a row of no page reads as NaN, and is not written.
#extension GL_GOOGLE_include_directive : require
#include "pages.h"

layout(local_size_x_id = 0) in;
layout(constant_id = kPagesSpecScatter) const uint kScatter = 0;

layout(set = 0, binding = kPagesBindingTable) readonly buffer Table { uint table[]; };
layout(set = 0, binding = kPagesBindingEnds) readonly buffer Ends { uint ends[]; };
layout(set = 0, binding = kPagesBindingFrom) readonly buffer From { uint from[]; };
layout(set = 0, binding = kPagesBindingTo) writeonly buffer To { uint to[]; };

layout(push_constant) uniform Push { PagesPush p; };

#include "common/dispatch.glsl"
#include "common/numeric.glsl"

void main() {
    uint group = group_index();
    uint index = group * gl_WorkGroupSize.x + gl_LocalInvocationID.x;
    if (group >= p.group_count || index >= p.count) {
        return;
    }
    uint rest = index;
    uint column = take_dimension(rest, p.width);
    uint head = take_dimension(rest, p.heads);
    uint token = take_dimension(rest, p.tokens);
    uint at = p.rows_offset + rest * p.rows_batch + token * p.rows_token + head * p.rows_head + column * p.rows_column;
    uint place = token;
    if (kScatter != 0u) {
        uint end = ends[p.ends_offset + rest * p.ends_stride];
        // a product of the table's width and a page's size may be beyond 32 bits
        bool fits = end == 0u || (end <= 0x7fffffffu && (end - 1u) / p.page_size < p.table_width);
        bool good = fits && end + token >= p.tokens;
        place = good ? end + token - p.tokens : ~0u;
    }
    uint slot = place / p.page_size;
    uint page = p.pages;
    if (slot < p.table_width) {
        page = table[p.table_offset + rest * p.table_row + slot * p.table_column];
    }
    bool there = page < p.pages;
    uint in_pool = p.pool_offset + (there ? page : 0u) * p.pool_page + place % p.page_size * p.pool_token +
                   head * p.pool_head + column * p.pool_column;
    if (kScatter == 0u) {
        to[at] = there ? from[in_pool] : kNanBits;
    } else if (there) {
        to[in_pool] = from[at];
    }
}
