// SPDX-License-Identifier: Apache-2.0
#include "runtime/compile/spirv_code.h"

#include <algorithm>
#include <utility>

#include "runtime/base/error.h"
#include "runtime/compile/inflate.h"
#include "runtime/compile/spirv_words.h"

namespace vkf {

namespace {

constexpr std::size_t kHeader = 5;  // words
constexpr std::size_t kKinds = 4;   // of an op's operands: the first three, and all others

/// Reads as many numbers as there is room for; false where the text holds others.
bool read_numbers(std::span<const std::byte> text, std::span<std::uint64_t> numbers) {
    std::size_t count = 0;
    for (const std::byte byte : text) {
        const auto c = static_cast<std::uint32_t>(byte);
        const std::uint32_t first = c - 'g', number = c - '0', letter = c - 'a';
        if (first < 16) {
            if (count == numbers.size()) {
                return false;
            }
            numbers[count++] = first;
        } else if (count == 0 || (number > 9 && letter > 5) || numbers[count - 1] >> 32 != 0) {
            return false;
        } else {
            numbers[count - 1] = numbers[count - 1] << 4 | (number <= 9 ? number : letter + 10);
        }
    }
    return count == numbers.size();
}

std::uint32_t distance(std::uint64_t number) { return static_cast<std::uint32_t>(number >> 1 ^ (0 - (number & 1))); }

enum class Form { as_it_is, result, distance };

/// What an operand's number stands for.
Form form(std::uint32_t head, std::size_t operand) {
    const std::uint32_t op = head & 0xffff;
    if (op == spv::kOpStore || (op >= spv::kOpLoopMerge && op <= spv::kOpUnreachable)) {
        return op == spv::kOpSelectionMerge && operand == 1 ? Form::as_it_is : Form::distance;
    }
    if (operand == 1 && op >= spv::kOpConstantTrue && op != spv::kOpDecorate && op != spv::kOpMemberDecorate) {
        return Form::result;
    }
    const bool declares = op <= spv::kOpMemberDecorate && op != spv::kOpFunctionCall && op != spv::kOpLoad;
    return operand == 0 || declares ? Form::as_it_is : Form::distance;
}

std::size_t kind(std::uint32_t head, std::size_t operand) {
    return (head & 0xffff) * kKinds + std::min(operand, kKinds - 1);
}

/// Makes words of as many numbers; false where there is no such module.
bool restore(std::span<const std::uint64_t> numbers, std::span<std::uint32_t> words) {
    const std::size_t header = std::min(kHeader, words.size());
    std::size_t heads = header;
    std::vector<std::size_t> next;  // by kind: how many numbers there are, then where the next is
    for (std::size_t at = header; at < words.size(); ++heads) {
        const auto head = static_cast<std::uint32_t>(numbers[heads]);
        const std::size_t length = head >> 16;
        if (length == 0 || length > words.size() - at) {
            return false;
        }
        at += length;
        next.resize(std::max(next.size(), kind(head, 0) + kKinds));
        for (std::size_t operand = 0; operand + 1 < length; ++operand) {
            ++next[kind(head, operand)];
        }
    }
    std::size_t end = heads;
    for (std::size_t& of_kind : next) {
        of_kind = std::exchange(end, end + of_kind);
    }
    for (std::size_t i = 0; i < header; ++i) {
        words[i] = static_cast<std::uint32_t>(numbers[i]);
    }
    std::size_t next_head = header;
    std::uint32_t last = 0;
    for (std::size_t at = header; at < words.size();) {
        const auto head = static_cast<std::uint32_t>(numbers[next_head++]);
        words[at++] = head;
        for (std::size_t operand = 0; operand + 1 < head >> 16; ++operand) {
            const std::uint64_t number = numbers[next[kind(head, operand)]++];
            switch (form(head, operand)) {
                case Form::as_it_is: words[at] = static_cast<std::uint32_t>(number); break;
                case Form::result: words[at] = last += distance(number); break;
                case Form::distance: words[at] = last - distance(number); break;
            }
            ++at;
        }
    }
    return true;
}

}  // namespace

std::vector<std::uint32_t> SpirvCode::words() const {
    if (packed_.words == 0) {
        return {plain_.begin(), plain_.end()};
    }
    // A deflated byte stands for 1032 at most, and a word has a character at least: no memory is
    // asked for in vain.
    const bool possible = packed_.characters / 1032 <= packed_.bytes.size() && packed_.words <= packed_.characters;
    std::vector<std::byte> text(possible ? packed_.characters : 0);
    std::vector<std::uint64_t> numbers(possible ? packed_.words : 0);
    std::vector<std::uint32_t> words(numbers.size());
    if (!possible || !inflate(packed_.bytes, text) || !read_numbers(text, numbers) || !restore(numbers, words)) {
        throw Error("the packed SPIR-V of " + std::to_string(packed_.words) + " words is damaged");
    }
    return words;
}

}  // namespace vkf
