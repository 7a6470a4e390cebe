// SPDX-License-Identifier: Apache-2.0
// The gradient of every op beside central differences of its CPU twin in double precision, in the
// middle of a graph: what goes into the op is computed, and what comes back to it is not one.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <utility>
#include <vector>

#include "layers/attention.h"
#include "ops/gradients.h"
#include "ops/optimizer.h"
#include "tests/device.h"
#include "tests/op_check.h"
#include "tests/reference.h"
#include "tests/reference_attention.h"

using namespace vkf;
using namespace vkf::test;

namespace {

using Values = std::vector<Value>;
using Tensors = std::vector<Tensor>;
using OnDevice = std::function<Value(Values)>;
using OnHost = std::function<Tensor(Tensors)>;

constexpr double kBefore = 1.25;

/// sum of w y^2 / 2, where the op is given 1.25 x and gives y.
double loss_on_host(const OnHost& op, const Tensors& inputs, const Tensor& weight) {
    Tensors scaled;
    for (const Tensor& x : inputs) {
        scaled.push_back(reference::scale(x, kBefore));
    }
    const Tensor y = op(scaled);
    double sum = 0;
    for (std::size_t i = 0; i < y.data.size(); ++i) {
        sum += weight.data[i] * y.data[i] * y.data[i] / 2;
    }
    return sum;
}

Tensor central_differences(const OnHost& op, Tensors inputs, std::size_t of, const Tensor& weight) {
    constexpr double kStep = 1e-5;
    Tensor out(inputs[of].shape);
    for (std::size_t i = 0; i < out.data.size(); ++i) {
        const double x = inputs[of].data[i];
        inputs[of].data[i] = x + kStep;
        const double above = loss_on_host(op, inputs, weight);
        inputs[of].data[i] = x - kStep;
        const double below = loss_on_host(op, inputs, weight);
        inputs[of].data[i] = x;
        out.data[i] = (above - below) / (2 * kStep);
    }
    return out;
}

/// Empty where the gradients at all inputs are those of the twin.
std::string wrong(const Tensors& inputs, const OnDevice& on_device, const OnHost& on_host) {
    OpCheck check;
    Values given, scaled;
    for (std::size_t i = 0; i < inputs.size(); ++i) {
        given.push_back(check.input("x" + std::to_string(i), inputs[i]));
        scaled.push_back(scale(given.back(), static_cast<float>(kBefore)));
    }
    const Value y = on_device(scaled);
    Tensors as_given;
    for (const Tensor& x : inputs) {
        as_given.push_back(reference::scale(x, kBefore));
    }
    const Tensor weight = random_tensor(on_host(as_given).shape, 77);
    const Value w = check.input("weight", weight);
    const Values found = gradients(scale(sum(w * y * y), 0.5f), given);
    std::string out;
    for (std::size_t i = 0; i < inputs.size(); ++i) {
        const Tensor want = central_differences(on_host, inputs, i, weight);
        double largest = 0;
        for (const double v : want.data) {
            largest = std::max(largest, std::abs(v));
        }
        const std::string difference =
            check.difference(contiguous(found[i]), want, {.absolute = 3e-5 * std::max(largest, 1.0), .relative = 3e-4});
        out += difference.empty() ? "" : "input " + std::to_string(i) + ": " + difference + "; ";
    }
    return out;
}

Tensors random_tensors(const std::vector<Sizes>& shapes, double amplitude = 1) {
    Tensors out;
    for (const Sizes& shape : shapes) {
        out.push_back(random_tensor(shape, static_cast<std::uint32_t>(out.size() + 5), amplitude));
    }
    return out;
}

constexpr Activation kDifferentiable[] = {Activation::none, Activation::relu, Activation::gelu,   Activation::gelu_tanh,
                                          Activation::silu, Activation::tanh, Activation::sigmoid};

}  // namespace

TEST_SUITE_BEGIN("gradients");

