// SPDX-License-Identifier: Apache-2.0
// Tensors of the host for tests: made at random, looked at in other shapes, and compared.
#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

namespace vkf::test {

using Sizes = std::vector<std::int64_t>;

inline constexpr double kInf = std::numeric_limits<double>::infinity();
inline constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

std::int64_t product(const Sizes& sizes);

/// Row-major. Integers and floats alike are held as doubles, which hold both exactly.
struct Tensor {
    Sizes shape;
    std::vector<double> data;

    Tensor() = default;
    explicit Tensor(Sizes sizes, double value = 0);
    Tensor(Sizes sizes, std::vector<double> values);

    std::int64_t rank() const { return static_cast<std::int64_t>(shape.size()); }
    std::int64_t count() const { return static_cast<std::int64_t>(data.size()); }
    /// Size of a dimension; negative counts from the innermost.
    std::int64_t size(int dim) const;
    double& at(const Sizes& index) { return data[offset(index)]; }
    /// Reads an element as NumPy broadcasts: `index` may have more dimensions in front, and sizes
    /// of 1 repeat.
    double at(const Sizes& index) const { return data[offset(index)]; }
    std::vector<float> floats() const { return {data.begin(), data.end()}; }
    std::vector<std::int32_t> integers() const;
    /// Where in `data` the element is that at(index) reads.
    std::size_t offset(const Sizes& index) const;
};

/// These numbers, in one dimension.
inline Tensor integers(const std::vector<std::int64_t>& numbers) {
    return {{static_cast<std::int64_t>(numbers.size())}, std::vector<double>(numbers.begin(), numbers.end())};
}

/// Calls f(index) for every index of the shape in row-major order.
template <class F>
void for_each_index(const Sizes& shape, F f) {
    Sizes index(shape.size(), 0);
    for (std::int64_t left = product(shape); left > 0; --left) {
        f(static_cast<const Sizes&>(index));
        for (std::size_t d = shape.size(); d-- > 0 && ++index[d] == shape[d];) {
            index[d] = 0;
        }
    }
}

/// Values in [-amplitude, amplitude], each a float; the same for the same seed everywhere.
Tensor random_tensor(const Sizes& shape, std::uint32_t seed = 1, double amplitude = 1);
/// Whole numbers in 0..below-1.
Tensor random_integers(const Sizes& shape, std::int64_t below, std::uint32_t seed = 1);

Tensor reshape(Tensor x, const Sizes& shape);
Tensor permute(const Tensor& x, const std::vector<std::size_t>& order);
Tensor transpose(const Tensor& x, int a, int b);
Tensor slice(const Tensor& x, int dim, std::int64_t start, std::int64_t length);
Tensor broadcast_to(const Tensor& x, const Sizes& shape);
/// The shape two operands have together. They must broadcast.
Sizes broadcast_sizes(const Sizes& a, const Sizes& b);

/// A result passes where !(|got - want| <= absolute + relative |want|) is false; where `rounding`
/// is not empty, errors up to its elements pass too.
struct Tolerance {
    double absolute = 1e-5;
    double relative = 1e-4;
    Tensor rounding = {};
};

inline Tolerance exactly() { return {0, 0, {}}; }

/// Says how two tensors differ; empty when equal within tolerance, NaN and infinities in the same
/// places (what is wanted beyond fp32 is an infinity); else the shapes, or how many elements differ
/// and the worst of them.
std::string difference(const Tensor& got, const Tensor& want, const Tolerance& tolerance = {});

}  // namespace vkf::test
