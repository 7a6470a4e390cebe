// SPDX-License-Identifier: Apache-2.0
// vkformer for C (C99 and later), and for whatever calls C. The nouns are those of the C++
// interface, whose headers hold the full contracts. A function is called as there, or as
// tests/unit/c_coverage_test.cpp lists. "C++:" above a struct or an enum names those that it stands
// for.
//
// Results. A function that can fail returns a vkf_result; vkf_last_error() returns the text of the
// error. No exception comes out. Outputs come through pointers, the last arguments; a handle that
// could not be made is null.
//
// Handles belong to the caller: each ..._create, ..._load, vkf_compile and so on has its
// ..._destroy, which takes null too. Nothing is to be freed by free(). A handle may be destroyed
// before others that were made with it; a borrowed VkDevice outlives them all.
//
// Structs whose first member is struct_size grow: set it to sizeof the struct, also where the
// struct is filled by a function and in every element of an array. Everything else may be 0, which
// means the default that stands beside each member; a null pointer to options means all defaults.
// The library accepts a struct that is newer than itself as long as the members it does not know
// are 0.
//
// A function writes its outputs when it succeeds; an output may be one of the inputs. When it
// fails, a handle is null and everything else is as it was; but where `capacity` has no room for
// all numbers, `count` says how many there are. A device may be used by several threads at once,
// as weights may; a graph belongs to one; tensors, state, requirements, shared buffers and programs
// to one at a time, but for what vkf_program_record() says. Functions that a host gives (locks,
// memory, choices, progress) do not throw; the functions of a device may be called until the last
// object that was made from it is gone.
//
// Texts are UTF-8, and are read only during the call. Texts that are returned in the caller's
// memory are cut to fit it and always end in a 0. `needed`, where it is not null, receives the
// whole length without that 0.
//
// Include Vulkan's header, where you need it, before this one; in C11 the order does not matter.
#ifndef VKFORMER_C_H
#define VKFORMER_C_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "runtime/base/export.h"
#include "runtime/device/vulkan_handles.h"

