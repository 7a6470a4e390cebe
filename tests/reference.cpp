// SPDX-License-Identifier: Apache-2.0
#include "tests/reference.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <stdexcept>

namespace vkf::reference {

namespace {

using test::for_each_index;
using test::Sizes;

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();

bool is_masked(double weight) { return weight == 0 && std::signbit(weight); }

std::size_t index_of(std::int64_t i) { return static_cast<std::size_t>(i); }

std::int64_t rows_of(const Tensor& x) { return x.size(-1) == 0 ? 0 : x.count() / x.size(-1); }

template <class F>
Tensor map(const Tensor& a, const Tensor& b, F f) {
    Tensor y(test::broadcast_sizes(a.shape, b.shape));
    std::size_t next = 0;
    for_each_index(y.shape, [&](const Sizes& index) { y.data[next++] = f(a.at(index), b.at(index)); });
    return y;
}

Tensor magnitudes(Tensor x) {
    for (double& v : x.data) {
        v = is_masked(v) ? v : std::abs(v);
    }
    return x;
}

double sum_of_products(const Tensor& a, const Tensor& b, Sizes ia, Sizes ib, const MatmulOptions& o) {
    ia.back() = 0;
    (o.transpose_b ? ib.back() : ib[ib.size() - 2]) = 0;
    const std::size_t first_a = a.offset(ia), first_b = b.offset(ib);
    const std::size_t step_b = o.transpose_b ? 1 : index_of(b.size(-1));
    const std::size_t count = index_of(a.size(-1));
    double sum = 0;
    for (std::size_t k = 0; k < count; ++k) {
        const double weight = a.data[first_a + k];
        if (!(o.masked_weights && is_masked(weight))) {
            sum += weight * b.data[first_b + k * step_b];
        }
    }
    return sum;
}

/// A tensor with a value for each head, as one that broadcasts to (..., H, L, S).
Tensor a_head_each(const Tensor& x) { return x.rank() == 1 ? test::reshape(x, {x.size(0), 1, 1}) : x; }

/// Applies scale, softcap, bias, ALiBi and mask.
Tensor masked_scores(const Tensor& scores, const SoftmaxOptions& o) {
    const std::int64_t shift = o.causal == Causal::bottom_right ? scores.size(-1) - scores.size(-2) : 0;
    Tensor y(scores.shape);
    std::size_t next = 0;
    for_each_index(scores.shape, [&](const Sizes& index) {
        const std::int64_t key = index.back();
        const std::int64_t self = (index.size() > 1 ? index[index.size() - 2] : 0) + shift;
        double score = scores.at(index) * o.scale;
        score = o.softcap == 0 ? score : o.softcap * std::tanh(score / o.softcap);
        score += o.bias ? o.bias->at(index) : 0;
        score -=
            o.alibi_slopes ? a_head_each(*o.alibi_slopes).at(index) * static_cast<double>(std::abs(self - key)) : 0;
        bool keep = !o.keys || (o.keys->at(index) != 0) == (o.polarity == Polarity::attend);
        if (o.causal != Causal::none) {
            keep = keep && key <= self && (o.window == 0 || key > self - o.window);
        }
        y.data[next++] = keep ? score : o.fill;
    });
    return y;
}

struct Row {
    double largest;  ///< the sink is one of the scores here; NaN when one is
    double sink;
};

std::vector<Row> rows_with_largest(const Tensor& scores, const SoftmaxOptions& o) {
    std::vector<Row> rows;
    for_each_index(Sizes(scores.shape.begin(), scores.shape.end() - 1), [&](Sizes index) {
        index.push_back(0);
        Row row{-kInfinity, -kInfinity};
        if (o.sinks) {
            row.largest = row.sink = a_head_each(*o.sinks).at(index);
        }
        for (std::int64_t& key = index.back(); key < scores.size(-1); ++key) {
            const double score = scores.at(index);
            row.largest = std::isnan(score) || std::isnan(row.largest) ? kNan : std::max(row.largest, score);
        }
        rows.push_back(row);
    });
    return rows;
}

std::uint32_t philox(std::uint32_t counter, std::uint32_t key) {
    std::uint32_t left = counter;
    std::uint32_t right = 0;
    for (int round = 0; round < 10; ++round) {
        const std::uint64_t product = std::uint64_t{0xd256d193u} * left;
        left = static_cast<std::uint32_t>(product >> 32) ^ key ^ right;
        right = static_cast<std::uint32_t>(product);
        key += 0x9e3779b9u;
    }
    return left;
}

}  // namespace

double activate(Activation activation, double x) {
    switch (activation) {
        case Activation::none: return x;
        case Activation::relu: return std::isnan(x) ? x : std::max(x, 0.0);
        case Activation::gelu: return 0.5 * x * (1 + std::erf(x / std::numbers::sqrt2));
        case Activation::gelu_tanh:
            return 0.5 * x * (1 + std::tanh(std::sqrt(2 / std::numbers::pi) * (x + 0.044715 * x * x * x)));
        case Activation::silu: return x * (1 / (1 + std::exp(-x)));
        case Activation::tanh: return std::tanh(x);
        case Activation::sigmoid: return 1 / (1 + std::exp(-x));
        case Activation::rsqrt: return 1 / std::sqrt(x);
    }
    return kNan;
}

Tensor matmul(const Tensor& a, const Tensor& b, const MatmulOptions& o) {
    const std::int64_t columns = o.transpose_b ? b.size(-2) : b.size(-1);
    if (a.size(-1) != (o.transpose_b ? b.size(-1) : b.size(-2))) {
        throw std::invalid_argument("reference::matmul: the sums of a and b have other lengths");
    }
    Sizes shape = test::broadcast_sizes({a.shape.begin(), a.shape.end() - 2}, {b.shape.begin(), b.shape.end() - 2});
    shape.push_back(a.size(-2));
    shape.push_back(columns);
    Tensor y(shape);
    std::size_t next = 0;
    for_each_index(shape, [&](const Sizes& index) {
        Sizes ia = index;
        Sizes ib = index;
        (o.transpose_b ? ib[ib.size() - 2] : ib.back()) = index.back();
        const double sum = o.scale * sum_of_products(a, b, ia, ib, o);
        y.data[next++] = activate(o.activation, o.bias ? sum + o.bias->at({index.back()}) : sum);
    });
    return y;
}

Tensor matmul_rounding(const Tensor& a, const Tensor& b, const MatmulOptions& o) {
    MatmulOptions plain;
    plain.transpose_b = o.transpose_b;
    plain.masked_weights = o.masked_weights;
    plain.scale = 16 * 0x1p-24 * std::abs(o.scale);
    return matmul(magnitudes(a), magnitudes(b), plain);
}

Tensor half_rounding(const Tensor& a, const Tensor& b, const MatmulOptions& o) {
    Tensor out = matmul_rounding(a, b, o);
    for (double& x : out.data) {
        x *= 1 + (0x1p-8 + 0x1p-17) / (16 * 0x1p-24);
        x += static_cast<double>(a.size(-1)) * 0x1p-25 * std::abs(o.scale);
    }
    return out;
}

Tensor softmax(const Tensor& scores, const SoftmaxOptions& o) {
    Tensor y = masked_scores(scores, o);
    std::size_t next = 0;
    for (const Row& row : rows_with_largest(y, o)) {
        double sum = o.sinks ? std::exp(row.sink - row.largest) : 0;
        for (std::int64_t i = 0; i < y.size(-1); ++i) {
            const double x = y.data[next + index_of(i)];
            sum += x == -kInfinity ? 0 : std::exp(x - row.largest);
        }
        for (std::int64_t i = 0; i < y.size(-1); ++i, ++next) {
            y.data[next] = y.data[next] == -kInfinity ? -0.0 : std::exp(y.data[next] - row.largest) / sum;
        }
    }
    return y;
}

Tensor log_sum_exp(const Tensor& scores, const SoftmaxOptions& o) {
    const Tensor biased = masked_scores(scores, o);
    Tensor y(Sizes(scores.shape.begin(), scores.shape.end() - 1));
    std::size_t next = 0;
    std::size_t at = 0;
    for (const Row& row : rows_with_largest(biased, o)) {
        double sum = o.sinks ? std::exp(row.sink - row.largest) : 0;
        for (std::int64_t i = 0; i < scores.size(-1); ++i, ++at) {
            sum += std::exp(biased.data[at] - row.largest);
        }
        y.data[next++] = std::isinf(row.largest) ? row.largest : row.largest + std::log(sum);
    }
    return y;
}

Tensor hard_max(const Tensor& scores, const SoftmaxOptions& o) {
    Tensor y = masked_scores(scores, o);
    const Tensor best = y.size(-1) == 0 ? Tensor() : argmax(y);
    for (std::size_t i = 0; i < y.data.size(); ++i) {
        const std::size_t row = i / index_of(y.size(-1));
        const bool first = static_cast<double>(i % index_of(y.size(-1))) == best.data[row];
        y.data[i] = y.data[i] == -kInfinity ? -0.0 : (first ? 1.0 : 0.0);
    }
    return y;
}

Tensor layer_norm(const Tensor& x, const std::optional<Tensor>& weight, const std::optional<Tensor>& bias, double eps) {
    Tensor y = x;
    const std::int64_t width = x.size(-1);
    for (std::int64_t row = 0; row < rows_of(x); ++row) {
        double* v = y.data.data() + row * width;
        double mean = 0;
        double variance = 0;
        for (std::int64_t i = 0; i < width; ++i) {
            mean += v[i] / static_cast<double>(width);
        }
        for (std::int64_t i = 0; i < width; ++i) {
            variance += (v[i] - mean) * (v[i] - mean) / static_cast<double>(width);
        }
        for (std::int64_t i = 0; i < width; ++i) {
            v[i] =
                (v[i] - mean) / std::sqrt(variance + eps) * (weight ? weight->at({i}) : 1) + (bias ? bias->at({i}) : 0);
        }
    }
    return y;
}

Tensor rms_norm(const Tensor& x, const std::optional<Tensor>& weight, double eps) {
    Tensor y = x;
    const std::int64_t width = x.size(-1);
    for (std::int64_t row = 0; row < rows_of(x); ++row) {
        double* v = y.data.data() + row * width;
        double mean_square = 0;
        for (std::int64_t i = 0; i < width; ++i) {
            mean_square += v[i] * v[i] / static_cast<double>(width);
        }
        for (std::int64_t i = 0; i < width; ++i) {
            v[i] = v[i] / std::sqrt(mean_square + eps) * (weight ? weight->at({i}) : 1);
        }
    }
    return y;
}

Tensor argmax(const Tensor& x) {
    Tensor y(Sizes(x.shape.begin(), x.shape.end() - 1));
    for (std::int64_t row = 0; row < y.count(); ++row) {
        const double* v = x.data.data() + row * x.size(-1);
        std::int64_t best = 0;
        for (std::int64_t i = 1; i < x.size(-1); ++i) {
            if (!std::isnan(v[best]) && (std::isnan(v[i]) || v[i] > v[best])) {
                best = i;
            }
        }
        y.data[index_of(row)] = static_cast<double>(best);
    }
    return y;
}

Tensor cross_entropy(const Tensor& logits, const Tensor& labels, const CrossEntropyOptions& o) {
    const Tensor lse = log_sum_exp(logits);
    const std::int64_t classes = logits.size(-1);
    const double smoothing = static_cast<double>(o.label_smoothing);
    double sum = 0;
    double counted = 0;
    for (std::int64_t row = 0; row < labels.count(); ++row) {
        const auto label = static_cast<std::int64_t>(labels.data[index_of(row)]);
        if (label == o.ignore_index) {
            continue;
        }
        const bool known = label >= 0 && label < classes;
        const auto loss = [&](std::int64_t c) {
            return lse.data[index_of(row)] - logits.data[index_of(row * classes + c)];
        };
        double mean = 0;
        for (std::int64_t c = 0; c < classes; ++c) {
            mean += loss(c) / static_cast<double>(classes);
        }
        const double own = known ? loss(label) : kNan;
        sum += smoothing == 0 ? own : (1 - smoothing) * own + smoothing * mean;
        ++counted;
    }
    return Tensor(Sizes{1}, sum / counted);
}

Tensor batch_norm(const Tensor& x, const Tensor& weight, const Tensor& bias, const Tensor& running_mean,
                  const Tensor& running_var, double eps) {
    Tensor y = x;
    for_each_index(x.shape, [&](const Sizes& i) {
        const Sizes channel{i[1]};
        y.at(i) = (x.at(i) - running_mean.at(channel)) / std::sqrt(running_var.at(channel) + eps) * weight.at(channel) +
                  bias.at(channel);
    });
    return y;
}

BatchNorm batch_norm_train(const Tensor& x, const Tensor& weight, const Tensor& bias, const Tensor& running_mean,
                           const Tensor& running_var, double momentum, double eps) {
    const double rows = static_cast<double>(x.size(0));
    Tensor mean({x.size(1)}, 0.0);
    Tensor variance({x.size(1)}, 0.0);
    for_each_index(x.shape, [&](const Sizes& i) { mean.at({i[1]}) += x.at(i) / rows; });
    for_each_index(x.shape, [&](const Sizes& i) {
        variance.at({i[1]}) += (x.at(i) - mean.at({i[1]})) * (x.at(i) - mean.at({i[1]})) / rows;
    });
    return {batch_norm(x, weight, bias, mean, variance, eps),
            add(scale(running_mean, 1 - momentum), scale(mean, momentum)),
            add(scale(running_var, 1 - momentum), scale(variance, momentum * rows / (rows - 1)))};
}

Tensor dropout(const Tensor& x, double p, std::uint32_t seed) {
    Tensor y = x;
    for (std::size_t i = 0; i < y.data.size(); ++i) {
        const double unit = static_cast<double>(philox(static_cast<std::uint32_t>(i), seed)) * 0x1p-32;
        y.data[i] = is_masked(x.data[i]) ? x.data[i] : p < 1 && unit >= p ? x.data[i] / (1 - p) : 0;
    }
    return y;
}

Tensor concat(const std::vector<Tensor>& parts, std::size_t dim) {
    Sizes shape = parts.front().shape;
    shape[dim] = 0;
    for (const Tensor& part : parts) {
        shape[dim] += part.shape[dim];
    }
    Tensor y(shape);
    std::int64_t start = 0;
    for (const Tensor& part : parts) {
        for_each_index(part.shape, [&](Sizes index) {
            const double value = part.at(index);
            index[dim] += start;
            y.at(index) = value;
        });
        start += part.shape[dim];
    }
    return y;
}

Tensor add(const Tensor& a, const Tensor& b) {
    return map(a, b, [](double x, double y) { return x + y; });
}

Tensor mul(const Tensor& a, const Tensor& b) {
    return map(a, b, [](double x, double y) { return x * y; });
}

Tensor scale(const Tensor& x, double factor) { return mul(x, Tensor(Sizes{}, factor)); }

Tensor activate(const Tensor& x, Activation activation) {
    return map(x, Tensor(Sizes{}), [&](double v, double) { return activate(activation, v); });
}

Tensor gated(const Tensor& gate, const Tensor& up, Activation activation) {
    return mul(activate(gate, activation), up);
}

Tensor combine_masks(const Tensor& a, Polarity a_polarity, const Tensor& b, Polarity b_polarity) {
    return map(a, b, [&](double x, double y) {
        const bool both = (x != 0) == (a_polarity == Polarity::attend) && (y != 0) == (b_polarity == Polarity::attend);
        return both ? 1.0 : 0.0;
    });
}

Tensor embedding(const Tensor& ids, const Tensor& table, double scale) {
    Sizes shape = ids.shape;
    shape.push_back(table.size(1));
    Tensor y(shape);
    for (std::int64_t i = 0; i < ids.count(); ++i) {
        const double id = ids.data[index_of(i)];
        const bool known = id >= 0 && id < static_cast<double>(table.size(0));
        for (std::int64_t c = 0; c < table.size(1); ++c) {
            y.data[index_of(i * table.size(1) + c)] =
                known ? scale * table.at({static_cast<std::int64_t>(id), c}) : kNan;
        }
    }
    return y;
}

Tensor repeat_kv(const Tensor& x, std::int64_t n) {
    Tensor y({x.size(0), x.size(1), x.size(2) * n, x.size(3)});
    std::size_t next = 0;
    for_each_index(y.shape, [&](const Sizes& i) { y.data[next++] = x.at({i[0], i[1], i[2] / n, i[3]}); });
    return y;
}

}  // namespace vkf::reference
