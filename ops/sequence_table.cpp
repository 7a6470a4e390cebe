// SPDX-License-Identifier: Apache-2.0
#include "ops/sequence_table.h"

#include "attention_sequences.spv.h"
#include "shaders/attention.h"
#include "shaders/attention_sequences.h"

namespace vkf {

namespace {

using namespace shader;

const Shader kTable{"attention_sequences", spirv::kAttentionSequencesSpirv};

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

}  // namespace vkf