TEST_CASE("gradients: add and mul, broadcast") {
    const std::pair<Sizes, Sizes> shapes[] = {{{3, 4}, {3, 4}}, {{2, 3, 5}, {3, 1}}, {{1}, {2, 3}},
                                              {{4, 1}, {1, 5}}, {{1, 1}, {1, 1}},    {{2, 1, 3, 1, 2}, {4, 3, 2, 1}},
                                              {{}, {3}}};
    for (const auto& shape : shapes) {
        CAPTURE(shape.first.size());
        const Tensors x = random_tensors({shape.first, shape.second});
        CHECK(wrong(
                  x, [](Values v) { return v[0] + v[1]; }, [](Tensors t) { return reference::add(t[0], t[1]); }) == "");
        CHECK(wrong(
                  x, [](Values v) { return v[0] * v[1]; }, [](Tensors t) { return reference::mul(t[0], t[1]); }) == "");
    }
}

TEST_CASE("gradients: scale, activations and gated products") {
    const Tensors x = random_tensors({{3, 7}, {3, 7}}, 2);
    CHECK(wrong(
              {x[0]}, [](Values v) { return scale(v[0], -1.5f); },
              [](Tensors t) { return reference::scale(t[0], -1.5); }) == "");
    for (const Activation a : kDifferentiable) {
        CAPTURE(static_cast<int>(a));
        CHECK(wrong(
                  {x[0]}, [a](Values v) { return activate(v[0], a); },
                  [a](Tensors t) { return reference::activate(t[0], a); }) == "");
        CHECK(wrong(
                  x, [a](Values v) { return gated(v[0], v[1], a); },
                  [a](Tensors t) { return reference::gated(t[0], t[1], a); }) == "");
    }
    Tensor positive = x[0];
    for (double& v : positive.data) {
        v = static_cast<float>(std::abs(v) + 0.5);
    }
    CHECK(wrong(
              {positive}, [](Values v) { return activate(v[0], Activation::rsqrt); },
              [](Tensors t) { return reference::activate(t[0], Activation::rsqrt); }) == "");
}

TEST_CASE("gradients: activations of numbers whose squares are infinite") {
    const Tensor x({6}, {3e38, -3e38, 5e19, -5e19, 1e13, -1e13});
    for (const Activation a : {Activation::gelu, Activation::gelu_tanh, Activation::silu}) {
        CAPTURE(static_cast<int>(a));
        OpCheck check;
        const Value in = check.input("x", x);
        CHECK(check.difference(gradients(sum(activate(in, a)), {in}).front(), Tensor({6}, {1, 0, 1, 0, 1, 0})) == "");
    }
}

TEST_CASE("gradients: the elements that dropout takes away pass none") {
    const Tensors x = random_tensors({{5, 9}});
    CHECK(wrong(
              x, [](Values v) { return dropout(v[0], 0.4f, 3); },
              [](Tensors t) { return reference::dropout(t[0], 0.4, 3); }) == "");
    CHECK(wrong(
              x, [](Values v) { return dropout(transpose(v[0], 0, 1), 0.4f, 3); },
              [](Tensors t) { return reference::dropout(transpose(t[0], 0, 1), 0.4, 3); }) == "");
}

