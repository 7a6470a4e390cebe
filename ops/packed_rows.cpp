// SPDX-License-Identifier: Apache-2.0
#include "ops/packed_rows.h"

#include "ops/add_op.h"
#include "ops/attention_operands.h"
#include "ops/checks.h"
#include "ops/matmul_choice.h"
#include "runtime/base/numbers.h"
#include "runtime/compile/pack_lanes.h"
#include "runtime/graph/info_of.h"
#include "runtime/graph/packed.h"
#include "shaders/matmul.h"
#include "shaders/packed_rows.h"

namespace vkf {

namespace {

using namespace shader;
using namespace support;

constexpr const char* kPackName = "pack_into";
constexpr const char* kUnpackName = "unpack_rows";
constexpr uint kLocalSize = kPackGroup;

struct PackedRowsParams {
    WeightType type;
};

Constants rows_of_f32(uint type, uint unpack, uint lanes) {
    return {kLocalSize,
            {{kPackedRowsSpecType, type},
             {kPackedRowsSpecUnpack, unpack},
             {kPackedRowsSpecLanes, lanes},
             {kPackedRowsSpecFrom, kPackedF32}}};
}

void describe(PackedRowsPush& push, const View& numbers, const View& words) {
    push.rows = static_cast<uint>(numbers.rows());
    push.columns = numbers.dim(0);
    push.size[0] = numbers.dim(2);
    push.size[1] = numbers.dim(1);
    for (std::size_t i = 0; i < 4; ++i) {
        push.numbers_stride[i] = numbers.step(3 - i);
    }
    for (std::size_t i = 0; i < 3; ++i) {
        push.words_stride[i] = words.step(3 - i);
    }
    push.numbers_offset = numbers.offset;
    push.words_offset = words.offset;
}

/// Words: invocations that pack a row.
void prepare_pack(const Operands& operands, Command& command) noexcept {
    const View& x = operands[kPackedRowsBindingFrom];
    const View& words = operands[kPackedRowsBindingTo];
    PackedRowsPush push{};
    describe(push, x, words);
    command.push(push);
    command.groups(pack_groups(operands.words[0], push.rows));
    command.cost(static_cast<double>(x.elements()) * 4,
                 4.0 * (static_cast<double>(x.elements()) + static_cast<double>(words.elements())));
}

void prepare_unpack(const Operands& operands, Command& command) noexcept {
    const View& words = operands[kPackedRowsBindingFrom];
    const View& y = operands[kPackedRowsBindingTo];
    PackedRowsPush push{};
    describe(push, y, words);
    command.push(push);
    command.groups(divide_up(push.rows * divide_up(push.columns, 4), kLocalSize));
    command.cost(static_cast<double>(y.elements()),
                 4.0 * (static_cast<double>(y.elements()) + static_cast<double>(words.elements())));
}

void lower_pack(Lowering& l) {
    const auto type = static_cast<uint>(l.params<PackedRowsParams>().type);
    const uint lanes = pack_lanes(l, l.info(l.input(0)).shape.back().constant());
    l.dispatch({{&kPackedRows, rows_of_f32(type, 0, lanes), lanes == 1 ? "a row an invocation" : "a row a group"}},
               {{l.input(0), Access::read}, {l.output(0), Access::write}}, prepare_pack, {lanes});
}

void lower_unpack(Lowering& l) {
    const auto type = static_cast<uint>(l.params<PackedRowsParams>().type);
    const ValueId words = with_rows(l, l.input(0));
    l.dispatch({{&kPackedRows, rows_of_f32(type, 1, 1), ""}}, {{words, Access::read}, {l.output(0), Access::write}},
               prepare_unpack);
}

/// Prepares the packing of x, of nothing where it has few rows: those are multiplied as they are.
/// Words: invocations that pack a row, and how many rows are few.
void prepare_rows_of(const Operands& operands, Command& command) noexcept {
    const View& x = operands[kPackedRowsBindingFrom];
    PackedRowsPush push{};
    describe(push, x, operands[kPackedRowsBindingTo]);
    command.push(push);
    command.groups(push.rows <= operands.words[1] ? 0 : pack_groups(operands.words[0], push.rows));
    command.cost(
        static_cast<double>(x.elements()) * 16,
        4.0 * (static_cast<double>(x.elements()) + static_cast<double>(operands[kPackedRowsBindingTo].elements())));
}

ValueId make_rows(Lowering& l, ValueId a, WeightType type, uint few, const char* why) {
    Shape shape = l.info(a).shape;
    const std::int64_t columns = shape.back().constant();
    shape.back() = static_cast<std::int64_t>(packed_row_words(type, static_cast<std::uint64_t>(columns)));
    const ValueId words = l.scratch(DType::i32, shape);
    const uint lanes = pack_lanes(l, columns);
    l.dispatch({{&kPackedRows, rows_of_f32(static_cast<uint>(type), 0, lanes), why}},
               {{a, Access::read}, {words, Access::write}}, prepare_rows_of, {lanes, few});
    return words;
}

constexpr OpType kPack{.name = kPackName, .lower = lower_pack, .can_read = can_read_any};
constexpr OpType kUnpack{.name = kUnpackName, .lower = lower_unpack, .can_read = can_read_any};

}  // namespace

ValueId codes_of(Lowering& l, ValueId a) {
    return l.once("rows of codes", a,
                  [&] { return make_rows(l, a, WeightType::int8, kMatvecMaxRows, "rows of a as codes"); });
}

ValueId halves_of(Lowering& l, ValueId a, uint few) {
    return l.once(few == 0 ? "rows of halves" : "many rows of halves", a,
                  [&] { return make_rows(l, a, WeightType::f16, few, "rows as f16"); });
}

void support::check_packed(const char* op, const Value& words, WeightType type, const Dim& columns) {
    require(type == WeightType::f16 || type == WeightType::bf16 || type == WeightType::int8, op,
            "rows are packed as f16, bf16 or int8 on the device, not as " + std::string(name_of(type)));
    require_dtype(op, words, DType::i32);
    require(columns.is_constant() && columns.constant() > 0, op, "rows must be of a fixed size");
    require(words.rank() >= 1 && words.rank() <= 4, op, words.str() + " must have 1 to 4 dimensions");
    const auto width =
        static_cast<std::int64_t>(packed_row_words(type, static_cast<std::uint64_t>(columns.constant())));
    require(words.size(-1) == Dim(width), op,
            words.str() + " must have rows of " + std::to_string(width) + " words for " +
                std::to_string(columns.constant()) + " numbers as " + std::string(name_of(type)));
}

void support::check_pack_into(const Value& window, const Value& x, WeightType type) {
    require_dtype(kPackName, x, DType::f32);
    require(x.rank() >= 1, kPackName, x.str() + " has no rows");
    require(&x.graph() == &window.graph(), kPackName, x.str() + " belongs to another graph than " + window.str());
    check_packed(kPackName, window, type, x.size(-1));
    Shape rows = window.shape();
    rows.back() = x.size(-1);
    require(rows == x.shape(), kPackName, x.str() + " does not fit into " + window.str());
    const ValueInfo& target = info_of(window);
    require(target.strides.back() == Dim(1), kPackName, "the words of a row of " + window.str() + " lie apart");
    for (std::size_t i = 0; i < target.shape.size(); ++i) {
        require(target.shape[i] == Dim(1) || !(target.strides[i] == Dim(0)), kPackName,
                window.str() + " holds an element more than once");
    }
}

Value pack_into(Value window, Value x, WeightType type) {
    check_pack_into(window, x, type);
    return x.graph().add_node(kPack, {x}, params(PackedRowsParams{type}), {{DType::i32, {}, {}, window}}).front();
}

Value unpack_rows(Value words, WeightType type, std::int64_t columns) {
    check_packed(kUnpackName, words, type, columns);
    Shape shape = words.shape();
    shape.back() = columns;
    return add_op(kUnpack, {words}, PackedRowsParams{type}, shape);
}

}  // namespace vkf
