// SPDX-License-Identifier: Apache-2.0
// The work whose kernels are reported: shapes that decide how fast models run.
#pragma once

#include <vkformer/vkformer.h>

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

struct Case;

/// Describes a graph, and remembers what it needs to run.
class Builder {
public:
    vkf::Value input(std::vector<std::int64_t> shape, vkf::DType type = vkf::DType::f32);
    vkf::Value weight(std::int64_t rows, std::int64_t columns);
    void output(vkf::Value value);

    /// A program that can run, all operands zero.
    vkf::Program compile(const vkf::Device& device, const Case& what);

private:
    struct Operand {
        std::string name;
        std::vector<std::int64_t> shape;
        vkf::DType type;
    };
    vkf::Graph graph_;
    std::vector<Operand> inputs_, weights_;
    int outputs_ = 0;
};

struct Case {
    std::string name;
    double flops = 0;  ///< of products; 0 where moving the bytes is the work
    double bytes = 0;  ///< each operand once
    std::function<void(Builder&)> describe;
    vkf::WeightType type = vkf::WeightType::f32;  ///< the type that weights are kept as
    vkf::Arithmetic arithmetic = vkf::Arithmetic::f32;
    /// DeviceOptions::tuning: kernels that only vkformer-tune takes. Left out on devices that these
    /// do not fit.
    std::string_view tunable = "";
    std::uint32_t value = 0;
};

std::vector<Case> cases();
