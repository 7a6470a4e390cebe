// SPDX-License-Identifier: Apache-2.0
// The mask of sequences with lengths of their own, where attention is composed.
#include "shaders/sequence_mask.h"

#include "ops/add_op.h"
#include "ops/checks.h"
#include "ops/gradient.h"
#include "ops/pushed_mask.h"
#include "ops/sequence_table.h"
#include "runtime/base/numbers.h"
#include "sequence_mask.spv.h"

namespace vkf {

namespace {

using namespace shader;
using namespace support;

const Shader kMask{"sequence_mask", spirv::kSequenceMaskSpirv};
constexpr const char* kName = "sequence_mask";
constexpr uint kLocalSize = 64;

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
    push.window = pushed_window(params.window, push.queries, push.keys);
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
    l.dispatch({{&kMask,
                 {kLocalSize,
                  {{kSequenceMaskSpecPacked, params.packed ? 1u : 0u},
                   {kSequenceMaskSpecCausal, causal_constant(params.causal)}}},
                 ""}},
               {{table, Access::read}, {l.output(0), Access::write}}, prepare_mask);
}

constexpr OpType kSequenceMask{.name = kName, .lower = lower_mask, .can_read = can_read_any, .gradient = no_gradient};

}  // namespace

Value sequence_mask(Value query, Value key, Value cumulative_queries, Value keys, Causal causal, std::int64_t window) {
    require(query.rank() == 4 && key.rank() == 4, kName, query.str() + " and " + key.str() + " must have rank 4");
    check_window(kName, causal, window);
    const bool packed = bool(cumulative_queries);
    std::vector<Value> inputs{query, key, keys};
    if (packed) {
        check_cumulative_queries(kName, query, cumulative_queries);
        check_cumulative_keys(kName, keys, cumulative_queries);
        inputs.push_back(cumulative_queries);
        constrain_cumulative(cumulative_queries);
    } else {
        check_lengths(kName, "keys", keys, query, query.size(0));
    }
    return add_op(kSequenceMask, inputs, SequenceMaskParams{packed, causal, window},
                  {query.size(0), query.size(2), key.size(2)}, DType::i32);
}

}  // namespace vkf
