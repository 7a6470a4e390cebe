// SPDX-License-Identifier: Apache-2.0
// What kernels on cooperative matrices have in common.
#pragma once

#include <cstdint>
#include <string>

#include "ops/checks.h"
#include "ops/left_out.h"
#include "ops/variants.h"
#include "runtime/compile/capabilities.h"

namespace vkf {

#ifdef VKFORMER_GL_KHR_COOPERATIVE_MATRIX
inline constexpr bool kHasMatrixKernels = true;
#else
inline constexpr bool kHasMatrixKernels = false;
#endif

inline constexpr const char* kMatricesSlowOnProcessors = "on a processor cooperative matrices are the slower way";

/// Multiplications of one product of matrices.
inline std::uint64_t multiplications(const MatrixShape& shape) { return std::uint64_t{shape.m} * shape.n * shape.k; }

/// What Program::explain() says of their shape.
inline std::string matrices_of(const MatrixShape& shape) {
    return "matrices of " + std::to_string(shape.m) + "x" + std::to_string(shape.n) + "x" + std::to_string(shape.k);
}

/// Says what the build or the device lacks for the kernel that VKFORMER_VARIANT calls `variant`, or
/// why `kernel` is left out, which it would be; empty: nothing. `offered` says whether the device
/// has such matrices, `fits` whether in a shape that the kernel can use, `kind` what is special in
/// them. Throws where VKFORMER_VARIANT asks for it all the same.
inline std::string lacking_matrices(const Capabilities& device, const char* op, const std::string& variant,
                                    const char* kernel, bool offered, bool fits, const char* kind = "") {
    const std::string what = !kHasMatrixKernels ? "this build has none, for want of a shader compiler that knows them"
                             : !offered ? std::string("the device has none") + kind + ", or was not told of them"
                             : !fits    ? "the device has none of a shape that fits"
                                        : "";
    if (what.empty()) {
        return support::left_out(device, op, kernel, variant);
    }
    if (asks_for(device, variant)) {
        support::fail(op, "VKFORMER_VARIANT asks for " + variant + ", which needs cooperative matrices: " + what);
    }
    return "no cooperative matrices: " + what;
}

}  // namespace vkf
