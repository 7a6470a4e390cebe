// SPDX-License-Identifier: Apache-2.0
// What the gradient of fused attention on processors is made of besides its two sides: chunks of
// queries, ranges of sequences, and the sums that pass to a bias.
#pragma once

#include <cstdint>
#include <string>

#include "ops/attention_gradient.h"

namespace vkf {

/// How queries are taken where ds is kept: see shaders/attention_gradient.h.
struct GradientChunks {
    std::uint32_t queries = 0;  ///< of a chunk, a multiple of 32; 0: ds is not kept
    std::uint32_t count = 1;    ///< chunks that the largest sizes take
    std::uint32_t keep = 0;     ///< a kAttentionGradientKeep...
    std::string refused = {};   ///< why a gradient that needs ds cannot be had; empty: it can
};

/// Plans for the largest sizes: ds is kept where it is read twice, or where a bias has a gradient.
GradientChunks plan_chunks(const Capabilities& device, const AttentionGradientParams& p);

/// True where the gradient of input `at` of the attention is asked for.
bool is_wanted(const AttentionGradientParams& p, int at);

/// The ranges of shaders/attention_ranges.h, in scratch.
ValueId make_ranges(Lowering& l, const AttentionParams& a);

/// Sums the ds of chunks over what a bias broadcasts, in the order of the chunks.
class BiasGradient {
public:
    BiasGradient(Lowering& l, const AttentionGradientParams& p, const GradientChunks& chunks, ValueId out);
    /// Emits what takes in the ds (batch, key/value head, key, plane and row) of a chunk.
    void take(ValueId ds, std::uint32_t chunk);
    /// Emits what is left to do when all chunks are taken in.
    void finish();

private:
    void put_together(std::uint32_t chunk);

    Lowering& l_;
    const AttentionParams& attention_;
    GradientChunks chunks_;
    ValueId out_;
    ValueId partial_;         ///< `out_` where parts are whole sums
    std::uint32_t part_ = 1;  ///< keys of a part
    bool in_parts_ = false;
};

}  // namespace vkf
