// SPDX-License-Identifier: Apache-2.0
#include "c/border.h"

namespace vkf::c {

namespace {

constexpr std::array kCausal = {Causal::none, Causal::top_left, Causal::bottom_right};
constexpr std::array kPolarity = {Polarity::attend, Polarity::ignore};
constexpr std::array kLayouts = {RopeLayout::interleaved, RopeLayout::half};
using Scaling = RopeScaling::Kind;
constexpr std::array kScalings = {Scaling::none, Scaling::linear, Scaling::ntk, Scaling::llama3, Scaling::yarn};
constexpr std::array kImageAccess = {ImageAccess::sampled, ImageAccess::storage};
constexpr std::array kImageFormats = {ImageFormat::any, ImageFormat::rgba8, ImageFormat::rgba16f, ImageFormat::r32f,
                                      ImageFormat::rgba32f};

SoftmaxOptions softmax_of(const vkf_softmax_options* options) {
    const vkf_softmax_options o = read(options);
    return {mask_of(o.mask), or_default(o.scale, 1.0f), o.softcap, value_or_none(o.sinks)};
}

ImageOptions image_of(vkf_image_access access, vkf_image_format format) {
    return {pick(kImageAccess, access, "image access"), pick(kImageFormats, format, "image format")};
}

}  // namespace

Mask mask_of(const vkf_mask* mask) {
    const vkf_mask m = read(mask);
    Mask out;
    out.keys = value_or_none(m.keys);
    out.polarity = pick(kPolarity, m.polarity, "polarity");
    out.bias = value_or_none(m.bias);
    out.alibi_slopes = value_or_none(m.alibi_slopes);
    out.causal = pick(kCausal, m.causal, "causal");
    out.window = m.window;
    if (m.has_fill) {
        out.fill = m.fill;
    }
    return out;
}

Rope rope_of(const vkf_rope_options* options) {
    const vkf_rope_options o = read(options);
    if (o.layout == 0) {
        throw Error("the rope's layout must be named: VKF_ROPE_INTERLEAVED or VKF_ROPE_HALF");
    }
    Rope rope{.layout = pick(kLayouts, o.layout - 1, "rope layout")};
    rope.theta = or_default(o.theta, rope.theta);
    rope.rotary_dim = o.rotary_dim;
    rope.max_positions = o.max_positions;
    RopeScaling& s = rope.scaling;
    s.kind = pick(kScalings, o.scaling, "rope scaling");
    s.factor = or_default(o.factor, s.factor);
    s.low_freq_factor = or_default(o.low_freq_factor, s.low_freq_factor);
    s.high_freq_factor = or_default(o.high_freq_factor, s.high_freq_factor);
    s.beta_fast = or_default(o.beta_fast, s.beta_fast);
    s.beta_slow = or_default(o.beta_slow, s.beta_slow);
    s.truncate = on_or_default(o.truncate, s.truncate);
    s.attention_factor = o.attention_factor;
    s.original_max_positions = o.original_max_positions;
    return rope;
}

}  // namespace vkf::c

using namespace vkf::c;
using vkf::Value;

vkf_result vkf_image_input(vkf_graph* graph, const char* name, vkf_dim height, vkf_dim width, int64_t channels,
                           vkf_image_access access, vkf_image_format format, vkf_value* value) {
    return give_value(__func__, value, [&] {
        vkf_graph& g = need(graph, "graph");
        return image_input(g, text(name, "name"), dim_of(height, g), dim_of(width, g), channels,
                           image_of(access, format));
    });
}

vkf_result vkf_image_output(const char* name, vkf_value x, vkf_image_format format) {
    return guard(__func__,
                 [&] { image_output(text(name, "name"), value_of(x, "x"), image_of(VKF_IMAGE_STORAGE, format)); });
}

vkf_result vkf_matmul(vkf_value a, vkf_value b, const vkf_matmul_options* options, vkf_value* y) {
    return give_value(__func__, y, [&] {
        const vkf_matmul_options o = read(options);
        return matmul(value_of(a, "a"), value_of(b, "b"),
                      {value_or_none(o.bias), activation_of(o.activation), or_default(o.scale, 1.0f), o.transpose_b,
                       o.masked_weights, o.heads_last, value_or_none(o.times), value_or_none(o.plus)});
    });
}

vkf_result vkf_linear(vkf_value x, vkf_value weight, vkf_value bias, vkf_activation activation, vkf_value* y) {
    return give_value(__func__, y, [&] {
        return linear(value_of(x, "x"), value_of(weight, "weight"), value_or_none(bias), activation_of(activation));
    });
}