TEST_CASE("gradients: views scatter and reduce") {
    const Tensors x = random_tensors({{4, 6}});
    const auto check = [&](const OnDevice& device, const OnHost& host) { CHECK(wrong(x, device, host) == ""); };
    check([](Values v) { return transpose(v[0], 0, 1); }, [](Tensors t) { return transpose(t[0], 0, 1); });
    check([](Values v) { return reshape(v[0], {2, 2, 6}); }, [](Tensors t) { return reshape(t[0], {2, 2, 6}); });
    check([](Values v) { return slice(v[0], 0, 1, 2); }, [](Tensors t) { return slice(t[0], 0, 1, 2); });
    check([](Values v) { return slice(v[0], 1, 1, 4); }, [](Tensors t) { return slice(t[0], 1, 1, 4); });
    check(
        [](Values v) {
            return broadcast_to(v[0], {3, 4, 6});
        },
        [](Tensors t) {
            return broadcast_to(t[0], {3, 4, 6});
        });
    check([](Values v) { return split_heads(v[0], 3); },
          [](Tensors t) {
              return permute(reshape(t[0], {4, 3, 2}), {1, 0, 2});
          });
    // columns that are all there, in another order: written once each
    check(
        [](Values v) {
            return concat({slice(v[0], 1, 4, 2), slice(v[0], 1, 0, 4)}, 1);
        },
        [](Tensors t) {
            Tensor out({4, 6});
            for_each_index(out.shape, [&](const Sizes& i) { out.at(i) = t[0].at({i[0], (i[1] + 4) % 6}); });
            return out;
        });
    // windows that overlap, and the whole
    check([](Values v) { return slice(v[0], 1, 0, 4) * slice(v[0], 1, 2, 4) + slice(v[0] * v[0], 1, 1, 4); },
          [](Tensors t) {
              const Tensor squared = reference::mul(t[0], t[0]);
              return reference::add(reference::mul(slice(t[0], 1, 0, 4), slice(t[0], 1, 2, 4)),
                                    slice(squared, 1, 1, 4));
          });
    check([](Values v) { return contiguous(slice(transpose(v[0], 0, 1), 0, 2, 3)); },
          [](Tensors t) { return slice(transpose(t[0], 0, 1), 0, 2, 3); });
}

TEST_CASE("gradients: sums") {
    const Tensors x = random_tensors({{2, 3, 4}});
    for (const Sizes& shape : {Sizes{1, 1, 1}, Sizes{3, 1}, Sizes{4}, Sizes{2, 1, 4}, Sizes{2, 3, 1}, Sizes{1, 4}}) {
        CHECK(wrong(
                  x, [&](Values v) { return sum_to(v[0], Shape(shape.begin(), shape.end())); },
                  [&](Tensors t) {
                      Tensor out(shape);
                      for_each_index(t[0].shape, [&](const Sizes& i) {
                          Sizes at(shape.size());
                          for (std::size_t d = 0; d < shape.size(); ++d) {
                              at[d] = shape[d] == 1 ? 0 : i[i.size() - shape.size() + d];
                          }
                          out.at(at) += t[0].at(i);
                      });
                      return out;
                  }) == "");
    }
}

TEST_CASE("gradients: long sums are taken in parts") {
    const Tensor x = random_tensor({70000}, 1), wide = random_tensor({3000, 5}, 2),
                 deep = random_tensor({2, 3, 5, 4, 7}, 3);
    OpCheck check;
    const auto all = [](const Tensor& t) {
        double total = 0;
        for (const double v : t.data) {
            total += v;
        }
        return Tensor({1}, total);
    };
    CHECK(check.difference(sum(check.input("x", x)), all(x), {.absolute = 1e-3}) == "");
    const Value w = check.input("wide", wide);
    CHECK(check.difference(sum(transpose(w, 0, 1)), all(wide), {.absolute = 1e-3}) == "");
    Tensor columns({5});
    for_each_index(wide.shape, [&](const Sizes& i) { columns.at({i[1]}) += wide.at(i); });
    CHECK(check.difference(sum_to(w, {5}), columns, {.absolute = 1e-3}) == "");
    // rows that an invocation could not go through, of each of several that are summed
    const Tensor rows = random_tensor({2, 2, 70001}, 4);
    Tensor of_rows({2});
    for_each_index(rows.shape, [&](const Sizes& i) { of_rows.at({i[1]}) += rows.at(i); });
    const Value r = sum_to(check.input("rows", rows), {1, 2, 1});
    CHECK(check.difference(reshape(r, {2}), of_rows, {.absolute = 1e-3}) == "");
    const Value d = permute(check.input("deep", deep), {4, 1, 3, 0, 2});
    CHECK(check.difference(sum(d), all(deep)) == "");
    // sums for which as few parts as there would be work for are too few
    const Tensor column = random_tensor({33000, 1}, 5);
    const Dim many = check.graph.symbol("many", 4096);
    check.set("many", 3);
    const Value wider = broadcast_to(check.input("column", column), {33000, many});
    CHECK(check.difference(sum_to(wider, {1, many}), broadcast_to(reshape(all(column), {1, 1}), {1, 3}),
                           {.absolute = 1e-3}) == "");
}

