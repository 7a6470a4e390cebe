// SPDX-License-Identifier: Apache-2.0
#include "workload.h"

#include <chrono>
#include <cstdint>
#include <random>
#include <utility>
#include <vector>

namespace {

using vkf::Value;

std::vector<float> random_floats(std::int64_t count, std::uint32_t seed) {
    std::mt19937 generator(seed);
    std::uniform_real_distribution<float> uniform(-1.0f, 1.0f);
    std::vector<float> out(static_cast<std::size_t>(count));
    for (float& x : out) {
        x = uniform(generator);
    }
    return out;
}

struct Input {
    const char* name;
    std::int64_t count;
};

Workload compiled(const vkf::Device& device, std::string what, const vkf::Graph& g, const std::vector<Input>& inputs) {
    vkf::CompileOptions options;
    options.name = what;
    options.profile = device.capabilities().timestamp_period != 0;
    Workload out{std::move(what), device.compile(g, {}, options)};
    std::uint32_t seed = 1;
    for (const Input& input : inputs) {
        out.program.upload(input.name, random_floats(input.count, seed++));
    }
    return out;
}

Workload product(const vkf::Device& device, std::int64_t m, std::int64_t n, std::int64_t k) {
    vkf::Graph g;
    g.output("y", linear(g.input("x", {m, k}), g.input("w", {n, k})));
    return compiled(device, "linear " + std::to_string(m) + "x" + std::to_string(k) + "x" + std::to_string(n), g,
                    {{"x", m * k}, {"w", n * k}});
}

/// A step of decoding: one query, 8 heads and 2 for keys and values, of 64 dimensions.
Workload decoding(const vkf::Device& device, std::int64_t keys) {
    vkf::Graph g;
    const Value q = g.input("q", {1, 8, 1, 64}), k = g.input("k", {1, 2, keys, 64}), v = g.input("v", {1, 2, keys, 64});
    g.output("y", scaled_dot_product_attention(q, k, v).y);
    return compiled(device, "decoding behind " + std::to_string(keys) + " keys", g,
                    {{"q", 8 * 64}, {"k", 2 * keys * 64}, {"v", 2 * keys * 64}});
}

Workload normalised(const vkf::Device& device, std::int64_t rows, std::int64_t width) {
    vkf::Graph g;
    g.output("y", layer_norm(g.input("x", {rows, width}), g.input("w", {width}), g.input("b", {width})));
    return compiled(device, "LayerNorm " + std::to_string(rows) + "x" + std::to_string(width), g,
                    {{"x", rows * width}, {"w", width}, {"b", width}});
}

}  // namespace

Workload make_workload(const vkf::Device& device, std::string_view tunable) {
    const bool cpu = device.capabilities().cpu();
    if (tunable == "matmul_rows" || tunable == "matmul_depth" || tunable == "matmul_columns" ||
        tunable == "matmul_staged") {
        const std::int64_t size = cpu ? 384 : 2048;
        return product(device, size, size, size);
    }
    if (tunable == "matvec_split") {
        return product(device, 1, 4096, 4096);
    }
    if (tunable == "matmul_groups") {
        return product(device, 32, 4096, 4096);
    }
    if (tunable == "attention_split") {
        return decoding(device, 8192);
    }
    if (tunable == "texel_loads") {
        return product(device, 384, 384, 384);
    }
    if (tunable == "row_load") {
        return normalised(device, 1024, 1024);
    }
    throw vkf::Error("there is nothing to time for it", std::string(tunable));
}

double run(Workload& workload) {
    using Clock = std::chrono::steady_clock;
    const auto start = Clock::now();
    workload.program.run();
    const double host = std::chrono::duration<double, std::milli>(Clock::now() - start).count();
    double device = 0;
    for (const vkf::DispatchTime& t : workload.program.times()) {
        device += t.ms;
    }
    return device > 0 ? device : host;
}
