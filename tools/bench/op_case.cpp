// SPDX-License-Identifier: Apache-2.0
#include "op_case.h"

#include <vkformer/advanced/packed.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <initializer_list>
#include <limits>
#include <numeric>
#include <random>
#include <stdexcept>
#include <string_view>
#include <utility>

#include "layer_case.h"

namespace {

/// The first key that a query of attention sees, and the one behind the last.
struct Span {
    std::int64_t first, end;
};

Span seen_by(const OpCase& op, std::int64_t query) {
    const std::int64_t end = op.causal ? query + 1 + op.inner - op.rows : op.inner;
    return {op.window > 0 ? std::max<std::int64_t>(0, end - op.window) : 0, end};
}

/// The scores of attention that no mask hides, a head.
std::int64_t pairs(const OpCase& op) {
    std::int64_t all = 0;
    for (std::int64_t query = 0; query < op.rows; ++query) {
        const Span seen = seen_by(op, query);
        all += seen.end - seen.first;
    }
    return all;
}

Numbers product_row(const OpCase& op, const OpData& data, std::int64_t row) {
    Numbers out(static_cast<std::size_t>(op.columns));
    for (std::int64_t k = 0; k < op.inner; ++k) {
        const double a = data.x[static_cast<std::size_t>(row * op.inner + k)];
        for (std::int64_t n = 0; n < op.columns; ++n) {
            const std::int64_t at = op.kind == OpKind::matmul ? k * op.columns + n : n * op.inner + k;
            out[static_cast<std::size_t>(n)] += a * static_cast<double>(data.weight[static_cast<std::size_t>(at)]);
        }
    }
    return out;
}

Numbers softmax_row(Numbers x) {
    const double largest = *std::max_element(x.begin(), x.end());
    double sum = 0;
    for (double& v : x) {
        v = std::exp(v - largest);
        sum += v;
    }
    for (double& v : x) {
        v /= sum;
    }
    return x;
}

Numbers norm_row(const OpCase& op, const OpData& data, Numbers x) {
    const auto width = static_cast<double>(x.size());
    double mean = 0;
    if (op.kind == OpKind::layer_norm) {
        for (const double v : x) {
            mean += v / width;
        }
    }
    double square = 0;
    for (const double v : x) {
        square += (v - mean) * (v - mean) / width;
    }
    for (std::size_t i = 0; i < x.size(); ++i) {
        x[i] = (x[i] - mean) / std::sqrt(square + static_cast<double>(kNormEps)) * static_cast<double>(data.weight[i]);
        x[i] += op.kind == OpKind::layer_norm ? static_cast<double>(data.bias[i]) : 0.0;
    }
    return x;
}

/// Computes row `row` of (tokens, heads, dimensions).
Numbers attention_row(const OpCase& op, const OpData& data, std::int64_t row) {
    const std::int64_t query = row / op.heads;
    const std::int64_t head = row % op.heads;
    const float* q = data.x.data() + (head * op.rows + query) * op.columns;
    const std::int64_t first_key = head / (op.heads / op.kv_heads) * op.inner;
    const Span seen = seen_by(op, query);
    Numbers weights;
    for (std::int64_t key = seen.first; key < seen.end; ++key) {
        const float* k = data.weight.data() + (first_key + key) * op.columns;
        weights.push_back(
            std::inner_product(q, q + op.columns, k, 0.0, std::plus<>(), [](double a, double b) { return a * b; }) /
            std::sqrt(static_cast<double>(op.columns)));
    }
    weights = softmax_row(std::move(weights));
    Numbers out(static_cast<std::size_t>(op.columns));
    for (std::int64_t key = seen.first; key < seen.end; ++key) {
        const float* v = data.bias.data() + (first_key + key) * op.columns;
        for (std::size_t i = 0; i < out.size(); ++i) {
            out[i] += weights[static_cast<std::size_t>(key - seen.first)] * static_cast<double>(v[i]);
        }
    }
    return out;
}

Numbers rope_row(Numbers x, std::int64_t position) {
    for (std::size_t i = 0; i + 1 < x.size(); i += 2) {
        const double angle = static_cast<double>(position) *
                             std::pow(kRopeTheta, -static_cast<double>(i) / static_cast<double>(x.size()));
        const double a = x[i];
        const double b = x[i + 1];
        x[i] = a * std::cos(angle) - b * std::sin(angle);
        x[i + 1] = b * std::cos(angle) + a * std::sin(angle);
    }
    return x;
}

Numbers reference_row(const OpCase& op, const OpData& data, std::int64_t row) {
    if (op.is_product()) {
        return product_row(op, data, row);
    }
    if (op.is_attention()) {
        return attention_row(op, data, row);
    }
    const auto from = data.x.begin() + row * op.columns;
    Numbers x(from, from + op.columns);
    switch (op.kind) {
        case OpKind::softmax: return softmax_row(std::move(x));
        case OpKind::layer_norm:
        case OpKind::rms_norm: return norm_row(op, data, std::move(x));
        case OpKind::rope: return rope_row(std::move(x), row % op.inner);
        default: return x;
    }
}

std::vector<OpCase> plain_cases() {
    return {
        {"copy_4096x1024", OpKind::copy, 4096, 1, 1024},
        {"matmul_f32_512", OpKind::matmul, 512, 512, 512},
        {"matmul_f32_1024", OpKind::matmul, 1024, 1024, 1024},
        {"matmul_f32_2048x512x2048", OpKind::matmul, 2048, 512, 2048},
        {"linear_f32_512", OpKind::linear, 512, 512, 512},
        {"linear_f32_1024", OpKind::linear, 1024, 1024, 1024},
        {"softmax_4096x1024", OpKind::softmax, 4096, 1, 1024},
        {"layer_norm_4096x1024", OpKind::layer_norm, 4096, 1, 1024},
        {"rms_norm_4096x1024", OpKind::rms_norm, 4096, 1, 1024},
        {"rope_32x512x128", OpKind::rope, 32, 512, 128},
        {"decoder_layer_prefill_512", OpKind::decoder_layer, 512, 512, 512, true},
        {"decoder_layer_step_1024", OpKind::decoder_layer, 1, 1025, 512, true},
        {"attention_prefill_d64_512", OpKind::attention, 512, 512, 64},
        {"attention_prefill_d64_512_causal", OpKind::attention, 512, 512, 64, true},
        {"attention_prefill_d64_1024", OpKind::attention, 1024, 1024, 64},
        {"attention_prefill_d64_1024_causal", OpKind::attention, 1024, 1024, 64, true},
        {"attention_composed_d64_1024", OpKind::composed_attention, 1024, 1024, 64},
        {"attention_prefill_d128_512", OpKind::attention, 512, 512, 128},
        {"attention_prefill_d128_512_causal", OpKind::attention, 512, 512, 128, true},
        {"attention_prefill_d64_4096", OpKind::attention, 4096, 4096, 64},
        {"attention_prefill_d64_4096_window256", OpKind::attention, 4096, 4096, 64, true, 256},
    };
}

/// Work that fills a large GPU and its memory's bandwidth: heads stand for those of several
/// sequences too.
std::vector<OpCase> large_cases() {
    std::vector<OpCase> cases = {
        {"large_copy_16384x4096", OpKind::copy, 16384, 1, 4096},
        {"large_softmax_16384x4096", OpKind::softmax, 16384, 1, 4096},
        {"large_layer_norm_16384x4096", OpKind::layer_norm, 16384, 1, 4096},
        {"large_rms_norm_16384x4096", OpKind::rms_norm, 16384, 1, 4096},
        {"large_linear_f32_4096", OpKind::linear, 4096, 4096, 4096},
        {"large_matvec_f32_14336x4096", OpKind::linear, 1, 14336, 4096},
    };
    OpCase matvec{"large_matvec_f16_14336x4096", OpKind::linear, 1, 14336, 4096};
    matvec.type = vkf::WeightType::f16;
    cases.push_back(matvec);
    for (const std::int64_t width : {64, 128, 256}) {
        for (const bool causal : {false, true}) {
            OpCase op{
                "large_attention_prefill_d" + std::to_string(width) + "_4096" + (causal ? "_causal" : "") + "_in_f16",
                OpKind::attention,
                4096,
                4096,
                width,
                causal};
            op.heads = 4 * 2048 / width;
            op.kv_heads = op.heads / 4;
            op.arithmetic = vkf::Arithmetic::f16;
            cases.push_back(std::move(op));
        }
    }
    for (const std::int64_t width : {64, 128}) {
        OpCase op{"large_attention_decode_f16_d" + std::to_string(width) + "_4096", OpKind::attention, 1, 4096, width};
        op.type = vkf::WeightType::f16;
        op.heads = 8 * 32;
        op.kv_heads = 8 * 8;
        cases.push_back(std::move(op));
    }
    for (OpCase& op : cases) {
        op.large = true;
    }
    return cases;
}

}  // namespace