vkf_result vkf_softmax(vkf_value scores, const vkf_softmax_options* options, vkf_value* weights) {
    return give_value(__func__, weights, [&] { return softmax(value_of(scores, "scores"), softmax_of(options)); });
}

vkf_result vkf_log_sum_exp(vkf_value scores, const vkf_softmax_options* options, vkf_value* y) {
    return give_value(__func__, y, [&] { return log_sum_exp(value_of(scores, "scores"), softmax_of(options)); });
}

vkf_result vkf_hard_max(vkf_value scores, const vkf_softmax_options* options, vkf_value* weights) {
    return give_value(__func__, weights, [&] { return hard_max(value_of(scores, "scores"), softmax_of(options)); });
}

vkf_result vkf_layer_norm(vkf_value x, vkf_value weight, vkf_value bias, float eps, vkf_value* y) {
    return give_value(__func__, y,
                      [&] { return layer_norm(value_of(x, "x"), value_or_none(weight), value_or_none(bias), eps); });
}

vkf_result vkf_rms_norm(vkf_value x, vkf_value weight, float eps, vkf_value* y) {
    return give_value(__func__, y, [&] { return rms_norm(value_of(x, "x"), value_or_none(weight), eps); });
}

vkf_result vkf_argmax(vkf_value x, vkf_value* index) {
    return give_value(__func__, index, [&] { return argmax(value_of(x, "x")); });
}

vkf_result vkf_add(vkf_value a, vkf_value b, vkf_value* y) {
    return give_value(__func__, y, [&] { return add(value_of(a, "a"), value_of(b, "b")); });
}

vkf_result vkf_mul(vkf_value a, vkf_value b, vkf_value* y) {
    return give_value(__func__, y, [&] { return mul(value_of(a, "a"), value_of(b, "b")); });
}

vkf_result vkf_scale(vkf_value x, float factor, vkf_value* y) {
    return give_value(__func__, y, [&] { return scale(value_of(x, "x"), factor); });
}

vkf_result vkf_activate(vkf_value x, vkf_activation activation, vkf_value* y) {
    return give_value(__func__, y, [&] { return activate(value_of(x, "x"), activation_of(activation)); });
}

vkf_result vkf_gated(vkf_value gate, vkf_value up, vkf_activation activation, vkf_value* y) {
    return give_value(__func__, y,
                      [&] { return gated(value_of(gate, "gate"), value_of(up, "up"), activation_of(activation)); });
}

vkf_result vkf_rope(vkf_value x, const vkf_rope_options* options, vkf_dim start, vkf_value* y) {
    return give_value(__func__, y, [&] {
        const Value v = value_of(x, "x");
        return rope(v, rope_of(options), dim_of(start, v.graph()));
    });
}

vkf_result vkf_rope_at(vkf_value x, vkf_value positions, const vkf_rope_options* options, vkf_value* y) {
    return give_value(__func__, y,
                      [&] { return rope_at(value_of(x, "x"), value_of(positions, "positions"), rope_of(options)); });
}

vkf_result vkf_sinusoidal_positions(vkf_graph* graph, int64_t length, int64_t dim, vkf_value* y) {
    return give_value(__func__, y, [&] { return sinusoidal_positions(need(graph, "graph"), length, dim); });
}

vkf_result vkf_embedding(vkf_value ids, vkf_value table, float scale, vkf_value* y) {
    return give_value(__func__, y, [&] { return embedding(value_of(ids, "ids"), value_of(table, "table"), scale); });
}

vkf_result vkf_repeat_kv(vkf_value x, int64_t n, vkf_value* y) {
    return give_value(__func__, y, [&] { return repeat_kv(value_of(x, "x"), n); });
}

vkf_result vkf_contiguous(vkf_value x, vkf_value* y) {
    return give_value(__func__, y, [&] { return contiguous(value_of(x, "x")); });
}

vkf_result vkf_concat(uint32_t count, const vkf_value* parts, int32_t dim, vkf_value* y) {
    return give_value(__func__, y, [&] {
        std::vector<Value> values;
        for (std::uint32_t i = 0; i < count; ++i) {
            values.push_back(value_of((&need(parts, "parts"))[i], "a part"));
        }
        return concat(values, dim);
    });
}

vkf_result vkf_copy_into(vkf_value window, vkf_value x, vkf_value* written) {
    return give_value(__func__, written, [&] { return copy_into(value_of(window, "window"), value_of(x, "x")); });
}
