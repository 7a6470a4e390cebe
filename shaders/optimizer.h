// SPDX-License-Identifier: Apache-2.0
// Parameters of optimizer.comp: one step of SGD or Adam on one dense parameter.
#ifndef VKF_SHADERS_OPTIMIZER_H
#define VKF_SHADERS_OPTIMIZER_H

#include "common/types.h"

VKF_CONSTANT(kOptimizerBindingParameter, 0)
VKF_CONSTANT(kOptimizerBindingGradient, 1)
VKF_CONSTANT(kOptimizerBindingMoments, 2)  // (k, count)
VKF_CONSTANT(kOptimizerBindingFactors, 3)  // (2): of the gradient, and of the learning rate

VKF_CONSTANT(kOptimizerSpecKind, 1)     // a kOptimizer... below
VKF_CONSTANT(kOptimizerSpecFactors, 2)  // 1: Factors is read
VKF_CONSTANT(kOptimizerSpecFours, 3)    // 1: four elements an item

VKF_CONSTANT(kOptimizerSgd, 0)
VKF_CONSTANT(kOptimizerMomentum, 1)
VKF_CONSTANT(kOptimizerNesterov, 2)
VKF_CONSTANT(kOptimizerAdam, 3)
VKF_CONSTANT(kOptimizerAmsgrad, 4)
VKF_CONSTANT(kOptimizerAccumulate, 5)  // the gradient is added to the parameter, or takes its place

VKF_CONSTANT(kOptimizerItems, 4)  // items an invocation

VKF_PUSH_BEGIN(OptimizerPush)
    uint count;  // items: elements, or fours of them
    uint stride; // of the moments' rows, in elements
    uint parameter_offset;
    uint gradient_offset;
    uint moments_offset;
    uint factors_offset;
    float rate;       // Adam's is divided by the first bias correction
    float decay;      // of the parameter itself, times the factor of the learning rate
    float l2;         // of the parameter, added to the gradient
    float decay_to;   // both are of the parameter less this
    float beta1;      // or the momentum; accumulating, 0 where the sum begins anew
    float beta1_rest; // 1 - beta1, or 1 - dampening
    float beta2;
    float beta2_rest;
    float correction; // the root of the second bias correction, inverted
    float eps;
VKF_PUSH_END(OptimizerPush)

#endif
