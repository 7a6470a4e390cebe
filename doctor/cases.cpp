// SPDX-License-Identifier: Apache-2.0
#include "doctor/cases.h"

#include <algorithm>
#include <bit>
#include <cstdint>
#include <span>

#include "runtime/graph/packed.h"
#include "runtime/graph/sixteen.h"
#include "shaders/common/packed.h"

namespace vkf::doctor {

namespace {

Shape shape_of(const Sizes& sizes) { return {sizes.begin(), sizes.end()}; }

/// The number that a row of words keeps for column c.
double kept(std::span<const std::uint32_t> words, WeightType type, std::size_t c, std::size_t columns) {
    switch (type) {
        case WeightType::f16:
            return static_cast<double>(
                sixteen::from_half(static_cast<std::uint16_t>(words[c / 2] >> 16 * (c % 2) & 0xffffu)));
        case WeightType::bf16:
            return static_cast<double>(std::bit_cast<float>((words[c / 2] >> 16 * (c % 2) & 0xffffu) << 16));
        case WeightType::int8: {
            const auto code = static_cast<std::int8_t>(words[c / 4] >> 8 * (c % 4) & 0xffu);
            return static_cast<double>(code) *
                   static_cast<double>(std::bit_cast<float>(words[(columns + 15) / 16 * 4]));
        }
        case WeightType::int4: {
            const std::size_t group = c / shader::kPackedGroup,
                              groups = (columns + shader::kPackedGroup - 1) / shader::kPackedGroup;
            const std::uint32_t scale = words[groups * 4 + group];
            const std::uint32_t code = words[c / 8] >> 4 * (c % 8) & 0xfu;
            return (static_cast<double>(code) - static_cast<double>(scale & 0xfu)) *
                   static_cast<double>(std::bit_cast<float>(scale & ~0xfu));
        }
        case WeightType::f32: break;
    }
    return 0;
}

}  // namespace

Value Case::input(const std::string& name, const Sizes& shape, Doubles numbers, DType dtype) {
    given.push_back({name, dtype, std::move(numbers)});
    return graph->input(name, shape_of(shape), dtype);
}

Value Case::weight(const std::string& name, const Sizes& shape, Doubles& numbers, WeightType type) {
    Weight w{name, shape, {numbers.begin(), numbers.end()}, type};
    const auto rows = static_cast<std::size_t>(shape[0]), columns = static_cast<std::size_t>(shape[1]);
    const std::size_t pitch = packed_row_words(type, columns);
    std::vector<std::uint32_t> words(rows * pitch);
    pack_rows({name, DType::f32, shape, std::as_bytes(std::span(w.numbers)), WeightType::f32}, type, 0, words);
    for (std::size_t i = 0; i < numbers.size(); ++i) {
        numbers[i] = kept(std::span(words).subspan(i / columns * pitch, pitch), type, i % columns, columns);
    }
    weights.push_back(std::move(w));
    return graph->weight(name, shape_of(shape));
}

void Case::output(const std::string& name, const Value& value, Expected expected, DType dtype, bool zero_signs) {
    graph->output(name, value);
    wanted.push_back({name, dtype, std::move(expected), zero_signs});
}

}  // namespace vkf::doctor
