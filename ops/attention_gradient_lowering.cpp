// SPDX-License-Identifier: Apache-2.0
// How the gradient of fused attention is lowered: its two sides, and what they need of each row.
#include <algorithm>
#include <bit>
#include <optional>

#include "attention_delta.spv.h"
#include "attention_gradient.spv.h"
#include "ops/attention_choice.h"
#include "ops/attention_gradient.h"
#include "ops/attention_gradient_parts.h"
#include "ops/attention_operands.h"
#include "ops/dropout.h"
#include "ops/elementwise.h"
#include "ops/fours.h"
#include "ops/lanes.h"
#include "ops/pushed_mask.h"
#include "ops/reduce.h"
#include "ops/variants.h"
#include "shaders/attention.h"
#include "shaders/attention_delta.h"
#include "shaders/attention_gradient.h"

namespace vkf {

namespace {

using namespace shader;
using namespace support;

const Shader kLanes4{"attention_gradient4", spirv::kAttentionGradientSpirv};
const Shader kLanes8{"attention_gradient8", spirv::kAttentionGradientSpirv};
const Shader kLanes8Wide{"attention_gradient8_wide", spirv::kAttentionGradientSpirv, kWideLoads};
const Shader kDelta{"attention_delta", spirv::kAttentionDeltaSpirv};

constexpr uint kLocalSize = 64;
static_assert(kAttentionGradientMaxBlocks == kAttentionMaxBlocks, "column_blocks() tells both");

/// Rows that a group takes.
constexpr uint near_rows(uint lanes) { return lanes == 4 ? 4 : 16; }

/// Rounds of the kernel's loops; the round in which a loop finds its end counts too.
std::int64_t rounds_of(uint lanes, const AttentionParams& p, const GradientChunks& chunks) {
    const auto far_tiles = [&](std::int64_t rows) {
        return static_cast<std::int64_t>(divide_up(static_cast<std::uint64_t>(rows), 4 * lanes));
    };
    const auto fours = static_cast<std::int64_t>((p.head_dim + 3) / 4 + (p.value_dim + 3) / 4);
    const std::int64_t a_tile = fours + lanes + 4;
    if (chunks.queries == 0) {
        return far_tiles(std::max(p.most_keys, p.most_queries * p.group)) * a_tile;
    }
    const std::int64_t to_clear = near_rows(lanes) + 2;
    return std::max(far_tiles(p.most_keys) * (lanes + 2), far_tiles(chunks.queries * p.group) * (a_tile + to_clear));
}

/// Words: the dimensions that sinks have.
void prepare_delta(const Operands& operands, Command& command) noexcept {
    const View& y = operands[kAttentionDeltaBindingY];
    const View& dy = operands[kAttentionDeltaBindingDy];
    const View& delta = operands[kAttentionDeltaBindingDelta];
    AttentionDeltaPush push{};
    push.rows = static_cast<uint>(delta.elements());
    push.heads = delta.dim(1);
    push.queries = delta.dim(0);
    push.width = y.dim(0);
    const auto present = [&](uint dimension) { return (operands.words[0] & dimension) != 0 ? 1u : 0u; };
    const uint sinks_of_a_batch = present(kAttentionPresentHead) == 0 ? 1 : push.heads;
    push.sinks_batch = present(kAttentionPresentBatch) * sinks_of_a_batch;
    push.sinks_head = present(kAttentionPresentHead);
    push.sinks_offset = operands[kAttentionDeltaBindingSinks].offset;
    push.parts_offset = operands[kAttentionDeltaBindingParts].offset;
    push.y_batch = y.step(3);
    push.y_head = y.step(2);
    push.y_row = y.step(1);
    push.y_offset = y.offset;
    push.dy_batch = dy.step(3);
    push.dy_head = dy.step(2);
    push.dy_row = dy.step(1);
    push.dy_column = dy.step(0);
    push.dy_offset = dy.offset;
    push.lse_offset = operands[kAttentionDeltaBindingLse].offset;
    push.delta_offset = delta.offset;
    command.push(push);
    command.groups(divide_up(push.rows, kLocalSize));
    command.cost(static_cast<double>(y.elements()) * 2, static_cast<double>(y.elements()) * 8);
}

/// What attention_delta.comp reads beside what its stages take from each other.
struct RowOperands {
    ValueId y, dy, parts, sinks;  ///< sinks: any value where there are none
};

void lower_delta(Lowering& l, uint stage, const AttentionGradientParams& p, const RowOperands& x, ValueId lse,
                 ValueId out) {
    l.dispatch({{&kDelta,
                 {kLocalSize,
                  {{kAttentionDeltaSpecStage, stage},
                   {kAttentionDeltaSpecLse, p.log_sum_exp ? 1u : 0u},
                   {kAttentionDeltaSpecSinks, p.attention.sinks >= 0 ? 1u : 0u},
                   {kAttentionDeltaSpecHalves, gradient_on_matrices(l, p.attention) ? 1u : 0u}}},
                 "a row an invocation"}},
               {{x.y, Access::read},
                {x.dy, Access::read},
                {lse, Access::read},
                {x.parts, Access::read},
                {x.sinks, Access::read},
                {out, Access::write}},
               prepare_delta, {p.attention.sinks_present});
}

/// The kernel for subgroups of so many lanes; null: those that there are are left out.
const Shader* lanes_kernel(const Capabilities& device, uint lanes) {
    return kernel_for_lanes(device, lanes, kLanes4, kLanes8, kLanes8Wide);
}

}  // namespace

void support::prepare_gradient(const Operands& operands, Command& command) noexcept {
    const auto& params = operands.params<AttentionGradientParams>().attention;
    const View& q = operands[kAttentionGradientBindingQuery];
    const View& k = operands[kAttentionGradientBindingKey];
    const View& v = operands[kAttentionGradientBindingValue];
    const View& dy = operands[kAttentionGradientBindingDy];
    const View& first = operands[kAttentionGradientBindingFirst];
    const View& second = operands[kAttentionGradientBindingSecond];
    const uint side = operands.words[0];
    AttentionGradientPush push{};
    push.head_dim = q.dim(0);
    push.value_dim = v.dim(0);
    push.queries = q.dim(1);
    push.keys = k.dim(1);
    const auto place = [](const View& x, uint& batch, uint& head, uint& row, uint& offset) {
        batch = x.step(3);
        head = x.step(2);
        row = x.step(1);
        offset = x.offset;
    };
    place(q, push.q_batch, push.q_head, push.q_row, push.q_offset);
    place(k, push.k_batch, push.k_head, push.k_row, push.k_offset);
    place(v, push.v_batch, push.v_head, push.v_row, push.v_offset);
    place(dy, push.d_batch, push.d_head, push.d_row, push.d_offset);
    place(first, push.first_batch, push.first_head, push.first_row, push.first_offset);
    place(second, push.second_batch, push.second_head, push.second_row, push.second_offset);
    const uint first_query = operands.words[3], most_queries = operands.words[4];
    push.chunk_row = first_query * params.group;
    push.seed = seed_of(operands, params.dropout_seed);
    command.push(push);
    const bool of_keys = side == kAttentionGradientOfKeys;
    const uint left = push.queries - std::min(first_query, push.queries);
    const uint queries = most_queries == 0 ? left : std::min(left, most_queries);
    const std::uint64_t near = of_keys ? push.keys : std::uint64_t{queries} * params.group;
    const uint columns = of_keys ? std::max(push.head_dim, push.value_dim) : push.head_dim;
    const std::uint64_t tiles = divide_up(near, operands.words[2]) * divide_up(columns, operands.words[1]);
    const bool nothing = first.elements() == 0 || (first_query != 0 && left == 0);
    command.groups(nothing ? 0 : tiles * k.dim(2) * q.size[1]);
    const double pairs =
        static_cast<double>(q.dim(2)) * q.size[1] * queries * push.keys * (params.causal == Causal::none ? 1.0 : 0.5);
    const double weights = side == kAttentionGradientOfKept ? 0.0 : 2.0 * (push.head_dim + push.value_dim) + 30;
    command.cost(pairs * (weights + 2.0 * columns * (of_keys ? 2 : 1)),
                 4.0 * static_cast<double>(q.elements() + k.elements() + v.elements() + dy.elements()));
}

std::string support::declined_gradient(const Capabilities& device, const AttentionGradientParams& p) {
    const AttentionParams& a = p.attention;
    if (asks_for(device, "attention_composed")) {
        return "VKFORMER_VARIANT asks for attention_composed";
    }
    if (!a.not_fused.empty()) {
        return a.not_fused;
    }
    if (p.weights) {
        return "its weights have a gradient";
    }
    if (std::string left = device.why_left_out(kDelta.name); !left.empty()) {
        return left;
    }
    if (takes_shared_gradient(device)) {
        return declined_shared_gradient(device, p);
    }
    const uint lanes = exact_lanes(device);
    if (lanes == 0) {
        return "no kernel computes it on this device as one";
    }
    if (!lanes_kernel(device, lanes)) {
        return device.why_left_out(lanes == 4 ? kLanes4.name : kLanes8.name);
    }
    const GradientChunks chunks = plan_chunks(device, p);
    if (!chunks.refused.empty()) {
        return chunks.refused;
    }
    if (rounds_of(lanes, a, chunks) > kMostRounds) {
        return "so many rows would take more rounds of a loop than a processor's driver may allow";
    }
    if (!asks_for(device, "attention_lanes") && a.most_queries <= kWorthFusing && a.most_keys <= kWorthFusing) {
        return "up to " + std::to_string(kWorthFusing) + " queries and keys a processor gains nothing by fusing";
    }
    return {};
}

void support::lower_gradient(Lowering& l) {
    const auto& p = l.params<AttentionGradientParams>();
    const AttentionParams& a = p.attention;
    const ValueId q = with_rows(l, l.input(0)), k = with_rows(l, l.input(1)), v = with_rows(l, l.input(2));
    const ValueId y = l.input(p.inputs), lse = whole(l, l.input(p.inputs + 1)),
                  dy = with_rows(l, l.input(p.inputs + 2));
    Shape rows = l.info(lse).shape;
    rows.pop_back();
    const ValueId delta = l.scratch(DType::f32, rows);
    const auto dense_input = [&](int at) { return at < 0 ? q : whole(l, l.input(static_cast<std::size_t>(at))); };
    const RowOperands of_rows{y, dy, lse, dense_input(a.sinks)};
    lower_delta(l, 0, p, of_rows, p.log_sum_exp ? whole(l, l.node().inputs.back()) : y, delta);

    const auto output = [&](int input) {
        const auto at = std::find(p.wanted.begin(), p.wanted.end(), static_cast<std::size_t>(input));
        return input < 0 || at == p.wanted.end()
                   ? std::nullopt
                   : std::optional(l.output(static_cast<std::size_t>(at - p.wanted.begin())));
    };
    if (const auto of_sinks = output(a.sinks)) {
        const ValueId parts = l.scratch(DType::f32, rows);
        lower_delta(l, 1, p, of_rows, delta, parts);
        const auto summed = [&](uint dimension) { return (a.sinks_present & dimension) == 0; };
        const Shape& shape = l.info(*of_sinks).shape;
        const ValueId sums = is_contiguous(shape, l.info(*of_sinks).strides) ? *of_sinks : l.scratch(DType::f32, shape);
        lower_sum(l, parts, {summed(kAttentionPresentBatch), summed(kAttentionPresentHead), true}, sums);
        if (sums != *of_sinks) {
            lower_copy(l, sums, *of_sinks);
        }
    }

    const ValueId mask = a.mask < 0 ? q : pack_mask(l, a);
    const ValueId bias = dense_input(a.bias);
    const ValueId slopes = a.key_numbers < 0 ? dense_input(a.slopes) : make_ranges(l, a);
    if (takes_shared_gradient(l.device())) {
        lower_shared_gradient(l, {q, k, v, dy, lse, delta, mask, bias, slopes, output(0), output(1), output(2)});
        return;
    }
    const uint lanes = exact_lanes(l.device());
    const GradientChunks chunks = plan_chunks(l.device(), p);
    ValueId kept = lse;
    if (chunks.queries != 0) {
        const Shape& keys = l.info(k).shape;
        const std::int64_t columns = std::int64_t{attention_gradient_planes(chunks.keep)} * chunks.queries * a.group;
        kept = l.scratch(DType::f32, {keys[0], keys[1], keys[2], Dim(columns)});
    }
    const Shader* shader = lanes_kernel(l.device(), lanes);
    const auto side = [&](uint which, uint chunk, ValueId first, ValueId second, std::int64_t columns) {
        const uint blocks = column_blocks(columns, 4 * lanes);
        const auto read_by_fours = [&](ValueId x) { return in_fours(l.info(x)); };
        const bool fours = read_by_fours(q) && read_by_fours(k) && read_by_fours(v) && read_by_fours(dy) &&
                           read_by_fours(first) && read_by_fours(second);
        const bool of_keys = which == kAttentionGradientOfKeys;
        const std::string what = of_keys                             ? "of keys and values"
                                 : which == kAttentionGradientOfKept ? "of queries, from kept scores"
                                                                     : "of queries";
        const std::string why =
            what + ": " + std::to_string(near_rows(lanes)) + " rows by " + std::to_string(4 * lanes) +
            (fours ? ", by fours" : "") +
            (chunks.queries == 0 ? std::string() : ", " + std::to_string(chunks.queries) + " queries at a time");
        // a kernel that reads ds does not compute scores: without their constants one pipeline
        // serves all options
        const auto of_scores = [&](uint constant) { return which == kAttentionGradientOfKept ? 0 : constant; };
        const Access to = of_keys && chunk != 0 ? Access::read_write : Access::write;
        l.dispatch({{shader,
                     {lanes,
                      {{kAttentionGradientSpecSide, which},
                       {kAttentionGradientSpecBlocks, blocks},
                       {kAttentionGradientSpecFours, fours ? 1u : 0u},
                       {kAttentionGradientSpecCausal, a.key_numbers >= 0 ? 0u : causal_constant(a.causal)},
                       {kAttentionGradientSpecFill, std::bit_cast<uint>(a.fill)},
                       {kAttentionGradientSpecGroup, a.group},
                       {kAttentionGradientSpecThreshold, of_scores(dropout_threshold(a.dropout))},
                       {kAttentionGradientSpecKeepScale, of_scores(std::bit_cast<uint>(dropout_scale(a.dropout)))},
                       {kAttentionGradientSpecMask, of_scores(a.mask_present)},
                       {kAttentionGradientSpecBias, of_scores(a.bias_present)},
                       {kAttentionGradientSpecSlopes, of_scores(a.slopes_present)},
                       {kAttentionGradientSpecScale, std::bit_cast<uint>(a.scale)},
                       {kAttentionGradientSpecSoftcap, of_scores(std::bit_cast<uint>(a.softcap))},
                       {kAttentionGradientSpecHeads, static_cast<uint>(l.info(k).shape[1].constant())},
                       {kAttentionGradientSpecWindow, window_constant(a.window)},
                       {kAttentionGradientSpecChunk, chunks.queries * a.group},
                       {kAttentionGradientSpecKeep, chunks.keep},
                       {kAttentionGradientSpecSequences, a.key_numbers >= 0 ? 1u : 0u}}},
                     why}},
                   {{q, Access::read},
                    {k, Access::read},
                    {v, Access::read},
                    {dy, Access::read},
                    {lse, Access::read},
                    {delta, Access::read},
                    {mask, Access::read},
                    {bias, Access::read},
                    {slopes, Access::read},
                    {first, to},
                    {second, to},
                    {kept, of_keys && chunks.queries != 0 ? Access::write : Access::read}},
                   prepare_gradient,
                   {which, blocks * 4 * lanes, near_rows(lanes), chunk * chunks.queries, chunks.queries});
    };
    const auto of_queries = output(0), of_keys = output(1), of_values = output(2), of_bias = output(a.bias);
    const auto columns_of_keys = std::max(a.head_dim, a.value_dim);
    if (chunks.queries == 0 && of_queries) {
        // the second output is not written
        side(kAttentionGradientOfQueries, 0, *of_queries, *of_queries, a.head_dim);
    }
    if (chunks.queries == 0 && !of_keys && !of_values) {
        return;
    }
    const ValueId keys_to = of_keys ? *of_keys : l.scratch(DType::f32, l.info(k).shape);
    const ValueId values_to = of_values ? *of_values : l.scratch(DType::f32, l.info(v).shape);
    std::optional<BiasGradient> sums;
    if (of_bias) {
        sums.emplace(l, p, chunks, *of_bias);
    }
    for (uint chunk = 0; chunk < chunks.count; ++chunk) {
        side(kAttentionGradientOfKeys, chunk, keys_to, values_to, columns_of_keys);
        if (chunks.queries != 0 && of_queries) {
            side(kAttentionGradientOfKept, chunk, *of_queries, *of_queries, a.head_dim);
        }
        if (sums) {
            sums->take(kept, chunk);
        }
    }
    if (sums) {
        sums->finish();
    }
}

}  // namespace vkf
