// SPDX-License-Identifier: Apache-2.0
// Products on cooperative matrices whose sums are finished element by element
// (VK_NV_cooperative_matrix2): bit for bit those whose sums pass through shared memory.
#include <doctest/doctest.h>

#include <string>

#include "tests/believed.h"
#include "tests/fixtures.h"
#include "tests/host.h"
#include "tests/op_check.h"
#include "tests/reference.h"

namespace vkf::test {

namespace {

bool has_elements() {
    if (!device().capabilities().matrix_elements) {
        cannot_run("operations on the elements of matrices");
        return false;
    }
    return true;
}

struct ElementsCase {
    std::int64_t batch = 1, m = 1, n = 1, k = 1;
    bool transpose_b = true, bias = false, times = false, plus = false;
    Activation activation = Activation::none;
    float scale = 1;
};

struct ElementsResult {
    Tensor y;
    std::string explanation;
};

ElementsResult product(const ElementsCase& c, Arithmetic arithmetic) {
    Graph g;
    const Value x = g.input("x", {c.batch, c.m, c.k}), r = g.input("r", {c.batch, c.m, c.n});
    const Sizes shape = c.transpose_b ? Sizes{c.n, c.k} : Sizes{c.k, c.n};
    const Value w = g.weight("w", {shape[0], shape[1]});
    MatmulOptions o{.activation = c.activation, .scale = c.scale, .transpose_b = c.transpose_b};
    o.bias = c.bias ? g.input("bias", {c.n}) : Value();
    const Value y = matmul(x, w, o);
    g.output("y", c.times ? y * r : c.plus ? y + r : y);
    if (!c.times && !c.plus) {
        g.output("unused", r + r);
    }
    const WeightType type = arithmetic == Arithmetic::int8 ? WeightType::int8 : WeightType::f32;
    Program program = device().compile(g, load(random_tensor(shape, 2), type), {.arithmetic = arithmetic});
    upload(program, "x", random_tensor({c.batch, c.m, c.k}, 1));
    upload(program, "r", random_tensor({c.batch, c.m, c.n}, 3));
    if (c.bias) {
        upload(program, "bias", random_tensor({c.n}, 4));
    }
    program.run();
    return {download(program, "y"), program.explain()};
}

}  // namespace

TEST_SUITE("matrix elements") {
    TEST_CASE("matrix elements: the bits of sums that pass through shared memory, every tile and epilogue") {
        if (!has_elements()) {
            return;
        }
        const ElementsCase cases[] = {
            {.m = 5, .n = 1, .k = 1},
            {.m = 33, .n = 129, .k = 33, .transpose_b = false},
            {.m = 40, .n = 64, .k = 64, .bias = true, .activation = Activation::gelu},
            {.m = 65, .n = 63, .k = 40, .bias = true, .plus = true, .activation = Activation::relu, .scale = 0.5f},
            {.batch = 3, .m = 20, .n = 36, .k = 48, .times = true, .activation = Activation::silu},
            {.batch = 2, .m = 9, .n = 70, .k = 17, .transpose_b = false, .plus = true},
            {.m = 600, .n = 130, .k = 68, .bias = true, .times = true},
        };
        for (const Arithmetic arithmetic : {Arithmetic::f16, Arithmetic::int8}) {
            CAPTURE(static_cast<int>(arithmetic));
            const bool codes = arithmetic == Arithmetic::int8;
            if (codes && !device().capabilities().cooperative_matrix_int8) {
                continue;
            }
            const std::string kernel = codes ? "matmul_coopmat_int8" : "matmul_coopmat",
                              direct_kernel = kernel + "_elements";
            for (const ElementsCase& c : cases) {
                if (codes && (!c.transpose_b || c.k < 16)) {
                    continue;  // in fp32
                }
                CAPTURE(c.m);
                CAPTURE(c.n);
                const Believed gpu(as_gpu);
                const ElementsResult direct = product(c, arithmetic);
                CHECK(contains(direct.explanation, direct_kernel + "<"));
                CHECK(contains(direct.explanation, "element by element"));
                for (const bool left_out : {false, true}) {
                    CAPTURE(left_out);
                    const Believed without([&](Capabilities& d) {
                        d.matrix_elements = left_out;
                        if (left_out) {
                            d.left_out.push_back({direct_kernel, "so"});
                        }
                    });
                    const ElementsResult staged = product(c, arithmetic);
                    CHECK(contains(staged.explanation, kernel + "<"));
                    CHECK_FALSE(contains(staged.explanation, "element by element"));
                    CHECK(same_bits(direct.y, staged.y));
                }
            }
        }
    }

    TEST_CASE("matrix elements: weights of attention stay in matrices, but for heads too wide") {
        if (!has_elements()) {
            return;
        }
        const Believed gpu(as_gpu);
        const auto explained = [](std::int64_t head_dim, const AttentionOptions& options, std::int64_t queries = 40) {
            Graph g;
            const auto input = [&](const char* name) { return g.input(name, {1, 2, queries, head_dim}); };
            g.output("y", contiguous(scaled_dot_product_attention(input("q"), input("k"), input("v"), options).y));
            return device().compile(g, {}, kF16).explain();
        };
        const std::string taken = "weights stay in them";
        CHECK(contains(explained(64, {}), taken));
        AttentionOptions causal;
        causal.mask.causal = Causal::bottom_right;
        CHECK(contains(explained(36, causal), taken));
        CHECK_FALSE(contains(explained(576, {}), taken));
        CHECK_FALSE(contains(explained(64, {}), "rounded once"));
        CHECK(contains(explained(64, {}, 513), "keys and values rounded once"));
        for (const char* kernel : {"attention_coopmat_elements", "attention_coopmat_elements_full"}) {
            const Believed left_out([&](Capabilities& d) { d.left_out = {{kernel, "so"}}; });
            CHECK_FALSE(contains(explained(64, {}), taken));
            const std::string how = explained(64, {});
            CHECK((contains(how, "attention_coopmat<") || contains(how, "attention_coopmat_full<")));
        }
        const Believed without([](Capabilities& d) { d.matrix_elements = false; });
        CHECK_FALSE(contains(explained(64, {}), taken));
    }

    TEST_CASE("matrix elements: stay where the kernels that pass through shared memory are left out") {
        if (!has_elements()) {
            return;
        }
        const Believed gpu([](Capabilities& c) {
            as_gpu(c);
            c.left_out = {{"matmul_coopmat", "so"}, {"matmul_coopmat_int8", "so"}, {"attention_coopmat", "so"}};
        });
        CHECK(contains(product({.m = 33, .n = 129, .k = 33}, Arithmetic::f16).explanation, "matmul_coopmat_elements<"));
        Graph g;
        const auto input = [&](const char* name) { return g.input(name, {1, 2, 40, 64}); };
        g.output("y", contiguous(scaled_dot_product_attention(input("q"), input("k"), input("v"), {}).y));
        CHECK(contains(device().compile(g, {}, kF16).explain(), "weights stay in them"));
        CHECK(contains(device().compile(g, {}, kF16).explain(), "attention_coopmat_elements"));
    }

    TEST_CASE("matrix elements: not of a host's device, whose instance may be made for an older Vulkan") {
        Host host(true);
        CHECK_FALSE(Device::borrow(host.handles()).capabilities().matrix_elements);
        CHECK_FALSE(contains(Device::requirements(host.handles().instance, host.handles().physical).str(),
                             "VK_NV_cooperative_matrix2"));
    }
}

}  // namespace vkf::test
