// SPDX-License-Identifier: Apache-2.0
#include "ops/tuning.h"

#include <algorithm>

#include "ops/matmul_lanes.h"
#include "ops/shared_tile.h"
#include "shaders/attention.h"

namespace vkf {

namespace {

using namespace support;

using Values = std::vector<std::uint32_t>;

Values matmul_rows(const Capabilities& c) {
    if (c.cpu()) {
        const std::uint32_t lanes = matmul_lanes(c);
        return lanes == 8 ? Values{8, 16, 24, 32} : lanes == 4 ? Values{4, 8, 12, 16} : Values{4, 8};
    }
    Values out;
    for (const std::uint32_t rows : {32u, 64u, 128u}) {
        if (rows * kSharedColumns / 16 <= std::min(c.max_invocations, c.max_group_size[0]) &&
            shared_tile_bytes(rows, kSharedDepth) <= c.shared_memory) {
            out.push_back(rows);
        }
    }
    return out;
}

Values matmul_depth(const Capabilities& c) {
    const Values rows = matmul_rows(c);
    Values out;
    for (const std::uint32_t depth : {8u, 16u, 32u}) {
        if (!c.cpu() && shared_tile_bytes(rows.back(), depth) <= c.shared_memory) {
            out.push_back(depth);
        }
    }
    return out;
}

Values matmul_columns(const Capabilities& c) {
    const bool wide = kWideInvocations <= std::min(c.max_invocations, c.max_group_size[0]) &&
                      shared_tile_bytes(kTallTile, kSharedDepth, kWideColumns) <= c.shared_memory;
    return !c.cpu() && wide ? Values{kSharedColumns, kWideColumns} : Values{};
}

Values matmul_staged(const Capabilities& c) { return c.cpu() ? Values{} : Values{0, 1}; }

Values matvec_split(const Capabilities& c) { return c.cpu() ? Values{} : Values{32, 64, 128}; }

Values matmul_groups(const Capabilities& c) { return c.cpu() ? Values{} : Values{1, 32, 64, 128, 256}; }

Values attention_split(const Capabilities& c) {
    return c.storage_buffers <= shader::kAttentionBindingPartial ? Values{} : Values{128, 256, 512, 1024, 2048, 4096};
}

Values texel_loads(const Capabilities& c) { return c.cpu() && c.texel_buffers ? Values{0, 1} : Values{}; }

Values row_loads(const Capabilities& c) { return c.cpu() && c.int64 ? Values{4, 8} : Values{}; }

/// vkformer-tune settles them in this order: rows that were chosen are those of every product, so
/// what is to be known of tall tiles comes before.
const Tunable kTunables[] = {
    {"matmul_columns", "columns of a tile of 128 rows of products in fp32", matmul_columns},
    {"matmul_rows", "rows of a tile of products with many rows", matmul_rows},
    {"matmul_depth", "depth of such a tile in shared memory", matmul_depth},
    {"matmul_staged", "0: products in fp32 have no tile in shared memory", matmul_staged},
    {"matvec_split", "invocations that share a sum of a product with few rows", matvec_split},
    {"matmul_groups", "most work groups of the parts of a product's sums together", matmul_groups},
    {"attention_split", "keys that a group takes where there are few queries", attention_split},
    {"texel_loads", "1: what kernels only read is in texel buffers", texel_loads},
    {"row_load", "bytes that a lane loads at a time of what is computed row by row", row_loads},
};

}  // namespace

std::span<const Tunable> tunables() { return kTunables; }

}  // namespace vkf
