// SPDX-License-Identifier: Apache-2.0
// Fused attention for few rows on GPUs: where its kernel is taken, and for how many rows.
#include "attention_rows.glsl.h"
#include "attention_rows.spv.h"
#include "ops/attention_choice.h"
#include "ops/fours.h"
#include "ops/left_out.h"
#include "ops/variants.h"
#include "shaders/attention.h"

namespace vkf {

namespace {

using namespace shader;
using namespace support;

const Shader kRows{"attention_rows", spirv::kAttentionRowsSpirv};

/// Queries of every run: more than a group of the kernel has rows for.
bool always_many(const Lowering& l, const AttentionParams& params) {
    const Dim& queries = l.info(l.input(0)).shape[2];
    return queries.is_constant() && queries.constant() * params.group > kAttentionRowsMost;
}

}  // namespace

std::string no_attention_rows(const Lowering& l, const AttentionParams& params) {
    const Capabilities& device = l.device();
    const bool forced = asks_for(device, "attention_rows");
    if (std::string left = left_out(device, l.node().op->name, kRows.name); !left.empty()) {
        return left;
    }
    if (device.storage_buffers <= kAttentionBindingPartial) {
        return "the device has " + std::to_string(device.storage_buffers) + " storage buffers a stage";
    }
    if (!forced && (device.cpu() || asks_for(device, "attention_shared"))) {
        return device.cpu() ? "it is a processor" : "VKFORMER_VARIANT asks for attention_shared";
    }
    if (params.group > kAttentionRowsMost) {
        return "more than " + std::to_string(kAttentionRowsMost) + " query heads share keys";
    }
    if (always_many(l, params)) {
        return "there are more than " + std::to_string(kAttentionRowsMost) + " of them";
    }
    if (params.cumulative_queries >= 0) {
        return "sequences are packed";
    }
    if (params.head_dim > kAttentionRowsWidth) {
        return "heads are wider than " + std::to_string(kAttentionRowsWidth);
    }
    const auto read = [&](std::size_t i) { return in_fours(l.info(l.input(i))); };
    return read(0) && read(1) && read(2) && in_fours(l.info(l.output(0))) ? "" : "they do not go by fours";
}

FewRows choose_attention_rows(const AttentionParams& params) {
    FewRows few{.shader = &kRows, .source = &glsl::kAttentionRowsGlsl, .rows = {params.group}};
    if (params.most_queries > 1 && params.group < kAttentionRowsMost) {
        few.rows.push_back(kAttentionRowsMost);
    }
    return few;
}

}  // namespace vkf
