// SPDX-License-Identifier: Apache-2.0
#include "matmul_dot.spv.h"
#include "ops/left_out.h"
#include "ops/matmul_choice.h"
#include "ops/variants.h"
#include "runtime/compile/pack_lanes.h"

namespace vkf {

namespace {

using namespace shader;
using namespace support;

const Shader kDot{"matmul_dot", spirv::kMatmulDotSpirv};

/// Products of codes, of magnitude 127 * 127 at most, whose sum needs no more than 31 bits and a
/// sign.
constexpr std::int64_t kMostProducts = ((std::int64_t{1} << 31) - 1) / (127 * 127);

/// Rows of fewer are longer as codes, for the scale.
constexpr std::int64_t kFewestProducts = 16;

/// Words along k of a tile, each of four codes.
constexpr std::uint32_t kDepth = 8;

}  // namespace

bool dot_is_forced(const Capabilities& device) { return asks_for(device, kDot.name); }

std::string no_dot(const Capabilities& device) {
    const bool forced = dot_is_forced(device);
    if (forced && !device.integer_dot) {
        fail(kMatmulName,
             "VKFORMER_VARIANT asks for matmul_dot, which needs integer dot products: the device has none, or was not "
             "told of them");
    }
    const std::string left = left_out(device, kMatmulName, kDot.name);
    return !left.empty()                         ? left
           : !device.integer_dot                 ? "the device has no integer dot products, or was not told of them"
           : !device.fast_integer_dot && !forced ? "the device does not call its integer dot products fast"
                                                 : "";
}

std::string no_codes(const Lowering& l, ValueId a, ValueId b, std::int64_t most_rows) {
    const std::int64_t k = l.max_of(l.info(a).shape.back());
    const std::string no_packing = l.device().why_left_out(kPackedRows.name);
    return !no_packing.empty()                         ? no_packing
           : l.weight_type(b) != WeightType::int8      ? "b is no weight kept as int8"
           : !l.info(b).words                          ? "b is not whole rows of a weight"
           : most_rows <= std::int64_t{kMatvecMaxRows} ? "up to " + std::to_string(kMatvecMaxRows) + " rows"
           : l.info(a).shape.size() > kMostCodesRank
               ? "a has more than " + std::to_string(kMostCodesRank) + " dimensions"
           : k < kFewestProducts
               ? "a sum of " + std::to_string(k) + " products: codes would take more room than numbers"
           : k > kMostProducts ? "a sum of " + std::to_string(k) + " products of codes may pass 31 bits"
                               : "";
}

void choose_dot(Choice& choice, const Capabilities& device, const Constants& form, std::int64_t most_rows) {
    add_shared_tiles(choice, kDot, device, shared_tile_of(device, form, kDepth), most_rows, "integer dot products: ", 4,
                     Arithmetic::int8);
}

}  // namespace vkf
