// SPDX-License-Identifier: Apache-2.0
// Processors with 64-bit integers load 8 bytes at a time: the same products bit for bit, by other
// kernels.
#include <doctest/doctest.h>

#include <string>

#include "tests/believed.h"
#include "tests/fixtures.h"
#include "tests/host.h"
#include "tests/op_check.h"
#include "tests/reference.h"

namespace vkf::test {

namespace {

struct Result {
    Tensor y;
    std::string explanation;
};

Result product(std::int64_t m, std::int64_t n, std::int64_t k, WeightType type, bool transpose_b) {
    const Tensor w = transpose_b ? random_tensor({n, k}, 2) : random_tensor({k, n}, 2);
    Graph g;
    const Value b = transpose_b ? g.weight("w", {n, k}) : g.weight("w", {k, n});
    g.output("y", matmul(g.input("x", {m, k}), b, {.transpose_b = transpose_b}));
    Program program = device().compile(g, load(w, type));
    upload(program, "x", random_tensor({m, k}, 1));
    program.run();
    return {download(program, "y"), program.explain()};
}

}  // namespace

TEST_SUITE("matmul") {
    TEST_CASE("matmul: loads of 64 bits give the same bits as loads of 32") {
        if (!device().capabilities().int64 || device().capabilities().exact_subgroup_size != 8) {
            cannot_run("loads of 64 bits");
            return;
        }
        for (const WeightType type :
             {WeightType::f32, WeightType::f16, WeightType::bf16, WeightType::int8, WeightType::int4}) {
            CAPTURE(name_of(type));
            for (const std::int64_t m : {1, 3, 9, 130}) {
                CAPTURE(m);
                for (const std::int64_t k : {520, 513}) {
                    CAPTURE(k);
                    const bool transposed = type != WeightType::f32 || k == 520;
                    const Result wide = product(m, 516, k, type, transposed);
                    CHECK(contains(wide.explanation, "matmul_lanes8_wide<"));
                    const Believed narrow([](Capabilities& c) { c.int64 = false; });
                    const Result plain = product(m, 516, k, type, transposed);
                    CHECK(contains(plain.explanation, "matmul_lanes8<"));
                    CHECK(same_bits(wide.y, plain.y));
                }
            }
        }
    }

    TEST_CASE("matmul: without 64-bit integers loads are of 32 bits") {
        const Believed narrow([](Capabilities& c) { c.int64 = false; });
        CHECK_FALSE(contains(product(9, 40, 24, WeightType::f32, true).explanation, "_wide<"));
    }
}

}  // namespace vkf::test