TEST_CASE("gradients: products") {
    const auto check = [](const Sizes& a, const Sizes& b, bool transpose_b, bool bias, double factor) {
        Tensors x = random_tensors({a, b});
        if (bias) {
            x.push_back(random_tensor({transpose_b ? b[b.size() - 2] : b.back()}, 9));
        }
        return wrong(
            x,
            [=](Values v) {
                return matmul(v[0], v[1],
                              {.bias = bias ? v[2] : Value(),
                               .activation = Activation::silu,
                               .scale = static_cast<float>(factor),
                               .transpose_b = transpose_b});
            },
            [=](Tensors t) {
                reference::MatmulOptions o{.activation = Activation::silu, .scale = factor, .transpose_b = transpose_b};
                if (bias) {
                    o.bias = t[2];
                }
                return reference::matmul(t[0], t[1], o);
            });
    };
    CHECK(check({3, 5}, {5, 4}, false, true, 1) == "");
    CHECK(check({3, 5}, {4, 5}, true, false, 0.5) == "");
    CHECK(check({2, 3, 5}, {4, 5}, true, true, 1) == "");
    CHECK(check({2, 3, 5}, {5, 4}, false, false, 1) == "");
    CHECK(check({2, 1, 3, 5}, {3, 5, 2}, false, true, 1) == "");
    CHECK(check({3, 1, 5}, {2, 1, 4, 5}, true, false, 2) == "");
    CHECK(check({1, 1}, {1, 1}, false, true, 1) == "");
}

TEST_CASE("gradients: softmax and its kin") {
    const Sizes shape{2, 3, 5, 7};
    Tensor keys = random_integers({5, 7}, 2, 4);
    for (std::int64_t key = 0; key < 7; ++key) {
        keys.at({2, key}) = 0;  // a row with no key left
    }
    const Tensors x = random_tensors({shape, {5, 7}, {3}}, 1.5);
    const auto with = [&](const SoftmaxOptions& base, reference::SoftmaxOptions twin, bool bias, bool sinks, bool mask,
                          Value (*op)(Value, const SoftmaxOptions&),
                          Tensor (*host)(const Tensor&, const reference::SoftmaxOptions&)) {
        return wrong(
            x,
            [=](Values v) {
                SoftmaxOptions o = base;
                o.mask.bias = bias ? v[1] : Value();
                o.sinks = sinks ? v[2] : Value();
                if (mask) {
                    std::vector<std::int32_t> bits(keys.data.begin(), keys.data.end());
                    o.mask.keys = v[0].graph().constant("keys", {5, 7}, std::span<const std::int32_t>(bits));
                }
                return op(v[0], o);
            },
            [=](Tensors t) {
                reference::SoftmaxOptions o = twin;
                if (bias) {
                    o.bias = t[1];
                }
                if (sinks) {
                    o.sinks = t[2];
                }
                if (mask) {
                    o.keys = keys;
                }
                return host(t[0], o);
            });
    };
    const auto both = [&](const SoftmaxOptions& o, const reference::SoftmaxOptions& twin, bool bias, bool sinks,
                          bool mask) { CHECK(with(o, twin, bias, sinks, mask, softmax, reference::softmax) == ""); };
    both({.scale = 0.5f}, {.scale = 0.5}, false, false, false);
    both({}, {}, true, true, false);
    both({.scale = 0.7f, .softcap = 2.0f}, {.scale = static_cast<double>(0.7f), .softcap = 2}, true, false, true);
    both({.mask = {.causal = Causal::bottom_right, .window = 3}}, {.causal = Causal::bottom_right, .window = 3}, false,
         true, false);
    both({.mask = {.fill = -3.0f}, .scale = 2.0f}, {.fill = -3, .scale = 2}, true, false, true);
    CHECK(with({.scale = 0.5f, .softcap = 3.0f}, {.scale = 0.5, .softcap = 3}, true, true, false, log_sum_exp,
               reference::log_sum_exp) == "");
    CHECK(with({.mask = {.causal = Causal::top_left}}, {.causal = Causal::top_left}, false, false, false, log_sum_exp,
               reference::log_sum_exp) == "");
}

