// SPDX-License-Identifier: Apache-2.0
#include "c/border.h"

#include <algorithm>
#include <array>
#include <cstdarg>
#include <cstdio>
#include <new>
#include <string_view>

#include "runtime/base/text.h"
#include "vkformer/vkformer.h"

namespace vkf::c {

namespace {

thread_local char last_error[1024];

constexpr std::array kDTypes = {DType::f32, DType::i32, DType::f64, DType::f16, DType::bf16,
                                DType::i64, DType::i16, DType::i8,  DType::u8,  DType::boolean};
constexpr std::array kActivations = {Activation::none, Activation::relu, Activation::gelu,    Activation::gelu_tanh,
                                     Activation::silu, Activation::tanh, Activation::sigmoid, Activation::rsqrt};
constexpr std::array kWeightTypes = {WeightType::f32,  // as given, which is not looked up
                                     WeightType::f32,  WeightType::f16, WeightType::bf16,
                                     WeightType::int8, WeightType::int4};
static_assert(kDTypes.size() == VKF_BOOL + 1 && kActivations.size() == VKF_RSQRT + 1);
static_assert(kWeightTypes.size() == VKF_WEIGHT_INT4 + 1);
static_assert(VKF_MAX_RANK == kMaxRank);

/// Nothing but members, so that one more makes every struct larger.
#define VKF_ENDS_WITH(type, member) \
    static_assert(sizeof(type) == offsetof(type, member) + sizeof(type::member), "padding at the end of " #type)
#if defined(__LP64__) || defined(_WIN64)
VKF_ENDS_WITH(vkf_mask, window);
VKF_ENDS_WITH(vkf_matmul_options, masked_gradient);
VKF_ENDS_WITH(vkf_softmax_options, sinks);
VKF_ENDS_WITH(vkf_update_options, decay_to);
VKF_ENDS_WITH(vkf_sgd, weight_decay);
VKF_ENDS_WITH(vkf_adamw, reserved);
VKF_ENDS_WITH(vkf_rope_options, original_max_positions);
VKF_ENDS_WITH(vkf_attention, log_sum_exp);
VKF_ENDS_WITH(vkf_ring_rows, count);
VKF_ENDS_WITH(vkf_kv_cache, seen);
VKF_ENDS_WITH(vkf_cached_kv, value);
VKF_ENDS_WITH(vkf_attention_options, key_lengths);
VKF_ENDS_WITH(vkf_multi_head_attention_options, mask);
VKF_ENDS_WITH(vkf_grouped_query_attention_options, reserved);
VKF_ENDS_WITH(vkf_cross_entropy_options, ignore_index);
VKF_ENDS_WITH(vkf_self_attention_options, mask);
VKF_ENDS_WITH(vkf_incremental_attention_options, mask);
VKF_ENDS_WITH(vkf_score_options, hidden);
VKF_ENDS_WITH(vkf_paged_kv_cache, lengths);
VKF_ENDS_WITH(vkf_transformer_options, num_decoder_layers);
VKF_ENDS_WITH(vkf_lora_options, adapter);
VKF_ENDS_WITH(vkf_transformer_masks, memory_key_padding_mask);
VKF_ENDS_WITH(vkf_torch_attention_options, memory);
VKF_ENDS_WITH(vkf_transformer_layer_options, dropout_seed);
VKF_ENDS_WITH(vkf_decoder_inputs, projected_memory);
VKF_ENDS_WITH(vkf_capabilities, texel_buffers);
VKF_ENDS_WITH(vkf_device_options, leave_out);
VKF_ENDS_WITH(vkf_self_test_options, reserved);
VKF_ENDS_WITH(vkf_borrowed_device, memory_user);
VKF_ENDS_WITH(vkf_requirement, buys);
VKF_ENDS_WITH(vkf_staging_range, mapped);
VKF_ENDS_WITH(vkf_load_options, reserved);
VKF_ENDS_WITH(vkf_stored_tensor, bytes);
VKF_ENDS_WITH(vkf_arithmetic_use, reserved2);
VKF_ENDS_WITH(vkf_fp32_reason, reason);
VKF_ENDS_WITH(vkf_dispatch_time, bytes);
VKF_ENDS_WITH(vkf_compile_options, communicator);
VKF_ENDS_WITH(vkf_memory_sizes, exchanged);
VKF_ENDS_WITH(vkf_device_memory, used);
VKF_ENDS_WITH(vkf_buffer_range, buffer_device);
VKF_ENDS_WITH(vkf_image_view, height);
VKF_ENDS_WITH(vkf_recording, sizes);
VKF_ENDS_WITH(vkf_segment, done);
VKF_ENDS_WITH(vkf_decoder_options, speeds);
VKF_ENDS_WITH(vkf_decoder_facts, width);
VKF_ENDS_WITH(vkf_model_memory, total);
VKF_ENDS_WITH(vkf_encoder_decoder_config, dim_feedforward);
VKF_ENDS_WITH(vkf_sampler_options, seed);
VKF_ENDS_WITH(vkf_text_encoder_options, max_tokens);
VKF_ENDS_WITH(vkf_encoder_facts, cut_tokens);
VKF_ENDS_WITH(vkf_trainer_options, communicator);
VKF_ENDS_WITH(vkf_training_step, grad_norm);
VKF_ENDS_WITH(vkf_fine_tune_options, trainer);
#endif
VKF_ENDS_WITH(vkf_traffic, sends);
VKF_ENDS_WITH(vkf_column_parallel_linear_options, activation);
VKF_ENDS_WITH(vkf_row_parallel_linear_options, reserved);

#undef VKF_ENDS_WITH

/// How much of a text that was cut here is whole characters of UTF-8; other bytes count as they
/// are.
std::size_t whole_characters(const char* text, std::size_t length) noexcept {
    constexpr std::size_t kMostBytes = 4;
    std::size_t begin = length;
    while (begin > 0 && length - begin < kMostBytes && (text[begin - 1] & 0xC0) == 0x80) {
        --begin;
    }
    if (begin == 0) {
        return length;
    }
    const unsigned first = static_cast<unsigned char>(text[begin - 1]);
    const std::size_t bytes = first >= 0xF0 ? 4 : first >= 0xE0 ? 3 : first >= 0xC0 ? 2 : 1;
    return length - begin + 1 < bytes ? begin - 1 : length;
}

/// As fail(), with a text of any length.
vkf_result fail_saying(vkf_result result, const char* function, std::string_view text) noexcept {
    constexpr std::size_t kRoom = sizeof(last_error) - 1;
    std::size_t at = std::string_view(function).copy(last_error, kRoom - 2);
    at += std::string_view(": ").copy(last_error + at, 2);
    last_error[at + copy_cut(text, last_error + at, kRoom - at)] = 0;
    return result;
}

}  // namespace

vkf_result fail(vkf_result result, const char* format, ...) noexcept {
    std::array<char, 4096> text{};
    std::va_list arguments;
    va_start(arguments, format);
    const int whole = std::vsnprintf(text.data(), text.size(), format, arguments);
    va_end(arguments);
    const std::size_t length = whole < 0 ? 0 : std::min(static_cast<std::size_t>(whole), text.size() - 1);
    last_error[copy_cut({text.data(), length}, last_error, sizeof(last_error) - 1)] = 0;
    return result;
}

vkf_result fail_by_exception(const char* function) noexcept {
    try {
        throw;
    } catch (const Missing& m) {
        return fail(VKF_ERROR, "%s: %s is null", function, m.what);
    } catch (const Error& e) {
        return fail_saying(or_default<vkf_result>(e.result(), VKF_ERROR), function, e.what());
    } catch (const std::bad_alloc&) {
        return fail(VKF_ERROR_OUT_OF_HOST_MEMORY, "%s: host memory does not suffice", function);
    } catch (const std::exception& e) {
        return fail_saying(VKF_ERROR, function, e.what());
    } catch (...) {
        return fail(VKF_ERROR, "%s: an exception of unknown type", function);
    }
}

vkf_result result_of(const Status& status) noexcept {
    if (status) {
        return VKF_OK;
    }
    return fail(status.result == Status::kWrongUse ? VKF_ERROR : status.result, "%s", status.message.data());
}

void give_text(const std::string& from, char* to, std::size_t capacity, std::size_t* needed) {
    if (capacity != 0) {
        const std::size_t length = capacity > from.size() ? from.size() : whole_characters(from.data(), capacity - 1);
        std::memcpy(&need(to, "the text"), from.data(), length);
        to[length] = 0;
    }
    if (needed) {
        *needed = from.size();
    }
}

DType dtype_of(vkf_dtype dtype) { return pick(kDTypes, dtype, "dtype"); }
vkf_dtype dtype_to_c(DType dtype) {
    return static_cast<vkf_dtype>(std::find(kDTypes.begin(), kDTypes.end(), dtype) - kDTypes.begin());
}
Activation activation_of(vkf_activation activation) { return pick(kActivations, activation, "activation"); }
std::optional<WeightType> weight_type_of(vkf_weight_type type) {
    if (type == VKF_WEIGHT_AS_GIVEN) {
        return std::nullopt;
    }
    return pick(kWeightTypes, type, "weight type");
}

vkf_weight_type weight_type_to_c(WeightType type) {
    const auto* first = kWeightTypes.begin() + 1;
    return static_cast<vkf_weight_type>(std::find(first, kWeightTypes.end(), type) - kWeightTypes.begin());
}

void give_tensors(const WeightLayout& layout, vkf_stored_tensor* tensors, std::uint32_t* count) {
    const std::vector<StoredTensor>& all = layout.tensors();
    give_list(all.size(), tensors, count, [&](std::size_t i) {
        const StoredTensor& t = all[i];
        const auto rank = static_cast<std::uint32_t>(t.shape.size());
        return vkf_stored_tensor{0, dtype_to_c(t.dtype), weight_type_to_c(t.type), rank,     t.block,
                                 0, t.name.c_str(),      t.shape.data(),           t.offset, t.bytes};
    });
}

}  // namespace vkf::c

using namespace vkf::c;

std::uint32_t vkf_c_api_version(void) { return VKF_C_API_VERSION; }
const char* vkf_version(void) { return VKFORMER_VERSION; }
const char* vkf_last_error(void) { return last_error; }
