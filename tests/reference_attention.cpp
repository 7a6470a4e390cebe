// SPDX-License-Identifier: Apache-2.0
#include "tests/reference_attention.h"

#include <cmath>

namespace vkf::reference {

using test::for_each_index;
using test::Sizes;

Attention attention(const Tensor& query, const Tensor& key, const Tensor& value, const AttentionOptions& o) {
    const std::int64_t group = query.size(1) / key.size(1);
    const std::int64_t width = query.size(3);
    const std::int64_t value_width = value.size(3);
    const std::int64_t keys = key.size(2);
    const auto row = [](const Tensor& x, std::int64_t b, std::int64_t h, std::int64_t token) {
        return x.data.data() + ((b * x.size(1) + h) * x.size(2) + token) * x.size(3);
    };
    Tensor scores({query.size(0), query.size(1), query.size(2), keys});
    for_each_index(scores.shape, [&](const Sizes& i) {
        const double* q = row(query, i[0], i[1], i[2]);
        const double* k = row(key, i[0], i[1] / group, i[3]);
        double sum = 0;
        for (std::int64_t c = 0; c < width; ++c) {
            sum += q[c] * k[c];
        }
        scores.at(i) = sum;
    });
    SoftmaxOptions options = o.scores;
    options.scale = options.scale != 0 ? options.scale : 1 / std::sqrt(static_cast<double>(width));
    Attention out;
    out.weights = softmax(scores, options);
    out.log_sum_exp = log_sum_exp(scores, options);
    const Tensor shares = o.dropout != 0 ? dropout(out.weights, o.dropout, o.dropout_seed) : out.weights;
    const bool skip_masked = std::isinf(options.fill);
    out.y = Tensor({query.size(0), query.size(1), query.size(2), value_width});
    for_each_index({query.size(0), query.size(1), query.size(2)}, [&](const Sizes& i) {
        double* y = out.y.data.data() + ((i[0] * query.size(1) + i[1]) * query.size(2) + i[2]) * value_width;
        for (std::int64_t k = 0; k < keys; ++k) {
            const double share = shares.at({i[0], i[1], i[2], k});
            if (skip_masked && share == 0 && std::signbit(share)) {
                continue;
            }
            const double* v = row(value, i[0], i[1] / group, k);
            for (std::int64_t c = 0; c < value_width; ++c) {
                y[c] += share * v[c];
            }
        }
    });
    return out;
}

}  // namespace vkf::reference
