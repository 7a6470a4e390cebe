// SPDX-License-Identifier: Apache-2.0
#include "runtime/compile/spirv_code.h"

#include "runtime/base/error.h"
#include "runtime/compile/inflate.h"

namespace vkf {

namespace {

constexpr std::size_t kDigits = 8;  // of a word

/// Makes words of their digits; false where one is no digit.
bool collect(std::span<const std::byte> digits, std::span<std::uint32_t> words) {
    std::uint32_t wrong = 0;
    for (std::size_t i = 0; i < kDigits; ++i) {
        const std::span<const std::byte> of_all = digits.subspan(i * words.size(), words.size());
        // a byte's high digit comes first
        const std::size_t shift = i / 2 * 8 + (i % 2 == 0 ? 4 : 0);
        for (std::size_t w = 0; w < words.size(); ++w) {
            const auto c = static_cast<std::uint32_t>(of_all[w]);
            const std::uint32_t number = c - '0', letter = c - 'a';
            wrong |= static_cast<std::uint32_t>(number > 9 && letter > 5);
            words[w] |= (number <= 9 ? number : letter + 10) << shift;
        }
    }
    return wrong == 0;
}

}  // namespace

std::vector<std::uint32_t> SpirvCode::words() const {
    if (packed_.words == 0) {
        return {plain_.begin(), plain_.end()};
    }
    const std::uint64_t size = std::uint64_t{packed_.words} * kDigits;
    // a deflated byte stands for 1032 at most, so no memory is asked for in vain
    const bool possible = size / 1032 <= packed_.bytes.size();
    std::vector<std::byte> digits(possible ? static_cast<std::size_t>(size) : 0);
    std::vector<std::uint32_t> words(possible ? packed_.words : 0);
    if (!possible || !inflate(packed_.bytes, digits) || !collect(digits, words)) {
        throw Error("the packed SPIR-V of " + std::to_string(packed_.words) + " words is damaged");
    }
    return words;
}

}  // namespace vkf
