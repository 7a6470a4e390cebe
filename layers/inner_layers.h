// SPDX-License-Identifier: Apache-2.0
// The two or three products of a feed-forward layer. `hidden` is the whole inner width; where the
// graph is of several ranks, a rank has a share of it.
#pragma once

#include <cstdint>
#include <string>

#include "ops/ops.h"

namespace vkf {

/// x (..., width) to this rank's part of (..., hidden).
Value to_inner(Value x, const std::string& name, std::int64_t hidden, bool bias,
               Activation activation = Activation::none);
/// The way back: the sum over all of hidden, (..., width).
Value from_inner(Value inner, const std::string& name, std::int64_t hidden, std::int64_t width, bool bias);

struct InnerNames {
    std::string up, down;
};
/// Both, with the activation in between.
Value inner_layer(Value x, const InnerNames& names, std::int64_t hidden, std::int64_t width, bool bias,
                  Activation activation);
/// A gated layer whose gate and up are one matrix names.up (2 hidden, width), the gate's rows
/// first.
Value gated_inner_layer(Value x, const InnerNames& names, std::int64_t hidden, std::int64_t width,
                        Activation activation);

}  // namespace vkf
