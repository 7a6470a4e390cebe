// SPDX-License-Identifier: Apache-2.0
#include "layers/projections.h"

#include "layers/linear.h"
#include "layers/norm.h"

namespace vkf {

QueryKeyValue project(Value x, const HeadSizes& sizes, bool bias, const ProjectionNames& names) {
    const std::int64_t q = sizes.heads * sizes.head_dim, kv = sizes.kv_heads * sizes.head_dim;
    return {linear_layer(x, names[0], q, bias), linear_layer(x, names[1], kv, bias),
            linear_layer(x, names[2], kv, bias)};
}

QueryKeyValue project_fused(Value x, const std::string& name, const HeadSizes& sizes, bool bias) {
    return split_columns(linear_layer(x, name, (sizes.heads + 2 * sizes.kv_heads) * sizes.head_dim, bias), sizes);
}

QueryKeyValue split_columns(Value projected, const HeadSizes& sizes) {
    const std::int64_t q = sizes.heads * sizes.head_dim, kv = sizes.kv_heads * sizes.head_dim;
    return {slice(projected, -1, 0, q), slice(projected, -1, q, kv), slice(projected, -1, q + kv, kv)};
}

QueryKeyValue split_heads(const QueryKeyValue& projected, const HeadSizes& sizes) {
    return {split_heads(projected.query, sizes.heads), split_heads(projected.key, sizes.kv_heads),
            split_heads(projected.value, sizes.kv_heads)};
}

QueryKeyValue split_and_norm_heads(const QueryKeyValue& projected, const HeadSizes& sizes, float eps) {
    const auto normed = [&](Value x, std::int64_t heads, const char* name) {
        const Value split = reshape(x, {x.size(0), x.size(1), heads, sizes.head_dim});
        return transpose(rms_norm(split, name, eps), 1, 2);
    };
    const Value query = normed(projected.query, sizes.heads, "q_norm");
    const Value key = normed(projected.key, sizes.kv_heads, "k_norm");
    return {query, key, split_heads(projected.value, sizes.kv_heads)};
}

}  // namespace vkf
