// SPDX-License-Identifier: Apache-2.0
// Sizes that may depend on named symbols ("tokens"), and the shapes made of them.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "../base/export.h"

namespace vkf {

/// A size or stride: a polynomial with integer coefficients over symbols, e.g. `64`, `tokens`,
/// `8*cached*tokens + 8`. Kept in canonical form, so that equality of polynomials is equality of
/// values for every choice of the symbols.
class VKF_API Dim {
public:
    static constexpr std::size_t kMaxDegree = 4;

    // implicit: shapes are written as {batch, 64}
    Dim(std::int64_t constant = 0) : constant_(constant) {}
    static Dim symbol(std::uint16_t id);

    bool is_constant() const noexcept { return terms_.empty(); }
    /// The constant part; the whole value when is_constant().
    std::int64_t constant() const noexcept { return constant_; }
    /// One more than the greatest id of its symbols; 0 where it has none. A size means something in
    /// the graph alone whose symbols these are.
    std::size_t symbols() const noexcept;
    /// The value with symbol i standing for values[i]. Never allocates.
    std::int64_t eval(std::span<const std::int64_t> values) const noexcept;
    /// Bounds of the value for all choices of the symbols, symbol i in 0..maxima[i]. They are exact
    /// unless terms of different signs share a symbol. Note that `8 - tokens` is largest where
    /// tokens is smallest. A part that does not fit in 64 bits counts as the largest number that
    /// does.
    std::int64_t upper_bound(std::span<const std::int64_t> maxima) const noexcept;
    std::int64_t lower_bound(std::span<const std::int64_t> maxima) const noexcept;
    /// Prints the size; names[i] is the name of symbol i.
    std::string str(std::span<const std::string> names) const;

    /// These throw vkf::Error when a coefficient would not fit in 64 bits.
    friend VKF_API Dim operator+(const Dim& a, const Dim& b);
    friend VKF_API Dim operator-(const Dim& a, const Dim& b);
    /// Throws vkf::Error, too, when a product would have more than kMaxDegree symbols.
    friend VKF_API Dim operator*(const Dim& a, const Dim& b);
    friend VKF_API bool operator==(const Dim& a, const Dim& b) noexcept;

    /// Returns true, and the quotient in `out`, when `divisor` divides every coefficient (constant
    /// divisor) or equals a common factor of every term (symbolic divisor with one term).
    bool divided_by(const Dim& divisor, Dim& out) const;

private:
    struct Term {
        std::int64_t coefficient = 0;
        std::array<std::uint16_t, kMaxDegree> symbols{};  // sorted; the first `degree` are used
        std::uint8_t degree = 0;
    };
    static std::int64_t eval(const Term& t, std::span<const std::int64_t> values) noexcept;
    /// The sum of the constant and of the terms of one sign, each symbol at its maximum.
    std::int64_t bound(std::span<const std::int64_t> maxima, bool upper) const noexcept;
    static bool same_symbols(const Term& a, const Term& b) noexcept;
    void add(const Term& term);

    std::int64_t constant_ = 0;
    std::vector<Term> terms_;
};

/// Sizes, outermost first.
using Shape = std::vector<Dim>;

/// No tensor has more dimensions than this: kernels address five.
inline constexpr std::size_t kMaxRank = 5;

/// Strides of a densely packed row-major tensor.
VKF_API Shape contiguous_strides(const Shape& shape);
/// True when elements of that shape and those strides lie densely in row-major order (strides of
/// sizes of 1 do not matter).
VKF_API bool is_contiguous(const Shape& shape, const Shape& strides);
/// Product of all sizes; 1 for a scalar.
VKF_API Dim elements(const Shape& shape);

}  // namespace vkf
