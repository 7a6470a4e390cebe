// SPDX-License-Identifier: Apache-2.0
// How fused attention is lowered: kernels, tiles, splits, and what it prepares for them.
#include "shaders/attention.h"

#include <bit>

#include "attention_lanes.glsl.h"
#include "attention_lanes.spv.h"
#include "attention_merge.spv.h"
#include "attention_shared.glsl.h"
#include "attention_shared.spv.h"
#include "attention_shared_full.spv.h"
#include "ops/add_op.h"
#include "ops/attention_choice.h"
#include "ops/attention_gradient.h"
#include "ops/attention_operands.h"
#include "ops/checks.h"
#include "ops/dropout.h"
#include "ops/elementwise.h"
#include "ops/fours.h"
#include "ops/lanes.h"
#include "ops/left_out.h"
#include "ops/packed_rows.h"
#include "ops/pushed_mask.h"
#include "ops/sequence_table.h"
#include "ops/tuned.h"
#include "ops/variants.h"
#include "runtime/compile/pack_lanes.h"
#include "shaders/attention_merge.h"
#include "shaders/attention_shared.h"

namespace vkf {

namespace {

using namespace shader;
using namespace support;

const Shader kLanes4{"attention_lanes4", spirv::kAttentionLanesSpirv};
const Shader kLanes8{"attention_lanes8", spirv::kAttentionLanesSpirv};
const Shader kLanes8Wide{"attention_lanes8_wide", spirv::kAttentionLanesSpirv, kWideLoads};
const Shader kShared{"attention_shared", spirv::kAttentionSharedSpirv};
const Shader kSharedFull{"attention_shared_full", spirv::kAttentionSharedFullSpirv};
const Shader kMerge{"attention_merge", spirv::kAttentionMergeSpirv};

constexpr std::size_t kFullBindings = kAttentionBindingPartial + 1;
constexpr std::size_t kBaseBindings = 4;
/// So many key/value heads, of all batches, keep a device busy without splitting their keys; and a
/// discrete GPU, of which an H200 needs more than 64.
constexpr uint kBusyHeads = 64, kBusyHeadsDiscrete = 512;
/// Bytes that the results of splits may take with kBusyHeads or more.
constexpr std::uint64_t kMostPartBytes = 64u << 20;
constexpr uint kCpuSplit = 1024;  // keys
/// With many key/value heads there are groups enough for an H200 when each has twice as many keys.
constexpr uint kGpuSplit = 256, kGpuSplitOfManyHeads = 512;
/// Up to so many rows a small tile, which compiles sooner, is fast enough.
constexpr std::int64_t kSmallModelRows = 128;

/// The kernel for a processor's subgroups; null: they have none, or it is left out.
const Shader* lanes_kernel(const Capabilities& device) {
    return kernel_for_lanes(device, exact_lanes(device), kLanes4, kLanes8, kLanes8Wide);
}

/// Says why it is null though the subgroups suit; empty: they do not.
std::string lanes_left_out(const Capabilities& device) {
    const uint lanes = exact_lanes(device);
    return lanes == 0 ? "" : device.why_left_out(lanes == 8 ? kLanes8.name : kLanes4.name);
}

std::string shared_left_out(const Capabilities& device) {
    const std::string plain = left_out(device, kAttentionName, kShared.name);
    return plain.empty() ? left_out(device, kAttentionName, kSharedFull.name, kShared.name) : plain;
}

/// Says why a kernel beside the fused one is left out; empty: none is.
std::string parts_left_out(const Capabilities& device, const AttentionParams& params) {
    std::string why = params.mask >= 0 ? device.why_left_out("attention_mask") : "";
    return why.empty() && params.key_numbers >= 0 ? device.why_left_out("attention_sequences") : why;
}

/// With four lanes: whether a group may take eight rows, and those again with care. A softcap is a
/// loop for each row, and a mod may have loops of its own.
bool takes_eight_rows(const AttentionParams& params) {
    constexpr std::int64_t kMostKeys = 1 << 20;  // whose rounds can be counted
    const auto fours = [](std::int64_t size) {
        return static_cast<uint>(divide_up(static_cast<std::uint64_t>(size), 4));
    };
    if (params.softcap != 0 || params.score_mod || params.most_keys > kMostKeys) {
        return false;
    }
    const auto tiles = static_cast<uint>(divide_up(static_cast<std::uint64_t>(params.most_keys), 16));
    const uint blocks = column_blocks(params.value_dim, 16);
    return attention_redo_rounds(tiles, fours(params.head_dim), 4, blocks, 8) < kMostRounds;
}

AttentionTiling choose_f32(const Capabilities& device, bool full, const AttentionParams& params) {
    const bool asks_for_shared = asks_for(device, "attention_shared") || asks_for(device, "attention_rows");
    if (asks_for_shared) {
        (void)shared_left_out(device);  // throws where it is
    }
    const Shader* kernel = asks_for_shared ? nullptr : lanes_kernel(device);
    const uint lanes = kernel ? exact_lanes(device) : 0;
    if (asks_for(device, "attention_lanes") && lanes == 0) {
        const std::string left = lanes_left_out(device);
        require(left.empty(), kAttentionName, "VKFORMER_VARIANT asks for attention_lanes; " + left);
        fail(kAttentionName,
             "VKFORMER_VARIANT asks for attention_lanes, which needs a processor whose subgroups have exactly 4 or 8 "
             "lanes");
    }
    if (lanes != 0) {
        const bool wide = kernel == &kLanes8Wide;
        AttentionTiling t{.shader = kernel,
                          .full = true,
                          .source = &glsl::kAttentionLanesGlsl,
                          .defines = {"FULL"},
                          .local_size = lanes,
                          .tile = 4 * lanes,
                          .rows = {4},
                          .why = "processor, subgroups of " + std::to_string(lanes) + (wide ? ", 8 bytes a load" : ""),
                          .lanes = lanes};
        if (wide) {
            t.defines.push_back("WIDE=1");
        }
        if (params.most_queries * params.group > kSmallModelRows && (lanes == 8 || takes_eight_rows(params))) {
            t.rows.push_back(2 * lanes);
        }
        return t;
    }
    return {.shader = full ? &kSharedFull : &kShared,
            .full = full,
            .source = &glsl::kAttentionSharedGlsl,
            .defines = full ? std::vector<std::string>{"FULL"} : std::vector<std::string>{},
            .local_size = kAttentionSharedThreads,
            .tile = kAttentionSharedTile,
            .rows = {kAttentionSharedTile},
            .why = "tiles in shared memory"};
}

/// Blocks of O's columns, a tile wide each, that a group computes.
uint blocks_of(const AttentionTiling& t, uint value_dim) {
    return t.matrices.empty() ? column_blocks(value_dim, t.tile) : t.matrices.front().blocks;
}

/// Rounds of the kernel's loops for so many keys.
std::int64_t rounds_of(const AttentionTiling& t, const AttentionParams& params, uint value_dim, std::int64_t keys) {
    return t.lanes != 0          ? lanes_rounds(t.lanes, keys, params.head_dim, params.softcap != 0)
           : !t.matrices.empty() ? coopmat_rounds(t.matrices.back(), keys, params.head_dim)
                                 : shared_rounds(t.tile, blocks_of(t, value_dim), keys, params.head_dim);
}

/// The shaders of a tiling with the caller's mod; null where there is none.
struct Modded {
    std::shared_ptr<const Shader> shader, few;
};

/// The tiling, and in `modded` its shaders with the caller's mod, where there is one.
AttentionTiling choose(const Lowering& l, const AttentionParams& params, bool full, std::int64_t value_dim,
                       Modded& modded) {
    const Capabilities& device = l.device();
    const auto compile = [&](const AttentionTiling& t) {
        const ScoreMod& mod = params.score_mod;
        const auto with_mod = [&](const Shader& shader, const PackedText& source) {
            return mod.shader(std::string(shader.name) + "_mod", source.text(), t.defines);
        };
        modded.shader = mod ? with_mod(*t.shader, *t.source) : nullptr;
        modded.few = mod && !t.few.rows.empty() ? with_mod(*t.few.shader, *t.few.source) : nullptr;
    };
    std::string why_fp32;
    if (l.arithmetic() == Arithmetic::f16) {
        why_fp32 = no_coopmat_attention(device, params.head_dim, params.score_mod ? true : false);
        if (why_fp32.empty()) {
            AttentionTiling t = choose_coopmat_attention(device, params, full, value_dim);
            try {
                compile(t);
                return t;
            } catch (const Error&) {
                // The compiler is older than the one this library was built with, or the mod itself
                // is wrong.
                if (coopmat_attention_is_forced(device)) {
                    throw;
                }
                why_fp32 = "the GLSL compiler at hand does not compile the score mod for cooperative matrices";
            }
        }
    }
    const std::string no_rows = no_attention_rows(l, params);
    AttentionTiling t = choose_f32(device, full || no_rows.empty(), params);
    t.why_fp32 = why_fp32;
    if (no_rows.empty()) {
        t.few = choose_attention_rows(params);
    } else if (!device.cpu() || asks_for(device, "attention_rows")) {
        t.why += ", few rows too: " + no_rows;
    }
    compile(t);
    return t;
}

/// True where every run has more than so many queries.
bool always_more(const Dim& queries, std::int64_t few) { return queries.is_constant() && queries.constant() > few; }

/// Whether keys and values are rounded to f16 once, for all tiles of rows: for many of them in
/// every run, and where a run sees all keys, as it need not of pages, rings and lengths.
bool rounds_once(const Lowering& l, const AttentionParams& params, const AttentionTiling& tiling, const Dim& queries,
                 ValueId k, ValueId v) {
    constexpr std::int64_t kFewRows = 512;
    constexpr std::int64_t kMostNumbers = std::int64_t{1} << 27;  // 256 MiB of keys, and of values
    const auto numbers = [&](ValueId of) {
        std::int64_t count = 1;
        for (const Dim& d : l.info(of).shape) {
            count *= l.max_of(d);
        }
        return count;
    };
    const bool all_keys =
        params.pages < 0 && !params.ring && (params.key_numbers < 0 || params.cumulative_queries >= 0);
    const std::int64_t few = std::max<std::int64_t>(kAttentionSplitQueries, kFewRows / params.group);
    return !tiling.matrices.empty() && !l.device().cpu() && params.kv_type == WeightType::f32 && all_keys &&
           always_more(queries, few) && std::max(numbers(k), numbers(v)) <= kMostNumbers &&
           !l.device().leaves_out(kPackedRows.name);
}

/// The way in which keys are split among groups.
struct KeySplits {
    Tuned keys_a_group = {};
    bool may = false;            ///< there are few enough queries
    std::int64_t rows = 0;       ///< that have parts of results
    std::int64_t most = 1;       ///< splits of a row
    std::int64_t most_keys = 0;  ///< that one group walks over
};

KeySplits key_splits(const Capabilities& device, const AttentionParams& params, bool full) {
    KeySplits s;
    s.most_keys = params.most_keys;
    if (!full || params.cumulative_queries >= 0) {
        return s;
    }
    const std::int64_t heads = params.most_heads / params.group;
    s.keys_a_group = tuned(device, "attention_split",
                           device.cpu()         ? kCpuSplit
                           : heads < kBusyHeads ? kGpuSplit
                                                : kGpuSplitOfManyHeads);
    const uint wanted = s.keys_a_group.value;
    if (wanted == 0) {
        return s;
    }
    s.most = std::min<std::int64_t>(kAttentionMostSplits, divide_up(params.most_keys, std::int64_t{wanted}));
    s.rows = params.most_heads * std::min<std::int64_t>(params.most_queries, kAttentionSplitQueries);
    const bool busy = heads >= (device.type == DeviceType::discrete ? kBusyHeadsDiscrete : kBusyHeads);
    const auto bytes = static_cast<std::uint64_t>(s.rows * s.most * (params.value_dim + 2)) * sizeof(float);
    const std::uint64_t most_bytes =
        heads < kBusyHeads ? device.storage_range : std::min<std::uint64_t>(device.storage_range, kMostPartBytes);
    s.may = s.most > 1 && !busy && bytes <= most_bytes && !device.leaves_out(kMerge.name);
    if (s.may && params.most_queries <= kAttentionSplitQueries) {
        s.most_keys = std::max(attention_split_keys(wanted, 1, static_cast<uint>(params.most_keys)), wanted);
    }
    return s;
}

/// 1: the kernels write the log-sum-exp; 2: both parts of it; 0: neither.
uint lse_constant(const AttentionParams& p) { return p.log_sum_exp_parts >= 0 ? 2 : p.log_sum_exp >= 0 ? 1 : 0; }

/// Keys or values: rows that are packed are read by two and four words.
ValueId kept_rows(Lowering& l, const AttentionParams& params, ValueId rows) {
    const bool packed = params.kv_type != WeightType::f32;
    return packed && !in_fours(l.info(rows)) ? copied(l, rows) : with_rows(l, rows);
}

void lower(Lowering& l) {
    const auto& params = l.params<AttentionParams>();
    const ValueId q = with_rows(l, l.input(0));
    ValueId k = kept_rows(l, params, l.input(1));
    ValueId v = kept_rows(l, params, l.input(2));
    const ValueId y = l.output(0);
    const ValueId bias = params.bias < 0 ? q : whole(l, l.input(static_cast<std::size_t>(params.bias)));
    const auto value_dim = static_cast<uint>(l.info(y).shape[3].constant());
    const Dim& queries = l.info(q).shape[2];
    const bool always_many = always_more(queries, kAttentionSplitQueries);
    // splitting the keys takes a buffer more than the four that are always there
    const bool room = l.device().storage_buffers >= kFullBindings && params.most_keys > kGpuSplit && !always_many;
    Modded modded;
    AttentionTiling tiling = choose(l, params, params.full || room, value_dim, modded);
    const bool full = tiling.full;
    if (params.cumulative_queries >= 0) {  // their table is made for one size of tile
        tiling.rows.erase(tiling.rows.begin(), tiling.rows.end() - 1);
        tiling.matrices.erase(tiling.matrices.begin(), tiling.matrices.end() - (tiling.matrices.empty() ? 0 : 1));
    }
    const uint blocks = blocks_of(tiling, value_dim);
    const bool once = rounds_once(l, params, tiling, queries, k, v);
    if (once) {
        k = halves_of(l, k, 0);
        v = halves_of(l, v, 0);
        tiling.why += ", keys and values rounded once";
    }
    const WeightType kv_type = once ? WeightType::f16 : params.kv_type;
    const bool packed_kv = kv_type != WeightType::f32;
    const bool fours =
        in_fours(l.info(q)) && in_fours(l.info(y)) && (packed_kv || (in_fours(l.info(k)) && in_fours(l.info(v))));
    const KeySplits splits = key_splits(l.device(), params, full && !always_many);
    l.check_rounds(rounds_of(tiling, params, value_dim, splits.most_keys), std::to_string(params.most_keys) + " keys");

    std::vector<Kernel> kernels;
    const uint split = splits.may ? splits.keys_a_group.value : 0;
    std::vector<uint> words{blocks * tiling.tile, split};
    std::vector<uint> all_rows = tiling.few.rows;
    if (all_rows.empty() || params.most_queries * params.group > all_rows.back()) {
        all_rows.insert(all_rows.end(), tiling.rows.begin(), tiling.rows.end());
    }
    for (std::size_t i = 0; i < all_rows.size(); ++i) {
        const bool few = i < tiling.few.rows.size();
        const uint rows = all_rows[i];
        Constants constants(tiling.local_size,
                            {{kAttentionSpecRows, rows},
                             {kAttentionSpecBlocks, blocks},
                             {kAttentionSpecFours, fours ? 1u : 0u},
                             {kAttentionSpecCausal, causal_constant(params.causal)},
                             {kAttentionSpecSoftcap, params.softcap == 0.0f ? 0u : 1u},
                             {kAttentionSpecFill, std::bit_cast<uint>(params.fill)},
                             {kAttentionSpecGroup, params.group},
                             {kAttentionSpecThreshold, dropout_threshold(params.dropout)},
                             {kAttentionSpecKeepScale, std::bit_cast<uint>(dropout_scale(params.dropout))},
                             {kAttentionSpecKv, static_cast<uint>(kv_type)}});
        if (full) {
            const uint sequences = params.cumulative_queries >= 0 ? 2u : params.key_numbers >= 0 ? 1u : 0u;
            const uint page = params.pages >= 0 ? static_cast<uint>(l.info(k).shape[2].constant()) : 0u;
            const bool by_elements = !tiling.matrices.empty() && tiling.matrices.front().elements;
            const bool bias_fours = params.bias >= 0 && in_fours(l.info(bias)) && !by_elements;
            constants.set(kAttentionSpecMask, params.mask_present);
            constants.set(kAttentionSpecBias, params.bias_present);
            constants.set(kAttentionSpecSlopes, params.slopes_present);
            constants.set(kAttentionSpecSinks, params.sinks_present);
            constants.set(kAttentionSpecSequences, sequences);
            constants.set(kAttentionSpecPageSize, page);
            constants.set(kAttentionSpecLse, lse_constant(params));
            constants.set(kAttentionSpecBiasFours, bias_fours ? 1u : 0u);
            constants.set(kAttentionSpecSplit, split);
        }
        if (params.ring) {
            constants.set(kAttentionSpecRing, 1);
        }
        if (!tiling.matrices.empty()) {
            add_matrix_constants(tiling.matrices[i], constants);
        }
        if (few) {
            constants.set(kAttentionSpecHeadDim, static_cast<uint>(params.head_dim));
        }
        const std::shared_ptr<const Shader>& with_mod = few ? modded.few : modded.shader;
        const Shader* const shader = few ? tiling.few.shader : tiling.shader;
        kernels.push_back({with_mod ? with_mod.get() : shader, std::move(constants),
                           (few ? "few rows, keys and values in registers" : tiling.why) + ": " + std::to_string(rows) +
                               " rows by " + std::to_string(tiling.tile) + " keys" + (fours ? ", by fours" : "") +
                               (packed_kv ? ", keys and values " + std::string(name_of(kv_type)) : "") +
                               (splits.may ? splits.keys_a_group.note : ""),
                           with_mod, with_mod ? shader->name : nullptr});
        kernels.back().arithmetic = tiling.arithmetic;
        kernels.back().subgroup_size = tiling.matrices.empty() ? 0 : tiling.matrices[i].subgroup;
        // a mod's own loops are not counted, and a driver may unroll them
        if (tiling.lanes == 0 && tiling.matrices.empty() && !with_mod) {
            const Loops loops = loops_on(l.device());
            kernels.back().loops = few && loops == Loops::kept ? Loops::as_written : loops;
        }
        words.push_back(rows);
    }
    kernels.back().why_fp32 = tiling.why_fp32;
    const auto input = [&](int at) { return at < 0 ? q : l.input(static_cast<std::size_t>(at)); };
    const auto dense_input = [&](int at) { return at < 0 ? q : whole(l, input(at)); };
    if (!full) {
        l.dispatch(std::move(kernels), {{q, Access::read}, {k, Access::read}, {v, Access::read}, {y, Access::write}},
                   prepare_attention, std::move(words));
        return;
    }
    const ValueId mask = params.mask < 0 ? q : pack_mask(l, params);
    const ValueId sequences =
        params.key_numbers < 0 ? q : make_sequence_table(l, sequences_of(l, params, tiling.rows.back(), params.group));
    const int lse_output = params.log_sum_exp_parts >= 0 ? params.log_sum_exp_parts : params.log_sum_exp;
    const ValueId lse = lse_output >= 0 ? l.output(static_cast<std::size_t>(lse_output)) : y;
    const ValueId pages = dense_input(params.pages);
    ValueId partial = y;
    if (splits.may) {
        partial = l.scratch(DType::f32, {splits.rows, splits.most, value_dim + 2});
    }
    l.dispatch(std::move(kernels),
               {{q, Access::read},
                {k, Access::read},
                {v, Access::read},
                {y, Access::write},
                {mask, Access::read},
                {bias, Access::read},
                {dense_input(params.slopes), Access::read},
                {dense_input(params.sinks), Access::read},
                {sequences, Access::read},
                {pages, Access::read},
                {lse, Access::write},
                {partial, Access::write}},
               prepare_attention, std::move(words));
    if (splits.may) {
        Dispatch& d = l.dispatch(
            {{&kMerge, {64, {{kMergeSpecLse, lse_constant(params)}}}, "splits of the keys put together"}},
            {{partial, Access::read}, {y, Access::write}, {lse, Access::write}}, prepare_splits_merge, {split});
        d.sizes_of = {k, pages};
    }
    if (params.log_sum_exp_parts >= 0 && params.log_sum_exp >= 0) {
        Shape shape = l.info(lse).shape, strides = l.info(lse).strides;
        shape.pop_back();
        strides.pop_back();
        lower_copy(l, l.window(lse, shape, strides, l.info(lse).offset),
                   l.output(static_cast<std::size_t>(params.log_sum_exp)));
    }
}

std::string declined(const Capabilities& device, const NodeInfo& node, WantedOutputs wanted) {
    const auto& params = *static_cast<const AttentionParams*>(node.params.get());
    if (!params.composable) {
        return {};
    }
    if (!params.not_fused.empty()) {
        return params.not_fused;
    }
    if (params.weights >= 0 && (wanted >> params.weights & 1u) != 0) {
        return "its weights are asked for";
    }
    const std::size_t buffers = params.full ? kFullBindings : kBaseBindings;
    if (device.storage_buffers < buffers) {
        return "the device has " + std::to_string(device.storage_buffers) + " storage buffers a stage, not " +
               std::to_string(buffers);
    }
    if (asks_for(device, "attention_composed")) {
        return "VKFORMER_VARIANT asks for attention_composed";
    }
    if (std::string left = parts_left_out(device, params); !left.empty()) {
        return left;
    }
    const bool forced = asks_for(device, "attention_shared") || asks_for(device, "attention_lanes") ||
                        asks_for(device, "attention_rows") ||
                        (device.cooperative_matrix && coopmat_attention_is_forced(device));
    if (!device.cpu() || forced) {
        return lanes_kernel(device) ? std::string() : shared_left_out(device);
    }
    const AttentionTiling tiling = choose_f32(device, params.full, params);
    const std::int64_t keys = key_splits(device, params, tiling.full).most_keys;
    if (rounds_of(tiling, params, static_cast<uint>(params.value_dim), keys) > kMostRounds) {
        return "so many keys would take more rounds of a loop than a processor's driver may allow";
    }
    if (tiling.lanes == 0 && !shared_left_out(device).empty()) {
        return shared_left_out(device);
    }
    if (params.key_numbers >= 0) {  // composed, it would compute scores of all sequences together
        return {};
    }
    if (tiling.lanes == 0 && !lanes_left_out(device).empty()) {
        return lanes_left_out(device);
    }
    if (tiling.lanes == 0) {
        return "a processor whose subgroups' size is not certain gains nothing by fusing";
    }
    if (params.most_queries <= kWorthFusing && params.most_keys <= kWorthFusing) {
        return "up to " + std::to_string(kWorthFusing) + " queries and keys a processor gains nothing by fusing";
    }
    return {};
}

}  // namespace

uint support::exact_lanes(const Capabilities& device) {
    const bool known = hands_round(device) && device.storage_buffers >= kFullBindings &&
                       (device.exact_subgroup_size == 4 || device.exact_subgroup_size == 8);
    return known ? device.exact_subgroup_size : 0;
}

const OpType kAttention{.name = kAttentionName,
                        .lower = lower,
                        .declined = declined,
                        .decompose = decompose_attention,
                        .can_read = can_read_any,
                        .gradient = attention_gradient};

}  // namespace vkf
