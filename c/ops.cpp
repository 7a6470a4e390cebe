// SPDX-License-Identifier: Apache-2.0
#include <utility>

#include "c/border.h"
#include "runtime/compile/glsl.h"

struct vkf_module {
    std::vector<std::uint32_t> words = {};
    std::string error = {};
};

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

RopeLayout layout_of(vkf_rope_layout layout) {
    if (layout == 0) {
        throw Error("the rope's layout must be named: VKF_ROPE_INTERLEAVED or VKF_ROPE_HALF");
    }
    return pick(kLayouts, layout - 1, "rope layout");
}

SoftmaxOptions softmax_of(const vkf_softmax_options* options) {
    const vkf_softmax_options o = read(options);
    return {mask_of(o.mask), or_default(o.scale, 1.0f), o.softcap, value_or_none(o.sinks)};
}

ImageOptions image_of(vkf_image_access access, vkf_image_format format) {
    return {pick(kImageAccess, access, "image access"), pick(kImageFormats, format, "image format")};
}

}  // namespace

ScoreMod score_mod_of(const char* glsl, const float* parameters, std::uint32_t count) {
    std::vector<float> numbers;
    if (count != 0) {
        numbers.assign(&need(parameters, "the score mod's parameters"), parameters + count);
    }
    return ScoreMod::glsl(text(glsl, "the score mod"), std::move(numbers));
}

WeightType packed_type_of(vkf_weight_type type) { return weight_type_of(type).value_or(WeightType::f32); }

Mask mask_of(const vkf_mask* mask) {
    const vkf_mask m = read(mask, "mask");
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
    const vkf_rope_options o = read(options, "rope");
    Rope rope{.layout = layout_of(o.layout)};
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
                       o.masked_weights, o.masked_gradient, o.heads_last});
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

