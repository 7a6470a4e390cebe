// SPDX-License-Identifier: Apache-2.0
// Sums of views: their order, and that nothing of them is left out.
#include <doctest/doctest.h>

#include <cstdint>
#include <utility>

#include "ops/ops.h"
#include "ops/optimizer.h"
#include "runtime/compile/plan.h"
#include "tests/device.h"
#include "tests/host.h"
#include "tests/op_check.h"

using namespace vkf;
using namespace vkf::test;

TEST_SUITE("sums") {
    TEST_CASE("sums: a view's have the bits of its copy's, for the order is of the sizes alone") {
        const Tensor x = random_tensor({6, 13}, 1), z = random_tensor({37, 29}, 2),
                     deep = random_tensor({2, 3, 5, 4, 7}, 3);
        OpCheck check;
        const auto same = [&](Value view, const Shape& shape) {
            CAPTURE(check.graph.str(shape));
            CHECK(same_bits(check.run(sum_to(view, shape)), check.run(sum_to(contiguous(view), shape))));
        };
        same(slice(check.input("x", x), 1, 0, 8), {1, 1});
        same(transpose(check.input("z", z), 0, 1), {1, 1});
        const Value d = check.input("deep", deep);
        same(permute(d, {4, 1, 3, 0, 2}), {1, 1, 1, 1, 1});
        same(permute(d, {4, 1, 3, 0, 2}), {1, 3, 1, 1, 1});
        same(slice(permute(d, {0, 2, 1, 4, 3}), 2, 1, 1), {1, 1, 1, 1, 1});
        same(slice(d, 1, 1, 1), {1, 1, 1, 1, 7});
    }

    TEST_CASE("sums: what reads joined columns adds up in the order that it has without") {
        const auto reads = [](int op, Value x) {
            return op == 0 ? sum_to(x, {1, 1}) : op == 1 ? layer_norm(x, {}, {}) : rms_norm(x, {});
        };
        for (const int op : {0, 1, 2}) {
            CAPTURE(op);
            Graph g;
            const Value in = g.input("x", {6, 16});
            g.output("first", reads(op, linear(in, g.weight("a", {8, 16}))));
            g.output("second", reads(op, linear(in, g.weight("b", {5, 16}))));
            const Weights weights = random_weights({&g});
            const auto run = [&](bool rewrite) {
                Program program = device().compile(g, weights, {.rewrite = rewrite});
                upload(program, "x", random_tensor({6, 16}, 1));
                program.run();
                return std::pair(download(program, "first"), download(program, "second"));
            };
            const auto joined = run(true), apart = run(false);
            CHECK(same_bits(joined.first, apart.first));
            CHECK(same_bits(joined.second, apart.second));
        }
    }

    TEST_CASE("sums: every element of a long permuted tensor is counted") {
        constexpr std::int64_t many = 70000;
        OpCheck check;
        const Value x = check.input("x", Tensor({many, 2, 3}, 1.0));
        const Tensor all({1}, 6.0 * many);
        CHECK(check.difference(sum(permute(x, {2, 1, 0})), all) == "");
        CHECK(check.difference(sum(permute(x, {1, 0, 2})), all) == "");
        CHECK(check.difference(sum_to(permute(x, {2, 0, 1}), {3, 1, 1}), Tensor({3, 1, 1}, 2.0 * many)) == "");
    }

    TEST_CASE("sums: as many elements as a buffer may hold are taken in as many parts as that needs") {
        Capabilities processor = device().capabilities();
        processor.type = DeviceType::cpu;
        for (const std::int64_t rows : {31'000, 32'768}) {  // 121 and 128 MiB
            Graph g;
            g.output("norm", clip_grad_norm({g.input("x", {rows, 1024})}, 1.0f).norm);
            CHECK(error_of([&] { make_plan(g, processor); }) == "");
        }
    }
}