bool OpCase::is_attention() const { return kind == OpKind::attention || kind == OpKind::composed_attention; }

std::int64_t OpCase::outputs() const {
    return rows * columns * (kind == OpKind::rope ? inner : is_attention() ? heads : 1);
}

double OpCase::flops() const {
    if (is_attention()) {
        return 4.0 * static_cast<double>(heads * pairs(*this) * columns);
    }
    if (kind == OpKind::decoder_layer) {
        return 2.0 * static_cast<double>(rows * layer_parameters(*this)) +
               4.0 * static_cast<double>(pairs(*this) * columns);
    }
    return is_product() ? 2.0 * static_cast<double>(rows * inner * columns) : 0.0;
}

double OpCase::bytes() const {
    if (is_attention()) {
        const auto words =
            packed() ? static_cast<std::int64_t>(vkf::packed_row_words(type, static_cast<std::uint64_t>(columns)))
                     : columns;
        return 4.0 * static_cast<double>(2 * outputs() + 2 * kv_heads * inner * words);
    }
    if (kind == OpKind::decoder_layer) {
        return 4.0 * static_cast<double>(layer_parameters(*this) + 2 * layer_cached(*this) + 2 * outputs());
    }
    if (packed()) {
        const std::uint64_t words = vkf::packed_row_words(type, static_cast<std::uint64_t>(inner));
        return 4.0 * static_cast<double>(rows * inner + columns * static_cast<std::int64_t>(words) + rows * columns);
    }
    const std::int64_t elements = is_product() ? rows * inner + inner * columns + rows * columns : 2 * outputs();
    return 4.0 * static_cast<double>(elements);
}

