// SPDX-License-Identifier: Apache-2.0
// Every op, with its shape contract. B batch, L queries, S keys, H heads, Hk key/value heads, d
// head size, E model width. Shapes broadcast as NumPy's do where said. Errors (vkf::Error) are
// thrown when the node is made and name op, tensor and sizes.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "../runtime/graph/graph.h"
#include "../runtime/graph/views.h"
#include "mask.h"
#include "scaled_dot_product.h"
#include "score_mod.h"

namespace vkf {

enum class Activation : std::uint8_t {
    none,
    relu,
    gelu,       ///< exact: x Phi(x)
    gelu_tanh,  ///< the tanh approximation
    silu,       ///< x sigmoid(x)
    tanh,
    sigmoid,
    rsqrt,  ///< 1 / sqrt(x)
};

// --- masks ---------------------------------------------------------------------------------------

/// Combines two boolean masks into one of the shape that they broadcast to: a key may be attended
/// when both allow it. The result has Polarity::attend.
VKF_API Value combine_masks(Value a, Polarity a_polarity, Value b, Polarity b_polarity);

// --- products ------------------------------------------------------------------------------------

struct MatmulOptions {
    Value bias = {};  ///< (N), added to every row
    Activation activation = Activation::none;
    float scale = 1.0f;        ///< result = activation(scale * a b + bias)
    bool transpose_b = false;  ///< b is (..., N, K), as torch.nn.Linear stores its weight
    /// `a` holds attention weights from softmax(). Where a weight is masked, the product skips b's
    /// row, whatever the row holds.
    bool masked_weights = false;
    /// The result holds scores that softmax() may mask. Where the gradient of a score says so, the
    /// products of gradients() skip a's and b's rows, whatever they hold.
    bool masked_gradient = false;
    /// The result (B, H..., L, N) is stored as (B, L, H..., N), so that merge_heads() is free.
    bool heads_last = false;
};

/// (..., M, K) x (..., K, N) -> (..., M, N); leading dimensions broadcast. Accumulates in fp32. A
/// bias, an activation, a product with a gate or a sum with a residual that follows costs no
/// dispatch of its own where the epilogue has room for it: see Program::explain().
VKF_API Value matmul(Value a, Value b, const MatmulOptions& options = {});
/// y = activation(x W^T + b): x (..., in), weight (out, in), bias (out) or empty.
/// torch.nn.functional.linear. Several linear() of one x are one launch where their weights lie
/// behind each other in memory: see Device::load().
VKF_API Value linear(Value x, Value weight, Value bias = {}, Activation activation = Activation::none);

// --- rows ----------------------------------------------------------------------------------------

struct SoftmaxOptions {
    Mask mask = {};
    float scale = 1.0f;
    float softcap = 0.0f;  ///< c tanh(s / c) on the scaled score; 0: none
    /// f32 (H), attention sinks: each row has one more logit, which is not scaled, takes its share
    /// of the sum, and has no column. Or what broadcasts to (..., H, L, 1). Finite: with +inf or
    /// NaN a row without a key may become NaN.
    Value sinks = {};
};

/// Attention weights over the last dimension: scale, softcap, bias, mask, softmax. scores (..., L,
/// S) -> the same shape. A masked weight (fill -inf) is -0.0. Rows are stable for any finite
/// logits; -inf logits count as masked.
VKF_API Value softmax(Value scores, const SoftmaxOptions& options = {});
/// Applies softmax()'s scale, softcap and biases to scores, and ignores its mask and sinks. ALiBi
/// counts positions as Mask::causal says. The result has the shape of the scores.
VKF_API Value biased_scores(Value scores, const SoftmaxOptions& options);
/// The natural logarithm of the sum of the exponentials of each row of scores, after softmax()'s
/// scale, softcap, biases and mask; sinks count too. (..., L, S) -> (..., L); -inf where no key is
/// left.
VKF_API Value log_sum_exp(Value scores, const SoftmaxOptions& options = {});
/// Gives weight 1 to the largest score, the first of equals, and 0 to the others. softmax()
/// approaches this as the differences between scores grow. Sinks are refused, and rows of more than
/// 2^24 scores, when compiled.
VKF_API Value hard_max(Value scores, const SoftmaxOptions& options = {});

/// Applies the mod to every score: (B, H, L, S) -> the same shape. Where scores have fewer
/// dimensions, the mod is given 0 for the missing ones. An empty mod returns `scores` itself.
VKF_API Value score_mod(Value scores, const ScoreMod& mod);

// --- attention -----------------------------------------------------------------------------------

/// Makes the boolean mask of sequences of different lengths, for attention by matmul() and
/// softmax(). query (B, H, L, d) and key (B, Hk, S, d) give the sizes. `keys` (B) i32 holds the
/// length of each sequence. With `cumulative_queries` (N+1), sequences are packed in a batch of 1,
/// and `keys` (N+1) holds the cumulative numbers of keys. Causal and window count within each
/// sequence. Returns (B, L, S) i32.
VKF_API Value sequence_mask(Value query, Value key, Value cumulative_queries, Value keys, Causal causal = Causal::none,
                            std::int64_t window = 0);
/// Collects rows from a pool of pages, in order: pool (P, page size, H, d), table (B, W) i32 of
/// page numbers -> (B, W * page size, H, d). Rows of a page outside the pool are NaN.
VKF_API Value gather_pages(Value pool, Value table);
/// Writes x (B, L, H, d) into the pool, which is a state. A sequence has as many rows as `lengths`
/// (B) i32 says; x becomes the last L of them. Rows of a page outside the pool are not written, and
/// nothing of a sequence that is longer than its pages. Returns the pool.
VKF_API Value scatter_pages(Value pool, Value x, Value table, Value lengths);

/// (..., N) -> (..., N). weight and bias have shape (N); either may be empty. The variance is the
/// biased one; docs/numerics.md, 7, says how it is computed. Where x is a sum with a residual, sum
/// and norm are one dispatch on devices with six storage buffers a stage. torch.nn.LayerNorm.
VKF_API Value layer_norm(Value x, Value weight, Value bias, float eps = 1e-5f);
/// x / sqrt(mean(x^2) + eps) * weight. torch.nn.RMSNorm.
VKF_API Value rms_norm(Value x, Value weight, float eps = 1e-6f);
/// (..., N) -> (...) i32: index of the largest element, the first of equals; a NaN counts as
/// largest (torch.argmax). A run where a symbolic N is 0 is an error, as in PyTorch.
VKF_API Value argmax(Value x);

/// The k largest of each row, the largest first; of equals the first index first, NaN before all.
struct TopK {
    Value values;   ///< (..., k), as they are in x
    Value indices;  ///< (..., k) i32
};
/// (..., N) -> (..., k). k is 1 to 128 and at most N; N is fixed. torch.topk.
VKF_API TopK top_k(Value x, std::int64_t k);

struct CrossEntropyOptions {
    std::int64_t ignore_index = -100;  ///< rows with this label are ignored
    float label_smoothing = 0.0f;      ///< 0..1
};

/// The mean of -log softmax(logits)[label] over the rows that are not ignored: logits (..., V),
/// labels (...) i32 -> (1). NaN when all rows are ignored. A label outside 0..V-1 that is not
/// ignored gives NaN. torch.nn.functional.cross_entropy.
VKF_API Value cross_entropy(Value logits, Value labels, const CrossEntropyOptions& options = {});

struct BatchNormResult {
    Value y;
    Value running_mean, running_var;
};

/// torch.nn.BatchNorm1d in training: x (N, C) normalised by the batch's own mean and biased
/// variance; the running statistics (C) move towards the batch's by `momentum`, the variance as its
/// unbiased estimate. N is no symbol, and more than 1.
VKF_API BatchNormResult batch_norm_train(Value x, Value weight, Value bias, Value running_mean, Value running_var,
                                         float momentum = 0.1f, float eps = 1e-5f);
/// Normalises x (N, C) by the running statistics: batch norm in evaluation.
VKF_API Value batch_norm(Value x, Value weight, Value bias, Value running_mean, Value running_var, float eps = 1e-5f);

// --- element-wise --------------------------------------------------------------------------------

VKF_API Value add(Value a, Value b);  ///< broadcasts
VKF_API Value mul(Value a, Value b);  ///< broadcasts
VKF_API Value scale(Value x, float factor);
VKF_API Value activate(Value x, Activation activation);
/// activation(gate) * up: SwiGLU's product with Activation::silu. Same shapes.
VKF_API Value gated(Value gate, Value up, Activation activation);
/// Makes each element 0 with probability p and x / (1 - p) otherwise. Whether one is kept depends
/// on the seed and its place in row-major order alone (a counter-based generator), so it is the
/// same on every device. p = 0 returns x; p = 1 gives all 0.
///
/// The seed counts modulo 2^32. It is a number, or made of symbols that are set before each run:
/// with `step * 12 + layer` each of 12 layers draws anew in each step.
VKF_API Value dropout(Value x, float p, Dim seed);
/// Sums over the dimensions that broadcast_to(result, x.shape()) would repeat: of x (3, 4, 5) to
/// shape (4, 1). In an order that depends on the sizes alone. torch.Tensor.sum_to_size.
VKF_API Value sum_to(Value x, const Shape& shape);
/// The sum of all elements, (1). torch.sum.
VKF_API Value sum(Value x);
inline Value relu(Value x) { return activate(x, Activation::relu); }
inline Value gelu(Value x) { return activate(x, Activation::gelu); }
inline Value silu(Value x) { return activate(x, Activation::silu); }
inline Value operator+(Value a, Value b) { return add(a, b); }
inline Value operator*(Value a, Value b) { return mul(a, b); }

// --- positions -----------------------------------------------------------------------------------

enum class RopeLayout : std::uint8_t {
    interleaved,  ///< pairs (2i, 2i+1): GPT-J, Llama as published
    half,         ///< pairs (i, i + r/2): GPT-NeoX, Hugging Face
};

/// A member without a default: code that leaves it out does not compile.
template <class T>
struct Required {
    constexpr Required(T value) noexcept : value(value) {}
    constexpr operator T() const noexcept { return value; }
    T value;
};

/// The way in which angles are stretched for contexts longer than trained.
struct RopeScaling {
    enum class Kind : std::uint8_t { none, linear, ntk, llama3, yarn } kind = Kind::none;
    double factor = 1.0;
    double low_freq_factor = 1.0, high_freq_factor = 4.0;  ///< llama3
    double beta_fast = 32.0, beta_slow = 1.0;              ///< yarn
    /// yarn: the ramp begins and ends at whole dimensions
    bool truncate = true;
    /// yarn: cos and sin are multiplied by this; 0 means 0.1 ln(factor) + 1, or 1 for factors below
    /// 1
    double attention_factor = 0.0;
    std::int64_t original_max_positions = 0;  ///< llama3, yarn

