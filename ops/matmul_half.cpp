// SPDX-License-Identifier: Apache-2.0
#include "matmul_half.spv.h"
#include "ops/left_out.h"
#include "ops/matmul_choice.h"
#include "ops/shared_tile.h"
#include "ops/variants.h"

namespace vkf {

namespace {

using namespace shader;
using namespace support;

const Shader kHalf{"matmul_half", spirv::kMatmulHalfSpirv};

}  // namespace

bool half_is_forced(const Capabilities& device) { return asks_for(device, kHalf.name); }

std::string no_half(const Capabilities& device, const MatmulParams& params) {
    const bool forced = half_is_forced(device);
    if (forced && !device.float16) {
        fail(kMatmulName,
             "VKFORMER_VARIANT asks for matmul_half, which needs arithmetic in f16: the device has none that rounds to "
             "the nearest, or was not told of it");
    }
    const std::string left = left_out(device, kMatmulName, kHalf.name);
    return !left.empty() ? left
           : !device.float16
               ? "no arithmetic in f16: the device has none that rounds to the nearest, or was not told of it"
           : params.masked_weights   ? "masked weights are multiplied in fp32"
           : device.cpu() && !forced ? "on a processor arithmetic in f16 is no faster"
                                     : "";
}

void choose_half(Choice& choice, const Capabilities& device, const Constants& form) {
    // sums in f16 beside those in fp32 take so many registers that taller tiles do not pay
    constexpr std::int64_t kNeverTall = 0;
    add_shared_tiles(choice, kHalf, device, shared_tile(device, form), kNeverTall,
                     std::to_string(kMatmulHalfRun) + " products at a time: ", 2, Arithmetic::f16);
}

}  // namespace vkf
