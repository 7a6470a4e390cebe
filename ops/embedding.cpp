// SPDX-License-Identifier: Apache-2.0
#include "shaders/embedding.h"
#include "embedding.spv.h"
#include "embedding_gradient.spv.h"
#include "ops/add_op.h"
#include "ops/checks.h"
#include "ops/elementwise.h"
#include "ops/embedding_part.h"
#include "ops/gradient.h"
#include "ops/packed_rows.h"
#include "runtime/base/numbers.h"
#include "runtime/compile/lowering.h"
#include "shaders/embedding_gradient.h"

namespace vkf {

namespace {

using namespace shader;
using namespace support;

const Shader kShader{"embedding", spirv::kEmbeddingSpirv};
const Shader kGradientShader{"embedding_gradient", spirv::kEmbeddingGradientSpirv};
constexpr const char* kName = "embedding";
constexpr uint kLocalSize = 64;

struct EmbeddingParams {
    float scale;
    /// the first row that the table has, and the rows of the whole; 0: this is the whole
    std::int64_t first = 0, whole = 0;
};

/// What does not depend on ids.
EmbeddingPush describe(const Operands& operands) noexcept {
    const View& table = operands[kEmbeddingBindingTable];
    const View& out = operands[kEmbeddingBindingOut];
    EmbeddingPush push{};
    push.count = static_cast<uint>(out.elements());
    push.width = out.dim(0);
    push.first_row = operands.words[0];
    push.rows = table.dim(1);
    push.all_rows = operands.words[1];
    push.part_first = operands.words[2];
    push.part_end = operands.words[3];
    push.table_offset = table.offset;
    push.table_row = table.step(1);
    push.table_column = table.step(0);
    push.out_offset = out.offset;
    push.scale = 1.0f;
    return push;
}

void emit(const EmbeddingPush& push, Command& command) noexcept {
    command.push(push);
    command.groups(divide_up(push.count, kLocalSize));
    command.cost(push.count, static_cast<double>(push.count) * 8);
}

void prepare(const Operands& operands, Command& command) noexcept {
    const View& ids = operands[kEmbeddingBindingIds];
    EmbeddingPush push = describe(operands);
    for (std::size_t i = 0; i < kMaxRank; ++i) {
        push.ids_size[i] = ids.size[i];
        push.ids_stride[i] = ids.stride[i];
    }
    push.ids_offset = ids.offset;
    push.scale = operands.params<EmbeddingParams>().scale;
    emit(push, command);
}

/// The table without ids: the whole of it.
void prepare_whole(const Operands& operands, Command& command) noexcept { emit(describe(operands), command); }

/// Dispatches rows of a table, by `ids` or, where these are the table itself, all in turn.
void lower_rows(Lowering& l, ValueId ids, ValueId weight, ValueId out, Prepare how,
                const EmbeddingParams& of = {1.0f}) {
    const WeightType type = l.weight_type(weight);
    const ValueId table = type == WeightType::f32 ? weight : l.words(weight);
    const bool whole = ids == weight;
    const auto rows = static_cast<uint>(l.max_of(l.info(table).shape[0]));
    const auto part_first = static_cast<uint>(of.first);
    const uint all_rows = of.whole == 0 ? rows : static_cast<uint>(of.whole);
    uint first = part_first;
    const std::vector<ValueId> windows = l.chunks(table, 0);
    for (const ValueId window : windows) {
        std::string why = type == WeightType::f32 ? "" : "table kept as " + std::string(name_of(type));
        if (windows.size() != 1) {
            why += (why.empty() ? "one of " : "; one of ") + std::to_string(windows.size()) +
                   " windows on a table beyond one binding";
        }
        l.dispatch(
            {{&kShader,
              {kLocalSize, {{kEmbeddingSpecPacked, static_cast<uint>(type)}, {kEmbeddingSpecWhole, whole ? 1u : 0u}}},
              std::move(why)}},
            {{whole ? window : ids, Access::read}, {window, Access::read}, {out, Access::write}}, how,
            {first, all_rows, part_first, part_first + rows});
        first += static_cast<uint>(l.info(window).shape[0].constant());
    }
}

void lower(Lowering& l) { lower_rows(l, l.input(0), l.input(1), l.output(0), prepare, l.params<EmbeddingParams>()); }

// --- the gradient --------------------------------------------------------------------------------

/// Words: the stage.
void prepare_gradient(const Operands& operands, Command& command) noexcept {
    const View& ids = operands[kEmbeddingGradientBindingIds];
    const View& table = operands[kEmbeddingGradientBindingTable];
    const bool links = operands.words[0] == 0;
    EmbeddingGradientPush push{};
    push.places = static_cast<uint>(ids.elements());
    push.width = table.dim(0);
    push.table_rows = table.dim(1);
    push.ids_offset = ids.offset;
    push.links_offset = operands[kEmbeddingGradientBindingLinks].offset;
    push.dy_offset = operands[kEmbeddingGradientBindingDy].offset;
    push.table_offset = table.offset;
    push.scale = operands.params<EmbeddingParams>().scale;
    command.push(push);
    const std::uint64_t items = std::uint64_t{push.places} * (links ? 1 : push.width);
    command.groups(divide_up(items, kLocalSize));
    command.cost(static_cast<double>(items) * (links ? push.places : 2), static_cast<double>(items) * 8);
}

/// Inputs: ids, dy.
void lower_gradient(Lowering& l) {
    const ValueId ids = l.input(0), dy = l.input(1), table = l.output(0);
    const Dim places = elements(l.info(ids).shape);
    l.check_rounds(l.max_of(places), std::to_string(l.max_of(places)) + " ids");
    const ValueId links = l.scratch(DType::i32, {places});
    const auto emit = [&](uint stage, Access to_links, Access to_table, const char* why) {
        l.dispatch({{&kGradientShader, {kLocalSize, {{kEmbeddingGradientSpecStage, stage}}}, why}},
                   {{ids, Access::read}, {links, to_links}, {dy, Access::read}, {table, to_table}}, prepare_gradient,
                   {stage});
    };
    lower_zero(l, table);
    emit(0, Access::write, Access::read, "places of one id in a chain");
    emit(1, Access::read, Access::write, "a column of an id an invocation");
}

constexpr OpType kEmbeddingGradient{.name = "embedding_gradient", .lower = lower_gradient};

std::vector<Value> gradient(const GradientSite& site) {
    const Value ids = dense(site.input(0));
    return {{},
            add_op(kEmbeddingGradient, {ids, dense(site.gradient())}, site.params<EmbeddingParams>(),
                   site.input(1).shape())};
}

constexpr OpType kEmbedding{.name = kName, .lower = lower, .can_read = can_read_any, .gradient = gradient};
constexpr OpType kEmbeddingPart{.name = "embedding_part", .lower = lower, .can_read = can_read_any};

Value look_up(const OpType& op, Value ids, Value table, const EmbeddingParams& params) {
    require_dtype(kName, ids, DType::i32);
    require_dtype(kName, table, DType::f32);
    require(table.rank() == 2 && table.size(0).is_constant(), kName,
            table.str() + " must be (vocabulary, width) of fixed size");
    require_finite(kName, "scale", params.scale);
    Shape shape = ids.shape();
    require(shape.size() < kMaxRank, kName, ids.str() + " has too many dimensions");
    shape.push_back(table.size(1));
    return add_op(op, {ids, table}, params, shape);
}

}  // namespace

ValueId support::numbers_of(Lowering& l, ValueId weight) {
    return l.once("numbers of a packed weight", weight, [&] {
        const ValueId out = l.scratch(DType::f32, l.info(weight).shape);
        std::int64_t first = 0;
        for (const ValueId part : l.chunks(out, 0)) {
            const std::int64_t rows = l.info(part).shape[0].constant();
            const ValueId of = l.slice(weight, 0, first, rows);
            lower_rows(l, of, of, part, prepare_whole);
            first += rows;
        }
        return out;
    });
}

Value embedding(Value ids, Value table, float scale) { return look_up(kEmbedding, ids, table, EmbeddingParams{scale}); }

Value embedding_part(Value ids, Value table, float scale, std::int64_t first, std::int64_t whole) {
    return look_up(kEmbeddingPart, ids, table, EmbeddingParams{scale, first, whole});
}

}  // namespace vkf