vkf_result vkf_to(vkf_value x, vkf_dtype dtype, vkf_value* y) {
    return give_value(__func__, y, [&] { return to(value_of(x, "x"), dtype_of(dtype)); });
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

vkf_result vkf_pack_into(vkf_value window, vkf_value x, vkf_weight_type type, vkf_value* written) {
    return give_value(__func__, written,
                      [&] { return pack_into(value_of(window, "window"), value_of(x, "x"), packed_type_of(type)); });
}

vkf_result vkf_unpack_rows(vkf_value words, vkf_weight_type type, int64_t columns, vkf_value* y) {
    return give_value(__func__, y,
                      [&] { return unpack_rows(value_of(words, "words"), packed_type_of(type), columns); });
}

vkf_result vkf_combine_masks(vkf_value a, vkf_polarity a_polarity, vkf_value b, vkf_polarity b_polarity,
                             vkf_value* keys) {
    return give_value(__func__, keys, [&] {
        return combine_masks(value_of(a, "a"), pick(kPolarity, a_polarity, "polarity"), value_of(b, "b"),
                             pick(kPolarity, b_polarity, "polarity"));
    });
}

vkf_result vkf_biased_scores(vkf_value scores, const vkf_softmax_options* options, vkf_value* biased) {
    return give_value(__func__, biased, [&] { return biased_scores(value_of(scores, "scores"), softmax_of(options)); });
}

vkf_result vkf_score_mod(vkf_value scores, const char* glsl, const float* parameters, uint32_t parameter_count,
                         vkf_value* y) {
    return give_value(__func__, y, [&] {
        return score_mod(value_of(scores, "scores"), score_mod_of(glsl, parameters, parameter_count));
    });
}

vkf_result vkf_sequence_mask(vkf_value query, vkf_value key, vkf_value cumulative_queries, vkf_value keys,
                             vkf_causal causal, int64_t window, vkf_value* mask) {
    return give_value(__func__, mask, [&] {
        return sequence_mask(value_of(query, "query"), value_of(key, "key"), value_or_none(cumulative_queries),
                             value_of(keys, "keys"), pick(kCausal, causal, "causal"), window);
    });
}

vkf_result vkf_gather_pages(vkf_value pool, vkf_value table, vkf_value* rows) {
    return give_value(__func__, rows, [&] { return gather_pages(value_of(pool, "pool"), value_of(table, "table")); });
}

vkf_result vkf_scatter_pages(vkf_value pool, vkf_value x, vkf_value table, vkf_value lengths, vkf_value* written) {
    return give_value(__func__, written, [&] {
        return scatter_pages(value_of(pool, "pool"), value_of(x, "x"), value_of(table, "table"),
                             value_of(lengths, "lengths"));
    });
}

vkf_result vkf_top_k(vkf_value x, int64_t k, vkf_value* values, vkf_value* indices) {
    return guard(__func__, [&] {
        vkf_value& first = need(values, "values");
        vkf_value& second = need(indices, "indices");
        const vkf::TopK top = top_k(value_of(x, "x"), k);
        first = to_c(top.values);
        second = to_c(top.indices);
    });
}

vkf_result vkf_cross_entropy(vkf_value logits, vkf_value labels, const vkf_cross_entropy_options* options,
                             vkf_value* loss) {
    return give_value(__func__, loss, [&] {
        const vkf_cross_entropy_options o = read(options);
        vkf::CrossEntropyOptions out;
        out.ignore_index = o.has_ignore_index ? o.ignore_index : out.ignore_index;
        out.label_smoothing = o.label_smoothing;
        return cross_entropy(value_of(logits, "logits"), value_of(labels, "labels"), out);
    });
}

vkf_result vkf_batch_norm(vkf_value x, vkf_value weight, vkf_value bias, vkf_value running_mean, vkf_value running_var,
                          float eps, vkf_value* y) {
    return give_value(__func__, y, [&] {
        return batch_norm(value_of(x, "x"), value_of(weight, "weight"), value_of(bias, "bias"),
                          value_of(running_mean, "running_mean"), value_of(running_var, "running_var"), eps);
    });
}

vkf_result vkf_batch_norm_train(vkf_value x, vkf_value weight, vkf_value bias, vkf_value running_mean,
                                vkf_value running_var, float momentum, float eps, vkf_value* y,
                                vkf_value* new_running_mean, vkf_value* new_running_var) {
    return guard(__func__, [&] {
        vkf_value& first = need(y, "y");
        vkf_value& mean = need(new_running_mean, "new_running_mean");
        vkf_value& variance = need(new_running_var, "new_running_var");
        const vkf::BatchNormResult r = batch_norm_train(value_of(x, "x"), value_of(weight, "weight"),
                                                        value_of(bias, "bias"), value_of(running_mean, "running_mean"),
                                                        value_of(running_var, "running_var"), momentum, eps);
        first = to_c(r.y);
        mean = to_c(r.running_mean);
        variance = to_c(r.running_var);
    });
}

vkf_result vkf_sum(vkf_value x, vkf_value* y) {
    return give_value(__func__, y, [&] { return sum(value_of(x, "x")); });
}

vkf_result vkf_sum_to(vkf_value x, uint32_t rank, const vkf_dim* shape, vkf_value* y) {
    return give_value(__func__, y, [&] {
        const Value v = value_of(x, "x");
        return sum_to(v, shape_of(rank, shape, v.graph()));
    });
}

vkf_result vkf_dropout(vkf_value x, float p, vkf_dim seed, vkf_value* y) {
    return give_value(__func__, y, [&] {
        const Value v = value_of(x, "x");
        return dropout(v, p, dim_of(seed, v.graph()));
    });
}

vkf_result vkf_rope_by_table(vkf_value x, vkf_value table, vkf_rope_layout layout, vkf_dim start, vkf_value* y) {
    return give_value(__func__, y, [&] {
        const Value v = value_of(x, "x");
        return rope_by_table(v, value_of(table, "table"), layout_of(layout), dim_of(start, v.graph()));
    });
}

vkf_result vkf_rope_table(const vkf_rope_options* options, int64_t head_dim, float* numbers, uint64_t capacity,
                          uint64_t* count) {
    return guard(__func__, [&] {
        give_numbers<float>("the table", rope_table(rope_of(options), head_dim), numbers, capacity, count);
    });
}

vkf_result vkf_module_words(vkf_module* module, const uint32_t* words, uint64_t count) {
    return guard(__func__, [&] {
        vkf_module& m = need(module, "module");
        m.words.clear();
        if (count != 0) {
            m.words.assign(&need(words, "words"), words + count);
        }
    });
}

vkf_result vkf_module_error(vkf_module* module, const char* what) {
    return guard(__func__, [&] { need(module, "module").error = text(what, "what"); });
}

vkf_result vkf_use_glsl_compiler(void (*compile)(void* user, const char* source, const char* name, vkf_module* module),
                                 void* user, bool several_threads) {
    return guard(__func__, [&] {
        if (!compile) {
            vkf::use_glsl_compiler({});
            return;
        }
        const auto made = [compile, user](const std::string& source, const std::string& name) {
            vkf_module module;
            compile(user, source.c_str(), name.c_str(), &module);
            if (!module.error.empty() || module.words.empty()) {
                throw vkf::Error(module.error.empty() ? "the host's compiler gave nothing" : module.error, name);
            }
            return std::move(module.words);
        };
        vkf::use_glsl_compiler(made, several_threads);
    });
}

vkf_result vkf_glsl_compiler(char* text, size_t capacity, size_t* needed) {
    return guard(__func__, [&] { give_text(vkf::glsl_compiler(), text, capacity, needed); });
}

vkf_result vkf_compile_glsl(const char* source, const char* name, uint32_t* words, uint64_t capacity, uint64_t* count) {
    return guard(__func__, [&] {
        const std::vector<std::uint32_t> made = vkf::compile_glsl(text(source, "source"), text(name, "name"));
        give_numbers<std::uint32_t>("the module", made, words, capacity, count);
    });
}