TEST_CASE("gradients: cross-entropy") {
    const Tensor labels({5}, {3, 0, -100, 2, 6});
    for (const float smoothing : {0.0f, 0.25f}) {
        const CrossEntropyOptions o{.label_smoothing = smoothing};
        CHECK(wrong(
                  {random_tensor({5, 7}, 1, 2)},
                  [=](Values v) {
                      const std::vector<std::int32_t> ids(labels.data.begin(), labels.data.end());
                      return cross_entropy(v[0],
                                           v[0].graph().constant("labels", {5}, std::span<const std::int32_t>(ids)), o);
                  },
                  [=](Tensors t) { return reference::cross_entropy(t[0], labels, o); }) == "");
    }
}

TEST_CASE("gradients: cross-entropy of logits far from 0") {
    constexpr double kOffset = 65536;  // so that 1.25 of a logit is an fp32 number too
    const Tensor labels({4}, {3, 0, 2, 6});
    Tensor logits = random_integers({4, 7}, 64);
    for (double& v : logits.data) {
        v = kOffset + v / 16;
    }
    for (const float smoothing : {0.0f, 0.25f}) {
        const CrossEntropyOptions o{.label_smoothing = smoothing};
        CHECK(wrong(
                  {logits},
                  [=](Values v) {
                      const std::vector<std::int32_t> ids(labels.data.begin(), labels.data.end());
                      return cross_entropy(v[0],
                                           v[0].graph().constant("labels", {4}, std::span<const std::int32_t>(ids)), o);
                  },
                  [=](Tensors t) { return reference::cross_entropy(t[0], labels, o); }) == "");
    }
}

TEST_CASE("gradients: sinks of next to no weight keep their digits") {
    constexpr std::int64_t kRows = 3, kKeys = 16;
    const Tensor scores = random_tensor({1, 2, kRows, kKeys}, 1);
    const Tensor sinks({2}, {-8, -12});
    Tensor dw = random_tensor(scores.shape, 2);
    for (double& v : dw.data) {
        v = std::abs(v) + 1;  // none takes from another
    }
    Tensor of_weights({2}), of_sums({2});
    for (std::int64_t head = 0; head < 2; ++head) {
        for (std::int64_t row = 0; row < kRows; ++row) {
            const double sink = std::exp(sinks.at({head}));
            double total = sink, mean = 0;
            for (std::int64_t key = 0; key < kKeys; ++key) {
                total += std::exp(scores.at({0, head, row, key}));
                mean += std::exp(scores.at({0, head, row, key})) * dw.at({0, head, row, key});
            }
            of_weights.at({head}) -= sink / total * mean / total;
            of_sums.at({head}) += sink / total;
        }
    }
    const Tolerance digits{.absolute = 0, .relative = 1e-4};
    for (const bool of_sum : {false, true}) {
        CAPTURE(of_sum);
        OpCheck check;
        const Value x = check.input("scores", scores), s = check.input("sinks", sinks), d = check.input("dw", dw);
        const Value loss = of_sum ? sum(log_sum_exp(x, {.sinks = s})) : sum(d * softmax(x, {.sinks = s}));
        CHECK(check.difference(gradients(loss, {s}).front(), of_sum ? of_sums : of_weights, digits) == "");
    }
}

