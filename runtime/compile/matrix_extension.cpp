// SPDX-License-Identifier: Apache-2.0
#include "runtime/compile/matrix_extension.h"

#include <algorithm>
#include <span>
#include <string_view>
#include <utility>

#include "runtime/compile/spirv_instruction.h"

namespace vkf {

using namespace spv;

namespace {

constexpr std::string_view kNv = "SPV_NV_cooperative_matrix2", kExt = "SPV_EXT_cooperative_matrix_maintenance1";

}  // namespace

void name_matrix_extension(std::vector<std::uint32_t>& code, bool ext) {
    const std::uint32_t theirs =
        ext ? kCapabilityCooperativeMatrixConversions : kCapabilityCooperativeMatrixConversionsExt;
    const std::uint32_t ours =
        ext ? kCapabilityCooperativeMatrixConversionsExt : kCapabilityCooperativeMatrixConversions;
    std::vector<std::uint32_t> out;
    std::size_t at = 0;
    bool named = false;
    const auto keep = [&](std::size_t end) {
        out.insert(out.end(), code.begin() + static_cast<std::ptrdiff_t>(at),
                   code.begin() + static_cast<std::ptrdiff_t>(end));
        at = end;
    };
    keep(std::min<std::size_t>(kHeaderWords, code.size()));
    while (at < code.size()) {
        const std::size_t words = code[at] >> 16;
        if (words == 0 || words > code.size() - at) {
            break;
        }
        const Words i = std::span(code).subspan(at, words);
        if (op_of(i) != kOpCapability && op_of(i) != kOpExtension) {
            break;
        }
        if (is_extension(i, ext ? kNv : kExt)) {
            const std::vector<std::uint32_t> name = extension_words(ext ? kExt : kNv);
            out.insert(out.end(), name.begin(), name.end());
            at += words;
            named = true;
        } else if (op_of(i) == kOpCapability && words > 1 && i[1] == theirs) {
            out.insert(out.end(), {i[0], ours});
            at += words;
        } else {
            keep(at + words);
        }
    }
    if (named) {
        keep(code.size());
        code = std::move(out);
    }
}

}  // namespace vkf
