// SPDX-License-Identifier: Apache-2.0
// A product's epilogue: a gate's other half and a residual, beside a bias or without, and where
// these are operands too.
#include <doctest/doctest.h>

#include <algorithm>

#include "runtime/compile/plan.h"
#include "shaders/matmul.h"
#include "tests/believed.h"
#include "tests/host.h"
#include "tests/product_check.h"

namespace vkf::test {

namespace {

Tensor combined(const Tensor& product, const Tensor& other, bool times) {
    Tensor out = product;
    for (std::size_t i = 0; i < out.data.size(); ++i) {
        out.data[i] = times ? out.data[i] * other.data[i] : out.data[i] + other.data[i];
    }
    return out;
}

/// A tensor that dies where it is used, as those of a layer do; whose place another may take.
Value intermediate(Value x) { return relu(x); }

Tensor non_negative(Tensor x) {
    for (double& v : x.data) {
        v = std::max(v, 0.0);
    }
    return x;
}

}  // namespace

TEST_SUITE("matmul") {
    TEST_CASE("matmul: a gate's other half and a residual in the epilogue, bit for bit as ops of their own") {
        const std::int64_t sizes[][3] = {{5, 7, 6},     {19, 36, 8},  {1, 516, 520}, {3, 513, 516},
                                         {9, 520, 512}, {70, 72, 20}, {130, 41, 12}, {2, 64, 64}};
        for (const auto& size : sizes) {
            const std::int64_t m = size[0], n = size[1], k = size[2];
            CAPTURE(m);
            CAPTURE(n);
            const Tensor a = random_tensor({m, k}, 1);
            const Tensor w = random_tensor({n, k}, 2);
            const Tensor other = random_tensor({m, n}, 3);
            const Tensor bias = random_tensor({n}, 4);
            const std::pair<Activation, bool> kinds[] = {{Activation::none, false},
                                                         {Activation::relu, false},
                                                         {Activation::silu, false},
                                                         {Activation::none, true},
                                                         {Activation::silu, true}};
            for (const std::pair<Activation, bool>& kind : kinds) {
                const Activation act = kind.first;
                const bool biased = kind.second;
                CAPTURE(static_cast<int>(act));
                CAPTURE(biased);
                reference::MatmulOptions wanted{.activation = act, .transpose_b = true};
                if (biased) {
                    wanted.bias = bias;
                }
                const Tensor product = twin(a, w, wanted);
                const Tolerance near = tolerance(taken(a), taken(w), {.transpose_b = true});
                for (const bool times : {true, false}) {
                    CAPTURE(times);
                    ProductCheck fused, not_rewritten;
                    not_rewritten.rewrite = false;
                    const auto describe = [&](ProductCheck& check) {
                        const Value va = check.input("a", a), vw = check.input("w", w),
                                    vo = check.input("other", other);
                        MatmulOptions o{.activation = act, .transpose_b = true};
                        o.bias = biased ? check.input("bias", bias) : Value();
                        const Value y = matmul(va, vw, o);
                        return times ? y * vo : y + vo;
                    };
                    const Value y = describe(fused);
                    CHECK(fused.difference(y, combined(product, other, times), near) == "");
                    CHECK(same_bits(fused.run(y), not_rewritten.run(describe(not_rewritten))));
                }
            }
        }
    }

    TEST_CASE("matmul: sums in parts have the same bits with what follows them and without") {
        const auto run = [&](std::int64_t m, std::int64_t n, std::int64_t k, bool turned, int form, bool rewrite) {
            Graph g;
            const Value a = turned ? transpose(g.input("a", {k, m}), 0, 1) : g.input("a", {m, k});
            const Value y = matmul(a, g.input("b", {k, n}));
            const Value other = form == 0 ? Value() : g.input("other", form == 3 ? Shape{n} : Shape{m, n});
            g.output("y", form == 0 ? relu(y) : form == 1 ? y * other : y + other);
            Program program = device().compile(g, {}, {.rewrite = rewrite});
            upload(program, "a", random_tensor(turned ? Sizes{k, m} : Sizes{m, k}, 1));
            upload(program, "b", random_tensor({k, n}, 2));
            if (other) {
                upload(program, "other", random_tensor(form == 3 ? Sizes{n} : Sizes{m, n}, 3));
            }
            program.run();
            return download(program, "y");
        };
        for (const int form : {0, 1, 2, 3}) {
            CAPTURE(form);
            // a processor divides these, for rows that lie a page apart
            CHECK(same_bits(run(1024, 16, 600, true, form, true), run(1024, 16, 600, true, form, false)));
            // and a device these, whose b is too large for a buffer
            const Believed small([](Capabilities& c) { c.storage_range = 65536; });
            CHECK(same_bits(run(8, 64, 600, false, form, true), run(8, 64, 600, false, form, false)));
        }
    }

    TEST_CASE("matmul: what has no room in the epilogue is added and multiplied by ops of its own") {
        const Tensor a = random_tensor({2, 6, 8}, 1), w = random_tensor({5, 8}, 2), bias = random_tensor({5}, 3);
        const Tensor wide = random_tensor({2, 5, 6}, 4), r = random_tensor({2, 6, 5}, 5);
        OpCheck check;
        const Value va = check.input("a", a), vw = check.input("w", w), vr = check.input("r", r);
        const Value turned = transpose(check.input("wide", wide), 1, 2);
        const Value vbias = check.input("bias", bias);
        const auto dispatches = [&](bool biased, bool times, bool plus) {
            Graph g;
            const Value x = g.input("a", {2, 6, 8}), y = g.input("w", {5, 8}), z = g.input("r", {2, 6, 5});
            Value product = linear(x, y, biased ? g.input("bias", {5}) : Value());
            product = times ? product * z : product;
            g.output("y", plus ? product + z : product);
            return plan_of(device().compile(g)).dispatches.size();
        };
        CHECK(dispatches(false, true, false) == 1);
        CHECK(dispatches(false, false, true) == 1);
        CHECK(dispatches(false, true, true) == 2);
        const bool five_buffers = device().capabilities().storage_buffers >= 5;
        CHECK(dispatches(true, false, true) == (five_buffers ? 1 : 2));
        CHECK(dispatches(true, true, false) == (five_buffers ? 1 : 2));
        Tensor want = reference::matmul(a, w, {.bias = bias, .transpose_b = true});
        const Tensor plain = reference::matmul(a, w, {.transpose_b = true});
        const Tensor across = transpose(wide, 1, 2);
        Tensor both = plain, turned_sum = plain;
        for (std::size_t i = 0; i < want.data.size(); ++i) {
            want.data[i] += r.data[i];
            both.data[i] = plain.data[i] * r.data[i] + r.data[i];
            turned_sum.data[i] += across.data[i];
        }
        CHECK(check.difference(linear(va, vw, vbias) + vr, want) == "");
        CHECK(check.difference(linear(va, vw) * vr + vr, both) == "");
        CHECK(check.difference(linear(va, vw) + turned, turned_sum) == "");
    }

    TEST_CASE("matmul: a residual, or a gate, that is an operand too") {
        constexpr std::int64_t kSize = 150;  // several tiles of every kernel, both ways
        const Tensor x = random_tensor({kSize, kSize}, 1), w = random_tensor({kSize, kSize}, 2, 0.1);
        const Tensor h = non_negative(x);
        const Tensor bias = random_tensor({kSize}, 3);
        for (const int which : {0, 1, 2, 3}) {
            const bool times = which % 2 != 0, biased = which / 2 != 0;
            CAPTURE(times);
            CAPTURE(biased);
            for (const bool left : {true, false}) {
                CAPTURE(left);
                OpCheck check;
                const Value vh = intermediate(check.input("x", x)), vw = check.input("w", w);
                MatmulOptions o{.bias = biased ? check.input("bias", bias) : Value()};
                const Value product = left ? matmul(vh, vw, o) : matmul(vw, vh, o);
                const Value y = times ? product * vh : product + vh;
                reference::MatmulOptions wanted;
                if (biased) {
                    wanted.bias = bias;
                }
                const Tensor host = left ? reference::matmul(h, w, wanted) : reference::matmul(w, h, wanted);
                const Tensor once = combined(host, h, times);
                CHECK(check.difference(y + y, combined(once, once, false), {1e-4, 1e-4, {}}) == "");
            }
        }
    }

    TEST_CASE("matmul: the result takes a residual's memory over, but where a bias lies in it too") {
        const Tensor x = random_tensor({33, 20}, 1), w = random_tensor({64, 20}, 2), r = random_tensor({33, 64}, 3);
        for (const bool inside : {false, true}) {
            CAPTURE(inside);
            const auto run = [&](bool fused) {
                Graph g;
                const Value residual = relu(g.input("r", {33, 64}));
                const Value bias = inside ? slice(reshape(residual, {33 * 64}), 0, 3 * 64, 64) : g.input("bias", {64});
                const Value a = g.input("x", {33, 20}), b = g.input("w", {64, 20});
                g.output("y", relu(linear(a, b, bias) + residual));
                Program program = device().compile(g, {}, {.rewrite = fused});
                for (const PlannedDispatch& d : plan_of(program).dispatches) {
                    if (d.dispatch.bindings.size() == shader::kMatmulBindingOther + 1) {
                        const auto lies = [&](std::uint32_t binding) {
                            const ValueId v = d.dispatch.bindings[binding].value;
                            return plan_of(program).arena_offset[plan_of(program).values[v].storage];
                        };
                        CHECK((lies(shader::kMatmulBindingC) == lies(shader::kMatmulBindingOther)) == !inside);
                    }
                }
                upload(program, "x", x);
                upload(program, "w", w);
                upload(program, "r", r);
                if (!inside) {
                    upload(program, "bias", random_tensor({64}, 4));
                }
                program.run();
                return download(program, "y");
            };
            CHECK(same_bits(run(true), run(false)));
        }
    }

    TEST_CASE("matmul: a bias and a residual where b is cut into windows") {
        const Tensor x = random_tensor({9, 64}, 1), w = random_tensor({200, 64}, 2), r = random_tensor({9, 200}, 3);
        const Tensor bias = random_tensor({200}, 4);
        for (const std::uint32_t buffers : {4, 5, 16}) {
            CAPTURE(buffers);
            const auto run = [&](bool fused, std::uint64_t range) {
                const Believed small([&](Capabilities& c) {
                    c.storage_buffers = std::min(c.storage_buffers, buffers);
                    c.storage_range = range;
                });
                OpCheck check;
                check.rewrite = fused;
                const Value a = check.input("x", x), b = check.input("w", w), c = check.input("bias", bias);
                return check.run(linear(a, b, c, Activation::relu) + check.input("r", r));
            };
            const std::uint64_t all = device().capabilities().storage_range;
            const Tensor want = run(false, all);
            CHECK(same_bits(run(true, all), want));
            CHECK(same_bits(run(true, 16384), want));
        }
    }
}

}  // namespace vkf::test
