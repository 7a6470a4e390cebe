// SPDX-License-Identifier: Apache-2.0
#include "tests/attention_check.h"

#include <cmath>
#include <cstdlib>
#include <string_view>
#include <utility>
#include <vector>

#include "tests/device.h"
#include "tests/reference_packed.h"

namespace vkf::test {

Qkv random_qkv(const AttentionSizes& s, std::uint32_t seed, double amplitude) {
    return {random_tensor({s.batch, s.heads, s.queries, s.head_dim}, 3 * seed, amplitude),
            random_tensor({s.batch, s.kv_heads, s.keys, s.head_dim}, 3 * seed + 1, amplitude),
            random_tensor({s.batch, s.kv_heads, s.keys, s.value_dim}, 3 * seed + 2, amplitude)};
}

Arithmetic attention_arithmetic() {
    const Capabilities& c = device().capabilities();
    return c.cooperative_matrix && c.asks_for("attention_coopmat") ? Arithmetic::f16 : Arithmetic::f32;
}

Qkv as_f16(const Qkv& x) { return {reference::as_f16(x.query), reference::as_f16(x.key), reference::as_f16(x.value)}; }

Tolerance f16_tolerance(const Qkv& x, const reference::AttentionOptions& o, const Tolerance& tolerance) {
    Tensor magnitudes = x.value;
    for (double& v : magnitudes.data) {
        v = std::abs(v);
    }
    Tolerance out = tolerance;
    out.rounding = reference::attention(x.query, x.key, magnitudes, o).y;
    for (double& v : out.rounding.data) {
        v = (0x1p-11 + tolerance.relative) * v + tolerance.absolute;
    }
    return out;
}

std::vector<Ask> asks() {
    const char* variant = std::getenv("VKFORMER_VARIANT");
    const bool fused = variant != nullptr && std::string_view(variant).starts_with("attention_");
    if (fused && attention_arithmetic() == Arithmetic::f32) {
        return {Ask::y, Ask::y_and_lse};
    }
    return {Ask::y, Ask::y_and_lse, Ask::everything};
}

Attended attend(const Qkv& x, const reference::AttentionOptions& o, Ask ask, bool repeat_kv) {
    Graph g;
    const auto input = [&](const char* name, const Tensor& t, DType dtype = DType::f32) {
        return g.input(name, Shape(t.shape.begin(), t.shape.end()), dtype);
    };
    const auto optional = [&](const char* name, const std::optional<Tensor>& t, DType dtype = DType::f32) {
        return t ? input(name, *t, dtype) : Value();
    };
    AttentionOptions options;
    if (o.scores.scale != 0) {
        options.scale = static_cast<float>(o.scores.scale);
    }
    options.softcap = static_cast<float>(o.scores.softcap);
    options.dropout = static_cast<float>(o.dropout);
    options.dropout_seed = o.dropout_seed;
    options.log_sum_exp = ask != Ask::y;
    options.repeat_kv = repeat_kv;
    options.mask.keys = optional("mask", o.scores.keys, DType::i32);
    options.mask.polarity = o.scores.polarity;
    options.mask.bias = optional("bias", o.scores.bias);
    options.mask.alibi_slopes = optional("slopes", o.scores.alibi_slopes);
    options.mask.causal = o.scores.causal;
    options.mask.window = o.scores.window;
    options.mask.fill = static_cast<float>(o.scores.fill);
    options.sinks = optional("sinks", o.scores.sinks);
    const AttentionResult a =
        scaled_dot_product_attention(input("query", x.query), input("key", x.key), input("value", x.value), options);
    g.output("y", contiguous(a.y));
    if (ask != Ask::y) {
        g.output("lse", contiguous(a.log_sum_exp));
    }
    if (ask == Ask::everything) {
        g.output("weights", contiguous(a.weights));
    }
    Program p = device().compile(g, {}, {.arithmetic = attention_arithmetic()});
    upload(p, "query", x.query);
    upload(p, "key", x.key);
    upload(p, "value", x.value);
    if (o.scores.keys) {
        upload(p, "mask", *o.scores.keys, DType::i32);
    }
    for (const auto& [name, t] :
         {std::pair{"bias", &o.scores.bias}, {"slopes", &o.scores.alibi_slopes}, {"sinks", &o.scores.sinks}}) {
        if (*t) {
            upload(p, name, **t);
        }
    }
    p.run();
    Attended out{download(p, "y"), {}, {}};
    if (ask != Ask::y) {
        out.log_sum_exp = download(p, "lse");
    }
    if (ask == Ask::everything) {
        out.weights = download(p, "weights");
    }
    return out;
}

std::string mismatch(const Qkv& given, const reference::AttentionOptions& o, const Tolerance& tolerance) {
    const bool f16 = attention_arithmetic() == Arithmetic::f16;
    const Qkv x = f16 ? as_f16(given) : given;
    const Tolerance of_y = f16 ? f16_tolerance(x, o, tolerance) : tolerance;
    const reference::Attention want = reference::attention(x.query, x.key, x.value, o);
    const auto found = [&](const char* where) {
        std::string out;
        const auto compare = [&](const char* what, const Tensor& got, const Tensor& wanted, const Tolerance& within) {
            const std::string text = difference(got, wanted, within);
            out += text.empty() ? "" : std::string(where) + what + ": " + text + "; ";
        };
        compare("y alone", attend(x, o).y, want.y, of_y);
        const Attended lse = attend(x, o, Ask::y_and_lse);
        compare("y with lse", lse.y, want.y, of_y);
        compare("lse", lse.log_sum_exp, want.log_sum_exp, tolerance);
        if (asks().back() == Ask::everything) {
            const Attended all = attend(x, o, Ask::everything);
            compare("y with weights", all.y, want.y, of_y);
            compare("lse with weights", all.log_sum_exp, want.log_sum_exp, tolerance);
            compare("weights", *all.weights, want.weights, tolerance);
        }
        return out;
    };
    std::string out = found("");
    if (out.empty()) {
        const AsSmallGpu small_gpu;
        out = found("as on a small GPU, ");
    }
    return out;
}

}  // namespace vkf::test
