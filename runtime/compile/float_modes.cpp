// SPDX-License-Identifier: Apache-2.0
#include "runtime/compile/float_modes.h"

#include <span>
#include <string_view>

#include "runtime/compile/spirv_instruction.h"

namespace vkf {

using namespace spv;

namespace {

using ModuleWords = std::vector<std::uint32_t>;

/// Where things lie in the first part of a module.
struct ModuleHead {
    std::size_t capabilities_end = kHeaderWords, extensions_end = kHeaderWords, modes_end = 0;
    std::uint32_t entry = 0;  ///< the entry point's function
    bool has_extension = false, float16 = false, rounds_f16 = false;
};

ModuleHead read_head(const ModuleWords& code, std::string_view extension) {
    ModuleHead head;
    for (std::size_t at = kHeaderWords; at < code.size(); at += code[at] >> 16) {
        const std::uint32_t op = code[at] & 0xffff, words = code[at] >> 16;
        if (words == 0 || words > code.size() - at || op == kOpFunction) {
            break;
        }
        const std::size_t end = at + words;
        if (op == kOpCapability) {
            head.capabilities_end = head.extensions_end = end;
            head.float16 = head.float16 || code[at + 1] == kCapabilityFloat16;
        } else if (op == kOpExtension) {
            head.extensions_end = end;
            head.has_extension = head.has_extension || is_extension(std::span(code).subspan(at, words), extension);
        } else if (op == kOpEntryPoint) {
            head.entry = code[at + 2];
            head.modes_end = end;
        } else if (op == kOpExecutionMode || op == kOpExecutionModeId) {
            head.modes_end = end;
            head.rounds_f16 =
                head.rounds_f16 || (words == 4 && code[at + 2] == kExecutionModeRoundingModeRTE && code[at + 3] == 16);
        }
    }
    return head;
}

}  // namespace

void ask_for_float_modes(ModuleWords& code, const Capabilities& device) {
    constexpr std::string_view kExtension = "SPV_KHR_float_controls";
    const ModuleHead found = read_head(code, kExtension);
    if (found.entry == 0) {
        return;
    }
    ModuleWords capabilities, modes;
    const auto ask = [&](std::uint32_t capability, std::uint32_t mode, std::uint32_t bits) {
        if (capabilities.empty() || capabilities.back() != capability) {
            capabilities.insert(capabilities.end(), {head(kOpCapability, 2), capability});
        }
        modes.insert(modes.end(), {head(kOpExecutionMode, 4), found.entry, mode, bits});
    };
    if (device.keeps_special_f32) {
        ask(kCapabilitySignedZeroInfNanPreserve, kExecutionModeSignedZeroInfNanPreserve, 32);
    }
    if (device.keeps_special_f16 && found.float16) {
        ask(kCapabilitySignedZeroInfNanPreserve, kExecutionModeSignedZeroInfNanPreserve, 16);
    }
    if (device.keeps_subnormal_f16) {
        ask(kCapabilityDenormPreserve, kExecutionModeDenormPreserve, 16);
    }
    if (device.rounds_alike && found.rounds_f16) {  // the module has the capability
        modes.insert(modes.end(), {head(kOpExecutionMode, 4), found.entry, kExecutionModeRoundingModeRTE, 32});
    }
    if (modes.empty()) {
        return;
    }
    // from the last place to the first, so that each stays where it was found
    code.insert(code.begin() + static_cast<std::ptrdiff_t>(found.modes_end), modes.begin(), modes.end());
    if (!found.has_extension) {
        const ModuleWords words = extension_words(kExtension);
        code.insert(code.begin() + static_cast<std::ptrdiff_t>(found.extensions_end), words.begin(), words.end());
    }
    code.insert(code.begin() + static_cast<std::ptrdiff_t>(found.capabilities_end), capabilities.begin(),
                capabilities.end());
}

}  // namespace vkf
