// SPDX-License-Identifier: Apache-2.0
#include "ops/attention_operands.h"

#include "attention_mask.spv.h"
#include "ops/attention_choice.h"
#include "ops/elementwise.h"
#include "runtime/base/numbers.h"

namespace vkf {

namespace {

using namespace support;

const Shader kMask{"attention_mask", spirv::kAttentionMaskSpirv};

/// The mask as bits, in scratch.
ValueId make_bits(Lowering& l, ValueId mask) {
    std::int64_t words = 1;
    const Shape& shape = l.info(mask).shape;
    for (std::size_t i = 0; i < shape.size(); ++i) {
        const std::int64_t size = l.max_of(shape[i]);
        words *=
            i + 1 == shape.size() ? static_cast<std::int64_t>(divide_up(static_cast<std::uint64_t>(size), 32)) : size;
    }
    const ValueId bits = l.scratch(DType::i32, {words});
    l.dispatch({{&kMask, {64}, "a bit a key"}}, {{mask, Access::read}, {bits, Access::write}}, prepare_mask_bits);
    return bits;
}

}  // namespace

ValueId support::with_rows(Lowering& l, ValueId v) { return l.info(v).strides.back() == Dim(1) ? v : copied(l, v); }

ValueId support::whole(Lowering& l, ValueId v) {
    const ValueInfo& info = l.info(v);
    return is_contiguous(info.shape, info.strides) && info.offset == Dim(0) ? v : copied(l, v);
}

ValueId support::pack_mask(Lowering& l, const AttentionParams& params) {
    const ValueId mask = l.input(static_cast<std::size_t>(params.mask));
    const bool flip = params.polarity == Polarity::ignore;
    return l.once(flip ? "bits of a mask, 1 = may not" : "bits of a mask", mask, [&] { return make_bits(l, mask); });
}

SequenceTable support::sequences_of(const Lowering& l, const AttentionParams& params, std::uint32_t rows,
                                    std::uint32_t group) {
    SequenceTable t;
    t.keys = l.input(static_cast<std::size_t>(params.key_numbers));
    t.packed_queries = params.cumulative_queries >= 0;
    t.queries = t.packed_queries ? l.input(static_cast<std::size_t>(params.cumulative_queries)) : t.keys;
    t.packed_keys = params.packed_keys;
    t.query = l.input(0);
    t.key = l.input(1);
    t.paged = params.pages >= 0;
    t.pages = t.paged ? l.input(static_cast<std::size_t>(params.pages)) : t.key;
    t.rows = rows;
    t.group = group;
    return t;
}

}  // namespace vkf
