// SPDX-License-Identifier: Apache-2.0
// Products as the tests ask for them: in f16 where VKFORMER_VARIANT=matmul_coopmat or matmul_half
// forces kernels that compute so, else in fp32.
#pragma once

#include "tests/device.h"
#include "tests/op_check.h"
#include "tests/reference.h"
#include "tests/reference_packed.h"

namespace vkf::test {

/// False, and said, where the variant is forced and the device lacks what it needs.
inline bool in_f16(const char* variant, bool offered, const char* what) {
    const bool forced = device().capabilities().asks_for(variant);
    if (forced && !offered) {
        cannot_run(what);
    }
    return forced && offered;
}

/// True where products are summed in f16 too.
inline bool in_half() { return in_f16("matmul_half", device().capabilities().float16, "arithmetic in f16"); }

inline bool in_f16() {
    return in_half() || in_f16("matmul_coopmat", device().capabilities().cooperative_matrix, "cooperative matrices");
}

/// Gives the numbers that such a product takes an operand for.
inline Tensor taken(const Tensor& x) { return in_f16() ? reference::as_f16(x) : x; }

inline Tensor twin(const Tensor& a, const Tensor& b, const reference::MatmulOptions& o = {}) {
    return o.masked_weights ? reference::matmul(a, b, o) : reference::matmul(taken(a), taken(b), o);
}

inline Tolerance tolerance(const Tensor& a, const Tensor& b, const reference::MatmulOptions& o) {
    return {.rounding = in_half() && !o.masked_weights ? reference::half_rounding(a, b, o)
                                                       : reference::matmul_rounding(a, b, o)};
}

/// Rule 1 of docs/numerics.md for short sums, and what sums in f16 may add.
inline Tolerance nearly(const Tensor& a, const Tensor& b, const reference::MatmulOptions& o) {
    return in_half() ? tolerance(taken(a), taken(b), o) : Tolerance();
}

struct ProductCheck : OpCheck {
    ProductCheck() { arithmetic = in_f16() ? Arithmetic::f16 : Arithmetic::f32; }
    /// Says how y differs from the product of a and b; empty: it does not.
    std::string mismatch(Value y, const Tensor& a, const Tensor& b, const reference::MatmulOptions& o = {}) {
        return difference(y, twin(a, b, o), nearly(a, b, o));
    }
};

}  // namespace vkf::test