TEST_CASE("gradients: norms") {
    for (const Sizes& shape : {Sizes{3, 5}, Sizes{2, 3, 8}, Sizes{4, 1}, Sizes{1, 130}}) {
        const std::int64_t n = shape.back();
        const Tensors x = random_tensors({shape, {n}, {n}});
        CHECK(wrong(
                  x, [](Values v) { return layer_norm(v[0], v[1], v[2], 1e-2f); },
                  [](Tensors t) { return reference::layer_norm(t[0], t[1], t[2], 1e-2f); }) == "");
        CHECK(wrong(
                  {x[0]}, [](Values v) { return layer_norm(v[0], {}, {}, 1e-2f); },
                  [](Tensors t) { return reference::layer_norm(t[0], {}, {}, 1e-2f); }) == "");
        CHECK(wrong(
                  {x[0], x[1]}, [](Values v) { return rms_norm(v[0], v[1], 1e-2f); },
                  [](Tensors t) { return reference::rms_norm(t[0], t[1], 1e-2f); }) == "");
    }
    // rows that lie apart, and a sum before the norm
    CHECK(wrong(
              random_tensors({{3, 6}, {3, 6}}),
              [](Values v) { return rms_norm(slice(v[0] + v[1], 1, 1, 4), {}, 1e-2f); },
              [](Tensors t) { return reference::rms_norm(slice(reference::add(t[0], t[1]), 1, 1, 4), {}, 1e-2f); }) ==
          "");
}

TEST_CASE("gradients: a norm of equal numbers far from 0 deviates by nothing but eps") {
    for (const std::int64_t width : {7, 768, 4095, 4096}) {
        CAPTURE(width);
        const Tensor x({2, width}, static_cast<double>(100.1f)), dy = random_tensor({2, width}, 3);
        Tensor expected({2, width});  // (dy - its mean) / sqrt(eps)
        for (std::int64_t row = 0; row < 2; ++row) {
            double mean = 0;
            for (std::int64_t i = 0; i < width; ++i) {
                mean += dy.at({row, i}) / static_cast<double>(width);
            }
            for (std::int64_t i = 0; i < width; ++i) {
                expected.at({row, i}) = (dy.at({row, i}) - mean) / std::sqrt(static_cast<double>(1e-5f));
            }
        }
        OpCheck check;
        const Value in = check.input("x", x), loss = sum(layer_norm(in, {}, {}, 1e-5f) * check.input("dy", dy));
        CHECK(check.difference(gradients(loss, {in}).front(), expected, {.absolute = 1e-2, .relative = 3e-4}) == "");
    }
}

TEST_CASE("gradients: rows of an embedding that are named several times add up") {
    const Tensor ids({2, 5}, {1, 3, 1, 0, 1, 3, 6, 6, 1, 2});
    CHECK(wrong(
              {random_tensor({7, 6}, 1)},
              [=](Values v) {
                  const std::vector<std::int32_t> numbers(ids.data.begin(), ids.data.end());
                  const Value i = v[0].graph().constant("ids", {2, 5}, std::span<const std::int32_t>(numbers));
                  return embedding(transpose(i, 0, 1), v[0], 0.5f);
              },
              [=](Tensors t) { return reference::embedding(transpose(ids, 0, 1), t[0], 0.5); }) == "");
}

TEST_CASE("gradients: an id outside the table adds nothing") {
    OpCheck check;
    const Value table = check.input("table", random_tensor({4, 3}, 1));
    const Value ids = check.indices("ids", Tensor({5}, {-1, 2, 4, 1 << 30, 2}));
    const Value dy = check.input("dy", Tensor({5, 3}, 1.0));
    const Value found = gradients(embedding(ids, table), {table}, dy).front();
    Tensor want({4, 3});
    for (std::int64_t column = 0; column < 3; ++column) {
        want.at({2, column}) = 2;
    }
    CHECK(check.difference(found, want, exactly()) == "");
}

TEST_CASE("gradients: rotary positions") {
    for (const RopeLayout layout : {RopeLayout::half, RopeLayout::interleaved}) {
        for (const std::int64_t rotary : {0, 4}) {
            const Rope rope_options{.layout = layout, .rotary_dim = rotary, .max_positions = 20};
            CHECK(wrong(
                      {random_tensor({2, 5, 8}, 1)}, [=](Values v) { return rope(v[0], rope_options, 3); },
                      [=](Tensors t) {
                          return reference::rope(t[0], rope_options, {3, 4, 5, 6, 7});
                      }) == "");
            CHECK(wrong(
                      {random_tensor({5, 2, 16}, 1)},
                      [=](Values v) { return rope(transpose(v[0], 0, 1), rope_options, 0); },
                      [=](Tensors t) {
                          return reference::rope(transpose(t[0], 0, 1), rope_options, {0, 1, 2, 3, 4});
                      }) == "");
        }
    }
}

