// SPDX-License-Identifier: Apache-2.0
// Kernels for GPUs that work row by row: rows in registers or not, sums by subgroups or not, and
// rows that several groups share. Each has its name in VKFORMER_VARIANT, here on any device.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <string>
#include <vector>

#include "ops/argmax_of_finite.h"
#include "ops/gradients.h"
#include "tests/believed.h"
#include "tests/device.h"
#include "tests/fenced.h"
#include "tests/op_check.h"
#include "tests/reference.h"

using namespace vkf;
using namespace vkf::test;

namespace {

bool device_has(const std::string& variant) {
    const Capabilities& c = device().capabilities();
    return variant != "rows_subgroups" || (c.subgroup_arithmetic && c.subgroup_shuffle);
}

/// Runs `check` with each variant that the device has.
template <class F>
void with_each_variant(F check) {
    for (const char* variant : {"rows_subgroups", "rows_held", "rows_looped"}) {
        CAPTURE(variant);
        if (!device_has(variant)) {
            cannot_run("arithmetic of subgroups");
            continue;
        }
        const Believed forced([&](Capabilities& c) { c.variants = variant; });
        check();
    }
}

/// Widths at which something ends: lanes, fours of a lane, what a group can hold.
const std::vector<std::int64_t> kWidths{1, 3, 36, 128, 129, 256, 257, 260, 513, 1024, 2049, 4100, 8192, 8200};

std::int64_t count_of(const Tensor& x) { return static_cast<std::int64_t>(x.data.size()); }

Tensor top_places(const Tensor& x, std::int64_t k) {
    const std::int64_t width = x.size(-1), rows = count_of(x) / width;
    Tensor out({rows, k});
    std::vector<std::size_t> order(static_cast<std::size_t>(width));
    for (std::int64_t row = 0; row < rows; ++row) {
        const double* v = x.data.data() + row * width;
        std::iota(order.begin(), order.end(), std::size_t{0});
        std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
            return std::isnan(v[a]) ? !std::isnan(v[b]) : v[a] > v[b];
        });
        std::copy_n(order.begin(), k, out.data.begin() + row * k);
    }
    return out;
}

/// Rows of few different numbers, and what is not one.
Tensor rows_of_equals(const Sizes& shape) {
    Tensor x = random_integers(shape, 7, 5);
    const std::int64_t width = x.size(-1);
    for (std::int64_t i = 0; i < count_of(x); ++i) {
        double& v = x.data[static_cast<std::size_t>(i)];
        v = v == 6.0 ? -0.0 : v == 5.0 ? 0.0 : -v;
        const std::int64_t row = i / width, column = i % width;
        v = row % 4 == 1 && column % 5000 == 4999   ? std::numeric_limits<double>::quiet_NaN()
            : row % 4 == 2 && column % 3000 == 2999 ? std::numeric_limits<double>::infinity()
                                                    : v;
    }
    return x;
}

}  // namespace

TEST_SUITE_BEGIN("row kernels");

TEST_CASE("row kernels: norms and their gradient at widths where something ends") {
    with_each_variant([] {
        for (const std::int64_t width : kWidths) {
            CAPTURE(width);
            const std::int64_t rows = width <= 256 ? 37 : 3;
            const Tensor x = random_tensor({rows, width}, 1, 3);
            const Tensor w = random_tensor({width}, 2), b = random_tensor({width}, 3);
            OpCheck check;
            const Value vx = check.input("x", x), vw = check.input("w", w), vb = check.input("b", b);
            const double eps = static_cast<double>(1e-5f);
            CHECK(difference(check.run(layer_norm(vx, vw, vb)), reference::layer_norm(x, w, b, eps)) == "");
            CHECK(difference(check.run(rms_norm(vx, vw, 1e-5f)), reference::rms_norm(x, w, eps)) == "");
            Tensor twice = x;
            for (double& v : twice.data) {
                v *= 2;
            }
            CHECK(difference(check.run(layer_norm(vx + vx, {}, vb)), reference::layer_norm(twice, {}, b, eps)) == "");
        }
    });
}

TEST_CASE("row kernels: rows of a large number have no spread, also where lanes have nothing of them") {
    with_each_variant([] {
        for (const std::int64_t width : {4, 64, 8200}) {
            CAPTURE(width);
            const Tensor b = random_tensor({width}, 3);
            OpCheck check;
            // 2^80, of which few add up without an error
            const Value x = check.input("x", Tensor({3, width}, std::ldexp(1.0, 80)));
            Tensor want({3, width}, 0);
            for (std::size_t i = 0; i < want.data.size(); ++i) {
                want.data[i] = b.data[i % b.data.size()];
            }
            CHECK(difference(check.run(layer_norm(x, {}, check.input("b", b))), want) == "");
        }
    });
}

