// SPDX-License-Identifier: Apache-2.0
// Programs of arithmetic in registers alone, which tell the most that a device can do.
#pragma once

#include <vkformer/vkformer.h>

#include <string>

/// A program whose one dispatch is timed. It has run once, and its result was right.
struct RateProgram {
    vkf::Program program;
    double flops;         ///< operations of a run
    std::string variant;  ///< what is multiplied
};

/// Multiply-adds in fp32: fma(), or a product and a sum. Throws std::runtime_error where the result
/// is wrong.
RateProgram fma_rate(const vkf::Device& device, bool fused);

/// Products of cooperative matrices of f16 with sums in fp32, on devices that have such. Throws
/// likewise.
RateProgram matrix_rate(const vkf::Device& device, const vkf::MatrixShape& shape);
