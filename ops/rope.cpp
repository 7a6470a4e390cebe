// SPDX-License-Identifier: Apache-2.0
#include "shaders/rope.h"

#include <algorithm>
#include <limits>
#include <memory>
#include <span>

#include "ops/add_op.h"
#include "ops/checks.h"
#include "ops/fours.h"
#include "ops/gradient.h"
#include "ops/rope_table.h"
#include "ops/row_load.h"
#include "ops/stored_order.h"
#include "rope.spv.h"
#include "runtime/base/numbers.h"
#include "runtime/compile/lowering.h"
#include "runtime/graph/edit.h"

namespace vkf {

namespace {

using namespace shader;
using namespace support;

const Shader kShader{"rope", spirv::kRopeSpirv};
const Shader kWide{"rope_wide", spirv::kRopeSpirv, kWideLoads};
constexpr const char* kName = "rope";
constexpr uint kLocalSize = 64;

/// Refuses tables of more numbers than kernels count, which no memory of a host's need hold first.
void check_table(const char* op, std::int64_t positions, std::int64_t numbers) {
    constexpr std::int64_t kMost = std::numeric_limits<std::uint32_t>::max();
    require(positions <= kMost / std::max<std::int64_t>(numbers, 1), op,
            "a table of " + std::to_string(positions) + " positions by " + std::to_string(numbers) +
                " has more than 2^32 - 1 numbers");
}

struct RopeParams {
    RopeLayout layout;
    bool positions;
    bool back = false;  ///< turns the other way, as its gradient does
};

void prepare(const Operands& operands, Command& command) noexcept {
    const View& x = operands[kRopeBindingX];
    const View& y = operands[kRopeBindingY];
    const View& table = operands[kRopeBindingTable];
    const View& positions = operands[kRopeBindingPositions];
    RopePush push{};
    push.width = x.dim(0);
    push.pairs = table.dim(1);
    for (std::size_t i = 0; i < kMaxRank; ++i) {
        if (i < 4) {
            push.size[i] = x.size[i];
        }
        push.x_stride[i] = x.stride[i];
        push.y_stride[i] = y.stride[i];
    }
    const std::uint64_t each = operands.words[0], positions_in_all = push.size[3];
    const std::uint64_t others = std::uint64_t{push.size[0]} * push.size[1] * push.size[2];
    push.count = static_cast<uint>(each == 0 ? x.rows() * (push.width - push.pairs)
                                             : push.width / 8 * positions_in_all * divide_up(others, each));
    push.x_offset = x.offset;
    push.y_offset = y.offset;
    push.table_rows = table.dim(2);
    push.table_offset = table.offset;
    push.positions_offset = positions.offset;
    push.positions_stride = positions.step(0);
    command.push(push);
    command.groups(divide_up(push.count, kLocalSize));
    command.cost(static_cast<double>(x.elements()) * 3, static_cast<double>(x.elements()) * 8);
}

void lower(Lowering& l) {
    const auto& params = l.params<RopeParams>();
    const ValueInfo& table = l.info(l.input(1));
    const auto multiple_of_8 = [](const Dim& d) { return d.is_constant() && d.constant() % 8 == 0; };
    Dim table_fours;
    const bool fours = in_fours(l.info(l.input(0))) && in_fours(l.info(l.output(0))) &&
                       multiple_of_8(l.info(l.input(0)).shape.back()) && multiple_of_8(table.shape[1] * Dim(2)) &&
                       table.offset.divided_by(Dim(4), table_fours);
    const uint items = !fours ? 0u : l.device().cpu() ? 8u : 1u;
    const uint half = params.layout == RopeLayout::half ? 1u : 0u;
    const RowLoad load = row_load(l, fours, kWide);
    l.dispatch({{load.wide ? &kWide : &kShader,
                 {kLocalSize,
                  {{kRopeSpecHalf, half},
                   {kRopeSpecPositions, params.positions ? 1u : 0u},
                   {kRopeSpecFours, items},
                   {kRopeSpecBack, params.back ? 1u : 0u}}},
                 (fours ? "eight elements an item" : "two elements an item") + load.note}},
               {{l.input(0), Access::read},
                {l.input(1), Access::read},
                {l.input(params.positions ? 2 : 1), Access::read},
                {l.output(0), Access::write}},
               prepare, {items});
}

/// The table is dense.
bool can_read(const NodeInfo&, std::size_t i, const ValueInfo&, const ValueInfo& moved) {
    return i == 0 || is_contiguous(moved.shape, moved.strides);
}

std::vector<Value> gradient(const GradientSite& site);

constexpr OpType kRope{.name = kName, .lower = lower, .can_read = can_read, .gradient = gradient, .writes_views = true};

/// A rotation's transpose is the rotation back.
std::vector<Value> gradient(const GradientSite& site) {
    RopeParams p = site.params<RopeParams>();
    if (site.wanted(1)) {
        fail(kName, "the table " + site.input(1).str() + " has no gradient");
    }
    p.back = !p.back;
    std::vector<Value> inputs{site.gradient()};
    for (std::size_t i = 1; i < site.inputs(); ++i) {
        inputs.push_back(site.input(i));
    }
    const Value x = site.input(0);
    return {add_op(kRope, inputs, p, x.shape(), DType::f32, order_like(x))};
}

std::int64_t rotary_dim(const Rope& o, std::int64_t head_dim) {
    const std::int64_t r = o.rotary_dim == 0 ? head_dim : o.rotary_dim;
    require(r >= 2 && r % 2 == 0 && r <= head_dim, kName,
            "rotary_dim = " + std::to_string(r) + " is not even and in 2.." + std::to_string(head_dim));
    return r;
}

/// Frequencies of the pairs, radians a position; `magnitude` scales cos and sin (YaRN).
std::vector<double> frequencies(const Rope& o, std::int64_t r, double& magnitude) {
    const RopeScaling& s = o.scaling;
    const double width = static_cast<double>(r);
    const auto original = static_cast<double>(s.original_max_positions);
    constexpr double kTwoPi = 6.283185307179586476925286766559;
    double theta = o.theta;
    if (s.kind == RopeScaling::Kind::ntk) {
        theta *= std::pow(s.factor, width / (width - 2.0));
    }
    magnitude = 1.0;
    if (s.kind == RopeScaling::Kind::yarn) {
        magnitude = s.attention_factor != 0.0 ? s.attention_factor : 0.1 * std::log(std::max(s.factor, 1.0)) + 1.0;
    }
    std::vector<double> out;
    for (std::int64_t i = 0; i < r / 2; ++i) {
        double f = std::pow(theta, -2.0 * static_cast<double>(i) / width);
        if (s.kind == RopeScaling::Kind::linear) {
            f /= s.factor;
        } else if (s.kind == RopeScaling::Kind::llama3) {
            const double wave = kTwoPi / f;
            if (wave > original / s.low_freq_factor) {
                f /= s.factor;
            } else if (wave >= original / s.high_freq_factor) {
                const double t = (original / wave - s.low_freq_factor) / (s.high_freq_factor - s.low_freq_factor);
                f = (1.0 - t) * f / s.factor + t * f;
            }
        } else if (s.kind == RopeScaling::Kind::yarn) {
            const auto at = [&](double turns) {
                return width * std::log(original / (turns * kTwoPi)) / (2.0 * std::log(theta));
            };
            const double first = at(s.beta_fast);
            const double last = at(s.beta_slow);
            const double low = std::max(s.truncate ? std::floor(first) : first, 0.0);
            const double high = std::min(s.truncate ? std::ceil(last) : last, width - 1.0);
            // negative where the betas are given the other way round, as transformers takes it
            const double span = high == low ? 0.001 : high - low;
            const double ramp = std::clamp((static_cast<double>(i) - low) / span, 0.0, 1.0);
            f = f * (1.0 - ramp) + f / s.factor * ramp;
        }
        out.push_back(f);
    }
    return out;
}

Value add_rope(Value x, Value table, Value positions, RopeLayout layout) {
    std::vector<Value> inputs{x, table};
    if (positions) {
        inputs.push_back(positions);
    }
    return add_op(kRope, inputs, RopeParams{layout, bool(positions)}, x.shape());
}

/// Throws where angles cannot be computed; r is what rotary_dim() gave.
void check_angles(const Rope& o, std::int64_t r) {
    require(std::isfinite(o.theta) && o.theta > 0, kName,
            "theta = " + std::to_string(o.theta) + " is not finite and positive");
    const RopeScaling& s = o.scaling;
    using Kind = RopeScaling::Kind;
    require(s.kind == Kind::none || (std::isfinite(s.factor) && s.factor > 0), kName,
            "scaling factor = " + std::to_string(s.factor) + " is not finite and positive");
    require(s.kind != Kind::ntk || r > 2, kName, "ntk scaling needs a rotary_dim above 2");
    require((s.kind != Kind::llama3 && s.kind != Kind::yarn) || s.original_max_positions > 0, kName,
            "this scaling needs original_max_positions");
    require(s.kind != Kind::llama3 || (s.low_freq_factor > 0 && s.high_freq_factor > s.low_freq_factor), kName,
            "llama3 scaling needs 0 < low_freq_factor < high_freq_factor");
    require(s.kind != Kind::yarn || (s.beta_fast > 0 && s.beta_slow > 0 && o.theta > 1), kName,
            "yarn scaling needs positive beta_fast and beta_slow and theta > 1");
    require(std::isfinite(s.attention_factor) && s.attention_factor >= 0, kName,
            "attention_factor = " + std::to_string(s.attention_factor) + " is not finite and >= 0");
}

/// A table that is computed when a program gets its memory.
class TableOfAngles final : public ConstantData {
public:
    explicit TableOfAngles(const Rope& angles) : angles_(angles) {}
    std::vector<std::byte> bytes() const override {
        const std::vector<float> table = rope_table(angles_, angles_.rotary_dim);
        const std::span<const std::byte> bytes = std::as_bytes(std::span(table));
        return {bytes.begin(), bytes.end()};
    }
    bool same_as(const ConstantData& other) const override {
        const auto* table = dynamic_cast<const TableOfAngles*>(&other);
        return table != nullptr && table->angles_ == angles_;
    }

private:
    Rope angles_;
};

Value table_for(Value x, const Rope& o) {
    require_dtype(kName, x, DType::f32);
    require(x.rank() >= 2 && x.size(-1).is_constant(), kName,
            x.str() + " must be (..., tokens, head_dim) with a fixed head_dim");
    return table_of_angles(x.graph(), "rope_table", o, x.size(-1).constant());
}

}  // namespace

RopeScaling::Kind rope_scaling_kind(std::string_view name) {
    using Kind = RopeScaling::Kind;
    constexpr std::pair<std::string_view, Kind> kKinds[] = {{"default", Kind::none},
                                                            {"linear", Kind::linear},
                                                            {"ntk", Kind::ntk},
                                                            {"llama3", Kind::llama3},
                                                            {"yarn", Kind::yarn}};
    for (const auto& [known, kind] : kKinds) {
        if (name == known) {
            return kind;
        }
    }
    const char* why = name == "dynamic" ? " is not supported: its frequencies change with the length of each call; "
                                        : " is not known; there are default, linear, ntk, llama3 and yarn; ";
    throw Error("scaling \"" + std::string(name) + "\"" + why + "rope_by_table() takes a table of the caller's", kName);
}

std::vector<float> rope_table(const Rope& options, std::int64_t head_dim) {
    const std::int64_t r = rotary_dim(options, head_dim);
    check_angles(options, r);
    double magnitude = 1.0;
    const std::vector<double> f = frequencies(options, r, magnitude);
    check_table(kName, options.max_positions, static_cast<std::int64_t>(2 * f.size()));
    std::vector<float> table;
    table.reserve(static_cast<std::size_t>(options.max_positions) * f.size() * 2);
    for (std::int64_t position = 0; position < options.max_positions; ++position) {
        for (const double frequency : f) {
            const double angle = static_cast<double>(position) * frequency;
            table.push_back(static_cast<float>(std::cos(angle) * magnitude));
            table.push_back(static_cast<float>(std::sin(angle) * magnitude));
        }
    }
    return table;
}

Value table_of_angles(Graph& graph, const std::string& name, const Rope& options, std::int64_t head_dim) {
    require(options.max_positions >= 1, kName,
            "max_positions = " + std::to_string(options.max_positions) + " is not positive");
    Rope angles = options;  // what decides the numbers
    angles.rotary_dim = rotary_dim(options, head_dim);
    angles.layout = RopeLayout::half;
    check_angles(angles, angles.rotary_dim);
    return GraphEdit::constant(graph, name, {angles.max_positions, angles.rotary_dim / 2, 2},
                               std::make_shared<const TableOfAngles>(angles));
}

Value rope(Value x, const Rope& options, Dim start) {
    const Value table = table_for(x, options);
    return add_rope(x, slice(table, 0, std::move(start), x.size(-2)), {}, options.layout);
}

Value rope_at(Value x, Value positions, const Rope& options) {
    const Value table = table_for(x, options);
    require_dtype(kName, positions, DType::i32);
    require(positions.shape() == Shape{x.size(-2)}, kName,
            positions.str() + " must hold one position for each of the " + x.graph().str(x.size(-2)) + " rows of " +
                x.str());
    return add_rope(x, table, positions, options.layout);
}

Value rope_by_table(Value x, Value table, RopeLayout layout, Dim start) {
    require_dtype(kName, x, DType::f32);
    require_dtype(kName, table, DType::f32);
    require(x.rank() >= 2 && x.size(-1).is_constant(), kName,
            x.str() + " must be (..., tokens, head_dim) with a fixed head_dim");
    require(table.rank() == 3 && table.size(2) == Dim(2) && table.size(1).is_constant() &&
                2 * table.size(1).constant() <= x.size(-1).constant(),
            kName, table.str() + " must be (positions, pairs, 2) with no more pairs than " + x.str() + " has");
    return add_rope(x, slice(dense(table), 0, std::move(start), x.size(-2)), {}, layout);
}

Value sinusoidal_positions(Graph& graph, std::int64_t length, std::int64_t dim) {
    constexpr const char* kSinusoid = "sinusoidal_positions";
    require(length >= 1 && dim >= 1, kSinusoid,
            "length " + std::to_string(length) + " and dim " + std::to_string(dim) + " must be positive");
    check_table(kSinusoid, length, dim);
    std::vector<float> table;
    for (std::int64_t position = 0; position < length; ++position) {
        for (std::int64_t i = 0; i < dim; ++i) {
            const double exponent = -static_cast<double>(i / 2 * 2) / static_cast<double>(dim);
            const double angle = static_cast<double>(position) * std::pow(10000.0, exponent);
            table.push_back(static_cast<float>(i % 2 == 0 ? std::sin(angle) : std::cos(angle)));
        }
    }
    return graph.constant(kSinusoid, {length, dim}, table);
}

}  // namespace vkf