TEST_CASE("row kernels: every variant gives nearly the gradient of the first") {
    for (const bool centred : {true, false}) {
        for (const std::int64_t width : {5, 128, 260, 1000, 1024, 4096, 8200}) {
            CAPTURE(width);
            const Tensor x = random_tensor({5, width}, 1, 3);
            const Tensor w = random_tensor({width}, 2), dy = random_tensor({5, width}, 4);
            const auto gradient = [&] {
                OpCheck check;
                const Value vx = check.input("x", x), vw = check.input("w", w);
                const Value y = centred ? layer_norm(vx, vw, {}, 1e-2f) : rms_norm(vx, vw, 1e-2f);
                return check.run(gradients(y, {vx}, check.input("dy", dy)).front());
            };
            const Tensor want = gradient();
            with_each_variant([&] { CHECK(difference(gradient(), want, {1e-5, 1e-4, {}}) == ""); });
        }
    }
}

TEST_CASE("row kernels: softmax, masked or not, and what is made of its rows") {
    with_each_variant([] {
        for (const std::int64_t width : kWidths) {
            CAPTURE(width);
            const std::int64_t rows = width <= 256 ? 21 : 3;
            Tensor x = random_tensor({rows, width}, 1, 10);
            x.at({1, width / 2}) = -kInf;
            Tensor keep({rows, width}, 1.0);
            for (std::int64_t i = 0; i < width; ++i) {
                keep.at({0, i}) = 0;
                keep.at({2, i}) = i % 3 == 0 ? 1 : 0;
            }
            OpCheck check;
            const Value vx = check.input("x", x);
            const SoftmaxOptions masked{.mask = {.keys = check.indices("keep", keep)}};
            const Tolerance tolerance{1e-5, 1e-4, {}};
            CHECK(difference(check.run(softmax(vx)), reference::softmax(x), tolerance) == "");
            const Tensor weights = check.run(softmax(vx, masked));
            CHECK(difference(weights, reference::softmax(x, {.keys = keep}), tolerance) == "");
            CHECK(std::signbit(weights.at({0, 0})));
            CHECK(difference(check.run(log_sum_exp(vx, masked)), reference::log_sum_exp(x, {.keys = keep})) == "");
            CHECK(difference(check.run(hard_max(vx)), reference::hard_max(x), exactly()) == "");
        }
    });
}

TEST_CASE("row kernels: what is not finite stays in its row, wherever in it") {
    with_each_variant([] {
        for (const std::int64_t width : {9, 128, 1000, 1024, 5000}) {
            for (const std::int64_t at : {std::int64_t{0}, width / 2, width - 1}) {
                CAPTURE(width);
                CAPTURE(at);
                Tensor x = random_tensor({7, width}, 1, 3);
                x.at({1, at}) = kNan;
                x.at({3, at}) = kInf;
                x.at({5, at}) = -kInf;
                OpCheck check;
                const Value vx = check.input("x", x);
                CHECK(difference(check.run(softmax(vx)), reference::softmax(x)) == "");
                CHECK(difference(check.run(layer_norm(vx, {}, {})), reference::layer_norm(x, {}, {}, 1e-5)) == "");
                CHECK(difference(check.run(log_sum_exp(vx)), reference::log_sum_exp(x)) == "");
            }
        }
    });
}

