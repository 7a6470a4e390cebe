// SPDX-License-Identifier: Apache-2.0
#include "tests/attention_gradient_check.h"

#include "ops/gradients.h"
#include "tests/believed.h"

namespace vkf::test {

TiledProblem tiled_problem(const Sizes& query, const Sizes& key, std::int64_t value_dim) {
    return {random_tensor(query, 1), random_tensor(key, 2), random_tensor({key[0], key[1], key[2], value_dim}, 3),
            random_tensor({query[0], query[1], query[2], value_dim}, 4)};
}

Tensor gappy_mask(const Sizes& shape) {
    Tensor mask = random_integers(shape, 2, 9);
    for (std::int64_t j = 0; j < shape.back(); ++j) {
        mask.at({0, 0, shape[2] / 2, j}) = 0;
    }
    return mask;
}

TiledProblem every_option(const Sizes& query, const Sizes& key, std::int64_t value_dim) {
    TiledProblem p = tiled_problem(query, key, value_dim);
    p.mask = gappy_mask({query[0], 1, query[2], key[2]});
    p.bias = random_tensor({query[1], query[2], key[2]}, 10, 2);
    p.slopes = random_tensor({query[1]}, 11, 0.3);
    p.sinks = random_tensor({query[1]}, 12, 2);
    p.causal = Causal::bottom_right;
    p.window = 40;
    p.softcap = 1.5f;
    p.dropout = 0.25f;
    return p;
}

TiledProblem poisoned(TiledProblem p, double poison) {
    const auto fill = [&](Tensor& t, auto&& hidden) {
        for_each_index(t.shape, [&](const Sizes& i) { t.at(i) = hidden(i[2]) ? poison : t.at(i); });
    };
    for (Tensor* t : {&p.key, &p.value}) {
        fill(*t, [&](std::int64_t key) { return p.mask->at({0, key}) == 0; });
    }
    for (Tensor* t : {&p.query, &p.dy}) {
        fill(*t, [&](std::int64_t row) { return p.mask->at({row, 0}) == 0; });
    }
    return p;
}

Tensor holed_mask(std::int64_t queries, std::int64_t keys) {
    Tensor mask({queries, keys}, 1.0);
    for_each_index(mask.shape, [&](const Sizes& i) {
        const bool hidden = i[1] % 7 == 2 || (i[1] >= 32 && i[1] < 64) || i[0] == 5 || i[0] == queries - 1;
        mask.at(i) = hidden ? 0 : 1;
    });
    return mask;
}

Gradients gradients_as(const TiledProblem& p, const std::function<void(Capabilities&)>& believed, int runs,
                       const CompileOptions& options) {
    const Believed as(believed);
    Graph g;
    const auto input = [&](const char* name, const Tensor& t, DType dtype = DType::f32) {
        return g.input(name, Shape(t.shape.begin(), t.shape.end()), dtype);
    };
    const auto optional = [&](const char* name, const std::optional<Tensor>& t, DType dtype = DType::f32) {
        return t ? input(name, *t, dtype) : Value();
    };
    std::vector<Value> given{input("query", p.query), input("key", p.key), input("value", p.value)};
    AttentionOptions o;
    o.mask.keys = optional("mask", p.mask, DType::i32);
    o.mask.bias = optional("bias", p.bias);
    o.mask.alibi_slopes = optional("slopes", p.slopes);
    o.sinks = optional("sinks", p.sinks);
    o.cumulative_queries = o.cumulative_keys = optional("ends", p.ends, DType::i32);
    o.mask.causal = p.causal;
    o.mask.window = p.window;
    o.mask.fill = p.fill;
    o.softcap = p.softcap;
    o.dropout = p.dropout;
    o.dropout_seed = 3;
    o.log_sum_exp = p.log_sum_exp;
    const AttentionResult a = scaled_dot_product_attention(given[0], given[1], given[2], o);
    Value loss = sum(a.y * input("dy", p.dy));
    if (p.log_sum_exp) {
        loss = loss + sum(a.log_sum_exp);
    }
    if (p.sinks) {
        given.push_back(o.sinks);
    }
    if (p.weights) {
        g.output("weights", contiguous(a.weights));
    }
    const std::vector<Value> grads = gradients(loss, given);
    for (std::size_t i = 0; i < grads.size(); ++i) {
        g.output("out" + std::to_string(i), contiguous(grads[i]));
    }
    Program program = device().compile(g, {}, options);
    upload(program, "query", p.query);
    upload(program, "key", p.key);
    upload(program, "value", p.value);
    upload(program, "dy", p.dy);
    const auto upload_optional = [&](const char* name, const std::optional<Tensor>& t, DType dtype = DType::f32) {
        if (t) {
            upload(program, name, *t, dtype);
        }
    };
    upload_optional("mask", p.mask, DType::i32);
    upload_optional("ends", p.ends, DType::i32);
    upload_optional("bias", p.bias);
    upload_optional("slopes", p.slopes);
    upload_optional("sinks", p.sinks);
    Gradients out;
    out.explained = program.explain();
    for (int run = 0; run < runs; ++run) {
        program.run();
        for (std::size_t i = 0; i < grads.size(); ++i) {
            const Tensor got = download(program, "out" + std::to_string(i));
            if (run == 0) {
                out.of.push_back(got);
            } else {
                out.repeated = out.repeated && same_bits(got, out.of[i]);
            }
        }
    }
    return out;
}

std::string difference(const Gradients& got, const Gradients& want, std::vector<Tolerance> within) {
    if (within.empty()) {
        within.assign(want.of.size(), {.absolute = 3e-5, .relative = 3e-4});
    }
    std::string out;
    for (std::size_t i = 0; i < within.size(); ++i) {
        const std::string found = difference(got.of[i], want.of[i], within[i]);
        out += found.empty() ? "" : "gradient " + std::to_string(i) + ": " + found + "; ";
    }
    return out;
}

void as_composed(Capabilities& c) { c.variants = "attention_composed"; }

}  // namespace vkf::test