#ifdef __cplusplus
extern "C" {
#endif

/// From version 1 of the library on it grows when something is added. Until then it stays 1, and a
/// new minor version may break the interface.
#define VKF_C_API_VERSION 1

/// A result is 0, or an error. For errors of Vulkan it is the VkResult.
typedef int32_t vkf_result;
enum {
    VKF_OK = 0,
    VKF_ERROR_OUT_OF_HOST_MEMORY = -1,  ///< VK_ERROR_OUT_OF_HOST_MEMORY
    /// wrong use, or a file that is not what it should be: all errors that are not Vulkan's
    VKF_ERROR = -100,
};

/// Gives VKF_C_API_VERSION of the library that runs.
VKF_API uint32_t vkf_c_api_version(void);
/// "0.1.0"
VKF_API const char* vkf_version(void);
/// The error text of the last call that failed on this thread, at most 1023 bytes: a longer one is
/// cut in its middle. Calls that succeed leave it as it is. The pointer is valid until the next
/// failure on this thread, and until the thread ends. In a library opened at run time the first use
/// on a thread may allocate memory for the text: call this once beforehand.
VKF_API const char* vkf_last_error(void);

typedef struct vkf_graph vkf_graph;
typedef struct vkf_requirements vkf_requirements;
typedef struct vkf_device vkf_device;
typedef struct vkf_weights vkf_weights;
typedef struct vkf_weight_layout vkf_weight_layout;
typedef struct vkf_state vkf_state;
typedef struct vkf_device_tensor vkf_device_tensor;
typedef struct vkf_communicator vkf_communicator;
typedef struct vkf_program vkf_program;
typedef struct vkf_ticket vkf_ticket;
typedef struct vkf_decoder vkf_decoder;
typedef struct vkf_encoder_decoder vkf_encoder_decoder;
typedef struct vkf_sampler vkf_sampler;
typedef struct vkf_text_encoder vkf_text_encoder;
typedef struct vkf_shared_buffer vkf_shared_buffer;
typedef struct vkf_lora vkf_lora;
typedef struct vkf_trainer vkf_trainer;
typedef struct vkf_fine_tuner vkf_fine_tuner;

/// C++: DType.
typedef uint32_t vkf_dtype;
enum { VKF_F32, VKF_I32, VKF_F64, VKF_F16, VKF_BF16, VKF_I64, VKF_I16, VKF_I8, VKF_U8, VKF_BOOL };

/// C++: WeightType. What numbers are kept as on the device. AS_GIVEN: weights as the file or the
/// host has them, caches in f32.
typedef uint32_t vkf_weight_type;
enum { VKF_WEIGHT_AS_GIVEN, VKF_WEIGHT_F32, VKF_WEIGHT_F16, VKF_WEIGHT_BF16, VKF_WEIGHT_INT8, VKF_WEIGHT_INT4 };

// --- graph: runtime/graph/graph.h, runtime/graph/views.h -----------------------------------------

#define VKF_MAX_RANK 5

/// A size: constant + coefficient * symbol. With all members 0 except `constant` it is a number.
typedef struct vkf_dim {
    int64_t constant, coefficient;
    uint32_t symbol;
} vkf_dim;

static inline vkf_dim vkf_size(int64_t constant) {
    const vkf_dim d = {constant, 0, 0};
    return d;
}

/// A tensor of a graph, valid as long as the graph; all 0: no tensor, where an argument may be
/// missing.
typedef struct vkf_value {
    vkf_graph* graph;
    uint32_t id;
} vkf_value;

static inline vkf_value vkf_no_value(void) {
    const vkf_value v = {NULL, 0};
    return v;
}

/// A graph belongs to one thread. It may be destroyed once it is compiled.
VKF_API vkf_result vkf_graph_create(vkf_graph** graph);
VKF_API void vkf_graph_destroy(vkf_graph* graph);
VKF_API vkf_result vkf_graph_symbol(vkf_graph* graph, const char* name, int64_t max, vkf_dim* symbol);
/// An input or a state is VKF_F32, VKF_F16, VKF_BF16 or VKF_I32; a weight or a constant is VKF_F32
/// or VKF_I32.
VKF_API vkf_result vkf_graph_input(vkf_graph* graph, const char* name, vkf_dtype dtype, uint32_t rank,
                                   const vkf_dim* shape, vkf_value* value);
VKF_API vkf_result vkf_graph_weight(vkf_graph* graph, const char* name, vkf_dtype dtype, uint32_t rank,
                                    const vkf_dim* shape, vkf_value* value);
VKF_API vkf_result vkf_graph_state(vkf_graph* graph, const char* name, vkf_dtype dtype, uint32_t rank,
                                   const vkf_dim* shape, vkf_value* value);
/// `data` is copied.
VKF_API vkf_result vkf_graph_constant(vkf_graph* graph, const char* name, vkf_dtype dtype, uint32_t rank,
                                      const int64_t* shape, const void* data, vkf_value* value);
VKF_API vkf_result vkf_graph_output(const char* name, vkf_value value);
/// Names of weights and states that are added between the two calls are prefixed "NAME."; inputs,
/// outputs, constants and symbols keep theirs.
VKF_API vkf_result vkf_graph_push_scope(vkf_graph* graph, const char* name);
VKF_API vkf_result vkf_graph_pop_scope(vkf_graph* graph);

/// A choice whose default may be on: each member says its default.
typedef uint32_t vkf_switch;
enum { VKF_DEFAULT, VKF_ON, VKF_OFF };

/// C++: ImageAccess.
typedef uint32_t vkf_image_access;
enum { VKF_IMAGE_SAMPLED, VKF_IMAGE_STORAGE };
/// C++: ImageFormat.
typedef uint32_t vkf_image_format;
enum { VKF_FORMAT_ANY, VKF_FORMAT_RGBA8, VKF_FORMAT_RGBA16F, VKF_FORMAT_R32F, VKF_FORMAT_RGBA32F };

VKF_API vkf_result vkf_image_input(vkf_graph* graph, const char* name, vkf_dim height, vkf_dim width, int64_t channels,
                                   vkf_image_access access, vkf_image_format format, vkf_value* value);
VKF_API vkf_result vkf_image_output(const char* name, vkf_value x, vkf_image_format format);

/// `shape` may be null. Fails for a size that is more than one symbol, which vkf_value_text()
/// prints.
VKF_API vkf_result vkf_value_shape(vkf_value value, vkf_dim shape[VKF_MAX_RANK], uint32_t* rank);
VKF_API vkf_result vkf_value_dtype(vkf_value value, vkf_dtype* dtype);
/// "name (2, tokens, 64) F32"
VKF_API vkf_result vkf_value_text(vkf_value value, char* text, size_t capacity, size_t* needed);

/// Views. Dimensions count from 0, or from the innermost with -1, -2, ... In vkf_reshape one size
/// may be -1.
VKF_API vkf_result vkf_reshape(vkf_value x, uint32_t rank, const vkf_dim* shape, vkf_value* y);
VKF_API vkf_result vkf_transpose(vkf_value x, int32_t a, int32_t b, vkf_value* y);
VKF_API vkf_result vkf_permute(vkf_value x, uint32_t rank, const uint32_t* order, vkf_value* y);
VKF_API vkf_result vkf_slice(vkf_value x, int32_t dim, vkf_dim start, vkf_dim length, vkf_value* y);
VKF_API vkf_result vkf_broadcast_to(vkf_value x, uint32_t rank, const vkf_dim* shape, vkf_value* y);
VKF_API vkf_result vkf_split_heads(vkf_value x, int64_t heads, vkf_value* y);
VKF_API vkf_result vkf_merge_heads(vkf_value x, vkf_value* y);

// --- ops: ops/ops.h ------------------------------------------------------------------------------

/// C++: Activation.
typedef uint32_t vkf_activation;
enum {
    VKF_ACTIVATION_NONE,
    VKF_RELU,
    VKF_GELU,
    VKF_GELU_TANH,
    VKF_SILU,
    VKF_TANH,
    VKF_SIGMOID,
    VKF_RSQRT,
};

/// C++: Causal.
typedef uint32_t vkf_causal;
enum { VKF_CAUSAL_NONE, VKF_CAUSAL_TOP_LEFT, VKF_CAUSAL_BOTTOM_RIGHT };
/// C++: Polarity.
typedef uint32_t vkf_polarity;
enum { VKF_ATTEND, VKF_IGNORE };

/// C++: Mask.
typedef struct vkf_mask {
    uint32_t struct_size;
    vkf_polarity polarity;  ///< the meaning of a 1 in `keys`; 0: may attend
    vkf_value keys;
    vkf_value bias;
    vkf_value alibi_slopes;
    vkf_causal causal;
    bool has_fill;  ///< masked scores become `fill`, not -infinity
    float fill;
    int64_t window;
} vkf_mask;

/// C++: MatmulOptions.
typedef struct vkf_matmul_options {
    uint32_t struct_size;
    vkf_activation activation;
    vkf_value bias;
    float scale;  ///< 0: 1
    bool transpose_b, masked_weights, heads_last, masked_gradient;
} vkf_matmul_options;

/// C++: SoftmaxOptions.
typedef struct vkf_softmax_options {
    uint32_t struct_size;
    float scale;  ///< 0: 1
    float softcap;
    const vkf_mask* mask;
    vkf_value sinks;
} vkf_softmax_options;

/// C++: CrossEntropyOptions.
typedef struct vkf_cross_entropy_options {
    uint32_t struct_size;
    bool has_ignore_index;  ///< false: -100 is ignored
    float label_smoothing;
    uint32_t reserved;
    int64_t ignore_index;
} vkf_cross_entropy_options;

/// C++: RopeLayout.
typedef uint32_t vkf_rope_layout;
enum { VKF_ROPE_INTERLEAVED = 1, VKF_ROPE_HALF };
/// C++: RopeScaling::Kind.
typedef uint32_t vkf_rope_scaling;
enum { VKF_ROPE_UNSCALED, VKF_ROPE_LINEAR, VKF_ROPE_NTK, VKF_ROPE_LLAMA3, VKF_ROPE_YARN };

/// C++: Rope, RopeScaling. layout is needed. max_positions, the rows of the cos/sin table, is
/// needed by vkf_rope() and vkf_rope_at(); 0 in vkf_grouped_query_attention(): as many as its runs
/// or its cache need.
typedef struct vkf_rope_options {
    uint32_t struct_size;
    vkf_rope_layout layout;
    double theta;  ///< 0: 10000
    int64_t rotary_dim, max_positions;
    vkf_rope_scaling scaling;
    vkf_switch truncate;                               ///< default: on
    double factor, low_freq_factor, high_freq_factor;  ///< 0: 1, 1, 4
    double beta_fast, beta_slow;                       ///< 0: 32, 1
    double attention_factor;
    int64_t original_max_positions;
} vkf_rope_options;

VKF_API vkf_result vkf_matmul(vkf_value a, vkf_value b, const vkf_matmul_options* options, vkf_value* y);
/// `bias` may be no tensor.
VKF_API vkf_result vkf_linear(vkf_value x, vkf_value weight, vkf_value bias, vkf_activation activation, vkf_value* y);
VKF_API vkf_result vkf_softmax(vkf_value scores, const vkf_softmax_options* options, vkf_value* weights);
VKF_API vkf_result vkf_log_sum_exp(vkf_value scores, const vkf_softmax_options* options, vkf_value* y);
VKF_API vkf_result vkf_hard_max(vkf_value scores, const vkf_softmax_options* options, vkf_value* weights);
/// `weight` and `bias` may be no tensor.
VKF_API vkf_result vkf_layer_norm(vkf_value x, vkf_value weight, vkf_value bias, float eps, vkf_value* y);
VKF_API vkf_result vkf_rms_norm(vkf_value x, vkf_value weight, float eps, vkf_value* y);
VKF_API vkf_result vkf_argmax(vkf_value x, vkf_value* index);
VKF_API vkf_result vkf_add(vkf_value a, vkf_value b, vkf_value* y);
VKF_API vkf_result vkf_mul(vkf_value a, vkf_value b, vkf_value* y);
VKF_API vkf_result vkf_scale(vkf_value x, float factor, vkf_value* y);
VKF_API vkf_result vkf_activate(vkf_value x, vkf_activation activation, vkf_value* y);
VKF_API vkf_result vkf_gated(vkf_value gate, vkf_value up, vkf_activation activation, vkf_value* y);
VKF_API vkf_result vkf_rope(vkf_value x, const vkf_rope_options* options, vkf_dim start, vkf_value* y);
VKF_API vkf_result vkf_rope_at(vkf_value x, vkf_value positions, const vkf_rope_options* options, vkf_value* y);
/// `layout` must be named, as in vkf_rope_options.
VKF_API vkf_result vkf_rope_by_table(vkf_value x, vkf_value table, vkf_rope_layout layout, vkf_dim start, vkf_value* y);
/// The numbers of rope_table(). `capacity` must have room for all. `count` may be null.
VKF_API vkf_result vkf_rope_table(const vkf_rope_options* options, int64_t head_dim, float* numbers, uint64_t capacity,
                                  uint64_t* count);
VKF_API vkf_result vkf_sinusoidal_positions(vkf_graph* graph, int64_t length, int64_t dim, vkf_value* y);
VKF_API vkf_result vkf_embedding(vkf_value ids, vkf_value table, float scale, vkf_value* y);
VKF_API vkf_result vkf_repeat_kv(vkf_value x, int64_t n, vkf_value* y);
VKF_API vkf_result vkf_to(vkf_value x, vkf_dtype dtype, vkf_value* y);
VKF_API vkf_result vkf_contiguous(vkf_value x, vkf_value* y);
VKF_API vkf_result vkf_concat(uint32_t count, const vkf_value* parts, int32_t dim, vkf_value* y);
VKF_API vkf_result vkf_copy_into(vkf_value window, vkf_value x, vkf_value* written);
/// A row of N numbers has 4 ceil(N / 8) words as f16 or bf16, and 4 ceil(N / 16) + 4 as int8.
VKF_API vkf_result vkf_pack_into(vkf_value window, vkf_value x, vkf_weight_type type, vkf_value* written);
VKF_API vkf_result vkf_unpack_rows(vkf_value words, vkf_weight_type type, int64_t columns, vkf_value* y);
VKF_API vkf_result vkf_combine_masks(vkf_value a, vkf_polarity a_polarity, vkf_value b, vkf_polarity b_polarity,
                                     vkf_value* keys);
VKF_API vkf_result vkf_biased_scores(vkf_value scores, const vkf_softmax_options* options, vkf_value* biased);
/// `glsl` as in vkf_attention_options.
VKF_API vkf_result vkf_score_mod(vkf_value scores, const char* glsl, const float* parameters, uint32_t parameter_count,
                                 vkf_value* y);
/// `cumulative_queries` may be no tensor.
VKF_API vkf_result vkf_sequence_mask(vkf_value query, vkf_value key, vkf_value cumulative_queries, vkf_value keys,
                                     vkf_causal causal, int64_t window, vkf_value* mask);
VKF_API vkf_result vkf_gather_pages(vkf_value pool, vkf_value table, vkf_value* rows);
VKF_API vkf_result vkf_scatter_pages(vkf_value pool, vkf_value x, vkf_value table, vkf_value lengths,
                                     vkf_value* written);
VKF_API vkf_result vkf_top_k(vkf_value x, int64_t k, vkf_value* values, vkf_value* indices);
VKF_API vkf_result vkf_cross_entropy(vkf_value logits, vkf_value labels, const vkf_cross_entropy_options* options,
                                     vkf_value* loss);
VKF_API vkf_result vkf_batch_norm(vkf_value x, vkf_value weight, vkf_value bias, vkf_value running_mean,
                                  vkf_value running_var, float eps, vkf_value* y);
VKF_API vkf_result vkf_batch_norm_train(vkf_value x, vkf_value weight, vkf_value bias, vkf_value running_mean,
                                        vkf_value running_var, float momentum, float eps, vkf_value* y,
                                        vkf_value* new_running_mean, vkf_value* new_running_var);
VKF_API vkf_result vkf_dropout(vkf_value x, float p, vkf_dim seed, vkf_value* y);
VKF_API vkf_result vkf_sum(vkf_value x, vkf_value* y);
VKF_API vkf_result vkf_sum_to(vkf_value x, uint32_t rank, const vkf_dim* shape, vkf_value* y);

// --- training: ops/gradients.h, ops/recompute.h, ops/optimizer.h ---------------------------------

/// Writes the gradient at each of the `count` values. `seed` may be no tensor.
VKF_API vkf_result vkf_gradients(vkf_value loss, uint32_t count, const vkf_value* values, vkf_value seed,
                                 vkf_value* gradients);

/// What is described between the two calls is a block, which vkf_gradients() computes again. C++:
/// Recompute.
VKF_API vkf_result vkf_graph_begin_recompute(vkf_graph* graph);
VKF_API vkf_result vkf_graph_end_recompute(vkf_graph* graph);

/// Writes the parameters, and how many there are; where these are more than `count`, nothing else
/// is done. No pattern: every weight.
VKF_API vkf_result vkf_trainable(vkf_graph* graph, uint32_t pattern_count, const char* const* patterns, uint32_t count,
                                 vkf_value* parameters, uint32_t* needed);

/// C++: Schedule::Kind.
typedef uint32_t vkf_schedule_kind;
enum { VKF_SCHEDULE_CONSTANT, VKF_SCHEDULE_LINEAR, VKF_SCHEDULE_COSINE };

/// C++: Schedule.
typedef struct vkf_schedule {
    vkf_schedule_kind kind;
    uint32_t reserved;
    int64_t warmup, steps;
} vkf_schedule;

/// C++: UpdateOptions.
typedef struct vkf_update_options {
    uint32_t struct_size;
    uint32_t reserved;
    vkf_dim step;
    vkf_schedule schedule;
    vkf_value learning_rate, gradient_scale;
    double decay_to;
} vkf_update_options;

/// C++: Sgd.
typedef struct vkf_sgd {
    uint32_t struct_size;
    bool nesterov;
    double learning_rate;  ///< 0: 1e-3
    double momentum, dampening, weight_decay;
} vkf_sgd;

/// C++: AdamW.
typedef struct vkf_adamw {
    uint32_t struct_size;
    bool amsgrad;
    bool has_betas;         ///< false: 0.9 and 0.999
    bool has_weight_decay;  ///< false: 0.01
    double learning_rate;   ///< 0: 1e-3
    double beta1, beta2;
    double eps;  ///< 0: 1e-8
    double weight_decay;
    vkf_switch decoupled;  ///< default: on
    uint32_t reserved;
} vkf_adamw;

VKF_API vkf_result vkf_schedule_at(const vkf_schedule* schedule, int64_t step, double* factor);
VKF_API vkf_result vkf_update_adamw(uint32_t count, const vkf_value* parameters, const vkf_value* gradients,
                                    const vkf_adamw* optimizer, const vkf_update_options* options);
VKF_API vkf_result vkf_update_sgd(uint32_t count, const vkf_value* parameters, const vkf_value* gradients,
                                  const vkf_sgd* optimizer, const vkf_update_options* options);
/// `index` is a symbol: 0 where the sums begin anew.
VKF_API vkf_result vkf_accumulate(uint32_t count, const vkf_value* sums, const vkf_value* gradients, vkf_dim index);
VKF_API vkf_result vkf_clip_grad_norm(uint32_t count, const vkf_value* gradients, float max_norm, vkf_value loss_scale,
                                      vkf_value* norm, vkf_value* scale);

// --- layers: the headers of layers/ --------------------------------------------------------------

/// C++: AttentionResult. An output that does not exist is no tensor.
typedef struct vkf_attention {
    uint32_t struct_size;
    vkf_value y, weights, log_sum_exp;
} vkf_attention;

/// C++: RingRows.
typedef struct vkf_ring_rows {
    uint32_t struct_size;
    vkf_dim first, before_end, count;
} vkf_ring_rows;

/// Tokens first: (B, capacity, Hk, d). C++: KvCache.
typedef struct vkf_kv_cache {
    uint32_t struct_size;
    vkf_value key, value;
    vkf_dim start;
    vkf_weight_type type;
    uint32_t reserved;
    const vkf_ring_rows* written;  ///< null: token i lies in row i
    /// null: token i lies in row i. What vkf_append() returns of a ring wants it as
    /// vkf_attention_options::ring.
    const vkf_ring_rows* seen;
} vkf_kv_cache;

/// Heads first: (B, Hk, S, d). C++: CachedKv.
typedef struct vkf_cached_kv {
    uint32_t struct_size;
    vkf_value key, value;
} vkf_cached_kv;

/// C++: AttentionOptions.
typedef struct vkf_attention_options {
    uint32_t struct_size;
    float scale;  ///< 0: 1 / sqrt(d)
    float softcap;
    float dropout;
    vkf_dim dropout_seed;
    bool log_sum_exp, repeat_kv;
    const vkf_mask* mask;
    vkf_value sinks;
    const char* score_mod;  ///< GLSL, see ops/score_mod.h; null: none
    const float* score_mod_parameters;
    uint32_t score_mod_parameter_count;
    vkf_weight_type kv_type;    ///< type of key and value; packed as vkf_append() gives them
    int64_t value_dim;          ///< width of packed values; 0: d
    const vkf_ring_rows* ring;  ///< null: keys and values lie in order
    vkf_value key_lengths;      ///< (B) i32, keys of each sequence; null: all
} vkf_attention_options;

/// C++: MultiHeadAttentionOptions.
typedef struct vkf_multi_head_attention_options {
    uint32_t struct_size;
    vkf_switch bias;   ///< default: on
    const char* name;  ///< null: none
    int64_t heads;     ///< 0: 1
    const vkf_mask* mask;
} vkf_multi_head_attention_options;

/// C++: SelfAttentionOptions.
typedef struct vkf_self_attention_options {
    uint32_t struct_size;
    vkf_switch bias, out_proj;  ///< default: on
    bool fused_qkv;
    const char* name;  ///< null: none
    const vkf_mask* mask;
} vkf_self_attention_options;

/// C++: IncrementalAttentionOptions.
typedef struct vkf_incremental_attention_options {
    uint32_t struct_size;
    float scale;                        ///< 0: 1 / sqrt(d)
    const char* name;                   ///< null: none
    int64_t heads, kv_heads, head_dim;  ///< 0: 1
    const vkf_mask* mask;               ///< null: none
} vkf_incremental_attention_options;

/// C++: ScoreKind.
typedef uint32_t vkf_score_kind;
enum { VKF_SCORE_DOT, VKF_SCORE_SCALED_DOT, VKF_SCORE_GENERAL, VKF_SCORE_ADDITIVE };

/// C++: ScoreOptions.
typedef struct vkf_score_options {
    uint32_t struct_size;
    vkf_score_kind kind;
    const char* name;  ///< null: none
    int64_t hidden;
} vkf_score_options;

/// C++: PagedKvCache.
typedef struct vkf_paged_kv_cache {
    uint32_t struct_size;
    vkf_value key, value, table, lengths;
} vkf_paged_kv_cache;

/// C++: GroupedQueryAttentionOptions.
typedef struct vkf_grouped_query_attention_options {
    uint32_t struct_size;
    bool bias, qkv_bias, repeat_kv, fused_qkv;
    const char* name;
    int64_t heads, kv_heads;  ///< 0: 1
    int64_t head_dim;         ///< 0: E / heads
    const vkf_mask* mask;     ///< null: a query sees everything before it
    float scale, softcap;
    vkf_value sinks;
    const vkf_rope_options* rope;  ///< null: none
    const vkf_kv_cache* cache;     ///< null: none
    const char* names[4];          ///< null: q_proj, k_proj, v_proj, o_proj
    float qk_norm_eps;             ///< 0: queries and keys are not normalized
    uint32_t reserved;
} vkf_grouped_query_attention_options;

/// C++: torch::MultiheadAttentionOptions.
typedef struct vkf_torch_attention_options {
    uint32_t struct_size;
    vkf_switch bias, batch_first;  ///< default: on
    bool add_bias_kv, add_zero_attn, average_attn_weights, is_causal;
    const char* name;
    int64_t num_heads;  ///< 0: 1
    vkf_value attn_mask, key_padding_mask;
    float dropout;
    vkf_dim dropout_seed;
    const vkf_kv_cache* cache;    ///< null: none
    const vkf_cached_kv* memory;  ///< null: none; else key and value are ignored
} vkf_torch_attention_options;

/// C++: torch::TransformerLayerOptions.
typedef struct vkf_transformer_layer_options {
    uint32_t struct_size;
    vkf_activation activation;  ///< 0: relu
    bool norm_first;
    vkf_switch bias;  ///< default: on
    const char* name;
    int64_t nhead;            ///< 0: 1
    int64_t dim_feedforward;  ///< 0: 2048
    float layer_norm_eps;     ///< 0: 1e-5
    float dropout;
    vkf_dim dropout_seed;
} vkf_transformer_layer_options;

/// C++: torch::DecoderInputs.
typedef struct vkf_decoder_inputs {
    uint32_t struct_size;
    bool tgt_is_causal;
    vkf_value memory;
    vkf_value tgt_mask, tgt_key_padding_mask, memory_mask, memory_key_padding_mask;
    const vkf_kv_cache* cache;              ///< null: none
    const vkf_cached_kv* projected_memory;  ///< null: none
} vkf_decoder_inputs;

/// C++: torch::TransformerOptions.
typedef struct vkf_transformer_options {
    uint32_t struct_size;
    uint32_t reserved;
    const vkf_transformer_layer_options* layer;      ///< null: all defaults
    const char* name;                                ///< null: none
    int64_t num_encoder_layers, num_decoder_layers;  ///< 0: 6
} vkf_transformer_options;

/// C++: torch::TransformerMasks.
typedef struct vkf_transformer_masks {
    uint32_t struct_size;
    bool tgt_is_causal;
    vkf_value src_mask, tgt_mask, memory_mask;
    vkf_value src_key_padding_mask, tgt_key_padding_mask, memory_key_padding_mask;
} vkf_transformer_masks;

/// C++: LoraOptions. Targets, or `adapter`, are needed.
typedef struct vkf_lora_options {
    uint32_t struct_size;
    uint32_t target_count;
    int64_t rank;  ///< 0: 8
    float alpha;   ///< 0: 8
    uint32_t reserved;
    const char* const* targets;
    /// A folder with an adapter of PEFT's, whose layers and rank are meant: Adapter::options(). The
    /// members before it are 0 then. Null: none.
    const char* adapter;
} vkf_lora_options;

VKF_API vkf_result vkf_linear_layer(vkf_value x, const char* name, int64_t out, bool bias, vkf_activation activation,
                                    vkf_value* y);
VKF_API vkf_result vkf_layer_norm_layer(vkf_value x, const char* name, float eps, bool bias, vkf_value* y);
VKF_API vkf_result vkf_scaled_dot_product_attention(vkf_value query, vkf_value key, vkf_value value,
                                                    const vkf_attention_options* options, vkf_attention* result);
VKF_API vkf_result vkf_multi_head_attention(vkf_value query, vkf_value key, vkf_value value,
                                            const vkf_multi_head_attention_options* options, vkf_attention* result);
/// Head by head: multi_head_attention_by_heads().
VKF_API vkf_result vkf_multi_head_attention_by_heads(vkf_value query, vkf_value key, vkf_value value,
                                                     const vkf_multi_head_attention_options* options, vkf_value* y);
VKF_API vkf_result vkf_self_attention(vkf_value x, const vkf_self_attention_options* options, vkf_attention* result);
VKF_API vkf_result vkf_incremental_attention(vkf_value x, vkf_value context, vkf_value cache_key, vkf_value cache_value,
                                             const vkf_incremental_attention_options* options, vkf_value* y,
                                             vkf_value* new_cache_key, vkf_value* new_cache_value);
VKF_API vkf_result vkf_attention_scores(vkf_value query, vkf_value key, const vkf_score_options* options,
                                        vkf_value* scores);
VKF_API vkf_result vkf_packed_attention(vkf_value query, vkf_value key, vkf_value value, vkf_value cumulative_queries,
                                        vkf_value cumulative_keys, const vkf_attention_options* options,
                                        vkf_attention* result);
/// append() to a paged cache; `all` is the cache as it is after the write.
VKF_API vkf_result vkf_append_pages(const vkf_paged_kv_cache* cache, vkf_value key, vkf_value value,
                                    vkf_paged_kv_cache* all);
VKF_API vkf_result vkf_paged_attention(vkf_value query, const vkf_paged_kv_cache* cache,
                                       const vkf_attention_options* options, vkf_attention* result);
VKF_API vkf_result vkf_grouped_query_attention(vkf_value x, const vkf_grouped_query_attention_options* options,
                                               vkf_attention* result);
/// The states NAME.key and NAME.value of a cache, for vkf_append() and the options that have a
/// cache.
VKF_API vkf_result vkf_graph_kv_cache(vkf_graph* graph, const char* name, int64_t batch, int64_t capacity,
                                      int64_t kv_heads, int64_t head_dim, vkf_dim start, vkf_weight_type type,
                                      vkf_kv_cache* cache);
/// append(): writes behind what the cache holds. `all` receives all keys and values, heads first.
VKF_API vkf_result vkf_append(const vkf_kv_cache* cache, vkf_value key, vkf_value value, vkf_cached_kv* all);
VKF_API vkf_result vkf_feed_forward(vkf_value x, int64_t hidden, vkf_activation activation, const char* name, bool bias,
                                    vkf_value* y);
VKF_API vkf_result vkf_gated_feed_forward(vkf_value x, int64_t hidden, vkf_activation activation, const char* name,
                                          bool bias, vkf_value* y);
VKF_API vkf_result vkf_torch_multihead_attention(vkf_value query, vkf_value key, vkf_value value,
                                                 const vkf_torch_attention_options* options, vkf_attention* result);
/// Projects the memory once, for vkf_torch_attention_options::memory and
/// vkf_decoder_inputs::projected_memory.
VKF_API vkf_result vkf_torch_project_memory(vkf_value memory, const char* name, int64_t num_heads, bool bias,
                                            vkf_cached_kv* projected);
VKF_API vkf_result vkf_transformer_encoder_layer(vkf_value src, const vkf_transformer_layer_options* options,
                                                 vkf_value src_mask, vkf_value src_key_padding_mask, vkf_value* y);
/// `cross_weights` may be null.
VKF_API vkf_result vkf_transformer_decoder_layer(vkf_value tgt, const vkf_transformer_layer_options* options,
                                                 const vkf_decoder_inputs* inputs, vkf_value* y,
                                                 vkf_value* cross_weights);

VKF_API vkf_result vkf_transformer_encoder(vkf_value src, const vkf_transformer_layer_options* layer,
                                           int64_t num_layers, const char* name, vkf_value src_mask,
                                           vkf_value src_key_padding_mask, vkf_value* y);
/// inputs[i] is what layer i attends to. `cross_weights` may be null.
VKF_API vkf_result vkf_transformer_decoder(vkf_value tgt, const vkf_transformer_layer_options* layer,
                                           uint32_t num_layers, const vkf_decoder_inputs* inputs, const char* name,
                                           vkf_value* y, vkf_value* cross_weights);
/// `masks` may be null.
VKF_API vkf_result vkf_transformer(vkf_value src, vkf_value tgt, const vkf_transformer_options* options,
                                   const vkf_transformer_masks* masks, vkf_value* y);

/// Gives adapters to the linear layers that are described after it. The graph goes on doing so
/// when `lora` is destroyed, and takes no other.
VKF_API vkf_result vkf_lora_create(vkf_graph* graph, const vkf_lora_options* options, vkf_lora** lora);
VKF_API void vkf_lora_destroy(vkf_lora* lora);
/// Writes A and B of each layer in turn, and how many these are; where they are more than `count`,
/// nothing else is done.
VKF_API vkf_result vkf_lora_parameters(const vkf_lora* lora, uint32_t count, vkf_value* parameters, uint32_t* needed);

// --- GLSL at run time: runtime/compile/glsl.h ----------------------------------------------------

/// The object into which a host's compiler puts the words of a SPIR-V module, or the error text.
typedef struct vkf_module vkf_module;
VKF_API vkf_result vkf_module_words(vkf_module* module, const uint32_t* words, uint64_t count);
VKF_API vkf_result vkf_module_error(vkf_module* module, const char* what);
/// Sets a compiler of the host's for score mods, which is used from now on; null removes it.
/// several_threads: it may be called by several threads at once, and no lock of the library's is
/// held meanwhile; else threads that need it wait for each other.
VKF_API vkf_result vkf_use_glsl_compiler(void (*compile)(void* user, const char* source, const char* name,
                                                         vkf_module* module),
                                         void* user, bool several_threads);
/// Says which compiler is used; empty: there is none.
VKF_API vkf_result vkf_glsl_compiler(char* text, size_t capacity, size_t* needed);
/// There must be room for all words. `count` may be null.
VKF_API vkf_result vkf_compile_glsl(const char* source, const char* name, uint32_t* words, uint64_t capacity,
                                    uint64_t* count);

// --- device: runtime/device/device.h -------------------------------------------------------------

/// Works as vkGetInstanceProcAddr, which is cast to it. Null: libvulkan is opened.
typedef void (*(*vkf_get_instance_proc_addr)(VkInstance, const char*))(void);

/// C++: DeviceType.
typedef uint32_t vkf_device_type;
enum { VKF_DEVICE_OTHER, VKF_DEVICE_INTEGRATED, VKF_DEVICE_DISCRETE, VKF_DEVICE_VIRTUAL, VKF_DEVICE_CPU };

/// C++: Capabilities.
typedef struct vkf_capabilities {
    uint32_t struct_size;
    vkf_device_type type;
    char name[256], driver[256];
    uint32_t api_version, vendor_id, device_id, driver_version;
    uint64_t storage_alignment;  ///< alignment of vkf_buffer_range::offset
    uint64_t storage_range, max_allocation;
    uint32_t storage_buffers, max_invocations, shared_memory;
    bool storage_16bit, storage_image_any_format;
    bool external_memory_fd, external_memory_host, external_memory_android;
    bool unified_memory, minimum_profile;
    bool rounds_alike;  ///< what says how f16 is rounded must say the same of fp32
    uint8_t reserved[4];
    uint64_t device_memory;  ///< bytes of the largest heap of device-local memory
    uint8_t cache_uuid[16];  ///< VkPhysicalDeviceProperties::pipelineCacheUUID
    uint32_t max_group_size[3], max_groups[3];
    uint32_t push_constants;  ///< bytes
    uint32_t subgroup_size, exact_subgroup_size;
    uint32_t matrix_subgroup_size, max_subgroups;
    uint32_t timestamp_bits;
    float timestamp_period;   ///< nanoseconds a tick; 0: nothing can be profiled
    bool timeline_semaphore;  ///< false: vkf_ticket_semaphore() returns null
    bool subgroup_shuffle, subgroup_arithmetic;
    bool int64, float16;
    bool cooperative_matrix, matrix_elements, cooperative_matrix_int8;
    bool integer_dot, fast_integer_dot;
    bool portability_subset, tuning_is_asked;
    bool float_controls;  ///< VK_KHR_shader_float_controls
    /// what the driver keeps where a shader asks: NaN, infinities and the sign of 0; subnormals
    bool keeps_special_f32, keeps_special_f16, keeps_subnormal_f16;
    bool matrix_kernels;       ///< this build has kernels on cooperative matrices
    bool matrix_elements_ext;  ///< these are of VK_EXT_cooperative_matrix_maintenance1
    bool subgroup_quad;        ///< exchanges within a quad, four lanes
    bool texel_buffers;        ///< kernels are to fetch from texel buffers what they only read
} vkf_capabilities;

/// C++: DeviceOptions. `validation`, `select` and `get_instance_proc_addr` are for
/// vkf_device_create() alone: vkf_device_borrow() fails where they are set.
typedef struct vkf_device_options {
    uint32_t struct_size;
    bool validation, minimum_profile, checked;
    bool canary;               ///< true: asks each submission whether it ran
    const char* select;        ///< null: VKFORMER_DEVICE, or the best there is
    const char* cache_folder;  ///< null: the user's
    uint64_t staging_bytes;    ///< 0: 16 MiB
    double submit_budget;      ///< 0: what suits the device; below 0: no limit
    vkf_get_instance_proc_addr get_instance_proc_addr;
    const char* tuning;     ///< null: what vkformer-tune kept; "0": nothing
    double wait_seconds;    ///< 0: 600, on processors 3600; below 0: no limit
    const char* leave_out;  ///< null: what vkformer-doctor found; "0": nothing
} vkf_device_options;

/// C++: LeftOut. The texts are the caller's.
typedef struct vkf_left_out {
    const char* kernel;
    const char* why;
} vkf_left_out;

/// C++: SelfTestOptions.
typedef struct vkf_self_test_options {
    uint32_t struct_size;
    uint32_t repeats;  ///< 0: 2
    double seconds;    ///< 0: no bound
    /// Called after each check, whose `problem` is empty where nothing is wrong; may be null.
    void (*progress)(void* user, const char* kernel, const char* what, const char* problem, double error, double ms);
    void* user;
    bool thorough;
    uint8_t reserved[7];
} vkf_self_test_options;

/// C++: Verdict.
typedef uint32_t vkf_verdict;
enum { VKF_HEALTHY, VKF_DEGRADED, VKF_UNUSABLE };

/// C++: MemoryRequest.
typedef struct vkf_memory_request {
    uint64_t bytes, alignment;
    uint32_t type_bits, need, wish;
    const char* purpose;
} vkf_memory_request;

/// C++: MemoryPiece.
typedef struct vkf_memory_piece {
    VkDeviceMemory memory;
    uint64_t offset;
    void* mapped;
    void* tag;
} vkf_memory_piece;

/// C++: BorrowedDevice, MemoryHooks.
typedef struct vkf_borrowed_device {
    uint32_t struct_size;
    uint32_t queue_family;
    VkInstance instance;  ///< VkApplicationInfo::apiVersion was 1.1 or higher
    VkPhysicalDevice physical;
    VkDevice device;
    VkQueue queue;      ///< null: queue 0 of the family
    bool host_submits;  ///< true: vkformer uses no queue
    /// VK_EXT_debug_utils is enabled: objects get names, and commands labels, but not where the
    /// installed Khronos validation layer is older than 1.3.246
    bool debug_utils;
    bool keep_uploads;  ///< true: vkf_device_uploads_dropped() can be called
    void (*lock)(void* user);
    void (*unlock)(void* user);
    void* user;  ///< argument of lock and unlock
    const VkDeviceCreateInfo* created_with;
    vkf_get_instance_proc_addr get_instance_proc_addr;
    VkPipelineCache pipeline_cache;
    /// Returns a VkResult; called by several threads at once, never by recording. Null:
    /// vkAllocateMemory.
    int32_t (*allocate)(void* memory_user, const vkf_memory_request* request, vkf_memory_piece* piece);
    void (*release)(void* memory_user, const vkf_memory_piece* piece);
    void* memory_user;
} vkf_borrowed_device;

/// C++: DeviceRequirement. The texts live as long as the handle.
typedef struct vkf_requirement {
    uint32_t struct_size;
    bool required, extension;
    const char* name;
    const char* buys;
} vkf_requirement;

VKF_API vkf_result vkf_requirements_create(VkInstance instance, VkPhysicalDevice physical,
                                           vkf_get_instance_proc_addr get_instance_proc_addr,
                                           vkf_requirements** requirements);
VKF_API void vkf_requirements_destroy(vkf_requirements* requirements);
VKF_API vkf_result vkf_requirements_count(const vkf_requirements* requirements, uint32_t* count);
VKF_API vkf_result vkf_requirements_get(const vkf_requirements* requirements, uint32_t index,
                                        vkf_requirement* requirement);
/// Gives the names for ppEnabledExtensionNames; they live as long as the handle.
VKF_API vkf_result vkf_requirements_extensions(const vkf_requirements* requirements, bool wished,
                                               const char* const** names, uint32_t* count);
/// Gives the chain for VkDeviceCreateInfo::pNext, ending in `next`; it lives as long as the handle.
VKF_API vkf_result vkf_requirements_features(vkf_requirements* requirements, const void* next, const void** chain);

/// Writes at most *count of the usable devices into `list`, where it is not null. *count becomes
/// the number of usable devices. A device whose driver cannot be asked what it can do is left out;
/// where none is usable and one could not be asked, that is the error.
VKF_API vkf_result vkf_device_list(vkf_get_instance_proc_addr get_instance_proc_addr, vkf_capabilities* list,
                                   uint32_t* count);
VKF_API vkf_result vkf_device_create(const vkf_device_options* options, vkf_device** device);
VKF_API vkf_result vkf_device_borrow(const vkf_borrowed_device* host, const vkf_device_options* options,
                                     vkf_device** device);
VKF_API void vkf_device_destroy(vkf_device* device);
VKF_API vkf_result vkf_device_capabilities(const vkf_device* device, vkf_capabilities* capabilities);
/// Returns validation messages, a line each, and forgets those that it returned whole.
VKF_API vkf_result vkf_device_take_messages(vkf_device* device, char* text, size_t capacity, size_t* needed);
/// Fails where there is nowhere to write, or where it could not be written.
VKF_API vkf_result vkf_device_save_pipeline_cache(vkf_device* device);
/// save_tuning(): keeps choices, "name=number" with commas between, for later devices. Empty
/// choices remove them; what vkf_device_options::tuning refuses is an error. `path` receives the
/// file's name, as vkf_program_explain() returns texts.
VKF_API vkf_result vkf_device_save_tuning(const vkf_device* device, const char* choices, char* path, size_t capacity,
                                          size_t* needed);
/// The file's name; empty where there is no cache folder.
VKF_API vkf_result vkf_device_tuning_file(const vkf_device* device, char* path, size_t capacity, size_t* needed);
/// save_left_out(): keeps a list for later devices; none removes it. `path` as above.
VKF_API vkf_result vkf_device_save_left_out(const vkf_device* device, uint32_t count, const vkf_left_out* kernels,
                                            char* path, size_t capacity, size_t* needed);
/// The file's name; empty where there is no cache folder.
VKF_API vkf_result vkf_device_left_out_file(const vkf_device* device, char* path, size_t capacity, size_t* needed);
/// The kernels that no program is given, a line each: the name, a space, and why.
VKF_API vkf_result vkf_device_left_out(const vkf_device* device, char* text, size_t capacity, size_t* needed);
/// Runs the device's kernels, and leaves out those that are wrong. `options` may be null.
VKF_API vkf_result vkf_device_self_test(const vkf_device* device, const vkf_self_test_options* options,
                                        vkf_verdict* verdict);
/// Gives name and meaning of a number that can be chosen; an error beyond the last. The texts live
/// as long as the library.
VKF_API vkf_result vkf_tunable(uint32_t index, const char** name, const char** what);
/// The values that the device can take for it, ascending. `capacity` must have room for all.
/// `count` may be null.
VKF_API vkf_result vkf_tunable_values(const vkf_device* device, uint32_t index, uint32_t* values, uint64_t capacity,
                                      uint64_t* count);

/// C++: StagingRange.
typedef struct vkf_staging_range {
    uint32_t struct_size;
    VkBuffer buffer;
    uint64_t offset, bytes;
    void* mapped;
} vkf_staging_range;

/// Does not allocate.
VKF_API vkf_result vkf_device_record_upload(vkf_device* device, VkCommandBuffer commands,
                                            const vkf_staging_range* staging);
/// C++: DeviceMemory.
typedef struct vkf_device_memory {
    uint32_t struct_size;
    uint64_t allocated, outside, heap, budget, used;
} vkf_device_memory;

VKF_API vkf_result vkf_device_memory_use(const vkf_device* device, vkf_device_memory* memory);
VKF_API vkf_result vkf_device_pending_uploads(const vkf_device* device, uint64_t* bytes);
VKF_API vkf_result vkf_device_recorded_uploads(const vkf_device* device, uint64_t* bytes);
/// Everything recorded before vkf_device_recorded_uploads() gave `recorded` has been executed. A
/// number of before the last vkf_device_uploads_dropped() says nothing.
VKF_API vkf_result vkf_device_uploads_finished(vkf_device* device, uint64_t recorded);
/// What was recorded since will not be executed, and waits again. Does not allocate.
VKF_API vkf_result vkf_device_uploads_dropped(vkf_device* device);

// --- tensors on the device: headers of runtime/device/ and models/files/ -------------------------

/// C++: HostTensor.
typedef struct vkf_tensor {
    const char* name;
    const void* data;
    uint64_t bytes;
    const int64_t* shape;
    uint32_t rank;
    vkf_dtype dtype;
    /// VKF_WEIGHT_AS_GIVEN: the tensor is not packed. Otherwise `data` holds rows of 32-bit words,
    /// and `dtype` and `shape` describe the numbers that they stand for.
    vkf_weight_type type;
    uint32_t reserved;
} vkf_tensor;

/// C++: PackOn.
enum { VKF_PACK_BY_DEVICE, VKF_PACK_ON_HOST, VKF_PACK_ON_DEVICE };

/// C++: LoadOptions.
typedef struct vkf_load_options {
    uint32_t struct_size;
    vkf_weight_type matrices;
    /// A function that, when set, is called for each matrix; VKF_WEIGHT_AS_GIVEN leaves the choice
    /// to `matrices`.
    vkf_weight_type (*choose)(void* user, const vkf_tensor* matrix);
    /// Progress: called with the bytes uploaded and the bytes in all, when set.
    void (*progress)(void* user, uint64_t done, uint64_t all);
    void* user;
    /// The graph that the weights are for; may be null. Weights that one launch of it reads
    /// together lie behind each other.
    const vkf_graph* graph;
    uint32_t pack_on;  ///< VKF_PACK_...
    uint32_t reserved;
} vkf_load_options;

/// C++: StoredTensor. Name and shape live as long as the handle that they are of.
typedef struct vkf_stored_tensor {
    uint32_t struct_size;
    vkf_dtype dtype;       ///< type of the numbers that graphs see
    vkf_weight_type type;  ///< how they lie in memory, where graphs see VKF_F32
    uint32_t rank, block, reserved;
    const char* name;
    const int64_t* shape;
    uint64_t offset, bytes;  ///< place in the block
} vkf_stored_tensor;

/// The tensors' data is copied before it returns.
VKF_API vkf_result vkf_weights_load(vkf_device* device, uint32_t count, const vkf_tensor* tensors,
                                    const vkf_load_options* options, vkf_weights** weights);
/// Lays them out as planned: vkf_weight_layout_create() gave this layout for these tensors and this
/// device. Of `options` only `progress`, `user` and `pack_on` count.
VKF_API vkf_result vkf_weights_load_planned(vkf_device* device, uint32_t count, const vkf_tensor* tensors,
                                            const vkf_weight_layout* layout, const vkf_load_options* options,
                                            vkf_weights** weights);
/// A safetensors file.
VKF_API vkf_result vkf_weights_load_file(vkf_device* device, const char* path, const vkf_load_options* options,
                                         vkf_weights** weights);
/// load_decoder(): what a decoder needs of a Hugging Face folder, for several decoders, which
/// vkf_decoder_create_with_weights() makes. The member `graph` of `load` is ignored, and `choose`
/// gets matrices under the graph's names, whose data is null.
VKF_API vkf_result vkf_weights_load_decoder(vkf_device* device, const char* folder, const vkf_load_options* load,
                                            vkf_weights** weights);
/// load_text_encoder(), for vkf_text_encoder_create_with_weights(). The member `graph` of `load` is
/// ignored, and `choose` gets matrices under the graph's names, whose data is null.
VKF_API vkf_result vkf_weights_load_text_encoder(vkf_device* device, const char* folder, const vkf_load_options* load,
                                                 vkf_weights** weights);
VKF_API void vkf_weights_destroy(vkf_weights* weights);
/// Writes at most *count of the tensors, by name, into `tensors`, where it is not null. *count
/// becomes the number of tensors.
VKF_API vkf_result vkf_weights_tensors(const vkf_weights* weights, vkf_stored_tensor* tensors, uint32_t* count);
VKF_API vkf_result vkf_weights_bytes(const vkf_weights* weights, uint64_t* bytes);
/// The part of these bytes that floating tensors kept as `type` take.
VKF_API vkf_result vkf_weights_bytes_of_type(const vkf_weights* weights, vkf_weight_type type, uint64_t* bytes);
/// The part of these bytes that the device itself packed.
VKF_API vkf_result vkf_weights_bytes_packed_on_device(const vkf_weights* weights, uint64_t* bytes);

/// The layout that loading these tensors will give, known in advance: all that vkf_compile_layout()
/// needs. The members data and bytes of the tensors are not read.
VKF_API vkf_result vkf_weight_layout_create(const vkf_device* device, uint32_t count, const vkf_tensor* tensors,
                                            const vkf_load_options* options, vkf_weight_layout** layout);
/// Lays out the tensors of a safetensors file.
VKF_API vkf_result vkf_weight_layout_create_file(const vkf_device* device, const char* path,
                                                 const vkf_load_options* options, vkf_weight_layout** layout);
VKF_API void vkf_weight_layout_destroy(vkf_weight_layout* layout);
/// Lists the tensors of the layout as vkf_weights_tensors() does.
VKF_API vkf_result vkf_weight_layout_tensors(const vkf_weight_layout* layout, vkf_stored_tensor* tensors,
                                             uint32_t* count);
/// Bytes of device memory that the weights will take.
VKF_API vkf_result vkf_weight_layout_bytes(const vkf_weight_layout* layout, uint64_t* bytes);

/// Makes zeroed memory for every state that the graphs name.
VKF_API vkf_result vkf_state_create(vkf_device* device, uint32_t count, const vkf_graph* const* graphs,
                                    vkf_state** state);
/// A trainer's own state is left as it is, which is an error.
VKF_API void vkf_state_destroy(vkf_state* state);
VKF_API vkf_result vkf_state_clear(vkf_state* state);
/// Lists the tensors of the state as vkf_weights_tensors() does.
VKF_API vkf_result vkf_state_tensors(const vkf_state* state, vkf_stored_tensor* tensors, uint32_t* count);
VKF_API vkf_result vkf_state_bytes(const vkf_state* state, uint64_t* bytes);

/// C++: StatePart. The first `length` of a tensor's dimension `dim`.
typedef struct vkf_state_part {
    const char* name;  ///< the tensor
    uint64_t dim;
    int64_t length;  ///< -1: all
} vkf_state_part;

/// Reads the bytes of a tensor, or of a part of it. `capacity` must have room for all. `count` may
/// be null.
VKF_API vkf_result vkf_state_read(const vkf_state* state, const vkf_state_part* part, void* bytes, uint64_t capacity,
                                  uint64_t* count);
VKF_API vkf_result vkf_state_write(vkf_state* state, const vkf_state_part* part, const void* bytes, uint64_t count);
/// Writes the states to a safetensors file: of tensors that `parts` names only these parts, and all
/// others whole.
VKF_API vkf_result vkf_state_save(const vkf_state* state, const char* path, uint32_t count,
                                  const vkf_state_part* parts);
VKF_API vkf_result vkf_state_restore(vkf_state* state, const char* path);

/// Device::make_tensor(): a tensor that passes from program to program on the device. Its elements
/// are undefined until something writes them.
VKF_API vkf_result vkf_device_tensor_create(vkf_device* device, vkf_dtype dtype, uint32_t rank, const int64_t* shape,
                                            vkf_device_tensor** tensor);
/// The memory lives as long as a handle of it, or a program that it is bound to.
VKF_API void vkf_device_tensor_destroy(vkf_device_tensor* tensor);
/// A further handle of the same memory, under another shape of as many elements.
VKF_API vkf_result vkf_device_tensor_reshape(const vkf_device_tensor* tensor, uint32_t rank, const int64_t* shape,
                                             vkf_device_tensor** reshaped);
/// Type, sizes and bytes; each may be null.
VKF_API vkf_result vkf_device_tensor_get(const vkf_device_tensor* tensor, vkf_dtype* dtype, int64_t* shape,
                                         uint32_t capacity, uint32_t* rank, uint64_t* bytes);
/// Reads all bytes, for which `capacity` must have room. `count` may be null.
VKF_API vkf_result vkf_device_tensor_read(const vkf_device_tensor* tensor, void* to, uint64_t capacity,
                                          uint64_t* count);
/// Writes all elements: `count` is vkf_device_tensor_get()'s bytes. Where a program has the tensor,
/// that waits for the runs before it and is one submission, with staging memory as large as the
/// tensor; see DeviceTensor::write().
VKF_API vkf_result vkf_device_tensor_write(vkf_device_tensor* tensor, const void* bytes, uint64_t count);

/// One entry of a file's metadata: a name and its text.
typedef struct vkf_metadata {
    const char* key;
    const char* value;
} vkf_metadata;

/// Writes a safetensors file.
VKF_API vkf_result vkf_save_safetensors(const char* path, uint32_t count, const vkf_tensor* tensors,
                                        uint32_t metadata_count, const vkf_metadata* metadata);

struct AHardwareBuffer;
VKF_API vkf_result vkf_shared_buffer_create(vkf_device* device, uint64_t bytes, vkf_shared_buffer** shared);
/// The descriptor is the library's when there is no error, else still the caller's.
VKF_API vkf_result vkf_shared_buffer_import_fd(vkf_device* device, int descriptor, uint64_t bytes,
                                               vkf_shared_buffer** shared);
/// The memory outlives the buffer.
VKF_API vkf_result vkf_shared_buffer_import_host(vkf_device* device, void* memory, uint64_t bytes,
                                                 vkf_shared_buffer** shared);
VKF_API vkf_result vkf_shared_buffer_import_hardware_buffer(vkf_device* device, struct AHardwareBuffer* buffer,
                                                            vkf_shared_buffer** shared);
VKF_API void vkf_shared_buffer_destroy(vkf_shared_buffer* shared);
VKF_API vkf_result vkf_shared_buffer_get(const vkf_shared_buffer* shared, VkBuffer* buffer, uint64_t* bytes);
/// The descriptor is the caller's to close.
VKF_API vkf_result vkf_shared_buffer_export_fd(const vkf_shared_buffer* shared, int* descriptor);
VKF_API vkf_result vkf_shared_host_alignment(const vkf_device* device, uint64_t* bytes);

// --- program: runtime/device/program.h -----------------------------------------------------------

/// C++: Arithmetic.
enum { VKF_ARITHMETIC_F32, VKF_ARITHMETIC_F16, VKF_ARITHMETIC_INT8 };

/// C++: CompileOptions.
typedef struct vkf_compile_options {
    uint32_t struct_size;
    uint32_t slots;          ///< 0: 1; at most 4096
    const char* name;        ///< null: "program"
    const vkf_state* state;  ///< null: one of its own
    bool profile, checked;
    uint8_t arithmetic;  ///< VKF_ARITHMETIC_...
    uint8_t reserved;
    vkf_switch rewrite;                    ///< default: on
    const vkf_communicator* communicator;  ///< null: none
} vkf_compile_options;

/// C++: MemorySizes.
typedef struct vkf_memory_sizes {
    uint32_t struct_size;
    uint64_t weights, state, constants, scratch, inputs, outputs, mirrors, exchanged;
} vkf_memory_sizes;

/// C++: BufferRange.
typedef struct vkf_buffer_range {
    uint32_t struct_size;
    bool acquires, releases;  ///< the queue family changes: acquire_from, release_to count
    const char* name;
    VkBuffer buffer;
    uint64_t offset, bytes;
    uint32_t acquire_from, release_to;
    uint64_t buffer_bytes;
    uint32_t buffer_usage;
    VkDevice buffer_device;
} vkf_buffer_range;

/// C++: ImageView.
typedef struct vkf_image_view {
    uint32_t struct_size;
    uint32_t layout;  ///< VkImageLayout; 0: GENERAL
    const char* name;
    VkImageView view;
    uint32_t width, height;
} vkf_image_view;

/// C++: SizeSetting.
typedef struct vkf_size_setting {
    const char* name;
    int64_t value;
} vkf_size_setting;

/// A recording may give this many buffers and images more than the program has. They are ignored; a
/// checked program refuses them.
#define VKF_MORE_THAN_NEEDED 32

/// C++: Recording.
typedef struct vkf_recording {
    uint32_t struct_size;
    uint32_t slot;
    uint32_t buffer_count, image_count, size_count;
    const vkf_buffer_range* buffers;
    const vkf_image_view* images;
    const vkf_size_setting* sizes;
} vkf_recording;

/// C++: Cost, Segment.
typedef struct vkf_segment {
    uint32_t struct_size;
    bool last;
    double flops, bytes;
    double done;
} vkf_segment;

/// `weights` may be null.
VKF_API vkf_result vkf_compile(vkf_device* device, const vkf_graph* graph, const vkf_weights* weights,
                               const vkf_compile_options* options, vkf_program** program);
/// Compiles before the weights are loaded; they may upload meanwhile on another thread.
/// vkf_program_set_weights() gives them later.
VKF_API vkf_result vkf_compile_layout(vkf_device* device, const vkf_graph* graph, const vkf_weight_layout* layout,
                                      const vkf_compile_options* options, vkf_program** program);
/// Call it before the program's memory is allocated. Weights that lie differently from the layout
/// are an error.
VKF_API vkf_result vkf_program_set_weights(vkf_program* program, const vkf_weights* weights);
/// Waits for its own runs; recordings of a host must have finished. Where the program or its device
/// is checked, an empty handle stays until vkf_device_destroy(), so that using the program after
/// its end is an error like others. The own program of a model or a trainer is left as it is, which
/// is an error too.
VKF_API void vkf_program_destroy(vkf_program* program);
VKF_API vkf_result vkf_program_memory(const vkf_program* program, vkf_memory_sizes* sizes);
/// Makes what vkf_program_record() needs. `scratch` null: memory of ours; else
/// vkf_memory_sizes::scratch bytes of the host's, whose buffer may be null where that is 0.
VKF_API vkf_result vkf_program_allocate(vkf_program* program, const vkf_buffer_range* scratch);

VKF_API vkf_result vkf_program_set(vkf_program* program, const char* symbol, int64_t value);
/// `count` elements. Floats become f16 or bf16 where the input is.
VKF_API vkf_result vkf_program_upload(vkf_program* program, const char* input, const float* data, uint64_t count);
VKF_API vkf_result vkf_program_upload_i32(vkf_program* program, const char* input, const int32_t* data, uint64_t count);
/// The bits of elements of f16 or bf16.
VKF_API vkf_result vkf_program_upload_bits(vkf_program* program, const char* input, const uint16_t* data,
                                           uint64_t count);
/// Lets runs read an input, or write an output, where the tensor lies; null takes that back.
VKF_API vkf_result vkf_program_bind(vkf_program* program, const char* name, const vkf_device_tensor* tensor);
VKF_API vkf_result vkf_program_run(vkf_program* program);
/// Program::submit(): the run goes on while the host does other things.
VKF_API vkf_result vkf_program_submit(vkf_program* program, vkf_ticket** ticket);
VKF_API void vkf_ticket_destroy(vkf_ticket* ticket);
/// Waits at most this many nanoseconds; 0: does not wait. `done` receives whether the run has
/// finished. With a canary (vkf_device_options) it fails where the run did not run.
VKF_API vkf_result vkf_ticket_wait(const vkf_ticket* ticket, uint64_t timeout, bool* done);
/// A timeline semaphore that has this value when the run is done; null where the device has none
/// (vkf_capabilities::timeline_semaphore).
VKF_API vkf_result vkf_ticket_semaphore(const vkf_ticket* ticket, VkSemaphore* semaphore, uint64_t* value);
/// `data` has room for `capacity` elements. `count`, where it is not null, receives the number of
/// elements, even where they do not fit, which is an error.
VKF_API vkf_result vkf_program_download(vkf_program* program, const char* output, float* data, uint64_t capacity,
                                        uint64_t* count);
VKF_API vkf_result vkf_program_download_i32(vkf_program* program, const char* output, int32_t* data, uint64_t capacity,
                                            uint64_t* count);
VKF_API vkf_result vkf_program_download_bits(vkf_program* program, const char* output, uint16_t* data,
                                             uint64_t capacity, uint64_t* count);
VKF_API vkf_result vkf_program_shape(const vkf_program* program, const char* name, int64_t shape[VKF_MAX_RANK],
                                     uint32_t* rank);

/// Program::record(), begin() and record_segment(), with the same contracts: these and
/// vkf_program_finished() allocate nothing and lock nothing, also when they fail (but see
/// vkf_last_error()), and different slots may be recorded by different threads.
VKF_API vkf_result vkf_program_record(vkf_program* program, VkCommandBuffer commands, const vkf_recording* recording);
VKF_API vkf_result vkf_program_begin(vkf_program* program, const vkf_recording* recording);
VKF_API vkf_result vkf_program_record_segment(vkf_program* program, VkCommandBuffer commands, double budget,
                                              uint32_t slot, vkf_segment* segment);
VKF_API vkf_result vkf_program_finished(vkf_program* program, uint32_t slot);
/// Operations and bytes of the whole program at these sizes.
VKF_API vkf_result vkf_program_cost(const vkf_program* program, uint32_t count, const vkf_size_setting* sizes,
                                    double* flops, double* bytes);

/// C++: ArithmeticUse.
typedef struct vkf_arithmetic_use {
    uint32_t struct_size;
    uint8_t asked, used;  ///< VKF_ARITHMETIC_...
    uint8_t reserved[2];
    uint32_t in_fp32;  ///< how many reasons vkf_program_fp32_reason() has
    uint32_t reserved2;
} vkf_arithmetic_use;

/// C++: Fp32Reason.
typedef struct vkf_fp32_reason {
    uint32_t struct_size;
    uint32_t dispatches;
    const char* reason;  ///< lives as long as the program
} vkf_fp32_reason;

VKF_API vkf_result vkf_program_arithmetic(const vkf_program* program, vkf_arithmetic_use* use);
VKF_API vkf_result vkf_program_fp32_reason(const vkf_program* program, uint32_t index, vkf_fp32_reason* reason);
VKF_API vkf_result vkf_program_explain(const vkf_program* program, char* text, size_t capacity, size_t* needed);
VKF_API vkf_result vkf_program_dot(const vkf_program* program, char* text, size_t capacity, size_t* needed);

/// C++: DispatchTime. The texts live until the program runs again or is destroyed.
typedef struct vkf_dispatch_time {
    uint32_t struct_size;
    uint32_t reserved;
    const char* label;
    const char* kernel;
    double start_ms, ms;
    double flops, bytes;
} vkf_dispatch_time;

/// The dispatches of the last run: writes at most *count of them into `times`, where it is not
/// null. *count becomes the number of dispatches; 0 before a run, and without
/// vkf_compile_options::profile or timestamps of the queue.
VKF_API vkf_result vkf_program_times(const vkf_program* program, vkf_dispatch_time* times, uint32_t* count);
/// vkf_program_times() as a table.
VKF_API vkf_result vkf_program_time_table(const vkf_program* program, char* text, size_t capacity, size_t* needed);
VKF_API vkf_result vkf_program_write_trace(const vkf_program* program, const char* path);

// --- several ranks: parallel/communicator.h, ops/collectives.h, layers/parallel.h ----------------

/// Makes a communicator for each of so many ranks of this process, one a thread:
/// local_transports(), each in a Communicator. `communicators` has room for all.
VKF_API vkf_result vkf_communicator_create_local(uint32_t ranks, vkf_communicator** communicators);
/// Programs and decoders that were made with it keep what they need.
VKF_API void vkf_communicator_destroy(vkf_communicator* communicator);
VKF_API vkf_result vkf_communicator_rank(const vkf_communicator* communicator, uint32_t* rank, uint32_t* ranks);
VKF_API vkf_result vkf_communicator_limit(vkf_communicator* communicator, double seconds);
VKF_API vkf_result vkf_communicator_all_reduce(vkf_communicator* communicator, float* x, uint64_t count);
/// `bytes` has a number for each rank.
VKF_API vkf_result vkf_communicator_all_gather(vkf_communicator* communicator, void* all, const uint64_t* bytes);
VKF_API vkf_result vkf_communicator_broadcast(vkf_communicator* communicator, void* data, uint64_t bytes,
                                              uint32_t from);
/// Waits up to `share` of the limit; 0: all of it.
VKF_API vkf_result vkf_communicator_send(vkf_communicator* communicator, const void* data, uint64_t bytes, uint32_t to,
                                         double share);
VKF_API vkf_result vkf_communicator_receive(vkf_communicator* communicator, void* data, uint64_t bytes, uint32_t from,
                                            double share);
VKF_API vkf_result vkf_communicator_meet(vkf_communicator* communicator, double seconds);
VKF_API vkf_result vkf_communicator_agree(vkf_communicator* communicator, const char* what, const char* text);

/// C++: Traffic.
typedef struct vkf_traffic {
    uint32_t struct_size;
    uint32_t reserved;
    uint64_t all_reduces, all_gathers, broadcasts;
    uint64_t all_reduce_elements;
    uint64_t bytes;
    uint64_t sends;
} vkf_traffic;
VKF_API vkf_result vkf_communicator_traffic(const vkf_communicator* communicator, vkf_traffic* traffic);

/// C++: Part.
typedef struct vkf_part {
    int64_t first, count;
} vkf_part;

/// `speeds` has one for each rank; null: alike.
VKF_API vkf_result vkf_graph_set_rank(vkf_graph* graph, uint32_t rank, uint32_t ranks, const double* speeds);
/// Graph::weight() with a Shard: `rank` and `shape` are those of this rank's part.
VKF_API vkf_result vkf_graph_weight_shard(vkf_graph* graph, const char* name, uint32_t rank, const vkf_dim* shape,
                                          uint32_t dim, int64_t whole, uint32_t part_count, const vkf_part* parts,
                                          vkf_value* value);
VKF_API vkf_result vkf_all_reduce(vkf_value x, vkf_value* y);
/// `columns` and `parts` have one for each of the graph's ranks.
VKF_API vkf_result vkf_all_gather(vkf_value x, uint32_t ranks, const int64_t* columns, vkf_value* parts);
VKF_API vkf_result vkf_broadcast(vkf_value x, uint32_t from, vkf_value* y);

/// C++: ColumnParallelLinearOptions.
typedef struct vkf_column_parallel_linear_options {
    uint32_t struct_size;
    bool bias, gather_output;
    uint8_t reserved[2];
    vkf_activation activation;
} vkf_column_parallel_linear_options;

/// C++: RowParallelLinearOptions.
typedef struct vkf_row_parallel_linear_options {
    uint32_t struct_size;
    bool bias, input_is_parallel;
    uint8_t reserved[2];
} vkf_row_parallel_linear_options;

VKF_API vkf_result vkf_column_parallel_linear(vkf_value x, const char* name, int64_t out,
                                              const vkf_column_parallel_linear_options* options, vkf_value* y);
VKF_API vkf_result vkf_row_parallel_linear(vkf_value x, const char* name, int64_t in, int64_t out,
                                           const vkf_row_parallel_linear_options* options, vkf_value* y);
VKF_API vkf_result vkf_vocab_parallel_embedding(vkf_value ids, const char* name, int64_t vocabulary, int64_t width,
                                                float scale, vkf_value* y);

// --- models: models/decoder.h, models/sampler.h, models/text_encoder.h ---------------------------

/// Some ids of tokens.
typedef struct vkf_tokens {
    const int32_t* ids;
    uint64_t count;
} vkf_tokens;

/// C++: Split.
enum { VKF_SPLIT_TENSOR, VKF_SPLIT_LAYERS };

/// C++: DecoderOptions.
typedef struct vkf_decoder_options {
    uint32_t struct_size;
    vkf_weight_type kv;   ///< VKF_WEIGHT_AS_GIVEN: f32
    uint32_t arithmetic;  ///< VKF_ARITHMETIC_...
    bool score, profile;
    uint8_t split;  ///< VKF_SPLIT_...
    uint8_t reserved;
    int64_t max_batch;   ///< 0: 1
    int64_t max_tokens;  ///< 0: what the model was trained for
    int64_t chunk;       ///< 0: 256
    int64_t candidates;
    /// Called after each chunk of a prompt with the tokens read and those in all, when set.
    void (*progress)(void* user, uint64_t done, uint64_t all);
    void* user;
    const vkf_lora_options* lora;          ///< room for vkf_decoder_set_adapter()'s; null: none
    const vkf_communicator* communicator;  ///< null: this decoder alone
    const double* speeds;                  ///< one for each rank, one alone without; null: alike
} vkf_decoder_options;

/// C++: DecoderFacts.
typedef struct vkf_decoder_facts {
    uint32_t struct_size;
    bool has_begin;     ///< `begin` begins a text
    bool begins_texts;  ///< the model was trained with it before every text
    uint8_t reserved[2];
    int32_t begin;
    uint32_t reserved2;
    int64_t vocab_size, max_positions;
    const char* model_type;  ///< as config.json says; lives as long as the decoder
    int64_t width;           ///< of the hidden states between layers
} vkf_decoder_facts;

/// C++: ModelMemory.
typedef struct vkf_model_memory {
    uint32_t struct_size;
    uint32_t reserved;
    uint64_t weights, cache, scratch, constants, transfers;
    uint64_t total;
} vkf_model_memory;

/// DecoderPlan::memory(): the bytes that a decoder of vkf_decoder_create() with the same arguments
/// will take, exact: weights and caches when it is made, the rest at the first prompt, step and
/// score. Loading takes some more for a while. Reads what the files say of their tensors, and no
/// weight.
VKF_API vkf_result vkf_decoder_memory(const vkf_device* device, const char* folder, const vkf_load_options* load,
                                      const vkf_decoder_options* options, vkf_model_memory* memory);
/// Loads a Hugging Face folder and compiles its decoder: Checkpoint, read_decoder(), DecoderPlan,
/// load_decoder() and Decoder. The member `graph` of `load` is ignored, and `choose` gets matrices
/// under the graph's names, whose data is null.
VKF_API vkf_result vkf_decoder_create(vkf_device* device, const char* folder, const vkf_load_options* load,
                                      const vkf_decoder_options* options, vkf_decoder** decoder);
/// Compiles the decoder of a folder as vkf_decoder_create() does, with weights of
/// vkf_weights_load_decoder(), which several decoders may share. No tensor of the folder is read.
VKF_API vkf_result vkf_decoder_create_with_weights(vkf_device* device, const char* folder, const vkf_weights* weights,
                                                   const vkf_decoder_options* options, vkf_decoder** decoder);
VKF_API void vkf_decoder_destroy(vkf_decoder* decoder);
/// Writes a folder with the matrices packed as `load` says: save_decoder(). Its progress is called
/// with the bytes written and the bytes in all. VKF_PACK_ON_DEVICE is an error; `graph` and
/// `choose` are as for vkf_decoder_create().
VKF_API vkf_result vkf_decoder_save(const char* from, const char* to, const vkf_load_options* load);
VKF_API vkf_result vkf_decoder_get(const vkf_decoder* decoder, vkf_decoder_facts* facts);
/// The ids that end a text: there must be room for all. `count` may be null, as in what follows.
VKF_API vkf_result vkf_decoder_end_tokens(const vkf_decoder* decoder, int32_t* ids, uint64_t capacity, uint64_t* count);
/// DecoderFacts::not_obeyed: fields of generation_config.json, a line each.
VKF_API vkf_result vkf_decoder_not_obeyed(const vkf_decoder* decoder, char* text, size_t capacity, size_t* needed);
/// One prompt a sequence.
VKF_API vkf_result vkf_decoder_prompt(vkf_decoder* decoder, uint32_t count, const vkf_tokens* prompts);
/// Reads more tokens of each sequence behind what the cache holds: (batch, count), row-major.
VKF_API vkf_result vkf_decoder_append(vkf_decoder* decoder, const vkf_tokens* tokens);
/// One more token of each sequence.
VKF_API vkf_result vkf_decoder_step(vkf_decoder* decoder, const vkf_tokens* tokens);
/// The likeliest next token of each sequence.
VKF_API vkf_result vkf_decoder_next(const vkf_decoder* decoder, int32_t* ids, uint64_t capacity, uint64_t* count);
/// The likeliest of one sequence, as many as vkf_decoder_options::candidates, and their logits.
VKF_API vkf_result vkf_decoder_candidates(const vkf_decoder* decoder, uint64_t sequence, int32_t* ids, float* logits,
                                          uint64_t capacity, uint64_t* count);
VKF_API vkf_result vkf_decoder_room(const vkf_decoder* decoder, int64_t* tokens);
/// Takes in the adapter of a folder, in place of the one before; needs vkf_decoder_options::lora.
/// What the cache holds is forgotten.
VKF_API vkf_result vkf_decoder_set_adapter(vkf_decoder* decoder, const char* folder);
VKF_API vkf_result vkf_decoder_clear_adapter(vkf_decoder* decoder);
/// Writes what the cache holds to a file, whole or not at all.
VKF_API vkf_result vkf_decoder_save_cache(const vkf_decoder* decoder, const char* path);
/// Goes on from such a file as the decoder that wrote it would, with the same bits where
/// max_tokens and chunk were the same. A file that does not fit is refused, and changes nothing.
VKF_API vkf_result vkf_decoder_restore_cache(vkf_decoder* decoder, const char* path);
/// Logits (tokens, vocabulary) after each token of a text; needs vkf_decoder_options::score.
VKF_API vkf_result vkf_decoder_score(vkf_decoder* decoder, const vkf_tokens* tokens, float* logits, uint64_t capacity,
                                     uint64_t* count);
/// The programs that read a prompt and make a step, to be looked at: vkf_program_explain(),
/// vkf_program_times(), vkf_program_memory() and the like. They are the decoder's own, live as long
/// as it does, and are not to be destroyed.
VKF_API vkf_result vkf_decoder_prompt_program(const vkf_decoder* decoder, const vkf_program** program);
VKF_API vkf_result vkf_decoder_step_program(const vkf_decoder* decoder, const vkf_program** program);
/// decoder_logits(): describes the decoder of a folder, of which only config.json is read.
VKF_API vkf_result vkf_decoder_logits(vkf_value tokens, const char* folder, vkf_value* logits);

/// Adapter::write(): writes the adapter of a folder into the states of a vkf_lora.
VKF_API vkf_result vkf_adapter_write(const char* folder, vkf_state* state);
VKF_API vkf_result vkf_adapter_clear(vkf_state* state);
/// save_adapter(). `options` are those of vkf_lora_create(); `base` is what the files call the
/// model, null: nothing.
VKF_API vkf_result vkf_adapter_save(const char* folder, const vkf_state* state, const vkf_lora_options* options,
                                    const char* base);
/// merge_adapter(): writes a folder with the model of `from` and the adapter of the folder
/// `adapter` in its matrices.
VKF_API vkf_result vkf_adapter_merge(const char* from, const char* to, const char* adapter);

/// C++: EncoderDecoderConfig. Vocabularies, max_source and max_target are needed.
typedef struct vkf_encoder_decoder_config {
    uint32_t struct_size;
    vkf_activation activation;  ///< 0: relu
    bool norm_first;
    uint8_t reserved[3];
    float layer_norm_eps;   ///< 0: 1e-5
    float embedding_scale;  ///< 0: 1
    uint32_t reserved2;
    int64_t source_vocabulary, target_vocabulary;
    int64_t max_source, max_target;
    int64_t d_model, nhead;                          ///< 0: 512, 8
    int64_t num_encoder_layers, num_decoder_layers;  ///< 0: 6
    int64_t dim_feedforward;                         ///< 0: 2048
} vkf_encoder_decoder_config;

VKF_API vkf_result vkf_encoder_decoder_create(vkf_device* device, const vkf_weights* weights,
                                              const vkf_encoder_decoder_config* config, int64_t max_batch,
                                              vkf_encoder_decoder** model);
/// Loads the weights itself, and compiles while they upload. The member `graph` of `load` is
/// ignored.
VKF_API vkf_result vkf_encoder_decoder_load(vkf_device* device, uint32_t count, const vkf_tensor* tensors,
                                            const vkf_load_options* load, const vkf_encoder_decoder_config* config,
                                            int64_t max_batch, vkf_encoder_decoder** model);
/// Loads the tensors of a safetensors file.
VKF_API vkf_result vkf_encoder_decoder_load_file(vkf_device* device, const char* path, const vkf_load_options* load,
                                                 const vkf_encoder_decoder_config* config, int64_t max_batch,
                                                 vkf_encoder_decoder** model);
/// The bytes of device memory that it takes.
VKF_API vkf_result vkf_encoder_decoder_memory(const vkf_encoder_decoder* model, vkf_model_memory* memory);
VKF_API void vkf_encoder_decoder_destroy(vkf_encoder_decoder* model);
/// EncoderDecoder::generate(); the next two functions return what it found. Fails where a logit is
/// not finite.
VKF_API vkf_result vkf_encoder_decoder_generate(vkf_encoder_decoder* model, uint32_t count, const vkf_tokens* sources,
                                                int32_t sos, int32_t eos, int32_t pad);
/// The tokens that the last call found for one source. `capacity` must have room for all. `count`
/// may be null.
VKF_API vkf_result vkf_encoder_decoder_tokens(const vkf_encoder_decoder* model, uint64_t source, int32_t* ids,
                                              uint64_t capacity, uint64_t* count);
/// The cross-attention weights of these tokens: (heads, tokens, source).
VKF_API vkf_result vkf_encoder_decoder_cross_attention(const vkf_encoder_decoder* model, uint64_t source,
                                                       float* weights, uint64_t capacity, uint64_t* count);
/// The model's own programs, to be looked at as vkf_decoder_prompt_program().
VKF_API vkf_result vkf_encoder_decoder_encoder(const vkf_encoder_decoder* model, const vkf_program** program);
VKF_API vkf_result vkf_encoder_decoder_decoder(const vkf_encoder_decoder* model, const vkf_program** program);

/// C++: SamplerOptions. Zeros, or a null pointer, choose the likeliest.
typedef struct vkf_sampler_options {
    uint32_t struct_size;
    float temperature;  ///< 0: always the likeliest
    float top_p;        ///< 0: 1
    uint32_t reserved;
    int64_t top_k;  ///< 0: 50
    uint64_t seed;
} vkf_sampler_options;

VKF_API vkf_result vkf_sampler_create(const vkf_sampler_options* options, vkf_sampler** sampler);
VKF_API void vkf_sampler_destroy(vkf_sampler* sampler);
/// Chooses among a decoder's candidates for a sequence.
VKF_API vkf_result vkf_sampler_choose(vkf_sampler* sampler, const vkf_decoder* decoder, uint64_t sequence, int32_t* id);

/// C++: TextEncoderOptions.
typedef struct vkf_text_encoder_options {
    uint32_t struct_size;
    uint32_t arithmetic;  ///< VKF_ARITHMETIC_...
    int64_t max_batch;    ///< 0: 8
    int64_t max_tokens;   ///< 0: what the model was trained for
} vkf_text_encoder_options;

/// C++: EncoderFacts.
typedef struct vkf_encoder_facts {
    uint32_t struct_size;
    bool lower_case;  ///< sentence-transformers makes lower case of a text before it is encoded
    uint8_t reserved[3];
    int64_t vocab_size, hidden_size;
    int64_t max_tokens;      ///< most tokens of a text
    const char* model_type;  ///< as config.json says; lives as long as the encoder
    int64_t cut_tokens;      ///< tokens that it cuts a text to, special ones included; 0: not told
} vkf_encoder_facts;

/// Loads a Hugging Face folder and compiles its encoder. `load` is as of
/// vkf_weights_load_text_encoder().
VKF_API vkf_result vkf_text_encoder_create(vkf_device* device, const char* folder, const vkf_load_options* load,
                                           const vkf_text_encoder_options* options, vkf_text_encoder** encoder);
/// Compiles the encoder of a folder as vkf_text_encoder_create() does, with weights of
/// vkf_weights_load_text_encoder(), which several encoders may share. No tensor of the folder is
/// read.
VKF_API vkf_result vkf_text_encoder_create_with_weights(vkf_device* device, const char* folder,
                                                        const vkf_weights* weights,
                                                        const vkf_text_encoder_options* options,
                                                        vkf_text_encoder** encoder);
/// The bytes of device memory that it takes.
VKF_API vkf_result vkf_text_encoder_memory(const vkf_text_encoder* encoder, vkf_model_memory* memory);
VKF_API void vkf_text_encoder_destroy(vkf_text_encoder* encoder);
VKF_API vkf_result vkf_text_encoder_get(const vkf_text_encoder* encoder, vkf_encoder_facts* facts);
/// The encoder's own program, to be looked at as vkf_decoder_prompt_program().
VKF_API vkf_result vkf_text_encoder_program(const vkf_text_encoder* encoder, const vkf_program** program);
/// Writes for each text a vector of hidden_size numbers, scaled to length 1; the vectors lie behind
/// each other. Fails where one is not finite.
VKF_API vkf_result vkf_text_encoder_embed(vkf_text_encoder* encoder, uint32_t count, const vkf_tokens* texts,
                                          float* vectors, uint64_t capacity, uint64_t* numbers);

// --- training steps: train/trainer.h, train/fine_tuner.h -----------------------------------------

/// C++: TrainerOptions.
typedef struct vkf_trainer_options {
    uint32_t struct_size;
    uint32_t arithmetic;     ///< VKF_ARITHMETIC_...
    const vkf_adamw* adamw;  ///< null, as `sgd` is: AdamW with its defaults
    const vkf_sgd* sgd;      ///< null: AdamW
    vkf_schedule schedule;
    float max_norm, loss_scale;
    /// Gives the number that weight decay draws a parameter to; called while the trainer is made.
    /// Null: 0.
    float (*decay_to)(void* user, const char* name);
    void* user;
    bool accumulates, profile;
    uint8_t reserved[6];
    const vkf_communicator* communicator;  ///< ranks that each have a part of the batch; null: none
} vkf_trainer_options;

/// C++: TrainingStep.
typedef struct vkf_training_step {
    uint32_t struct_size;
    bool left_out;
    float loss, grad_norm;
} vkf_training_step;

/// Adds to the graph of the loss what a step needs, and compiles it. Where it fails the graph is as
/// it was. `weights` may be null.
VKF_API vkf_result vkf_trainer_create(vkf_device* device, vkf_graph* graph, vkf_value loss, uint32_t count,
                                      const vkf_value* parameters, const vkf_trainer_options* options,
                                      const vkf_weights* weights, vkf_trainer** trainer);
/// A fine-tuner's own trainer is left as it is, which is an error.
VKF_API void vkf_trainer_destroy(vkf_trainer* trainer);
/// The trainer's own program and state, which live as long as it does, and are not to be destroyed.
/// Sizes and inputs are given to the program before a step, and numbers to the parameters before
/// the first.
VKF_API vkf_result vkf_trainer_program(vkf_trainer* trainer, vkf_program** program);
VKF_API vkf_result vkf_trainer_state(vkf_trainer* trainer, vkf_state** state);
/// Gives the names of the parameters; they live as long as the trainer.
VKF_API vkf_result vkf_trainer_parameters(const vkf_trainer* trainer, const char* const** names, uint32_t* count);
/// The number of the next step, from 0.
VKF_API vkf_result vkf_trainer_step(const vkf_trainer* trainer, int64_t* number);
VKF_API vkf_result vkf_trainer_take_step(vkf_trainer* trainer, float weight, vkf_training_step* taken);
VKF_API vkf_result vkf_trainer_accumulate(vkf_trainer* trainer, float weight, float* loss);
/// Forgets what vkf_trainer_accumulate() has kept: the step begins anew.
VKF_API vkf_result vkf_trainer_drop_micro_batches(vkf_trainer* trainer);
VKF_API vkf_result vkf_trainer_save(vkf_trainer* trainer, const char* path);
VKF_API vkf_result vkf_trainer_resume(vkf_trainer* trainer, const char* path);

/// C++: FineTuneOptions. Of `trainer` a null decay_to is what suits the files.
typedef struct vkf_fine_tune_options {
    uint32_t struct_size;
    uint32_t reserved;
    int64_t max_batch;             ///< 0: 1
    int64_t micro_batch;           ///< 0: all texts of a step
    int64_t max_tokens;            ///< 0: what the model was trained for
    const vkf_lora_options* lora;  ///< null: all parameters are trained
    const vkf_load_options* load;  ///< null: all defaults
    uint64_t seed;
    const vkf_trainer_options* trainer;  ///< null: all defaults
} vkf_fine_tune_options;

/// Loads a Hugging Face folder and compiles the step. The member `graph` of `load` is ignored.
VKF_API vkf_result vkf_fine_tuner_create(vkf_device* device, const char* folder, const vkf_fine_tune_options* options,
                                         vkf_fine_tuner** tuner);
VKF_API void vkf_fine_tuner_destroy(vkf_fine_tuner* tuner);
VKF_API vkf_result vkf_fine_tuner_take_step(vkf_fine_tuner* tuner, uint32_t count, const vkf_tokens* texts,
                                            vkf_training_step* taken);
/// The fine-tuner's own trainer, which lives as long as it does, and is not to be destroyed.
VKF_API vkf_result vkf_fine_tuner_trainer(vkf_fine_tuner* tuner, vkf_trainer** trainer);
VKF_API vkf_result vkf_fine_tuner_save(const vkf_fine_tuner* tuner, const char* folder);

#ifdef __cplusplus
}
#endif

#endif
