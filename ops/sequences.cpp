// SPDX-License-Identifier: Apache-2.0
// Sequences with lengths of their own: their table, their mask, and the pages their keys and values
// may lie in.
#include "attention_sequences.spv.h"
#include "ops/sequence_table.h"
#include "pages.spv.h"
#include "sequence_mask.spv.h"
#include "shaders/attention.h"
#include "shaders/attention_sequences.h"
#include "shaders/pages.h"
#include "shaders/sequence_mask.h"

namespace vkf {

namespace {

using namespace shader;
using namespace support;

const Shader kTable{"attention_sequences", spirv::kAttentionSequencesSpirv};
const Shader kMask{"sequence_mask", spirv::kSequenceMaskSpirv};
const Shader kPages{"pages", spirv::kPagesSpirv};
constexpr uint kLocalSize = 64;

void prepare_table(const Operands& operands, Command& command) noexcept {
    const View& queries = operands[kSequencesBindingQueries];
    const View& keys = operands[kSequencesBindingKeys];
    const View& q = operands[3];
    const View& k = operands[4];
    const View& pages = operands[5];
    const bool packed = operands.words[0] != 0;
    const bool paged = operands.words[1] != 0;
    AttentionSequencesPush push{};
    push.count = packed ? queries.dim(0) - 1 : keys.dim(0);
    push.queries = q.dim(1);
    push.keys = paged ? pages.dim(0) * k.dim(1) : k.dim(1);
    push.queries_offset = queries.offset;
    push.queries_stride = queries.step(0);
    push.keys_offset = keys.offset;
    push.keys_stride = keys.step(0);
    command.push(push);
    command.groups(1);
    command.cost(push.count * 20.0, push.count * 28.0);
}

// --- sequence_mask -------------------------------------------------------------------------------

struct SequenceMaskParams {
    bool packed;
    Causal causal;
    std::int64_t window;
};

void prepare_mask(const Operands& operands, Command& command) noexcept {
    const auto& params = operands.params<SequenceMaskParams>();
    const View& mask = operands[kSequenceMaskBindingMask];
    SequenceMaskPush push{};
    push.count = static_cast<uint>(mask.elements());
    push.queries = mask.dim(1);
    push.keys = mask.dim(0);
    push.sequences = operands[kSequenceMaskBindingTable].dim(1);
    const auto span = std::max<std::int64_t>(push.keys, push.queries);
    push.window = params.window < span ? static_cast<uint>(params.window) : 0;
    command.push(push);
    command.groups(divide_up(push.count, kLocalSize));
    command.cost(push.count * 10.0, push.count * 4.0);
}

void lower_mask(Lowering& l) {
    const auto& params = l.params<SequenceMaskParams>();
    SequenceTable t;
    t.query = l.input(0);
    t.key = t.pages = l.input(1);
    t.keys = l.input(2);
    t.queries = params.packed ? l.input(3) : t.keys;
    t.packed_queries = t.packed_keys = params.packed;
    const ValueId table = make_sequence_table(l, t);
    const uint causal = params.causal == Causal::none ? 0u : params.causal == Causal::top_left ? 1u : 2u;
    l.dispatch({{&kMask,
                 {kLocalSize, {{kSequenceMaskSpecPacked, params.packed ? 1u : 0u}, {kSequenceMaskSpecCausal, causal}}},
                 ""}},
               {{table, Access::read}, {l.output(0), Access::write}}, prepare_mask);
}

constexpr OpType kSequenceMask{.name = "sequence_mask", .lower = lower_mask, .can_read = can_read_any};

// --- pages ---------------------------------------------------------------------------------------

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

ValueId make_sequence_table(Lowering& l, const SequenceTable& t) {
    const Dim rows = t.packed_queries ? l.info(t.queries).shape[0] : l.info(t.keys).shape[0];
    const std::int64_t most = l.max_of(rows);
    l.check_rounds(most + 1, std::to_string(most) + " sequences");
    const ValueId table = l.scratch(DType::i32, {rows, kAttentionSequenceWords});
    Dispatch& d = l.dispatch({{&kTable,
                               {1,
                                {{kSequencesSpecPackedQueries, t.packed_queries ? 1u : 0u},
                                 {kSequencesSpecPackedKeys, t.packed_keys ? 1u : 0u},
                                 {kSequencesSpecRows, t.rows},
                                 {kSequencesSpecGroup, t.group}}},
                               "a table of sequences"}},
                             {{t.queries, Access::read}, {t.keys, Access::read}, {table, Access::write}}, prepare_table,
                             {t.packed_queries ? 1u : 0u, t.paged ? 1u : 0u});
    d.sizes_of = {t.query, t.key, t.pages};
    return table;
}

Value sequence_mask(Value query, Value key, Value cumulative_queries, Value keys, Causal causal, std::int64_t window) {
    constexpr const char* kName = "sequence_mask";
    require(query.rank() == 4 && key.rank() == 4, kName, query.str() + " and " + key.str() + " must have rank 4");
    require_dtype(kName, keys, DType::i32);
    require(keys.rank() == 1, kName, keys.str() + " must have one dimension");
    require(window >= 0 && (window == 0 || causal != Causal::none), kName,
            "window = " + std::to_string(window) + " needs a causal mask and must not be negative");
    const bool packed = bool(cumulative_queries);
    std::vector<Value> inputs{query, key, keys};
    if (!packed) {
        require(keys.size(0) == query.size(0), kName,
                keys.str() + " must hold a length for each sequence of " + query.str());
    } else {
        require(query.size(0) == Dim(1), kName, "packed queries " + query.str() + " must be a batch of 1");
        require_dtype(kName, cumulative_queries, DType::i32);
        require(cumulative_queries.shape() == keys.shape(), kName,
                cumulative_queries.str() + " and " + keys.str() + " differ in their number of sequences");
        inputs.push_back(cumulative_queries);
        query.graph().constrain(1, keys.size(0), "cumulative numbers begin with 0");
    }
    return add_op(kSequenceMask, inputs, SequenceMaskParams{packed, causal, window},
                  {query.size(0), query.size(2), key.size(2)}, DType::i32);
}

Value gather_pages(Value pool, Value table) {
    check_pool(kGather.name, pool, table);
    return add_op(kGather, {pool, table}, 0, {table.size(0), table.size(1) * pool.size(1), pool.size(2), pool.size(3)});
}

Value scatter_pages(Value pool, Value x, Value table, Value lengths) {
    check_pool(kScatter.name, pool, table);
    require_dtype(kScatter.name, x, DType::f32);
    require_dtype(kScatter.name, lengths, DType::i32);
    require(x.rank() == 4 && x.size(0) == table.size(0) && x.size(2) == pool.size(2) && x.size(3) == pool.size(3),
            kScatter.name,
            x.str() + " must be (sequences, tokens, heads, width) and fit " + pool.str() + " and " + table.str());
    require(lengths.rank() == 1 && lengths.size(0) == table.size(0), kScatter.name,
            lengths.str() + " must hold a length for each sequence of " + table.str());
    return pool.graph().add_node(kScatter, {x, table, lengths}, params(0), {{DType::f32, {}, {}, pool}}).front();
}

}  // namespace vkf