TEST_CASE("row kernels: argmax and top_k over parts: equals, NaN, infinities and zeros of both signs") {
    with_each_variant([] {
        for (const std::int64_t width : {2049, 8192, 9001, 40'000}) {
            CAPTURE(width);
            for (const Tensor& x : {random_tensor({5, width}, 1, 30), rows_of_equals({5, width})}) {
                OpCheck check;
                const Value vx = check.input("x", x);
                CHECK(difference(check.run(argmax(vx)), reference::argmax(x), exactly()) == "");
                Tensor marked = reference::argmax(x);
                for (std::int64_t row = 0; row < 5; ++row) {
                    const double best = x.at({row, static_cast<std::int64_t>(marked.at({row}))});
                    marked.at({row}) = std::isfinite(best) ? marked.at({row}) : -1 - marked.at({row});
                }
                CHECK(difference(check.run(argmax_of_finite(vx)), marked, exactly()) == "");
                for (const std::int64_t k : {1, 128}) {
                    CAPTURE(k);
                    const TopK best = top_k(vx, k);
                    const Tensor places = top_places(x, k);
                    CHECK(difference(check.run(best.indices), places, exactly()) == "");
                    Tensor values({5, k});
                    for (std::int64_t i = 0; i < count_of(values); ++i) {
                        const auto at = static_cast<std::size_t>(i);
                        values.data[at] =
                            x.data[static_cast<std::size_t>(i / k * width) + static_cast<std::size_t>(places.data[at])];
                    }
                    CHECK(difference(check.run(best.values), values, exactly()) == "");
                }
            }
        }
    });
}

TEST_CASE("row kernels: top_k of short rows, all k, and of many rows") {
    with_each_variant([] {
        for (const std::int64_t width : {1, 8, 128, 129, 513, 2000}) {
            for (const std::int64_t k : {1, 8, 100, 128}) {
                if (k <= width) {
                    CAPTURE(width);
                    CAPTURE(k);
                    const Tensor x = random_integers({33, width}, 50, 3);
                    OpCheck check;
                    CHECK(difference(check.run(top_k(check.input("x", x), k).indices), top_places(x, k), exactly()) ==
                          "");
                }
            }
        }
    });
}

TEST_CASE("row kernels: one program for few rows, which argmax cuts into parts, and for many") {
    const Believed gpu(as_gpu);
    Graph g;
    constexpr std::int64_t kWide = 40'000;
    const Dim rows = g.symbol("rows", 130);
    g.output("y", argmax(g.input("x", {rows, kWide})));
    Program program = device().compile(g);
    CHECK(contains(program.explain(), "few rows, in parts"));
    for (const std::int64_t n : {1, 2, 128, 129, 0, 1}) {
        CAPTURE(n);
        const Tensor x = random_tensor({n, kWide}, static_cast<std::uint32_t>(n));
        program.set("rows", n);
        upload(program, "x", x);
        program.run();
        CHECK(difference(download(program, "y", DType::i32), reference::argmax(x), exactly()) == "");
    }
}

TEST_CASE("row kernels: keep to their tensors") {
    Fenced fenced(true);
    for (const char* variant : {"rows_subgroups", "rows_held", "rows_looped"}) {
        if (!device_has(variant)) {
            continue;
        }
        CAPTURE(variant);
        for (const std::int64_t width : {3, 129, 260, 1030, 9000, 9001}) {
            CAPTURE(width);
            const auto build = [&](Graph& g) {
                const Value x = g.input("x", {5, width}), w = g.input("w", {width});
                const Value sum = x + g.input("r", {5, width});
                const TopK best = top_k(x, std::min<std::int64_t>(width, 40));
                const Value dx = gradients(layer_norm(x, w, w), {x}, g.input("dy", {5, width})).front();
                return std::vector{softmax(x), layer_norm(x, w, w), rms_norm(sum, w), sum, argmax(x), best.indices, dx};
            };
            CHECK(fenced.trespass(build, {.small_gpu = false, .variants = variant}) == "");
        }
    }
}

TEST_CASE("row kernels: the same bits in a hundred runs") {
    with_each_variant([] {
        for (const std::int64_t width : {100, 1000, 9000}) {
            CAPTURE(width);
            OpCheck check;
            const Value x = check.input("x", random_tensor({3, width}, 1, 10));
            const Value w = check.input("w", random_tensor({width}, 2));
            const Value dx =
                gradients(layer_norm(x, w, {}), {x}, check.input("dy", random_tensor({3, width}, 3))).front();
            check.graph.output("a", softmax(x));
            check.graph.output("b", layer_norm(x, w, w));
            check.graph.output("c", dx);
            check.graph.output("d", top_k(x, 40).values);
            Program program = device().compile(check.graph);
            upload(program, "x", random_tensor({3, width}, 1, 10));
            upload(program, "w", random_tensor({width}, 2));
            upload(program, "dy", random_tensor({3, width}, 3));
            std::vector<Tensor> first;
            for (int run = 0; run < 100; ++run) {
                program.run();
                std::size_t i = 0;
                for (const char* name : {"a", "b", "c", "d"}) {
                    const Tensor got = download(program, name);
                    if (run == 0) {
                        first.push_back(got);
                    }
                    CHECK(same_bits(got, first[i++]));
                }
            }
        }
    });
}

TEST_CASE("row kernels: explain() names the variant, and says which the device lacks") {
    const auto explained = [](const char* variants) {
        Graph g;
        const Value x = g.input("x", {3, 20'000});
        g.output("y", softmax(x));
        g.output("best", argmax(x));
        g.output("top", top_k(x, 5).values);
        const Believed forced([&](Capabilities& c) { c.variants = variants; });
        return device().compile(g).explain();
    };
    const std::string looped = explained("rows_looped"), held = explained("rows_held");
    CHECK(contains(looped, "softmax<"));
    CHECK(contains(looped, "128 invocations a row, by fours"));
    CHECK(contains(looped, "top_k<"));
    CHECK_FALSE(contains(looped, "registers"));
    CHECK(contains(held, "argmax<"));
    CHECK(contains(held, "of what parts found"));
    CHECK_FALSE(contains(held, "subgroups"));
    if (device_has("rows_subgroups")) {
        const std::string best = explained("rows_subgroups");
        CHECK(contains(best, "softmax_subgroups<"));
        CHECK(contains(best, "argmax_subgroups<"));
        CHECK(contains(best, "sums by subgroups"));
    }
    const Believed none([](Capabilities& c) { c.subgroup_arithmetic = false; });
    CHECK(contains(error_of([&] { explained("rows_subgroups"); }),
                   "VKFORMER_VARIANT asks for rows_subgroups, which needs arithmetic and shuffles of subgroups"));
}

TEST_SUITE_END();
