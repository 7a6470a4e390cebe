// SPDX-License-Identifier: Apache-2.0
// Fused attention at record time: push constants and group counts for the sizes of a run.
#include "ops/attention_choice.h"
#include "ops/dropout.h"
#include "ops/pushed_mask.h"
#include "shaders/attention.h"
#include "shaders/attention_mask.h"
#include "shaders/attention_merge.h"

namespace vkf {

namespace {

using namespace shader;
using namespace support;

uint keys_of(const Operands& operands, const View& key, const View& pages) {
    const auto& params = operands.params<AttentionParams>();
    return params.ring         ? static_cast<uint>(operands.value(params.ring->count))
           : params.pages >= 0 ? pages.dim(0) * key.dim(1)
                               : key.dim(1);
}

}  // namespace

void prepare_attention(const Operands& operands, Command& command) noexcept {
    const auto& params = operands.params<AttentionParams>();
    const View& q = operands[kAttentionBindingQuery];
    const View& k = operands[kAttentionBindingKey];
    const View& v = operands[kAttentionBindingValue];
    const View& y = operands[kAttentionBindingOut];
    const View& pages = operands[params.full ? kAttentionBindingPages : kAttentionBindingKey];
    const bool packed = params.cumulative_queries >= 0;
    AttentionPush push{};
    push.head_dim = q.dim(0);
    push.value_dim = y.dim(0);
    push.queries = q.dim(1);
    push.keys = keys_of(operands, k, pages);
    push.kv_heads = k.dim(2);
    push.sequences = packed ? operands[kAttentionBindingSequences].dim(1) : 0;
    push.q_batch = packed ? 0 : q.step(3);
    push.q_head = q.step(2);
    push.q_row = q.step(1);
    push.q_offset = q.offset;
    push.k_head = k.step(2);
    push.k_row = k.step(1);
    push.k_offset = k.offset;
    push.v_head = v.step(2);
    push.v_row = v.step(1);
    push.v_offset = v.offset;
    push.o_batch = packed ? 0 : y.step(3);
    push.o_row = y.step(1);
    push.o_offset = y.offset;
    push.scale = params.scale;
    push.softcap = params.softcap;
    push.window = pushed_window(params.window, push.queries, push.keys);
    if (params.pages >= 0) {
        push.pages = k.dim(3);
        push.k_page = k.step(3);
        push.v_page = v.step(3);
    } else if (!packed) {
        push.k_batch = k.step(3);
        push.v_batch = v.step(3);
    }
    if (params.ring) {
        push.ring_rows = k.dim(1);
        push.ring_first = static_cast<uint>(operands.value(params.ring->first));
    }
    push.seed = seed_of(operands, params.dropout_seed);

    const std::uint64_t rows = std::uint64_t{push.queries} * params.group;
    // the first whose tile holds all rows, else the largest
    std::size_t kernel = kAttentionKernelRows;
    while (kernel + 1 < operands.words.size() && rows > operands.words[kernel]) {
        ++kernel;
    }
    const std::uint64_t tiles = divide_up(rows, operands.words[kernel]) + push.sequences;
    const std::uint64_t slices = divide_up(y.dim(0), operands.words[kAttentionSliceColumns]);
    const uint split = attention_split_keys(operands.words[kAttentionSplitKeys], push.queries, push.keys);
    const std::uint64_t splits = split == 0 ? 1 : divide_up(push.keys, split);
    command.kernel(static_cast<uint>(kernel - kAttentionKernelRows));
    command.push(push);
    command.groups(y.elements() == 0 ? 0 : tiles * slices * splits * push.kv_heads * (packed ? 1 : q.size[1]));
    const double heads = static_cast<double>(q.dim(2)) * q.size[1];
    const double causal = params.causal == Causal::none ? 1.0 : 0.5;
    const double scores = heads * push.queries * push.keys * causal;
    // share of the ring
    const double there = params.ring ? static_cast<double>(push.keys) / k.dim(1) : 1.0;
    command.cost(scores * (2.0 * (q.dim(0) + y.dim(0)) + 20),
                 4.0 * (static_cast<double>(q.elements()) + there * static_cast<double>(k.elements()) +
                        there * static_cast<double>(v.elements()) + static_cast<double>(y.elements())));
}

void prepare_splits_merge(const Operands& operands, Command& command) noexcept {
    const auto& params = operands.params<AttentionParams>();
    const View& y = operands[kMergeBindingOut];
    const View& k = operands[3];
    const View& pages = operands[4];
    AttentionMergePush push{};
    push.queries = y.dim(1);
    const uint keys = keys_of(operands, k, pages);
    const uint split = attention_split_keys(operands.words[0], push.queries, keys);
    push.count = static_cast<uint>(y.elements());
    push.splits = split == 0 ? 1 : static_cast<uint>(divide_up(keys, split));
    push.width = y.dim(0);
    push.kv_heads = k.dim(2);
    push.group = params.group;
    push.o_batch = y.step(3);
    push.o_head = y.step(2);
    push.o_row = y.step(1);
    push.o_offset = y.offset;
    push.keep_scale = dropout_scale(params.dropout);
    command.push(push);
    command.groups(split == 0 ? 0 : divide_up(push.count, 64));
    command.cost(static_cast<double>(push.count) * push.splits * 4, static_cast<double>(push.count) * push.splits * 8);
}

void prepare_mask_bits(const Operands& operands, Command& command) noexcept {
    const auto& params = operands.params<AttentionParams>();
    const View& mask = operands[kPackMaskBindingMask];
    AttentionMaskPush push{};
    push.keys = mask.dim(0);
    push.words = static_cast<uint>(divide_up(push.keys, 32));
    for (std::size_t i = 0; i < 3; ++i) {
        push.size[i] = mask.size[i + 1];
    }
    for (std::size_t i = 0; i < 4; ++i) {
        push.stride[i] = mask.stride[i + 1];
    }
    push.offset = mask.offset;
    push.flip = params.polarity == Polarity::ignore ? 1 : 0;
    push.count = push.words * push.size[0] * push.size[1] * push.size[2];
    command.push(push);
    command.groups(divide_up(push.count, 64));
    command.cost(static_cast<double>(mask.elements()) * 4, static_cast<double>(mask.elements()) * 4);
}

}  // namespace vkf
