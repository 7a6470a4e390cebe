// SPDX-License-Identifier: Apache-2.0
// Every op but attention, as a function of keywords.
#include <cstdint>
#include <limits>

#include "bind.h"
#include "options.h"

namespace py {

namespace {

using V = vkf::Value;
using Act = Choice<vkf::Activation>;

void bind_masks(nb::module_& m) {
    nb::class_<vkf::Mask>(m, "Mask", "The keys that a query may see.")
        .def(
            "__init__",
            [](vkf::Mask* self, const V& keys, const Choice<vkf::Polarity>& polarity, const V& bias,
               const V& alibi_slopes, const Choice<vkf::Causal>& causal, std::int64_t window, float fill) {
                new (self) vkf::Mask{.keys = keys,
                                     .polarity = polarity,
                                     .bias = bias,
                                     .alibi_slopes = alibi_slopes,
                                     .causal = causal,
                                     .window = window,
                                     .fill = fill};
            },
            "keys"_a = nb::none(), nb::kw_only(), "polarity"_a = Choice<vkf::Polarity>{"attend"}, "bias"_a = nb::none(),
            "alibi_slopes"_a = nb::none(), "causal"_a = Choice<vkf::Causal>{"none"}, "window"_a = 0,
            "fill"_a = -std::numeric_limits<float>::infinity(), nb::keep_alive<1, 2>(), nb::keep_alive<1, 4>(),
            nb::keep_alive<1, 5>(),
            "keys: int32, 0 or 1, broadcasts to (..., L, S); polarity says what a 1 means. bias: float32, added to "
            "the scaled score. alibi_slopes (H): -slope |i - j| is added. causal: top_left as PyTorch's is_causal, or "
            "bottom_right, which a KV cache needs. window: keys that a causal query sees, 0: all before it. fill: what "
            "masked scores become; at -inf they never contribute, and a row with no key left gives 0.")
        .def_prop_ro(
            "keys", [](const vkf::Mask& x) { return x.keys; }, nb::sig("def keys(self) -> Value | None"),
            "int32, 0 or 1, which broadcasts to (..., L, S); or None.")
        .def_prop_ro(
            "polarity", [](const vkf::Mask& x) { return name(x.polarity); },
            "What 1 means in `keys`: attend or ignore.")
        .def_prop_ro(
            "bias", [](const vkf::Mask& x) { return x.bias; }, nb::sig("def bias(self) -> Value | None"),
            "float32, added to the scaled scores; broadcasts to (..., L, S); or None.")
        .def_prop_ro(
            "alibi_slopes", [](const vkf::Mask& x) { return x.alibi_slopes; },
            nb::sig("def alibi_slopes(self) -> Value | None"),
            "float32 (H), or what broadcasts to (..., H, L, S); or None.")
        .def_prop_ro(
            "causal", [](const vkf::Mask& x) { return name(x.causal); },
            "none, top_left (row r sees keys 0..r) or bottom_right (keys 0..r+S-L).")
        .def_ro("window", &vkf::Mask::window, "Keys that a causal query sees, itself included; 0: all before it.")
        .def_ro(
            "fill", &vkf::Mask::fill,
            "What masked scores become. -inf: masked keys never contribute; finite: a row without a key is uniform.");
    m.def(
        "combine_masks",
        [](V a, const Choice<vkf::Polarity>& ap, V b, const Choice<vkf::Polarity>& bp) {
            return vkf::combine_masks(a, ap, b, bp);
        },
        "a"_a, "a_polarity"_a, "b"_a, "b_polarity"_a,
        "Combines two boolean masks: a key may be attended when both allow it. Polarity of the result: attend.");
    nb::class_<vkf::ScoreMod>(m, "ScoreMod",
                              "A few lines of GLSL that change attention's scores. FlexAttention's score_mod.")
        .def(nb::new_([](std::string text, std::vector<float> parameters) {
                 return vkf::ScoreMod::glsl(std::move(text), std::move(parameters));
             }),
             "text"_a, "parameters"_a = std::vector<float>(),
             "text defines float score_mod(float score, uint batch, uint head, uint query, uint key); parameter(i) is "
             "number i of parameters. Device.compile() needs a GLSL compiler for it: glsl_compiler().")
        .def_static(
            "glsl",
            [](std::string text, std::vector<float> parameters) {
                return vkf::ScoreMod::glsl(std::move(text), std::move(parameters));
            },
            "text"_a, "parameters"_a = std::vector<float>(), "The same as ScoreMod().");
}

void bind_products(nb::module_& m) {
    m.def(
        "matmul",
        [](V a, V b, V bias, const Act& activation, float scale, bool transpose_b, bool masked_weights,
           bool masked_gradient, bool heads_last) {
            return vkf::matmul(a, b,
                               {.bias = bias,
                                .activation = activation,
                                .scale = scale,
                                .transpose_b = transpose_b,
                                .masked_weights = masked_weights,
                                .masked_gradient = masked_gradient,
                                .heads_last = heads_last});
        },
        "a"_a, "b"_a, nb::kw_only(), "bias"_a = nb::none(), "activation"_a = Act{"none"}, "scale"_a = 1.0f,
        "transpose_b"_a = false, "masked_weights"_a = false, "masked_gradient"_a = false, "heads_last"_a = false,
        "(..., M, K) x (..., K, N) -> (..., M, N); leading dimensions broadcast. activation(scale * a b + bias), bias "
        "(N). transpose_b: b is (..., N, K). masked_weights: a holds attention weights, and where one is masked b's "
        "row is skipped. heads_last: the result (B, H..., L, N) is stored as (B, L, H..., N). torch.matmul.");
    m.def(
        "linear", [](V x, V weight, V bias, const Act& activation) { return vkf::linear(x, weight, bias, activation); },
        "input"_a, "weight"_a, "bias"_a = nb::none(), "activation"_a = Act{"none"},
        "activation(x W^T + b): input (..., in), weight (out, in), bias (out). torch.nn.functional.linear.");
    m.def(
        "softmax",
        [](V scores, const std::optional<vkf::Mask>& mask, float scale, float softcap, V sinks) {
            return vkf::softmax(scores, softmax_options(mask, scale, softcap, sinks));
        },
        "scores"_a, SOFTMAX_OPTIONS,
        "Attention weights over the last dimension: scale, softcap c tanh(s / c), bias, mask, "
        "softmax. scores (..., L, S) -> the same shape. A masked weight is -0.0. sinks (H): one more logit a row, "
        "without "
        "a column. torch.softmax(scores, -1).");
    m.def(
        "biased_scores",
        [](V scores, const std::optional<vkf::Mask>& mask, float scale, float softcap, V sinks) {
            return vkf::biased_scores(scores, softmax_options(mask, scale, softcap, sinks));
        },
        "scores"_a, SOFTMAX_OPTIONS, "softmax()'s scale, softcap and biases, without its mask and sinks.");
    m.def(
        "log_sum_exp",
        [](V scores, const std::optional<vkf::Mask>& mask, float scale, float softcap, V sinks) {
            return vkf::log_sum_exp(scores, softmax_options(mask, scale, softcap, sinks));
        },
        "scores"_a, SOFTMAX_OPTIONS,
        "The logarithm of the sum of the exponentials of each row: (..., L, S) -> (..., L). torch.logsumexp(scores, "
        "-1).");
    m.def(
        "hard_max",
        [](V scores, const std::optional<vkf::Mask>& mask, float scale, float softcap, V sinks) {
            return vkf::hard_max(scores, softmax_options(mask, scale, softcap, sinks));
        },
        "scores"_a, SOFTMAX_OPTIONS, "Weight 1 for the largest score, the first of equals, and 0 for the others.");
    m.def("score_mod", &vkf::score_mod, "scores"_a, "mod"_a, "Applies a ScoreMod to every score.");
}

void bind_rows(nb::module_& m) {
    m.def("layer_norm", &vkf::layer_norm, "x"_a, "weight"_a = nb::none(), "bias"_a = nb::none(), "eps"_a = 1e-5,
          "(..., N) -> (..., N), weight and bias (N) or None. torch.nn.LayerNorm.");
    m.def("rms_norm", &vkf::rms_norm, "x"_a, "weight"_a = nb::none(), "eps"_a = 1e-6,
          "x / sqrt(mean(x^2) + eps) * weight. torch.nn.RMSNorm.");
    m.def("argmax", &vkf::argmax, "x"_a,
          "(..., N) -> (...) int32: the index of the largest, the first of equals; a NaN counts as largest. "
          "torch.argmax(x, -1).");
    m.def(
        "top_k",
        [](V x, std::int64_t k) {
            const vkf::TopK out = vkf::top_k(x, k);
            return nb::make_tuple(out.values, out.indices);
        },
        "x"_a, "k"_a, nb::sig("def top_k(x: Value, k: int) -> tuple[Value, Value]"),
        "(..., N) -> values and indices (..., k), the largest first. k is 1 to 128. torch.topk.");
    m.def(
        "cross_entropy",
        [](V logits, V labels, std::int64_t ignore_index, float label_smoothing) {
            return vkf::cross_entropy(logits, labels,
                                      {.ignore_index = ignore_index, .label_smoothing = label_smoothing});
        },
        "input"_a, "target"_a, nb::kw_only(), "ignore_index"_a = -100, "label_smoothing"_a = 0.0f,
        "The mean of -log softmax(input)[target] over the rows that are not ignored: input (..., V), target (...) "
        "int32 "
        "-> (1). torch.nn.functional.cross_entropy, with the classes last.");
    m.def(
        "batch_norm_train",
        [](V x, V weight, V bias, V mean, V var, float momentum, float eps) {
            const vkf::BatchNormResult out = vkf::batch_norm_train(x, weight, bias, mean, var, momentum, eps);
            return nb::make_tuple(out.y, out.running_mean, out.running_var);
        },
        "x"_a, "weight"_a, "bias"_a, "running_mean"_a, "running_var"_a, "momentum"_a = 0.1, "eps"_a = 1e-5,
        nb::sig("def batch_norm_train(x: Value, weight: Value, bias: Value, running_mean: Value, running_var: Value, "
                "momentum: float = 0.1, eps: float = 1e-05) -> tuple[Value, Value, Value]"),
        "torch.nn.BatchNorm1d in training: x (N, C) -> y, and the running mean and variance (C) as they are then.");
    m.def("batch_norm", &vkf::batch_norm, "x"_a, "weight"_a, "bias"_a, "running_mean"_a, "running_var"_a,
          "eps"_a = 1e-5, "x (N, C) normalised by the running statistics: batch norm in evaluation.");
}

void bind_elementwise(nb::module_& m) {
    m.def("add", &vkf::add, "a"_a, "b"_a, "a + b; broadcasts.");
    m.def("mul", &vkf::mul, "a"_a, "b"_a, "a * b; broadcasts.");
    m.def("scale", &vkf::scale, "x"_a, "factor"_a, "x * factor.");
    m.def(
        "activate", [](V x, const Act& activation) { return vkf::activate(x, activation); }, "x"_a, "activation"_a,
        "An activation by its name: relu, gelu (exact), gelu_tanh, silu, tanh, sigmoid, rsqrt.");
    m.def(
        "relu", [](V x) { return vkf::relu(x); }, "x"_a, "torch.relu.");
    m.def(
        "gelu", [](V x) { return vkf::gelu(x); }, "x"_a, "Exact: x Phi(x). torch.nn.functional.gelu.");
    m.def(
        "silu", [](V x) { return vkf::silu(x); }, "x"_a, "x sigmoid(x). torch.nn.functional.silu.");
    m.def(
        "gated", [](V gate, V up, const Act& activation) { return vkf::gated(gate, up, activation); }, "gate"_a, "up"_a,
        "activation"_a, "activation(gate) * up: SwiGLU's product with silu.");
    m.def("dropout", &vkf::dropout, "x"_a, "p"_a, "seed"_a, kOneGraph,
          "Each element 0 with probability p and x / (1 - p) otherwise; a counter-based generator, the same on every "
          "device. seed: a number, or made of symbols that are set before each run. torch.nn.functional.dropout.");
    m.def("sum_to", &vkf::sum_to, "x"_a, "shape"_a, kOneGraph,
          "Sums over the dimensions that broadcasting to x would repeat. torch.Tensor.sum_to_size.");
    m.def("sum", &vkf::sum, "x"_a, "The sum of all elements, (1). torch.sum.");
}

void bind_positions(nb::module_& m) {
    nb::class_<vkf::RopeScaling>(m, "RopeScaling",
                                 "The way in which angles are stretched for contexts longer than trained.")
        .def(
            "__init__",
            [](vkf::RopeScaling* self, const Choice<vkf::RopeScaling::Kind>& kind, double factor, double low,
               double high, double fast, double slow, bool truncate, double attention_factor, std::int64_t original) {
                new (self) vkf::RopeScaling{.kind = kind,
                                            .factor = factor,
                                            .low_freq_factor = low,
                                            .high_freq_factor = high,
                                            .beta_fast = fast,
                                            .beta_slow = slow,
                                            .truncate = truncate,
                                            .attention_factor = attention_factor,
                                            .original_max_positions = original};
            },
            "kind"_a = Choice<vkf::RopeScaling::Kind>{"none"}, nb::kw_only(), "factor"_a = 1.0,
            "low_freq_factor"_a = 1.0, "high_freq_factor"_a = 4.0, "beta_fast"_a = 32.0, "beta_slow"_a = 1.0,
            "truncate"_a = true, "attention_factor"_a = 0.0, "original_max_positions"_a = 0)
        .def_prop_ro(
            "kind", [](const vkf::RopeScaling& s) { return name(s.kind); }, "none, linear, ntk, llama3 or yarn.")
        .def_ro("factor", &vkf::RopeScaling::factor, "How much longer texts become.")
        .def(
            "__eq__",
            [](const vkf::RopeScaling& a, nb::handle b) {
                return nb::isinstance<vkf::RopeScaling>(b) && a == nb::cast<vkf::RopeScaling&>(b);
            },
            "other"_a.none());
    nb::class_<vkf::Rope>(m, "Rope",
                          "Rotary positions. layout says which dimensions turn together: \"interleaved\" pairs "
                          "(2i, 2i+1), GPT-J and Llama as published; \"half\" (i, i + r/2), GPT-NeoX and Hugging "
                          "Face. The wrong choice gives wrong numbers and no error, so there is no default.")
        .def(
            "__init__",
            [](vkf::Rope* self, const Choice<vkf::RopeLayout>& layout, double theta, std::int64_t rotary_dim,
               std::int64_t max_positions, const std::optional<vkf::RopeScaling>& scaling) {
                new (self) vkf::Rope{.theta = theta,
                                     .layout = static_cast<vkf::RopeLayout>(layout),
                                     .rotary_dim = rotary_dim,
                                     .max_positions = max_positions,
                                     .scaling = scaling.value_or(vkf::RopeScaling())};
            },
            nb::kw_only(), "layout"_a, "theta"_a = 10000.0, "rotary_dim"_a = 0, "max_positions"_a = 0,
            "scaling"_a = nb::none(),
            "rotary_dim: leading dimensions that turn; 0: all. max_positions: rows of the table of cos and sin.")
        .def_ro("theta", &vkf::Rope::theta, "The base of the frequencies.")
        .def_prop_ro(
            "layout", [](const vkf::Rope& r) { return name(r.layout.value); },
            "What turns together: interleaved (2i, 2i+1) or half (i, i+d/2).")
        .def_ro("rotary_dim", &vkf::Rope::rotary_dim, "Leading dimensions that turn; 0: all.")
        .def_ro("max_positions", &vkf::Rope::max_positions, "Rows of the table of cosines and sines.")
        .def_ro("scaling", &vkf::Rope::scaling, "How frequencies are changed for longer texts.")
        .def(
            "__eq__",
            [](const vkf::Rope& a, nb::handle b) {
                return nb::isinstance<vkf::Rope>(b) && a == nb::cast<vkf::Rope&>(b);
            },
            "other"_a.none());
    m.def(
        "rope_scaling_kind", [](const std::string& text) { return name(vkf::rope_scaling_kind(text)); }, "name"_a,
        "The kind that a model's configuration calls \"default\", \"linear\", \"ntk\", \"llama3\" or \"yarn\".");
    m.def("rope", &vkf::rope, "x"_a, "options"_a, "start"_a = vkf::Dim(0), kOneGraph,
          nb::sig("def rope(x: Value, options: Rope, start: int | Dim = 0) -> Value"),
          "Rotary position embedding (Su et al. 2021). x (..., L, d): row l has position start + l.");
    m.def("rope_at", &vkf::rope_at, "x"_a, "positions"_a, "options"_a,
          "rope() with a position for each row: positions (L) int32.");
    m.def(
        "rope_table",
        [](const vkf::Rope& options, std::int64_t head_dim) {
            const std::vector<float> table = vkf::rope_table(options, head_dim);
            const std::int64_t r = options.rotary_dim != 0 ? options.rotary_dim : head_dim;
            return numpy_array(table, vkf::DType::f32, {options.max_positions, r / 2, 2});
        },
        "options"_a, "head_dim"_a, nb::sig("def rope_table(options: Rope, head_dim: int) -> numpy.ndarray"),
        "The table (max_positions, r/2, 2) of cos and sin, computed in double and rounded once.");
    m.def(
        "rope_by_table",
        [](V x, V table, const Choice<vkf::RopeLayout>& layout, const vkf::Dim& start) {
            return vkf::rope_by_table(x, table, layout, start);
        },
        "x"_a, "table"_a, "layout"_a, "start"_a = vkf::Dim(0), kOneGraph,
        nb::sig("def rope_by_table(x: Value, table: Value, layout: typing.Literal['interleaved', 'half'], start: int | "
                "Dim = 0) -> Value"),
        "rope() with a caller's own table (positions, r/2, 2).");
    m.def("sinusoidal_positions", &vkf::sinusoidal_positions, "graph"_a, "length"_a, "dim"_a,
          "Sinusoidal positions (Vaswani et al. 2017): (length, dim).");
}

void bind_copies(nb::module_& m) {
    m.def("embedding", &vkf::embedding, "input"_a, "weight"_a, "scale"_a = 1.0f,
          "input (...) int32, weight (V, E) -> (..., E), times scale. An id outside the table gives a row of NaN. "
          "torch.nn.functional.embedding.");
    m.def("repeat_kv", &vkf::repeat_kv, "x"_a, "n"_a,
          "(B, S, Hk, d) -> (B, S, Hk*n, d): each head n times in a row. torch.repeat_interleave on dimension 2.");
    m.def(
        "to", [](V x, const Type& dtype) { return vkf::to(x, dtype); }, "x"_a, "dtype"_a,
        "Converts between float32, float16 and bfloat16. torch.Tensor.to.");
    m.def("contiguous", &vkf::contiguous, "x"_a, "A dense copy of any view.");
    m.def("concat", &vkf::concat, "parts"_a, "dim"_a, "Joins tensors of one type along a dimension. torch.cat.");
    m.def("copy_into", &vkf::copy_into, "window"_a, "x"_a,
          "Writes x into a window of a state and returns that window. torch.Tensor.copy_.");
    m.def(
        "pack_into", [](V window, V x, const Choice<vkf::WeightType>& type) { return vkf::pack_into(window, x, type); },
        "window"_a, "x"_a, "type"_a, "copy_into() with rows packed as f16, bf16 or int8.");
    m.def(
        "unpack_rows",
        [](V words, const Choice<vkf::WeightType>& type, std::int64_t columns) {
            return vkf::unpack_rows(words, type, columns);
        },
        "words"_a, "type"_a, "columns"_a, "(..., words of a row) int32 -> (..., columns).");
    m.def(
        "sequence_mask",
        [](V query, V key, V cumulative_queries, V keys, const Choice<vkf::Causal>& causal, std::int64_t window) {
            return vkf::sequence_mask(query, key, cumulative_queries, keys, causal, window);
        },
        "query"_a, "key"_a, "cumulative_queries"_a.none(), "keys"_a, "causal"_a = Choice<vkf::Causal>{"none"},
        "window"_a = 0,
        "The mask (B, L, S), int32, of sequences of different lengths, for attention by matmul() and softmax(). query "
        "(B, H, L, d) and key (B, Hk, S, d) give the sizes; keys (B) holds each sequence's length. With "
        "cumulative_queries (N+1), N sequences lie behind each other in a batch of 1, and keys (N+1) holds the "
        "cumulative numbers of keys. causal and window count within each sequence.");
    m.def("gather_pages", &vkf::gather_pages, "pool"_a, "table"_a,
          "Rows of a pool of pages, in order: pool (P, page size, H, d), table (B, W) -> (B, W * page size, H, d).");
    m.def("scatter_pages", &vkf::scatter_pages, "pool"_a, "x"_a, "table"_a, "lengths"_a,
          "Writes x (B, L, H, d) into the pool, a state, as the last L rows of each sequence.");
    m.def(
        "image_input",
        [](vkf::Graph& graph, const std::string& input, const vkf::Dim& height, const vkf::Dim& width,
           std::int64_t channels, const Choice<vkf::ImageAccess>& access, const Choice<vkf::ImageFormat>& format) {
            return vkf::image_input(graph, input, height, width, channels, {.access = access, .format = format});
        },
        "graph"_a, "name"_a, "height"_a, "width"_a, "channels"_a, "access"_a = Choice<vkf::ImageAccess>{"sampled"},
        "format"_a = Choice<vkf::ImageFormat>{"any"}, kOneGraph,
        "A two-dimensional image, which a host binds when it records, as (height, width, channels).");
    m.def(
        "image_output",
        [](const std::string& output, V x, const Choice<vkf::ImageAccess>& access,
           const Choice<vkf::ImageFormat>& format) {
            vkf::image_output(output, x, {.access = access, .format = format});
        },
        "name"_a, "x"_a, "access"_a = Choice<vkf::ImageAccess>{"storage"}, "format"_a = Choice<vkf::ImageFormat>{"any"},
        "Writes x (height, width, channels) into such an image.");
}

}  // namespace

void bind_ops(nb::module_& m) {
    bind_masks(m);
    bind_products(m);
    bind_rows(m);
    bind_elementwise(m);
    bind_positions(m);
    bind_copies(m);
}

}  // namespace py
