// SPDX-License-Identifier: Apache-2.0
#include "shaders/embedding.h"
#include "embedding.spv.h"
#include "ops/add_op.h"
#include "ops/checks.h"
#include "runtime/base/numbers.h"
#include "runtime/compile/lowering.h"

namespace vkf {

namespace {

using namespace shader;
using namespace support;

const Shader kShader{"embedding", spirv::kEmbeddingSpirv};
constexpr const char* kName = "embedding";
constexpr uint kLocalSize = 64;

struct EmbeddingParams {
    float scale;
};

void prepare(const Operands& operands, Command& command) noexcept {
    const View& ids = operands[kEmbeddingBindingIds];
    const View& table = operands[kEmbeddingBindingTable];
    const View& out = operands[kEmbeddingBindingOut];
    EmbeddingPush push{};
    push.count = static_cast<uint>(out.elements());
    push.width = out.dim(0);
    push.first_row = operands.words[0];
    push.rows = table.dim(1);
    push.all_rows = operands.words[1];
    for (std::size_t i = 0; i < kMaxRank; ++i) {
        push.ids_size[i] = ids.size[i];
        push.ids_stride[i] = ids.stride[i];
    }
    push.ids_offset = ids.offset;
    push.table_offset = table.offset;
    push.table_row = table.step(1);
    push.table_column = table.step(0);
    push.out_offset = out.offset;
    push.scale = operands.params<EmbeddingParams>().scale;
    command.push(push);
    command.groups(divide_up(push.count, kLocalSize));
    command.cost(push.count, static_cast<double>(push.count) * 8);
}

void lower(Lowering& l) {
    const WeightType type = l.weight_type(l.input(1));
    const ValueId table = type == WeightType::f32 ? l.input(1) : l.words(l.input(1));
    const auto all_rows = static_cast<uint>(l.max_of(l.info(table).shape[0]));
    uint first = 0;
    const std::vector<ValueId> windows = l.chunks(table, 0);
    for (const ValueId window : windows) {
        std::string why = type == WeightType::f32 ? "" : "table kept as " + std::string(name_of(type));
        if (windows.size() != 1) {
            why += (why.empty() ? "one of " : "; one of ") + std::to_string(windows.size()) +
                   " windows on a table beyond one binding";
        }
        l.dispatch({{&kShader, {kLocalSize, {{kEmbeddingSpecPacked, static_cast<uint>(type)}}}, std::move(why)}},
                   {{l.input(0), Access::read}, {window, Access::read}, {l.output(0), Access::write}}, prepare,
                   {first, all_rows});
        first += static_cast<uint>(l.info(window).shape[0].constant());
    }
}

constexpr OpType kEmbedding{.name = kName, .lower = lower, .can_read = can_read_any};

}  // namespace

Value embedding(Value ids, Value table, float scale) {
    require_dtype(kName, ids, DType::i32);
    require_dtype(kName, table, DType::f32);
    require(table.rank() == 2 && table.size(0).is_constant(), kName,
            table.str() + " must be (vocabulary, width) of fixed size");
    require_finite(kName, "scale", scale);
    Shape shape = ids.shape();
    require(shape.size() < kMaxRank, kName, ids.str() + " has too many dimensions");
    shape.push_back(table.size(1));
    return add_op(kEmbedding, {ids, table}, EmbeddingParams{scale}, shape);
}

}  // namespace vkf
