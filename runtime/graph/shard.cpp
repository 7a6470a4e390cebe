// SPDX-License-Identifier: Apache-2.0
#include "runtime/graph/shard.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>
#include <span>
#include <string>

#include "runtime/base/error.h"
#include "runtime/base/mapped_bytes.h"
#include "runtime/graph/packed.h"
#include "shaders/common/packed.h"

namespace vkf {

namespace {

/// Writes bytes behind each other into floats, which hold any bits.
class ByteWriter {
public:
    ByteWriter(std::vector<float>& owned, std::uint64_t bytes) : owned_(owned) {
        owned_.assign(static_cast<std::size_t>((bytes + 3) / 4), 0.0f);
    }
    void put(std::span<const std::byte> bytes) {
        copy_bytes(bytes, std::as_writable_bytes(std::span(owned_)).data() + at_);
        at_ += bytes.size();
    }
    void skip(std::uint64_t bytes) { at_ += static_cast<std::size_t>(bytes); }
    std::span<const std::byte> bytes() const { return std::as_bytes(std::span(owned_)).first(at_); }

private:
    std::vector<float>& owned_;
    std::size_t at_ = 0;
};

std::int64_t columns_of(const Shard& shard) {
    std::int64_t columns = 0;
    for (const Part& p : shard.parts) {
        columns += p.count;
    }
    return columns;
}

/// Columns of packed rows: of each row the codes of the parts, and their scales.
void cut_columns(const HostTensor& whole, const Shard& shard, ByteWriter& out) {
    const std::uint64_t row_words = packed_row_words(whole.type, static_cast<std::uint64_t>(shard.whole));
    const auto columns = static_cast<std::uint64_t>(columns_of(shard));
    const std::uint64_t words = packed_row_words(whole.type, columns);
    const std::uint64_t bits = whole.type == WeightType::int8 ? 8 : whole.type == WeightType::int4 ? 4 : 16;
    const auto code_bytes = [&](std::uint64_t of) { return (of * bits + 127) / 128 * 16; };
    for (std::int64_t row = 0; row < whole.shape[0]; ++row) {
        const auto from = whole.data.subspan(static_cast<std::size_t>(static_cast<std::uint64_t>(row) * row_words * 4),
                                             row_words * 4);
        std::uint64_t put = 0;
        const auto add = [&](std::uint64_t first, std::uint64_t count) {
            out.put(from.subspan(static_cast<std::size_t>(first), static_cast<std::size_t>(count)));
            put += count;
        };
        for (const Part& p : shard.parts) {
            add(static_cast<std::uint64_t>(p.first) * bits / 8, (static_cast<std::uint64_t>(p.count) * bits + 7) / 8);
        }
        out.skip(code_bytes(columns) - put);
        put = code_bytes(columns);
        const std::uint64_t scales = code_bytes(static_cast<std::uint64_t>(shard.whole));
        if (whole.type == WeightType::int8) {
            add(scales, 4);
        }
        for (const Part& p : shard.parts) {
            if (whole.type == WeightType::int4) {
                const auto group = static_cast<std::uint64_t>(shader::kPackedGroup);
                add(scales + static_cast<std::uint64_t>(p.first) / group * 4,
                    (static_cast<std::uint64_t>(p.count) + group - 1) / group * 4);
            }
        }
        out.skip(words * 4 - put);
    }
}

/// The most units that each rank gets done in a time, in which the fastest does `time`.
std::vector<std::int64_t> done_within(double time, std::int64_t least, std::span<const double> speeds) {
    std::vector<std::int64_t> counts;
    for (const double speed : speeds) {
        counts.push_back(std::max(least, static_cast<std::int64_t>(time * speed)));
    }
    return counts;
}

/// Units for each rank, so that the slowest takes the least time. Nothing here is added to a
/// product, which processors would round in unlike ways: ranks must come to the same.
std::vector<std::int64_t> units_by_speed(std::int64_t units, std::vector<double> speeds) {
    const double most = *std::max_element(speeds.begin(), speeds.end());
    for (double& speed : speeds) {
        speed /= most;
    }
    const std::int64_t least = units >= static_cast<std::int64_t>(speeds.size()) ? 1 : 0;
    const auto sum = [](const std::vector<std::int64_t>& counts) {
        return std::accumulate(counts.begin(), counts.end(), std::int64_t{0});
    };
    double enough = 0, too_much = static_cast<double>(units) + 1;
    for (int i = 0; i < 100; ++i) {
        const double time = (enough + too_much) / 2;
        (sum(done_within(time, least, speeds)) <= units ? enough : too_much) = time;
    }
    std::vector<std::int64_t> counts = done_within(enough, least, speeds);
    for (std::int64_t left = units - sum(counts); left > 0; --left) {
        std::size_t soonest = 0;
        const auto time = [&](std::size_t r) { return static_cast<double>(counts[r] + 1) / speeds[r]; };
        for (std::size_t r = 1; r < counts.size(); ++r) {
            soonest = time(r) < time(soonest) ? r : soonest;
        }
        ++counts[soonest];
    }
    return counts;
}

}  // namespace

void check_rank(const Rank& rank) {
    if (rank.ranks < 1 || rank.rank < 0 || rank.rank >= rank.ranks) {
        throw Error("rank " + std::to_string(rank.rank) + " is none of " + std::to_string(rank.ranks), "parallel");
    }
    if (!rank.speeds.empty() && rank.speeds.size() != static_cast<std::size_t>(rank.ranks)) {
        throw Error(std::to_string(rank.speeds.size()) + " speeds of " + std::to_string(rank.ranks) + " ranks",
                    "parallel");
    }
    for (const double speed : rank.speeds) {
        if (!(speed > 0 && std::isfinite(speed))) {
            throw Error("speed " + std::to_string(speed) + " of a rank is not above 0", "parallel");
        }
    }
}

Part share_of(std::int64_t size, const Rank& rank, std::int64_t unit) {
    check_rank(rank);
    if (size < 0 || unit < 1) {
        throw Error(std::to_string(size) + " things in units of " + std::to_string(unit) + " cannot be shared out",
                    "parallel");
    }
    const std::int64_t units = (size + unit - 1) / unit;
    if (!rank.speeds.empty()) {
        const std::vector<std::int64_t> counts = units_by_speed(units, rank.speeds);
        const auto own = counts.begin() + rank.rank;
        const std::int64_t begin = std::accumulate(counts.begin(), own, std::int64_t{0}) * unit;
        return {std::min(size, begin), std::min(size, begin + *own * unit) - std::min(size, begin)};
    }
    const std::int64_t each = units / rank.ranks, more = units % rank.ranks;
    const auto begin = [&](std::int64_t r) { return std::min(size, (r * each + std::min(r, more)) * unit); };
    return {begin(rank.rank), begin(rank.rank + 1) - begin(rank.rank)};
}

bool packed_shard(WeightType type, const Shard& shard) noexcept {
    if (type == WeightType::f32 || shard.dim == 0) {
        return true;
    }
    const std::int64_t unit = type == WeightType::int4 ? shader::kPackedGroup : type == WeightType::int8 ? 1 : 2;
    return std::all_of(shard.parts.begin(), shard.parts.end(), [&](const Part& p) {
        const bool last = &p == &shard.parts.back();
        return p.first % unit == 0 && (last || p.count % unit == 0) &&
               (p.count % unit == 0 || p.first + p.count == shard.whole);
    });
}

HostTensor cut(const HostTensor& whole, const Shard& shard, std::vector<float>& owned) {
    HostTensor out = whole;
    const auto fail = [&](const std::string& what) { throw Error(what, "tensor " + whole.name); };
    if (shard.dim >= whole.shape.size() || whole.shape[shard.dim] != shard.whole) {
        fail("has not the " + std::to_string(shard.whole) + " elements in dimension " + std::to_string(shard.dim) +
             " that are shared out");
    }
    for (const Part& p : shard.parts) {
        if (p.first < 0 || p.count < 0 || p.count > shard.whole || p.first > shard.whole - p.count) {
            fail("has no elements " + std::to_string(p.first) + " to " + std::to_string(p.first + p.count) +
                 " in dimension " + std::to_string(shard.dim));
        }
    }
    out.shape[shard.dim] = columns_of(shard);
    if (byte_size(whole) != whole.data.size()) {
        fail("has " + std::to_string(whole.data.size()) + " bytes, which its shape does not call for");
    }
    const bool packed = whole.type != WeightType::f32;
    if (packed && shard.dim == 1) {
        if (!packed_shard(whole.type, shard)) {
            fail("is packed as " + std::string(name_of(whole.type)) +
                 ", in groups of columns that its parts would cut");
        }
        ByteWriter writer(owned, *byte_size(HostTensor{whole.name, whole.dtype, out.shape, {}, whole.type}));
        cut_columns(whole, shard, writer);
        out.data = writer.bytes();
        return out;
    }
    std::uint64_t outer = 1, inner = packed ? 1 : size_of(whole.dtype);
    for (std::size_t i = 0; i < whole.shape.size(); ++i) {
        const auto size = static_cast<std::uint64_t>(whole.shape[i]);
        if (i < shard.dim) {
            outer *= size;
        } else if (i > shard.dim) {
            inner *= packed ? packed_row_words(whole.type, size) * 4 : size;
        }
    }
    const std::uint64_t step = static_cast<std::uint64_t>(shard.whole) * inner;
    const auto bytes_of = [&](std::uint64_t o, const Part& p) {
        return whole.data.subspan(static_cast<std::size_t>(o * step + static_cast<std::uint64_t>(p.first) * inner),
                                  static_cast<std::size_t>(static_cast<std::uint64_t>(p.count) * inner));
    };
    if (outer == 1 && shard.parts.size() == 1) {
        out.data = bytes_of(0, shard.parts.front());
        return out;
    }
    ByteWriter writer(owned, outer * static_cast<std::uint64_t>(columns_of(shard)) * inner);
    for (std::uint64_t o = 0; o < outer; ++o) {
        for (const Part& p : shard.parts) {
            writer.put(bytes_of(o, p));
        }
    }
    out.data = writer.bytes();
    return out;
}

}  // namespace vkf
