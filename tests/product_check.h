// SPDX-License-Identifier: Apache-2.0
// Products as the tests ask for them: in f16 where VKFORMER_VARIANT=matmul_coopmat forces kernels that compute so, else in fp32.
#pragma once

#include "tests/device.h"
#include "tests/op_check.h"
#include "tests/reference.h"
#include "tests/reference_packed.h"

namespace vkf::test {

/// False, and said, where matmul_coopmat is forced and the device has no cooperative matrices.
inline bool in_f16() {
    const Capabilities& c = device().capabilities();
    if (c.asks_for("matmul_coopmat") && !c.cooperative_matrix) {
        cannot_run("cooperative matrices");
        return false;
    }
    return c.asks_for("matmul_coopmat");
}

struct ProductCheck : OpCheck {
    ProductCheck() { arithmetic = in_f16() ? Arithmetic::f16 : Arithmetic::f32; }
};

/// What such a product makes of an operand.
inline Tensor taken(const Tensor& x) { return in_f16() ? reference::as_f16(x) : x; }

inline Tensor twin(const Tensor& a, const Tensor& b, const reference::MatmulOptions& o = {}) {
    return o.masked_weights ? reference::matmul(a, b, o) : reference::matmul(taken(a), taken(b), o);
}

inline Tolerance tolerance(const Tensor& a, const Tensor& b, const reference::MatmulOptions& o) {
    return {.rounding = reference::matmul_rounding(a, b, o)};
}

}  // namespace vkf::test