TEST_CASE("gradients: batch norm") {
    const Tensors x = random_tensors({{6, 3}, {3}, {3}});
    CHECK(wrong(
              x,
              [](Values v) {
                  const Value zeros = scale(v[1], 0.0f);
                  return batch_norm_train(v[0], v[1], v[2], zeros, zeros, 0.1f, 1e-2f).y;
              },
              [](Tensors t) {
                  const Tensor zeros({3});
                  return reference::batch_norm_train(t[0], t[1], t[2], zeros, zeros, 0.1f, 1e-2f).y;
              }) == "");
}

TEST_CASE("gradients: repeat_kv adds up the copies") {
    CHECK(wrong(
              {random_tensor({2, 3, 2, 4}, 1)}, [](Values v) { return repeat_kv(v[0], 3); },
              [](Tensors t) {
                  Tensor out({2, 3, 6, 4});
                  for_each_index(out.shape, [&](const Sizes& i) { out.at(i) = t[0].at({i[0], i[1], i[2] / 3, i[3]}); });
                  return out;
              }) == "");
}

TEST_CASE("gradients: sizes are symbols, and may be 0") {
    for (const std::int64_t tokens : {0, 1, 5}) {
        CAPTURE(tokens);
        OpCheck check;
        check.set("tokens", tokens);
        const Dim t = check.graph.symbol("tokens", 9);
        const Tensor x = random_tensor({tokens, 4}, 1), w = random_tensor({6, 4}, 2);
        const Value in = check.input("x", x, {t, 4}), weight = check.input("w", w);
        const Values found = gradients(sum(rms_norm(linear(in, weight), {}, 1e-2f) * linear(in, weight)), {in, weight});
        const auto twin = [&](const Tensor& a, const Tensor& b) {
            const Tensor y = reference::matmul(a, b, {.transpose_b = true});
            const Tensor z = reference::mul(reference::rms_norm(y, {}, 1e-2f), y);
            double total = 0;
            for (const double v : z.data) {
                total += v;
            }
            return total;
        };
        Tensor want({6, 4});
        for (std::size_t i = 0; i < want.data.size(); ++i) {
            Tensor above = w, below = w;
            above.data[i] += 1e-5;
            below.data[i] -= 1e-5;
            want.data[i] = (twin(x, above) - twin(x, below)) / 2e-5;
        }
        CHECK(check.difference(contiguous(found[1]), want, {.absolute = 1e-4, .relative = 3e-4}) == "");
        CHECK(check.run(contiguous(found[0])).shape == Sizes{tokens, 4});
    }
}

TEST_CASE("gradients: what a value does not change has gradient 0, and integers stop it") {
    OpCheck check;
    const Value x = check.input("x", random_tensor({3, 4}, 1)), other = check.input("other", random_tensor({5}, 2));
    const Value table = check.input("table", random_tensor({4, 2}, 3));
    const Values found = gradients(sum(embedding(argmax(x), table)), {x, other});
    CHECK(check.difference(found[0], Tensor({3, 4}), exactly()) == "");
    CHECK(check.difference(found[1], Tensor({5}), exactly()) == "");
}

TEST_CASE("gradients: of a value in the middle, and of one used by its own gradient") {
    OpCheck check;
    const Tensor a = random_tensor({3, 4}, 1);
    const Value x = check.input("x", a);
    const Value middle = scale(x, 2.0f);
    const Values found = gradients(sum(middle * middle), {middle, x});
    CHECK(check.difference(found[0], reference::scale(a, 4)) == "");
    CHECK(check.difference(found[1], reference::scale(a, 8)) == "");
}

