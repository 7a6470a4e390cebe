// SPDX-License-Identifier: Apache-2.0
// A product whose residual or gate is one of its operands: what one group writes, others still read.
#include <doctest/doctest.h>

#include <algorithm>

#include "tests/device.h"
#include "tests/op_check.h"
#include "tests/reference.h"

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
    TEST_CASE("matmul: a residual, or a gate, that is an operand too") {
        constexpr std::int64_t kSize = 150;  // several tiles of every kernel, both ways
        const Tensor x = random_tensor({kSize, kSize}, 1), w = random_tensor({kSize, kSize}, 2, 0.1);
        const Tensor h = non_negative(x);
        for (const bool times : {false, true}) {
            CAPTURE(times);
            for (const bool left : {true, false}) {
                CAPTURE(left);
                OpCheck check;
                const Value vh = intermediate(check.input("x", x)), vw = check.input("w", w);
                MatmulOptions o;
                (times ? o.times : o.plus) = vh;
                const Value y = left ? matmul(vh, vw, o) : matmul(vw, vh, o);
                const Tensor product = left ? reference::matmul(h, w) : reference::matmul(w, h);
                const Tensor once = combined(product, h, times);
                CHECK(check.difference(y + y, combined(once, once, false), {1e-4, 1e-4, {}}) == "");
            }
        }
    }
}

}  // namespace vkf::test
