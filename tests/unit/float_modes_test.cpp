// SPDX-License-Identifier: Apache-2.0
#include "runtime/compile/float_modes.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <vector>

#include "runtime/compile/spirv_words.h"

namespace vkf::test {

namespace {

using Words = std::vector<std::uint32_t>;

/// A module's beginning: capabilities, an extension where there is one, an entry point `main` with
/// a local size, and a name behind.
Words module_of(const Words& capabilities, const Words& extension) {
    Words out{spv::kMagic, 0x00010300, 0, 20, 0};
    for (const std::uint32_t c : capabilities) {
        out.insert(out.end(), {spv::head(spv::kOpCapability, 2), c});
    }
    out.insert(out.end(), extension.begin(), extension.end());
    constexpr std::uint32_t kOpMemoryModel = 14;
    out.insert(out.end(), {spv::head(kOpMemoryModel, 3), 0, 1});
    out.insert(out.end(), {spv::head(spv::kOpEntryPoint, 5), 5, 4, 0x6e69616d, 0});  // "main"
    out.insert(out.end(), {spv::head(spv::kOpExecutionMode, 6), 4, spv::kExecutionModeLocalSize, 64, 1, 1});
    out.insert(out.end(), {spv::head(spv::kOpName, 3), 4, 0});
    return out;
}

/// The instructions behind the header, each with its words.
std::vector<Words> instructions(const Words& code) {
    std::vector<Words> out;
    for (std::size_t at = spv::kHeaderWords; at < code.size(); at += code[at] >> 16) {
        const auto from = code.begin() + static_cast<std::ptrdiff_t>(at);
        out.emplace_back(from, from + (code[at] >> 16));
    }
    return out;
}

Words mode(std::uint32_t what, std::uint32_t bits) { return {spv::head(spv::kOpExecutionMode, 4), 4, what, bits}; }

const Words kExtensionWords{spv::head(spv::kOpExtension, 7),
                            0x5f565053,
                            0x5f52484b,
                            0x616f6c66,
                            0x6f635f74,
                            0x6f72746e,
                            0x0000736c};  // "SPV_KHR_float_controls"
constexpr std::uint32_t kShader = 1;

Capabilities keeping(bool f32, bool f16, bool subnormal) {
    Capabilities c;
    c.float_controls = true;
    c.keeps_special_f32 = f32;
    c.keeps_special_f16 = f16;
    c.keeps_subnormal_f16 = subnormal;
    return c;
}

}  // namespace

TEST_CASE("float modes: what a device offers is asked for, each part in its place") {
    Words code = module_of({kShader}, {});
    ask_for_float_modes(code, keeping(true, true, true));
    const std::vector<Words> all = instructions(code);
    REQUIRE(all.size() == 10);
    CHECK(all[1] == Words{spv::head(spv::kOpCapability, 2), spv::kCapabilitySignedZeroInfNanPreserve});
    CHECK(all[2] == Words{spv::head(spv::kOpCapability, 2), spv::kCapabilityDenormPreserve});
    CHECK(all[3] == kExtensionWords);
    // without f16 in the module, nothing is asked of its special values
    CHECK(all[7] == mode(spv::kExecutionModeSignedZeroInfNanPreserve, 32));
    CHECK(all[8] == mode(spv::kExecutionModeDenormPreserve, 16));
    CHECK((all[9][0] & 0xffff) == spv::kOpName);
}

TEST_CASE("float modes: a module that computes in f16 and names the extension") {
    Words code = module_of({kShader, spv::kCapabilityFloat16}, kExtensionWords);
    ask_for_float_modes(code, keeping(true, true, false));
    const std::vector<Words> all = instructions(code);
    CHECK(std::count(all.begin(), all.end(), kExtensionWords) == 1);
    CHECK(std::count(all.begin(), all.end(), mode(spv::kExecutionModeSignedZeroInfNanPreserve, 32)) == 1);
    CHECK(std::count(all.begin(), all.end(), mode(spv::kExecutionModeSignedZeroInfNanPreserve, 16)) == 1);
    CHECK(std::count(all.begin(), all.end(),
                     Words{spv::head(spv::kOpCapability, 2), spv::kCapabilitySignedZeroInfNanPreserve}) == 1);
}

TEST_CASE("float modes: where all floats are rounded alike, fp32 is asked to be rounded as f16 is") {
    Words code = module_of({kShader, spv::kCapabilityFloat16}, kExtensionWords);
    const Words nearest = mode(spv::kExecutionModeRoundingModeRTE, 32);
    Capabilities device;
    device.rounds_alike = true;
    Words without = code;
    ask_for_float_modes(without, device);
    CHECK(without == code);  // which rounds nothing
    const Words name{spv::head(spv::kOpName, 3), 4, 0}, rounds = mode(spv::kExecutionModeRoundingModeRTE, 16);
    code.insert(code.end() - static_cast<std::ptrdiff_t>(name.size()), rounds.begin(), rounds.end());
    Words both = code;
    ask_for_float_modes(both, device);
    std::vector<Words> all = instructions(both);
    CHECK(std::count(all.begin(), all.end(), nearest) == 1);
    CHECK(all.back() == name);
    device.rounds_alike = false;
    ask_for_float_modes(code, device);
    all = instructions(code);
    CHECK(std::count(all.begin(), all.end(), nearest) == 0);
}

TEST_CASE("float modes: nothing is asked of a device that offers nothing, nor in what is no module") {
    const Words whole = module_of({kShader}, {});
    Words code = whole;
    ask_for_float_modes(code, keeping(false, false, false));
    CHECK(code == whole);
    for (Words cut : {Words{}, Words(whole.begin(), whole.begin() + 3), Words(whole.begin(), whole.begin() + 9)}) {
        const Words before = cut;
        ask_for_float_modes(cut, keeping(true, true, true));
        CHECK(cut == before);
    }
}

}  // namespace vkf::test
