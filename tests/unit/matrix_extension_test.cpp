// SPDX-License-Identifier: Apache-2.0
#include "runtime/compile/matrix_extension.h"

#include <doctest/doctest.h>

#include <cstdint>
#include <initializer_list>
#include <string_view>
#include <vector>

#include "runtime/compile/spirv_instruction.h"

namespace vkf::test {

namespace {

using Module = std::vector<std::uint32_t>;

constexpr std::string_view kNv = "SPV_NV_cooperative_matrix2", kExt = "SPV_EXT_cooperative_matrix_maintenance1",
                           kOther = "SPV_KHR_cooperative_matrix";

/// A module that declares conversions under this number, and these extensions.
Module declaring(std::uint32_t conversions, std::initializer_list<std::string_view> extensions) {
    Module out{spv::kMagic, 0x00010600, 0, 20, 0};
    const Module capabilities{1, spv::kCapabilityCooperativeMatrixReductions, conversions,
                              spv::kCapabilityCooperativeMatrixPerElement};
    for (const std::uint32_t c : capabilities) {
        out.insert(out.end(), {spv::head(spv::kOpCapability, 2), c});
    }
    for (const std::string_view e : extensions) {
        const Module words = spv::extension_words(e);
        out.insert(out.end(), words.begin(), words.end());
    }
    // a name, which comes later, with words like those of the capability
    out.insert(out.end(), {spv::head(spv::kOpName, 3), spv::head(spv::kOpCapability, 2),
                           spv::kCapabilityCooperativeMatrixConversions});
    return out;
}

}  // namespace

TEST_CASE("matrix extension: the extension and the capability of conversions change their names, nothing else does") {
    Module code = declaring(spv::kCapabilityCooperativeMatrixConversions, {kOther, kNv});
    name_matrix_extension(code, true);
    CHECK(code == declaring(spv::kCapabilityCooperativeMatrixConversionsExt, {kOther, kExt}));
    // as SPIR-V's registry numbers them
    CHECK(spv::kCapabilityCooperativeMatrixConversionsExt == 5429);
    CHECK(spv::kCapabilityCooperativeMatrixConversions == 5431);
    const Module once = code;
    name_matrix_extension(code, true);
    CHECK(code == once);
    name_matrix_extension(code, false);
    CHECK(code == declaring(spv::kCapabilityCooperativeMatrixConversions, {kOther, kNv}));
}

TEST_CASE("matrix extension: a module without it, and what is no module, stay as they are") {
    const Module without = declaring(1, {kOther});
    const Module whole = declaring(spv::kCapabilityCooperativeMatrixConversions, {kNv});
    for (Module code : {without, Module{}, Module(whole.begin(), whole.begin() + 3),
                        Module(whole.begin(), whole.begin() + 9), Module(whole.begin(), whole.begin() + 15)}) {
        const Module before = code;
        name_matrix_extension(code, true);
        CHECK(code == before);
    }
}

TEST_CASE("matrix extension: names of extensions are told apart as wholes") {
    // eleven characters and the 0 that ends them
    CHECK(spv::is_extension(spv::extension_words("SPV_KHR_abc"), "SPV_KHR_abc"));
    CHECK_FALSE(spv::is_extension(spv::extension_words("SPV_KHR_abc"), "SPV_KHR_ab"));
    CHECK_FALSE(spv::is_extension(spv::extension_words("SPV_KHR_abc"), "SPV_KHR_abcd"));
    CHECK(spv::extension_words("SPV_KHR_abcd").size() == 5);
}

}  // namespace vkf::test
