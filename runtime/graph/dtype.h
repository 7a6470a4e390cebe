// SPDX-License-Identifier: Apache-2.0
// Element types of tensors, in files and on the device, what matrices of weights are kept as, and
// what is computed in.
#pragma once

#include <cstdint>
#include <string_view>

namespace vkf {

enum class DType : std::uint8_t { f64, f32, f16, bf16, i64, i32, i16, i8, u8, boolean };

/// Bytes of one element.
constexpr std::uint32_t size_of(DType type) {
    switch (type) {
        case DType::f64:
        case DType::i64: return 8;
        case DType::f32:
        case DType::i32: return 4;
        case DType::f16:
        case DType::bf16:
        case DType::i16: return 2;
        case DType::i8:
        case DType::u8:
        case DType::boolean: return 1;
    }
    return 0;
}

/// The name as safetensors writes it ("F32", "BF16", ...).
constexpr std::string_view name_of(DType type) {
    switch (type) {
        case DType::f64: return "F64";
        case DType::f32: return "F32";
        case DType::f16: return "F16";
        case DType::bf16: return "BF16";
        case DType::i64: return "I64";
        case DType::i32: return "I32";
        case DType::i16: return "I16";
        case DType::i8: return "I8";
        case DType::u8: return "U8";
        case DType::boolean: return "BOOL";
    }
    return "?";
}

/// The type that a matrix (out, in) of weights is kept as. To graphs its numbers stay fp32: kernels
/// unpack them as they read, and accumulate in fp32. Exact formulas: docs/numerics.md.
enum class WeightType : std::uint8_t {
    f32,
    f16,   ///< 2 bytes a weight
    bf16,  ///< 2 bytes a weight
    int8,  ///< 1 byte a weight, and a scale a row
    int4,  ///< 5 bits a weight: 4, and a scale and zero point for every 32 of a row
};

constexpr std::string_view name_of(WeightType type) {
    switch (type) {
        case WeightType::f32: return "f32";
        case WeightType::f16: return "f16";
        case WeightType::bf16: return "bf16";
        case WeightType::int8: return "int8";
        case WeightType::int4: return "int4";
    }
    return "?";
}

/// The arithmetic that matrix products, and in f16 fused attention, may use.
enum class Arithmetic : std::uint8_t {
    f32,  ///< fp32, whatever weights are kept as
    f16,  ///< operands may be rounded to f16, sums are fp32: docs/numerics.md
    /// rows of activations may be rounded to int8 where weights are kept as int8, sums are exact:
    /// docs/numerics.md
    int8,
};

constexpr std::string_view name_of(Arithmetic arithmetic) {
    switch (arithmetic) {
        case Arithmetic::f32: return "fp32";
        case Arithmetic::f16: return "f16";
        case Arithmetic::int8: return "int8";
    }
    return "?";
}

}  // namespace vkf