TEST_CASE("gradients: of a gradient, through slices that overlap, and a norm that has none") {
    constexpr std::int64_t kCount = 5;
    const Tensor x = random_tensor({kCount}, 3);
    const auto at = [](const Tensor& t, std::int64_t i) { return i < 0 || i >= kCount ? 0.0 : t.at({i}); };
    // of the sum of squares of neighbours' products
    const auto first = [&](const Tensor& t) {
        Tensor out({kCount});
        for (std::int64_t i = 0; i < kCount; ++i) {
            out.at({i}) = 2 * at(t, i) * (at(t, i - 1) * at(t, i - 1) + at(t, i + 1) * at(t, i + 1));
        }
        return out;
    };
    const auto squares = [&](const Tensor& t) {
        double sum = 0;
        for (const double v : first(t).data) {
            sum += v * v;
        }
        return sum;
    };
    Tensor second({kCount});
    for (std::int64_t i = 0; i < kCount; ++i) {
        Tensor above = x, below = x;
        above.at({i}) += 1e-5;
        below.at({i}) -= 1e-5;
        second.at({i}) = (squares(above) - squares(below)) / 2e-5;
    }
    OpCheck check;
    const Value in = check.input("x", x);
    const Value y = slice(in, 0, 0, kCount - 1) * slice(in, 0, 1, kCount - 1);
    const Value g = gradients(sum(y * y), {in}).front();
    const Value gg = gradients(sum(g * g), {in}).front();
    CHECK(check.difference(contiguous(g), first(x)) == "");
    CHECK(check.difference(contiguous(gg), second, {.absolute = 1e-4, .relative = 3e-4}) == "");

    const Value norm = clip_grad_norm({g}, 1.0f).norm;
    CHECK(contains(error_of([&] { gradients(norm, {in}); }), "clip_grad_norm (clip_grad_norm) has no gradient"));
}

TEST_CASE("gradients: of a view, from a seed that is a part of another tensor") {
    OpCheck check;
    const Tensor w = random_tensor({2, 3}, 1), seed = random_tensor({4, 3}, 2);
    const Value in = check.input("w", w), other = check.input("other", w);
    const Value found = gradients(in + other, {transpose(in, 0, 1)}, slice(check.input("seed", seed), 0, 2, 2)).front();
    CHECK(check.difference(contiguous(found), transpose(slice(seed, 0, 2, 2), 0, 1), exactly()) == "");
}

TEST_CASE("gradients: a gradient that is masked skips what either operand holds") {
    // the first query may see nothing, and is not a number
    Tensor q = random_tensor({3, 4}, 1);
    const Tensor k = random_tensor({4, 5}, 2);
    for (std::int64_t i = 0; i < 4; ++i) {
        q.at({0, i}) = kNan;
    }
    Tensor keys({3, 5}, 1.0);
    for (std::int64_t i = 0; i < 5; ++i) {
        keys.at({0, i}) = 0;
    }
    OpCheck check;
    const Value a = check.input("q", q), b = check.input("k", k);
    const Value scores = matmul(a, b, {.masked_gradient = true});
    const Value w = softmax(scores, {.mask = {.keys = check.indices("keys", keys)}});
    const Values found = gradients(w, {a, b}, check.input("dw", random_tensor({3, 5}, 3)));
    for (const Value& gradient : found) {
        const Tensor got = check.run(contiguous(gradient));
        CHECK(std::all_of(got.data.begin(), got.data.end(), [](double v) { return std::isfinite(v); }));
    }
}

TEST_CASE("gradients: of 16-bit values, in f32") {
    OpCheck check;
    const Tensor x = random_integers({3, 4}, 8, 1);
    const Value half = check.input("x", x, DType::f16);
    const Value wide = to(half, DType::f32);
    const Value found = gradients(sum(wide * wide), {half}).front();
    CHECK(found.dtype() == DType::f32);
    CHECK(check.difference(contiguous(found), reference::scale(x, 2), exactly()) == "");
}

TEST_SUITE_END();
