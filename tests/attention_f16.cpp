// SPDX-License-Identifier: Apache-2.0
#include "tests/attention_f16.h"

#include <cmath>

#include "tests/believed.h"
#include "tests/device.h"

namespace vkf::test {

using Options = reference::AttentionOptions;

void as_forced(Capabilities& c) { c.variants = "attention_coopmat"; }

AttentionOptions fused_options(OpCheck& check, const Qkv& x, const Options& o) {
    const auto optional = [&](const char* name, const std::optional<Tensor>& t, DType dtype = DType::f32) {
        return t ? check.input(name, *t, dtype) : Value();
    };
    AttentionOptions out;
    out.scale =
        static_cast<float>(o.scores.scale != 0 ? o.scores.scale : 1 / std::sqrt(static_cast<double>(x.query.size(3))));
    out.softcap = static_cast<float>(o.scores.softcap);
    out.sinks = optional("sinks", o.scores.sinks);
    out.mask.keys = optional("mask", o.scores.keys, DType::i32);
    out.mask.polarity = o.scores.polarity;
    out.mask.bias = optional("bias", o.scores.bias);
    out.mask.alibi_slopes = optional("slopes", o.scores.alibi_slopes);
    out.mask.causal = o.scores.causal;
    out.mask.window = o.scores.window;
    out.mask.fill = static_cast<float>(o.scores.fill);
    out.dropout = static_cast<float>(o.dropout);
    out.dropout_seed = o.dropout_seed;
    return out;
}

Attended run_f16(const Qkv& x, const Options& o, bool lse) {
    OpCheck check;
    check.arithmetic = Arithmetic::f16;
    AttentionOptions options = fused_options(check, x, o);
    options.log_sum_exp = lse;
    const AttentionResult a = scaled_dot_product_attention(check.input("q", x.query), check.input("k", x.key),
                                                           check.input("v", x.value), options);
    Attended out{check.run(a.y), {}, {}};
    if (lse) {
        out.log_sum_exp = check.run(a.log_sum_exp);
    }
    const std::string how = device().compile(check.graph, {}, {.arithmetic = Arithmetic::f16}).explain();
    if (!contains(how, kTakenInF16)) {
        throw Error("not on cooperative matrices:\n" + how, "test");
    }
    return out;
}

std::string mismatch_f16(const Tensor& y, const Qkv& x, const Options& o) {
    const Qkv r = as_f16(x);
    return difference(y, reference::attention(r.query, r.key, r.value, o).y, f16_tolerance(r, o));
}

namespace {

std::string mismatch_as_believed(const Qkv& x, const Options& o, bool lse) {
    const Attended got = run_f16(x, o, lse);
    std::string found = mismatch_f16(got.y, x, o);
    if (found.empty() && lse) {
        const Qkv r = as_f16(x);
        found = difference(got.log_sum_exp, reference::attention(r.query, r.key, r.value, o).log_sum_exp);
        found = found.empty() ? found : "log-sum-exp: " + found;
    }
    return found;
}

}  // namespace

std::string mismatch_f16(const Qkv& x, const Options& o, bool lse) {
    const std::string found = mismatch_as_believed(x, o, lse);
    if (!found.empty() || !device().capabilities().matrix_elements) {
        return found;
    }
    const Believed without([](Capabilities& c) { c.matrix_elements = false; });
    const std::string staged = mismatch_as_believed(x, o, lse);
    return staged.empty() ? "" : "weights through shared memory: " + staged;
}

}  // namespace vkf::test
