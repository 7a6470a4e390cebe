// SPDX-License-Identifier: Apache-2.0
// Parameters of matrix_rate.comp: how fast the device multiplies cooperative matrices of f16,
// summing in fp32, when nothing else is asked of it.
#ifndef VKF_BENCH_MATRIX_RATE_H
#define VKF_BENCH_MATRIX_RATE_H

#include "../../../shaders/common/types.h"

VKF_CONSTANT(kMatrixRateBindingX, 0)
VKF_CONSTANT(kMatrixRateBindingY, 1)

VKF_CONSTANT(kMatrixRateSpecRows, 1)  // sizes of the matrices: M, N, K
VKF_CONSTANT(kMatrixRateSpecColumns, 2)
VKF_CONSTANT(kMatrixRateSpecDepth, 3)

// steps of the same B: 1 on processors, whose drivers may compute such products once for all
VKF_CONSTANT(kMatrixRateSpecSame, 4)

VKF_CONSTANT(kMatrixRateChains, 8)  // sums of a subgroup that do not wait for each other

VKF_PUSH_BEGIN(MatrixRatePush)
    uint steps;  // steps of a product for each chain, a multiple of kMatrixRateSpecSame
VKF_PUSH_END(MatrixRatePush)

#endif