std::vector<OpCase> op_cases() {
    std::vector<OpCase> cases = plain_cases();
    constexpr std::array packed = {vkf::WeightType::f16, vkf::WeightType::bf16, vkf::WeightType::int8,
                                   vkf::WeightType::int4};
    const auto add = [&](const std::string& name, vkf::WeightType type, std::int64_t m, std::int64_t k, std::int64_t n,
                         const std::string& sizes) {
        OpCase op{name + "_" + std::string(vkf::name_of(type)) + "_" + sizes, OpKind::linear, m, k, n};
        op.type = type;
        cases.push_back(std::move(op));
    };
    for (const vkf::WeightType type : packed) {
        add("matmul", type, 512, 512, 512, "512");
        add("matmul", type, 1024, 1024, 1024, "1024");
        add("matmul", type, 2048, 512, 2048, "2048x512x2048");
    }
    add("matvec", vkf::WeightType::f32, 1, 4096, 4096, "4096");
    for (const vkf::WeightType type : packed) {
        add("matvec", type, 1, 4096, 4096, "4096");
    }
    for (const std::int64_t rows : {2, 4, 8, 16}) {
        for (const vkf::WeightType type : {vkf::WeightType::f32, vkf::WeightType::int8}) {
            add("skinny", type, rows, 2048, 2048, std::to_string(rows) + "x2048");
        }
    }
    for (const vkf::WeightType type : {vkf::WeightType::f32, vkf::WeightType::f16, vkf::WeightType::int8}) {
        const std::string name = type == vkf::WeightType::f32 ? "" : std::string(vkf::name_of(type)) + "_";
        for (const std::int64_t keys : {1024, 4096}) {
            OpCase op{"attention_decode_" + name + "d64_" + std::to_string(keys), OpKind::attention, 1, keys, 64};
            op.type = type;
            cases.push_back(op);
            op.name = "attention_decode_" + name + "d128_" + std::to_string(keys);
            op.columns = 128;
            op.heads = 32;
            op.kv_heads = 8;
            cases.push_back(std::move(op));
        }
    }
    for (const vkf::WeightType type : {vkf::WeightType::f16, vkf::WeightType::int8}) {
        for (const std::int64_t size : {1024, 4096, 8192}) {
            const std::string name = std::to_string(size) + "_in_" + std::string(vkf::name_of(type));
            add("matmul", type, size, size, size, name);
            cases.back().arithmetic = type == vkf::WeightType::f16 ? vkf::Arithmetic::f16 : vkf::Arithmetic::int8;
        }
    }
    for (const std::int64_t width : {64, 128}) {
        for (const std::int64_t tokens : {1024, 4096, 16384}) {
            for (const bool causal : {false, true}) {
                OpCase op{"attention_prefill_d" + std::to_string(width) + "_" + std::to_string(tokens) +
                              (causal ? "_causal" : "") + "_in_f16",
                          OpKind::attention,
                          tokens,
                          tokens,
                          width,
                          causal};
                op.arithmetic = vkf::Arithmetic::f16;
                cases.push_back(std::move(op));
            }
        }
    }
    for (OpCase& op : large_cases()) {
        cases.push_back(std::move(op));
    }
    return cases;
}

