// SPDX-License-Identifier: Apache-2.0
// A layer small enough to check by eye, with nothing but the installed headers.
#pragma once

#include <vkformer/vkformer.h>

#include <cmath>
#include <cstdio>
#include <span>
#include <vector>

/// layer_norm(x) + x over rows of four. True, and a line that says where, when the device gives
/// what it should.
inline bool tiny_layer_runs(const vkf::Device& device) {
    const std::vector<float> ones = {1, 1, 1, 1}, zeros = {0, 0, 0, 0};
    const vkf::HostTensor tensors[] = {
        {.name = "norm.weight", .shape = {4}, .data = std::as_bytes(std::span(ones))},
        {.name = "norm.bias", .shape = {4}, .data = std::as_bytes(std::span(zeros))},
    };

    vkf::Graph g;
    const vkf::Value x = g.input("x", {g.symbol("rows", 8), 4});
    g.output("y", vkf::layer_norm(x, g.weight("norm.weight", {4}), g.weight("norm.bias", {4})) + x);
    vkf::Program program = device.compile(g, device.load(tensors));
    program.set("rows", 1);
    program.upload("x", std::vector<float>{1, 3, 1, 3});
    program.run();

    const std::vector<float> expected = {0, 4, 0, 4};
    const std::vector<float> y = program.download("y");
    bool same = y.size() == expected.size();
    for (std::size_t i = 0; same && i < y.size(); ++i) same = std::abs(y[i] - expected[i]) <= 1e-4f;
    std::printf("%s on %s, vkformer " VKFORMER_VERSION "\n", same ? "ran" : "wrong answer",
                device.capabilities().name.c_str());
    return same;
}
