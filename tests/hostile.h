// SPDX-License-Identifier: Apache-2.0
// Integers that a host may give by mistake or on purpose, for tests of bounds (tests/fenced.h).
#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "ops/gradients.h"
#include "ops/ops.h"
#include "tests/fenced.h"

namespace vkf::test::bounds {

using Change = Fenced::Change;
using Words = Fenced::Words;
using Values = std::vector<Value>;

inline constexpr std::uint32_t kNanWord = 0x7fc00000u;

inline bool is_nan_word(std::uint32_t bits) { return (bits & 0x7fffffffu) > 0x7f800000u; }

/// What may stand where numbers below `size` are meant.
inline std::vector<std::int32_t> hostile(std::int64_t size) {
    constexpr std::int32_t kLeast = std::numeric_limits<std::int32_t>::min(),
                           kMost = std::numeric_limits<std::int32_t>::max();
    const auto n = static_cast<std::int32_t>(size);
    return {-1, n, 0, 1 << 30, kMost, kLeast, n - 1, n + 1, -n, kLeast + 1};
}

/// So many sets of data: every place of the input `name` gets every hostile number in one of them.
inline std::vector<Change> hostile_changes(const std::string& name, std::int64_t size) {
    std::vector<Change> out;
    const std::vector<std::int32_t> numbers = hostile(size);
    for (std::size_t turn = 0; turn < numbers.size(); ++turn) {
        out.push_back([=](const std::string& of, DType, Words& words) {
            for (std::size_t i = 0; of == name && i < words.size(); ++i) {
                words[i] = static_cast<std::uint32_t>(numbers[(i + turn) % numbers.size()]);
            }
        });
    }
    return out;
}

/// Both at once.
inline std::vector<Change> together(const std::vector<Change>& a, const std::vector<Change>& b) {
    std::vector<Change> out;
    for (std::size_t i = 0; i < a.size(); ++i) {
        out.push_back(
            [one = a[i], other = b[(i * 3 + 1) % b.size()]](const std::string& name, DType type, Words& words) {
                one(name, type, words);
                other(name, type, words);
            });
    }
    return out;
}

/// True where the i-th number of an input is outside 0..size-1.
inline bool outside(const Words& words, std::size_t i, std::int64_t size) {
    return static_cast<std::int64_t>(static_cast<std::int32_t>(words[i])) < 0 ||
           static_cast<std::int64_t>(static_cast<std::int32_t>(words[i])) >= size;
}

/// The value itself, and its gradients at these values.
inline Values with_gradients(Value y, const Values& at) {
    Values out = gradients(sum(y * y), at);
    out.push_back(y);
    return out;
}

/// The ways to compute attention.
inline const char* const kWays[] = {"", "attention_shared", "attention_rows", "attention_composed"};

}  // namespace vkf::test::bounds