    bool operator==(const RopeScaling&) const = default;
};

/// The kind that a model's configuration calls "default", "linear", "ntk", "llama3" or "yarn".
/// "dynamic", whose frequencies change with the length of each call, and others are refused by
/// name.
VKF_API RopeScaling::Kind rope_scaling_kind(std::string_view name);

struct Rope {
    double theta = 10000.0;
    /// The dimensions that turn together. The wrong choice gives wrong numbers and no error.
    Required<RopeLayout> layout;
    std::int64_t rotary_dim = 0;  ///< leading dimensions that turn; 0: all. Even.
    /// Rows of the cos/sin table: needed by rope() and rope_at(). 0 in grouped_query_attention():
    /// as many as its runs or its cache need.
    std::int64_t max_positions = 0;
    RopeScaling scaling = {};

    bool operator==(const Rope&) const = default;
};

/// Rotary position embedding (Su et al. 2021). x (..., L, d): row l has position start + l. The
/// cos/sin table comes from double precision on the host. start may be symbolic; start + L <=
/// max_positions is checked at each run.
VKF_API Value rope(Value x, const Rope& options, Dim start = 0);
/// rope() with a position for each row: positions (L) i32. A position outside the table gives NaN
/// and reads nothing.
VKF_API Value rope_at(Value x, Value positions, const Rope& options);
/// The (max_positions, r/2, 2) table of cos and sin, computed in double and rounded once to float.
/// r is rotary_dim, or head_dim where that is 0.
VKF_API std::vector<float> rope_table(const Rope& options, std::int64_t head_dim);

/// rope() with a caller's own table (positions, r/2, 2) of cos and sin. Its width gives r, the
/// number of leading dimensions that turn; `layout` says which of them turn together.
VKF_API Value rope_by_table(Value x, Value table, RopeLayout layout, Dim start = 0);

/// Sinusoidal positions (Vaswani et al. 2017): (length, dim), y[p,2i] = sin(p 10000^(-2i/dim)),
/// y[p,2i+1] = cos of the same.
VKF_API Value sinusoidal_positions(Graph& graph, std::int64_t length, std::int64_t dim);

// --- gathering and copying -----------------------------------------------------------------------

/// ids (...) i32, table (V, E) -> (..., E), times `scale`. An id outside 0..V-1 gives a row of NaN
/// and reads nothing.
VKF_API Value embedding(Value ids, Value table, float scale = 1.0f);
/// (B, S, Hk, d) -> (B, S, Hk*n, d): each head n times in a row (torch.repeat_interleave on
/// dimension 2).
VKF_API Value repeat_kv(Value x, std::int64_t n);
/// Converts x, which is f32, f16 or bf16, to one of these types. Ops that compute take f32 only, so
/// f16 and bf16 inputs and states go through this op first; it also makes 16-bit outputs. Rounds to
/// the nearest, ties to even; f16 is infinite from 65520 on. Returns x itself where x has that
/// type. torch.Tensor.to(dtype).
VKF_API Value to(Value x, DType dtype);
/// A dense copy of any view.
VKF_API Value contiguous(Value x);
/// Joins tensors of one type along a dimension; all other sizes must be equal. torch.cat.
VKF_API Value concat(const std::vector<Value>& parts, int dim);
/// Writes x into a window of a state (a slice of a cache) and returns that window. The shapes must
/// be equal, and the types too, except that f32, f16 and bf16 are converted as by to().
/// torch.Tensor.copy_.
VKF_API Value copy_into(Value window, Value x);
/// copy_into() with rows (the last dimension) packed as f16, bf16 or int8: x (..., N), window (...,
/// words of a row) i32. A row has 4 ceil(N / 8) words as f16 or bf16, and 4 ceil(N / 16) + 4 as
/// int8. A row of int8 has the scale max|x| / 127; a row that holds a number that is not finite
/// reads as NaN throughout. At most 4 dimensions.
VKF_API Value pack_into(Value window, Value x, WeightType type);
/// Unpacks rows of pack_into(): (..., words of a row) i32 -> (..., columns).
VKF_API Value unpack_rows(Value words, WeightType type, std::int64_t columns);

// --- images of a host ----------------------------------------------------------------------------

enum class ImageFormat : std::uint8_t {
    /// Sampled inputs: any format that gives floats. Outputs: any format of the view, where the
    /// device can write it (Capabilities::storage_image_any_format).
    any,
    rgba8,
    rgba16f,
    r32f,
    rgba32f,
};

struct ImageOptions {
    /// how an input is read; outputs are storage images
    ImageAccess access = ImageAccess::sampled;
    ImageFormat format = ImageFormat::any;  ///< format of a storage image, as its view has it
};

/// Reads a two-dimensional image, which a host binds when it records (ImageView), as a tensor
/// (height, width, channels) with 1 to 4 channels. Element (y, x, c) is component c of texel (x,
/// y). Texels beyond the image are 0.
VKF_API Value image_input(Graph& graph, const std::string& name, Dim height, Dim width, std::int64_t channels,
                          const ImageOptions& options = {});
/// Writes x (height, width, channels) into such an image. Components that x lacks are 0, and alpha
/// is 1. Numbers are rounded and clamped to the format.
VKF_API void image_output(const std::string& name, Value x, const ImageOptions& options);

}  // namespace vkf
