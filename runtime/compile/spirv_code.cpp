// SPDX-License-Identifier: Apache-2.0
#include "runtime/compile/spirv_code.h"

#include <algorithm>

#include "runtime/base/error.h"
#include "runtime/compile/inflate.h"

namespace vkf {

namespace {

constexpr std::size_t kHeader = 5;  // words
constexpr std::uint32_t kOpStore = 62, kOpLoopMerge = 246, kOpUnreachable = 255;

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

bool has_result(std::uint32_t head) {
    const std::uint32_t op = head & 0xffff;
    return head >> 16 > 2 && op != kOpStore && (op < kOpLoopMerge || op > kOpUnreachable);
}

/// Makes words of as many numbers; false where there is no such module.
bool restore(std::span<const std::uint64_t> numbers, std::span<std::uint32_t> words) {
    const std::size_t header = std::min(kHeader, words.size());
    std::size_t heads = header, firsts = 0, results = 0;
    for (std::size_t at = header; at < words.size(); ++heads) {
        const auto head = static_cast<std::uint32_t>(numbers[heads]);
        const std::size_t length = head >> 16;
        if (length == 0 || length > words.size() - at) {
            return false;
        }
        at += length;
        firsts += has_result(head) ? 1 : length - 1;
        results += has_result(head) ? 1 : 0;
    }
    for (std::size_t i = 0; i < header; ++i) {
        words[i] = static_cast<std::uint32_t>(numbers[i]);
    }
    std::size_t next_head = header, next_first = heads, next_result = heads + firsts;
    std::size_t next_other = heads + firsts + results;
    std::uint32_t last = 0;
    for (std::size_t at = header; at < words.size();) {
        const auto head = static_cast<std::uint32_t>(numbers[next_head++]);
        const std::size_t end = at + (head >> 16);
        words[at++] = head;
        if (has_result(head)) {
            words[at++] = static_cast<std::uint32_t>(numbers[next_first++]);
            last += distance(numbers[next_result++]);
            words[at++] = last;
            for (; at < end; ++at) {
                words[at] = last - distance(numbers[next_other++]);
            }
        }
        for (; at < end; ++at) {
            words[at] = last - distance(numbers[next_first++]);
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
