// SPDX-License-Identifier: Apache-2.0
#include "layers/projections.h"

#include <string>

#include "layers/checks.h"
#include "layers/linear.h"
#include "layers/norm.h"
#include "layers/sharing.h"
#include "runtime/base/error.h"

namespace vkf {

namespace {

/// The columns of these heads.
Part columns_of(const Part& heads, const HeadSizes& sizes) {
    return {heads.first * sizes.head_dim, heads.count * sizes.head_dim};
}

HeadSizes own_sizes(const QueryKeyValue& projected, const HeadSizes& whole) {
    const Graph& g = projected.query.graph();
    return is_whole(g) ? whole : share_of_heads(whole, g.rank()).sizes;
}

}  // namespace

QueryKeyValue project(const QueryKeyValue& x, const HeadSizes& sizes, bool bias, const ProjectionNames& names) {
    check_columns(sizes);
    const std::int64_t q = sizes.heads * sizes.head_dim, kv = sizes.kv_heads * sizes.head_dim;
    const Graph& g = x.query.graph();
    if (is_whole(g)) {
        return {linear_layer(x.query, names[0], q, bias), linear_layer(x.key, names[1], kv, bias),
                linear_layer(x.value, names[2], kv, bias)};
    }
    const HeadShare own = share_of_heads(sizes, g.rank());
    const Shard kv_rows = rows_of_heads(own.kv, sizes.head_dim, 0, kv);
    return {linear_rows(x.query, names[0], {0, q, {columns_of(own.query, sizes)}}, bias),
            linear_rows(x.key, names[1], kv_rows, bias), linear_rows(x.value, names[2], kv_rows, bias)};
}

QueryKeyValue project_fused(Value x, const std::string& name, const HeadSizes& sizes, bool bias) {
    check_columns(sizes);
    const std::int64_t all = (sizes.heads + 2 * sizes.kv_heads) * sizes.head_dim;
    if (is_whole(x.graph())) {
        return split_columns(linear_layer(x, name, all, bias), sizes);
    }
    const HeadShare own = share_of_heads(sizes, x.graph().rank());
    Shard rows{0, all, {columns_of(own.query, sizes)}};
    for (const std::int64_t first : {sizes.heads, sizes.heads + sizes.kv_heads}) {
        const Shard more = rows_of_heads(own.kv, sizes.head_dim, first * sizes.head_dim, all);
        rows.parts.insert(rows.parts.end(), more.parts.begin(), more.parts.end());
    }
    return split_columns(linear_rows(x, name, rows, bias), own.sizes);
}

QueryKeyValue project_and_norm(Value x, const HeadSizes& sizes, bool bias, float eps) {
    check_columns(sizes);
    const std::int64_t q = sizes.heads * sizes.head_dim, kv = sizes.kv_heads * sizes.head_dim;
    if (is_whole(x.graph())) {
        QueryKeyValue all = project(x, sizes, bias);
        all.query = rms_norm(all.query, "q_norm", eps);
        all.key = rms_norm(all.key, "k_norm", eps);
        return all;
    }
    // A norm over all heads needs all of them, so every rank computes them, and takes its own.
    const Value query = rms_norm(linear_layer(x, "q_proj", q, bias), "q_norm", eps);
    const Value key = rms_norm(linear_layer(x, "k_proj", kv, bias), "k_norm", eps);
    const HeadShare own = share_of_heads(sizes, x.graph().rank());
    const Shard kv_rows = rows_of_heads(own.kv, sizes.head_dim, 0, kv);
    std::vector<Value> keys;
    for (const Part& p : kv_rows.parts) {
        keys.push_back(slice(key, -1, p.first, p.count));
    }
    const Part mine = columns_of(own.query, sizes);
    return {slice(query, -1, mine.first, mine.count), keys.size() == 1 ? keys.front() : concat(keys, -1),
            linear_rows(x, "v_proj", kv_rows, bias)};
}

Value output_projection(Value attended, const std::string& name, const HeadSizes& sizes, std::int64_t out, bool bias) {
    if (is_whole(attended.graph())) {
        return linear_layer(attended, name, out, bias);
    }
    const HeadShare own = share_of_heads(sizes, attended.graph().rank());
    return linear_columns(attended, name, {1, sizes.heads * sizes.head_dim, {columns_of(own.query, sizes)}}, out, bias);
}

QueryKeyValue split_columns(Value projected, const HeadSizes& sizes) {
    const std::int64_t q = sizes.heads * sizes.head_dim, kv = sizes.kv_heads * sizes.head_dim;
    return {slice(projected, -1, 0, q), slice(projected, -1, q, kv), slice(projected, -1, q + kv, kv)};
}

QueryKeyValue split_heads(const QueryKeyValue& projected, const HeadSizes& whole) {
    const HeadSizes sizes = own_sizes(projected, whole);
    return {split_heads(projected.query, sizes.heads), split_heads(projected.key, sizes.kv_heads),
            split_heads(projected.value, sizes.kv_heads)};
}

Value some_heads(Value x, std::int64_t heads, const Part& some) {
    if (!x || some.count == heads) {
        return x;
    }
    const std::int64_t dim = x.rank() == 1 ? 0 : static_cast<std::int64_t>(x.rank()) - 3;
    if (dim < 0 || x.size(dim) == Dim(1)) {
        return x;  // the same of every head
    }
    const Dim size = x.size(dim);
    if (size != Dim(heads)) {
        throw Error("a mask, slopes or sinks of " +
                        (size.is_constant() ? std::to_string(size.constant()) : std::string("as yet unknown")) +
                        " heads, where there are " + std::to_string(heads) + " over all ranks",
                    "attention");
    }
    return slice(x, dim, some.first, some.count);
}

Mask some_heads(Mask mask, std::int64_t heads, const Part& some) {
    // a mask or bias of one dimension is over keys
    for (Value* x : {&mask.keys, &mask.bias}) {
        *x = *x && x->rank() < 3 ? *x : some_heads(*x, heads, some);
    }
    mask.alibi_slopes = some_heads(mask.alibi_slopes, heads, some);
    return mask;
}

QueryKeyValue split_and_norm_heads(const QueryKeyValue& projected, const HeadSizes& whole, float eps) {
    const HeadSizes sizes = own_sizes(projected, whole);
    const auto normed = [&](Value x, std::int64_t heads, const char* name) {
        const Value split = reshape(x, {x.size(0), x.size(1), heads, sizes.head_dim});
        return transpose(rms_norm(split, name, eps), 1, 2);
    };
    const Value query = normed(projected.query, sizes.heads, "q_norm");
    const Value key = normed(projected.key, sizes.kv_heads, "k_norm");
    return {query, key, split_heads(projected.value, sizes.kv_heads)};
}

}  // namespace vkf
