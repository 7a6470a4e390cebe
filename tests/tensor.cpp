// SPDX-License-Identifier: Apache-2.0
#include "tests/tensor.h"

#include <algorithm>
#include <cmath>
#include <sstream>
#include <utility>

namespace vkf::test {

namespace {

constexpr double kLargestFloat = 0x1.fffffep127;

std::string str(const Sizes& sizes) {
    std::ostringstream out;
    for (std::size_t i = 0; i < sizes.size(); ++i) {
        out << (i ? ", " : "(") << sizes[i];
    }
    return sizes.empty() ? "()" : out.str() + ")";
}

/// One word of a counter-based generator (splitmix64).
std::uint64_t random_word(std::uint32_t seed, std::uint64_t counter) {
    std::uint64_t z = (std::uint64_t{seed} << 40) + (counter + 1) * 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

std::size_t from_front(std::size_t rank, int dim) {
    return static_cast<std::size_t>(dim < 0 ? dim + static_cast<int>(rank) : dim);
}

/// The tensor of this shape whose element at each index is x's at source(index).
template <class Source>
Tensor gather(const Tensor& x, const Sizes& shape, Source source) {
    Tensor y(shape);
    std::size_t next = 0;
    for_each_index(shape, [&](const Sizes& index) { y.data[next++] = x.at(source(index)); });
    return y;
}

}  // namespace

std::int64_t product(const Sizes& sizes) {
    std::int64_t n = 1;
    for (const std::int64_t s : sizes) {
        n *= s;
    }
    return n;
}

Tensor::Tensor(Sizes sizes, double value)
    : shape(std::move(sizes)), data(static_cast<std::size_t>(product(shape)), value) {}

Tensor::Tensor(Sizes sizes, std::vector<double> values) : shape(std::move(sizes)), data(std::move(values)) {}

std::int64_t Tensor::size(int dim) const { return shape[from_front(shape.size(), dim)]; }

std::vector<std::int32_t> Tensor::integers() const {
    std::vector<std::int32_t> out;
    for (const double x : data) {
        out.push_back(static_cast<std::int32_t>(x));
    }
    return out;
}

std::size_t Tensor::offset(const Sizes& index) const {
    const std::size_t lead = index.size() - shape.size();
    std::int64_t at = 0;
    for (std::size_t d = 0; d < shape.size(); ++d) {
        at = at * shape[d] + (shape[d] == 1 ? 0 : index[lead + d]);
    }
    return static_cast<std::size_t>(at);
}

Tensor random_tensor(const Sizes& shape, std::uint32_t seed, double amplitude) {
    Tensor x(shape);
    for (std::size_t i = 0; i < x.data.size(); ++i) {
        const double unit = static_cast<double>(random_word(seed, i) >> 11) * 0x1p-52 - 1.0;
        x.data[i] = static_cast<float>(unit * amplitude);
    }
    return x;
}

Tensor random_integers(const Sizes& shape, std::int64_t below, std::uint32_t seed) {
    Tensor x(shape);
    for (std::size_t i = 0; i < x.data.size(); ++i) {
        x.data[i] = static_cast<double>((random_word(seed, i) >> 20) % static_cast<std::uint64_t>(below));
    }
    return x;
}

Tensor reshape(Tensor x, const Sizes& shape) { return {shape, std::move(x.data)}; }

Tensor permute(const Tensor& x, const std::vector<std::size_t>& order) {
    Sizes shape;
    for (const std::size_t d : order) {
        shape.push_back(x.shape[d]);
    }
    return gather(x, shape, [&](const Sizes& index) {
        Sizes from(index.size());
        for (std::size_t d = 0; d < order.size(); ++d) {
            from[order[d]] = index[d];
        }
        return from;
    });
}

Tensor transpose(const Tensor& x, int a, int b) {
    std::vector<std::size_t> order;
    for (std::size_t d = 0; d < x.shape.size(); ++d) {
        order.push_back(d);
    }
    std::swap(order[from_front(x.shape.size(), a)], order[from_front(x.shape.size(), b)]);
    return permute(x, order);
}

Tensor slice(const Tensor& x, int dim, std::int64_t start, std::int64_t length) {
    Sizes shape = x.shape;
    const std::size_t d = from_front(shape.size(), dim);
    shape[d] = length;
    return gather(x, shape, [&](Sizes index) {
        index[d] += start;
        return index;
    });
}

Tensor broadcast_to(const Tensor& x, const Sizes& shape) {
    return gather(x, shape, [](const Sizes& index) { return index; });
}

Sizes broadcast_sizes(const Sizes& a, const Sizes& b) {
    Sizes out(std::max(a.size(), b.size()));
    for (std::size_t i = 0; i < out.size(); ++i) {  // from the innermost
        const std::int64_t x = i < a.size() ? a[a.size() - 1 - i] : 1;
        const std::int64_t y = i < b.size() ? b[b.size() - 1 - i] : 1;
        out[out.size() - 1 - i] = x == 1 ? y : x;
    }
    return out;
}

std::string difference(const Tensor& got, const Tensor& want, const Tolerance& tolerance) {
    if (got.shape != want.shape || got.data.size() != want.data.size()) {
        return "shape " + str(got.shape) + ", wanted " + str(want.shape);
    }
    std::size_t wrong = 0;
    std::size_t worst = 0;
    double worst_excess = -1;
    for (std::size_t i = 0; i < want.data.size(); ++i) {
        const double g = got.data[i];
        const double w = std::abs(want.data[i]) > kLargestFloat ? std::copysign(HUGE_VAL, want.data[i]) : want.data[i];
        double allowed = tolerance.absolute + tolerance.relative * std::abs(w);
        if (!tolerance.rounding.data.empty() && std::isfinite(tolerance.rounding.data[i])) {
            allowed = std::max(allowed, tolerance.rounding.data[i]);
        }
        const bool same = std::isnan(w) ? std::isnan(g) : std::isinf(w) ? g == w : std::abs(g - w) <= allowed;
        if (!same) {
            ++wrong;
            const double excess = std::isfinite(g - w) ? std::abs(g - w) / (allowed + 1e-300) : HUGE_VAL;
            if (excess > worst_excess) {
                worst_excess = excess;
                worst = i;
            }
        }
    }
    if (wrong == 0) {
        return {};
    }
    Sizes index(want.shape.size());
    std::size_t rest = worst;
    for (std::size_t d = index.size(); d-- > 0;) {
        index[d] = static_cast<std::int64_t>(rest) % want.shape[d];
        rest /= static_cast<std::size_t>(want.shape[d]);
    }
    std::ostringstream out;
    out.precision(9);
    out << wrong << " of " << want.data.size() << " elements of " << str(want.shape) << " differ, worst at "
        << str(index) << ": got " << got.data[worst] << ", wanted " << want.data[worst];
    return out.str();
}

}  // namespace vkf::test
