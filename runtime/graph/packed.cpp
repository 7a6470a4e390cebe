// SPDX-License-Identifier: Apache-2.0
#include "runtime/graph/packed.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "runtime/base/error.h"
#include "runtime/base/mapped_bytes.h"
#include "runtime/base/numbers.h"
#include "runtime/graph/sixteen.h"
#include "shaders/common/packed.h"
#include "shaders/common/quantize.h"

namespace vkf {

namespace {

using namespace sixteen;
using shader::kPackedGroup;

static_assert(static_cast<unsigned>(WeightType::f32) == shader::kPackedF32 &&
                  static_cast<unsigned>(WeightType::f16) == shader::kPackedF16 &&
                  static_cast<unsigned>(WeightType::bf16) == shader::kPackedBf16 &&
                  static_cast<unsigned>(WeightType::int8) == shader::kPackedInt8 &&
                  static_cast<unsigned>(WeightType::int4) == shader::kPackedInt4,
              "kernels take a WeightType as its number");

// magnitudes below, so that no code stands for an infinity
constexpr float kQuantizable = 0x1p127f;
constexpr float kRounder =
    0x1.8p23f;  // added to a number below 2^22 it leaves its nearest whole one in the lowest bits

[[noreturn]] void refuse(const HostTensor& tensor, std::int64_t row, std::size_t column, float number,
                         WeightType type) {
    throw Error("holds " + std::to_string(number) + " at (" + std::to_string(row) + ", " + std::to_string(column) +
                    "), which " + std::string(name_of(type)) + " cannot hold",
                "weight " + tensor.name);
}

/// True when finite numbers stayed finite.
bool kept(float number, std::uint32_t packed, std::uint32_t infinity) {
    return !std::isfinite(number) || (packed & 0x7fffu) < infinity;
}

struct RowPlace {
    const HostTensor& tensor;
    std::int64_t row;
};

void pack_sixteen(const RowPlace& at, WeightType type, std::span<const float> numbers, std::span<std::uint32_t> words) {
    const bool half = type == WeightType::f16;
    for (std::size_t k = 0; k < numbers.size(); ++k) {
        const std::uint32_t packed = narrowed(half ? DType::f16 : DType::bf16, numbers[k]);
        if (!kept(numbers[k], packed, half ? kHalfInfinity : kInfinity >> 16)) {
            refuse(at.tensor, at.row, k, numbers[k], type);
        }
        words[k / 2] |= packed << 16 * (k % 2);
    }
}

/// The largest magnitude as bits, of which those of finite numbers are ordered as the numbers.
std::uint32_t largest_bits(std::span<const float> numbers) {
    std::uint32_t largest = 0;
    for (const float x : numbers) {
        largest = std::max(largest, bits_of(x) & ~kSign);
    }
    return largest;
}

void require_quantizable(const RowPlace& at, WeightType type, std::span<const float> numbers) {
    if (largest_bits(numbers) < bits_of(kQuantizable)) {
        return;
    }
    const auto bad =
        std::find_if(numbers.begin(), numbers.end(), [](float x) { return !(std::abs(x) < kQuantizable); });
    refuse(at.tensor, at.row, static_cast<std::size_t>(bad - numbers.begin()), *bad, type);
}

void pack_int8(std::span<const float> numbers, std::span<std::uint32_t> words) {
    const float scale =
        std::bit_cast<float>(shader::normal_or_zero(bits_of(std::bit_cast<float>(largest_bits(numbers)) / 127.0f)));
    words[(numbers.size() + 15) / 16 * 4] = bits_of(scale);
    if (scale == 0.0f) {
        return;
    }
    for (std::size_t k = 0; k < numbers.size(); ++k) {
        words[k / 4] |= (bits_of(numbers[k] / scale + kRounder) & 0xffu) << 8 * (k % 4);
    }
}

/// Packs up to kPackedGroup numbers as int4.
void pack_group(std::span<const float> numbers, std::span<std::uint32_t, 4> codes, std::uint32_t& scale_word) {
    float low = 0.0f;
    float high = 0.0f;
    for (const float x : numbers) {
        low = std::min(low, x);
        high = std::max(high, x);
    }
    const std::uint32_t bits = shader::group_scale_of(bits_of(low) & ~kSign, bits_of(high) & ~kSign);
    const float scale = std::bit_cast<float>(bits);
    if (bits == 0) {
        scale_word = 0;
        return;
    }
    const auto zero = static_cast<std::int32_t>(bits_of(-low / scale + kRounder) & 0xffu);
    scale_word = bits | static_cast<std::uint32_t>(zero);
    for (std::size_t k = 0; k < kPackedGroup; ++k) {
        const float steps = k < numbers.size() ? numbers[k] / scale : 0.0f;
        const auto whole =
            std::bit_cast<std::int32_t>(bits_of(steps + kRounder)) - std::bit_cast<std::int32_t>(bits_of(kRounder));
        codes[k / 8] |= static_cast<std::uint32_t>(std::clamp(whole + zero, 0, 15)) << 4 * (k % 8);
    }
}

void pack_int4(std::span<const float> numbers, std::span<std::uint32_t> words) {
    const std::size_t groups = divide_up(numbers.size(), kPackedGroup);
    for (std::size_t g = 0; g < groups; ++g) {
        const std::size_t first = g * kPackedGroup;
        pack_group(numbers.subspan(first, std::min<std::size_t>(kPackedGroup, numbers.size() - first)),
                   words.subspan(g * 4).first<4>(), words[groups * 4 + g]);
    }
}

/// Magnitudes, as bits of fp32, that the type cannot hold: from `first` on, below `end`.
struct Refused {
    std::uint32_t first, end;
};

Refused refused(WeightType type) {
    switch (type) {
        case WeightType::f16: return {bits_of(65520.0f), kInfinity};
        case WeightType::bf16: return {0x7f7f8000u, kInfinity};
        default: return {bits_of(kQuantizable), kSign};
    }
}

/// True where any of the numbers is refused. In blocks, which compilers turn into wide comparisons.
template <class Bits>
bool any_refused(std::span<const std::byte> data, Bits sign, Bits first, Bits end) {
    constexpr std::size_t kBlock = 256;
    std::array<Bits, kBlock> block;
    const auto range = static_cast<Bits>(end - first);
    for (; !data.empty(); data = data.subspan(std::min(data.size(), sizeof(block)))) {
        if (data.size() < sizeof(block)) {
            block.fill(0);
        }
        std::memcpy(block.data(), data.data(), std::min(data.size(), sizeof(block)));
        std::uint32_t found = 0;
        for (std::size_t i = 0; i < kBlock; ++i) {
            found |= static_cast<Bits>((block[i] & static_cast<Bits>(~sign)) - first) < range ? 1u : 0u;
        }
        if (found != 0) {
            return true;
        }
    }
    return false;
}

/// The halves that the type cannot hold; all finite ones fit into bf16.
Refused refused_halves(WeightType type) {
    return type == WeightType::bf16 ? Refused{0, 0} : Refused{kHalfInfinity, 0x8000u};
}

}  // namespace

std::uint64_t packed_row_words(WeightType type, std::uint64_t columns) {
    switch (type) {
        case WeightType::f16:
        case WeightType::bf16: return align_up(columns, 8) / 2;
        case WeightType::int8: return align_up(columns, 16) / 4 + 4;
        case WeightType::int4: {
            const std::uint64_t groups = divide_up(columns, kPackedGroup);
            return groups * 4 + align_up(groups, 4);
        }
        case WeightType::f32: break;
    }
    throw Error("rows of f32 are not packed");
}

std::optional<std::uint64_t> byte_size(const HostTensor& tensor) {
    if (tensor.type == WeightType::f32) {
        return byte_size(tensor.dtype, tensor.shape);
    }
    const std::vector<std::int64_t>& shape = tensor.shape;
    if (tensor.dtype != DType::f32 || shape.size() != 2 || shape[0] <= 0 || shape[1] <= 0) {
        return std::nullopt;
    }
    const std::uint64_t words = packed_row_words(tensor.type, static_cast<std::uint64_t>(shape[1]));
    const std::int64_t packed[] = {shape[0], static_cast<std::int64_t>(words)};
    return byte_size(DType::i32, packed);
}

bool same_format(DType from, WeightType to) {
    return (from == DType::f16 && to == WeightType::f16) || (from == DType::bf16 && to == WeightType::bf16);
}

bool packable(const HostTensor& tensor) {
    return tensor.type == WeightType::f32 && is_floating(tensor.dtype) && tensor.shape.size() == 2 &&
           tensor.shape[0] > 0 && tensor.shape[1] > 0;
}

void widen(const HostTensor& tensor, std::int64_t first, std::span<float> numbers) {
    if (tensor.type != WeightType::f32 || !is_floating(tensor.dtype)) {
        throw Error("is " + std::string(tensor.type != WeightType::f32 ? name_of(tensor.type) : name_of(tensor.dtype)) +
                        "; F32, F16 and BF16 are widened",
                    "tensor " + tensor.name);
    }
    const std::size_t bytes = size_of(tensor.dtype);
    const auto from = tensor.data.subspan(static_cast<std::uint64_t>(first) * bytes, numbers.size() * bytes);
    if (tensor.dtype == DType::f32) {
        copy_bytes(from, std::as_writable_bytes(numbers).data());
        return;
    }
    in_parts(from, bytes, [&](std::span<const std::byte> part) {
        widen(tensor.dtype, part.data(), numbers.first(part.size() / bytes));
        numbers = numbers.subspan(part.size() / bytes);
    });
}

void read_bytes(const HostTensor& tensor, std::span<std::byte> to) {
    copy_bytes(tensor.data.first(std::min(tensor.data.size(), to.size())), to.data());
}

std::vector<float> widened_numbers(const HostTensor& tensor) {
    std::vector<float> numbers(tensor.data.size() / size_of(tensor.dtype));
    widen(tensor, 0, numbers);
    return numbers;
}

void pack_rows(const HostTensor& tensor, WeightType type, std::int64_t first, std::span<std::uint32_t> words) {
    const auto columns = static_cast<std::uint64_t>(tensor.shape[1]);
    const std::uint64_t pitch = packed_row_words(type, columns);
    std::fill(words.begin(), words.end(), 0u);
    std::vector<float> numbers(same_format(tensor.dtype, type) ? 0 : columns);
    for (std::int64_t row = first; !words.empty(); ++row, words = words.subspan(pitch)) {
        if (same_format(tensor.dtype, type)) {
            copy_bytes(tensor.data.subspan(static_cast<std::uint64_t>(row) * columns * 2, columns * 2),
                       std::as_writable_bytes(words).data());
            continue;
        }
        const RowPlace at{tensor, row};
        widen(tensor, row * tensor.shape[1], numbers);
        if (type == WeightType::f16 || type == WeightType::bf16) {
            pack_sixteen(at, type, numbers, words);
            continue;
        }
        require_quantizable(at, type, numbers);
        for (float& x : numbers) {  // which a device may take for 0
            x = (bits_of(x) & ~kSign) < shader::kSmallestNormalBits ? 0.0f : x;
        }
        if (type == WeightType::int8) {
            pack_int8(numbers, words);
        } else {
            pack_int4(numbers, words);
        }
    }
}

void require_packable(const HostTensor& tensor, WeightType type, std::int64_t first, std::uint64_t rows) {
    if (type == WeightType::f32 || same_format(tensor.dtype, type)) {
        return;
    }
    const std::uint64_t columns = static_cast<std::uint64_t>(tensor.shape[1]);
    const std::uint64_t row_bytes = columns * size_of(tensor.dtype);
    const auto data = tensor.data.subspan(static_cast<std::uint64_t>(first) * row_bytes, rows * row_bytes);
    const Refused f32 = refused(type);
    bool bad = false;
    in_parts(data, size_of(tensor.dtype), [&](std::span<const std::byte> part) {
        if (tensor.dtype == DType::f32) {
            bad = bad || any_refused<std::uint32_t>(part, kSign, f32.first, f32.end);
            return;
        }
        // of bf16 the upper halves: no such number lies between two of those bounds' own
        const Refused sixteen = tensor.dtype == DType::f16
                                    ? refused_halves(type)
                                    : Refused{(f32.first + 0xffffu) >> 16, (f32.end + 0xffffu) >> 16};
        bad = bad || any_refused<std::uint16_t>(part, 0x8000u, static_cast<std::uint16_t>(sixteen.first),
                                                static_cast<std::uint16_t>(sixteen.end));
    });
    if (bad) {  // whose packing says where
        std::vector<std::uint32_t> words(packed_row_words(type, columns));
        for (std::uint64_t row = 0; row < rows; ++row) {
            pack_rows(tensor, type, first + static_cast<std::int64_t>(row), words);
        }
    }
}

}  // namespace vkf
