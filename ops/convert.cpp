// SPDX-License-Identifier: Apache-2.0
// Copies that change the type, or whose type has 16 bits.
#include "ops/convert.h"

#include "shaders/convert.h"

#include <algorithm>
#include <array>

#include "convert.spv.h"
#include "ops/add_op.h"
#include "ops/checks.h"
#include "ops/gradient.h"
#include "runtime/base/numbers.h"
#include "runtime/graph/packed.h"
#include "runtime/graph/sixteen.h"

namespace vkf {

namespace {

using namespace shader;
using namespace support;

constexpr const char* kName = "to";
constexpr uint kLocalSize = 64;

const Shader kShader{"convert", spirv::kConvertSpirv};

uint kind_of(DType dtype) { return static_cast<uint>(kept_as(dtype)); }

struct Dimension {
    uint size, from, to;
};

/// Sorts the dimensions as they lie in `to`, the innermost last, and joins those that follow each
/// other there into runs: of a window of a dense tensor no two runs touch, so that no two
/// invocations write the same word. Of 16 bits there are `pairs` of elements in a word.
void describe(ConvertPush& push, const View& from, const View& to, bool pairs) noexcept {
    std::array<Dimension, kMaxRank> dims;
    for (std::size_t i = 0; i < kMaxRank; ++i) {
        dims[i] = {to.size[i], from.stride[i], to.size[i] == 1 ? ~0u : to.stride[i]};
    }
    std::sort(dims.begin(), dims.end(), [](const Dimension& a, const Dimension& b) { return a.to > b.to; });
    push.run = 1;
    bool even = to.offset % 2 == 0;
    for (std::size_t i = kMaxRank; i-- > 0;) {
        const Dimension& d = dims[i];
        push.size[i] = d.size;
        push.from_stride[i] = d.size == 1 ? 0 : d.from;
        push.to_stride[i] = d.size == 1 ? 0 : d.to;
        if (d.size != 1 && d.to == push.run) {
            push.run *= d.size;
        } else if (d.size != 1) {
            even = even && d.to % 2 == 0;
        }
    }
    push.run_words = !pairs ? push.run : even ? static_cast<uint>(divide_up(push.run, 2)) : push.run / 2 + 1;
    push.count = static_cast<uint>(to.elements() / push.run * push.run_words);
    push.from_offset = from.offset;
    push.to_offset = to.offset;
}

void prepare(const Operands& operands, Command& command) noexcept {
    const View& from = operands[kConvertBindingFrom];
    const View& to = operands[kConvertBindingTo];
    const std::uint64_t elements = to.elements();
    ConvertPush push{};
    if (elements != 0) {
        describe(push, from, to, operands.words[0] != 0);
    }
    command.push(push);
    command.groups(divide_up(push.count, kLocalSize * kConvertPerInvocation));
    command.cost(static_cast<double>(elements), static_cast<double>(elements) * 6);
}

void lower(Lowering& l) { lower_conversion(l, l.input(0), l.output(0)); }

/// Gradients are f32, whatever the type of what they are of.
std::vector<Value> gradient(const GradientSite& site) { return {site.gradient()}; }

constexpr OpType kTo{.name = kName, .lower = lower, .can_read = can_read_any, .gradient = gradient};

}  // namespace

void support::lower_conversion(Lowering& l, ValueId from, ValueId to) {
    const ValueInfo& target = l.info(to);
    const auto dense = [&](const ValueInfo& v) { return v.strides == contiguous_strides(target.shape); };
    // A whole tensor has no neighbours that share its first and last word.
    const bool whole = to == l.output(0) && l.node().writes.empty();
    const bool pairs = size_of(l.dtype(to)) == 2;
    l.dispatch({{&kShader,
                 {kLocalSize,
                  {{kConvertSpecFrom, kind_of(l.dtype(from))},
                   {kConvertSpecTo, kind_of(l.dtype(to))},
                   {kConvertSpecDense, dense(l.info(from)) && dense(target) ? 1u : 0u},
                   {kConvertSpecKeep, pairs && !whole ? 1u : 0u}}},
                 pairs ? "two numbers a word" : ""}},
               {{from, Access::read}, {to, pairs && !whole ? Access::read_write : Access::write}}, prepare,
               {pairs ? 1u : 0u});
}

Value to(Value x, DType dtype) {
    if (x.dtype() == dtype) {
        return x;
    }
    for (const DType type : {x.dtype(), dtype}) {
        require(is_floating(type), kName,
                x.str() + " cannot become " + std::string(name_of(dtype)) + ": F32, F16 and BF16 are converted");
    }
    return x.graph().add_node(kTo, {x}, nullptr, {{dtype, x.shape()}}).front();
}

}  // namespace vkf
