// SPDX-License-Identifier: Apache-2.0
// Pages of a pool, in which keys and values of sequences may lie: read in order, and written.
#include "shaders/pages.h"

#include "ops/add_op.h"
#include "ops/checks.h"
#include "pages.spv.h"
#include "runtime/base/numbers.h"
#include "runtime/compile/lowering.h"
#include "runtime/graph/info_of.h"

namespace vkf {

namespace {

using namespace shader;
using namespace support;

const Shader kPages{"pages", spirv::kPagesSpirv};
constexpr uint kLocalSize = 64;

void describe(PagesPush& push, const View& rows, const View& pool, const View& table) {
    push.count = static_cast<uint>(rows.elements());
    push.tokens = rows.dim(2);
    push.heads = rows.dim(1);
    push.width = rows.dim(0);
    push.rows_batch = rows.step(3);
    push.rows_token = rows.step(2);
    push.rows_head = rows.step(1);
    push.rows_column = rows.step(0);
    push.rows_offset = rows.offset;
    push.pool_page = pool.step(3);
    push.pool_token = pool.step(2);
    push.pool_head = pool.step(1);
    push.pool_column = pool.step(0);
    push.pool_offset = pool.offset;
    push.pages = pool.dim(3);
    push.page_size = pool.dim(2);
    push.table_row = table.step(1);
    push.table_column = table.step(0);
    push.table_offset = table.offset;
    push.table_width = table.dim(0);
}

void finish(const PagesPush& push, Command& command) {
    command.push(push);
    command.groups(divide_up(push.count, kLocalSize));
    command.cost(push.count, push.count * 8.0);
}

void prepare_gather(const Operands& operands, Command& command) noexcept {
    PagesPush push{};
    describe(push, operands[kPagesBindingTo], operands[kPagesBindingFrom], operands[kPagesBindingTable]);
    finish(push, command);
}

void prepare_scatter(const Operands& operands, Command& command) noexcept {
    PagesPush push{};
    describe(push, operands[kPagesBindingFrom], operands[kPagesBindingTo], operands[kPagesBindingTable]);
    const View& ends = operands[kPagesBindingEnds];
    push.ends_stride = ends.step(0);
    push.ends_offset = ends.offset;
    finish(push, command);
}

void lower_gather(Lowering& l) {
    l.dispatch({{&kPages, {kLocalSize, {{kPagesSpecScatter, 0}}}, ""}},
               {{l.input(1), Access::read},
                {l.input(1), Access::read},
                {l.input(0), Access::read},
                {l.output(0), Access::write}},
               prepare_gather);
}

void lower_scatter(Lowering& l) {
    l.dispatch({{&kPages, {kLocalSize, {{kPagesSpecScatter, 1}}}, ""}},
               {{l.input(1), Access::read},
                {l.input(2), Access::read},
                {l.input(0), Access::read},
                {l.output(0), Access::read_write}},
               prepare_scatter);
}

constexpr OpType kGather{.name = "gather_pages", .lower = lower_gather, .can_read = can_read_any};
constexpr OpType kScatter{.name = "scatter_pages", .lower = lower_scatter, .can_read = can_read_any};

void check_pool(const char* op, const Value& pool, const Value& table) {
    require(pool.rank() == 4 && pool.size(1).is_constant(), op,
            pool.str() + " must be (pages, page size, heads, width) with pages of a fixed size");
    require_dtype(op, pool, DType::f32);
    require_dtype(op, table, DType::i32);
    require(table.rank() == 2, op, table.str() + " must be (sequences, pages of a sequence)");
}

}  // namespace

Value gather_pages(Value pool, Value table) {
    check_pool(kGather.name, pool, table);
    return add_op(kGather, {pool, table}, 0, {table.size(0), table.size(1) * pool.size(1), pool.size(2), pool.size(3)});
}

Value scatter_pages(Value pool, Value x, Value table, Value lengths) {
    check_pool(kScatter.name, pool, table);
    require_dtype(kScatter.name, x, DType::f32);
    require(x.rank() == 4 && x.size(0) == table.size(0) && x.size(2) == pool.size(2) && x.size(3) == pool.size(3),
            kScatter.name,
            x.str() + " must be (sequences, tokens, heads, width) and fit " + pool.str() + " and " + table.str());
    check_lengths(kScatter.name, "lengths", lengths, table, table.size(0));
    if (info_of(pool).storage == info_of(x).storage) {
        x = contiguous(x);  // the two may overlap: all is read before anything is written
    }
    return pool.graph().add_node(kScatter, {x, table, lengths}, params(0), {{DType::f32, {}, {}, pool}}).front();
}

}  // namespace vkf
