// SPDX-License-Identifier: Apache-2.0
// Parameters of fma.comp: how fast the device multiplies and adds in fp32 when nothing else is
// asked of it.
#ifndef VKF_BENCH_FMA_H
#define VKF_BENCH_FMA_H

#include "../../../shaders/common/types.h"

VKF_CONSTANT(kFmaBindingX, 0)
VKF_CONSTANT(kFmaBindingY, 1)

VKF_CONSTANT(kFmaSpecFused, 1)  // 1: fma(), 0: a product and a sum, which a driver may fuse

VKF_CONSTANT(kFmaChains, 12)  // sums of an invocation that do not wait for each other
VKF_CONSTANT(kFmaUnrolled, 8)

VKF_PUSH_BEGIN(FmaPush)
    uint count;  // invocations
    uint steps;  // steps of kFmaUnrolled for each chain
VKF_PUSH_END(FmaPush)

#endif