std::string OpCase::lacking(const vkf::Capabilities& device) const {
    const auto forced = [&](std::initializer_list<std::string_view> kernels) {
        return std::any_of(kernels.begin(), kernels.end(), [&](std::string_view k) { return device.asks_for(k); });
    };
    const bool asked = arithmetic == vkf::Arithmetic::f32 || !device.cpu() ||
                       (is_attention()                 ? forced({"attention_coopmat"})
                        : type == vkf::WeightType::f16 ? forced({"matmul_coopmat", "matmul_half"})
                                                       : forced({"matmul_dot", "matmul_coopmat_int8"}));
    return large && device.cpu() ? "work for a GPU" : asked ? "" : "processors compute in fp32";
}

std::vector<float> random_floats(std::int64_t count, std::uint32_t seed) {
    std::mt19937 engine(seed);
    std::vector<float> out(static_cast<std::size_t>(count));
    for (float& v : out) {
        v = static_cast<float>(static_cast<std::int32_t>(engine())) * 0x1p-31f;
    }
    return out;
}

OpData make_data(const OpCase& op) {
    if (op.kind == OpKind::decoder_layer) {
        return make_layer_data(op);
    }
    OpData data;
    if (op.is_product()) {
        data.x = random_floats(op.rows * op.inner, 1);
        data.weight = random_floats(op.inner * op.columns, 2);
        return data;
    }
    data.x = random_floats(op.outputs(), 3);
    if (op.is_attention()) {
        for (float& v : data.x) {
            v *= 8.0f;  // some keys matter more than others
        }
        data.weight = random_floats(op.kv_heads * op.inner * op.columns, 4);
        data.bias = random_floats(op.kv_heads * op.inner * op.columns, 5);
    }
    if (op.kind == OpKind::layer_norm || op.kind == OpKind::rms_norm) {
        data.weight = random_floats(op.columns, 4);
        data.bias = random_floats(op.columns, 5);
    }
    return data;
}

double worst_error(const OpCase& op, const OpData& data, std::span<const float> result, double tolerance) {
    if (static_cast<std::int64_t>(result.size()) != op.outputs()) {
        return std::numeric_limits<double>::infinity();
    }
    const std::int64_t rows = op.outputs() / op.columns;
    // an odd step: rows of every place within a tile
    const bool slow = op.is_product() || op.is_attention() || op.kind == OpKind::decoder_layer;
    const std::int64_t step = slow ? std::max<std::int64_t>(1, rows / 64) | 1 : 1;
    const auto reference = op.kind == OpKind::decoder_layer ? layer_reference(op, data) : [&](std::int64_t row) {
        return reference_row(op, data, row);
    };
    double worst = 0;
    for (std::int64_t row = 0; row < rows; row = row == rows - 1 ? rows : std::min(row + step, rows - 1)) {
        const Numbers want = reference(row);
        for (std::size_t i = 0; i < want.size(); ++i) {
            const double got = result[static_cast<std::size_t>(row * op.columns) + i];
            const double error = std::abs(got - want[i]) / (tolerance * (1.0 + std::abs(want[i])));
            worst = error <= worst ? worst : error;
            if (!(error >= 0)) {
                return std::numeric_limits<double>::infinity();
            }
        }
    }
    return worst;
}

void check_result(const std::string& who, const OpCase& op, const OpData& data, std::span<const float> result,
                  double tolerance) {
    const double worst = worst_error(op, data, result, tolerance);
    if (!(worst <= 1.0)) {
        throw std::runtime_error(op.name + ": " + who + " is wrong, worst error " + std::to_string(worst) +
                                 " of the tolerance");
    }
}

double tolerance_of(const OpCase& op) {
    const double terms = std::sqrt(static_cast<double>(op.inner));
    switch (op.arithmetic) {
        case vkf::Arithmetic::f16: return op.is_attention() ? 0.1 / terms : 1e-3 * terms;
        case vkf::Arithmetic::int8: return 5e-3 * terms;
        default: return 1e-4;
    }
}

double tolerance_of_peer(const OpCase& op) {
    if (op.is_product()) {
        return std::max(1e-2, (op.packed() ? 5e-3 : 1e-3) * std::sqrt(static_cast<double>(op.inner)));
    }
    return op.packed() ? 5e-2 : 1e-2;
}
