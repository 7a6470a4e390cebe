// SPDX-License-Identifier: Apache-2.0
// Ops on rows and elements: norms, softmax, positions, gathering, choosing, converting.
#include <algorithm>
#include <cmath>

#include "doctor/cases.h"
#include "ops/ops.h"
#include "runtime/graph/packed.h"

namespace vkf::doctor {

namespace {

std::size_t size(std::int64_t n) { return static_cast<std::size_t>(n); }

Expected exact(Doubles values) { return within(std::move(values), 0, 0); }

/// A mask hides numbers that are not finite; masked weights are -0.0.
Case masked_softmax(std::int64_t width) {
    Case c;
    constexpr std::int64_t kRows = 5;
    Doubles scores = numbers(size(kRows * width), 11, 30), keep(scores.size(), 1);
    for (std::size_t i = 0; i < scores.size(); ++i) {
        if (i % 3 == 1) {
            keep[i] = 0;
            scores[i] = i % 2 == 0 ? kNan : kInfinity;
        }
    }
    const Value mask = c.input("mask", {kRows, width}, keep, DType::i32);
    const Value y = vkf::softmax(c.input("scores", {kRows, width}, scores), {.mask = {.keys = mask}});
    c.output("y", y, within(doctor::softmax(scores, width, [&](std::size_t i) { return keep[i] == 0; })), DType::f32,
             true);
    return c;
}

/// A small spread on a large mean.
Case layer_norms(std::int64_t width) {
    Case c;
    constexpr std::int64_t kRows = 19;  // fills subgroups of up to 16, and the last in part
    Doubles x = numbers(size(kRows * width), 12);
    for (double& v : x) {
        v += 1024;
    }
    const Doubles w = numbers(size(width), 13), b = numbers(size(width), 14);
    const Value weight = c.input("w", {width}, w), bias = c.input("b", {width}, b);
    c.output("y", layer_norm(c.input("x", {kRows, width}, x), weight, bias),
             within(norm(x, width, w, b, 1e-5, true), 1e-3, 1e-3));
    const Doubles near_one = numbers(size(kRows * width), 15);
    c.output("z", rms_norm(c.input("r", {kRows, width}, near_one), weight),
             within(norm(near_one, width, w, {}, 1e-6, false)));
    return c;
}

Doubles turned(const Doubles& x, std::int64_t rows, std::int64_t dim, const Doubles& positions) {
    Doubles out(x.size());
    for (std::size_t i = 0; i < x.size(); ++i) {
        const std::size_t column = i % size(dim), half = size(dim) / 2, pair = column % half;
        const double angle = positions[i / size(dim) % size(rows)] *
                             std::pow(10000.0, -2.0 * static_cast<double>(pair) / static_cast<double>(dim));
        const double other = x[column < half ? i + half : i - half];
        out[i] = x[i] * std::cos(angle) + (column < half ? -other : other) * std::sin(angle);
    }
    return out;
}

/// A position outside the table gives NaN.
Case rotary() {
    Case c;
    constexpr std::int64_t kRows = 7, kDim = 16;
    const Rope options{.layout = RopeLayout::half, .max_positions = 32};
    const Doubles x = numbers(size(2 * kRows * kDim), 16);
    Doubles from_three;
    for (std::int64_t i = 0; i < kRows; ++i) {
        from_three.push_back(static_cast<double>(3 + i));
    }
    const Value xv = c.input("x", {1, 2, kRows, kDim}, x);
    c.output("y", rope(xv, options, 3), within(turned(x, kRows, kDim, from_three)));
    const Doubles places{0, 31, 32, -1, 5, 2147483647, 1};
    Doubles want = turned(x, kRows, kDim, places);
    for (std::size_t i = 0; i < want.size(); ++i) {
        const double place = places[i / kDim % kRows];
        want[i] = place < 0 || place > 31 ? kNan : want[i];
    }
    c.output("z", rope_at(xv, c.input("places", {kRows}, places, DType::i32), options), within(want));
    return c;
}

/// An id outside the table gives a row of NaN.
Case gathered() {
    Case c;
    constexpr std::int64_t kRows = 9, kWidth = 21;
    const Doubles ids{0, 8, 9, -1, 4, 2147483647, -2147483647, 3}, table = numbers(size(kRows * kWidth), 17);
    Doubles packed = table, want, of_packed;
    const Value p = c.weight("packed", {kRows, kWidth}, packed, WeightType::int8);
    for (const double id : ids) {
        for (std::int64_t i = 0; i < kWidth; ++i) {
            const bool there = id >= 0 && id < static_cast<double>(kRows);
            const std::size_t at = there ? static_cast<std::size_t>(id) * size(kWidth) + size(i) : 0;
            want.push_back(there ? table[at] : kNan);
            of_packed.push_back(there ? packed[at] : kNan);
        }
    }
    const Value i = c.input("ids", {static_cast<std::int64_t>(ids.size())}, ids, DType::i32);
    c.output("y", embedding(i, c.input("table", {kRows, kWidth}, table)), exact(want));
    c.output("z", embedding(i, p), within(of_packed, 1e-6, 1e-6));
    return c;
}

/// Of equals the first; a NaN counts as largest.
Case largest(std::int64_t width) {
    Case c;
    constexpr std::int64_t kRows = 3;
    const auto last = static_cast<double>(width - 1);
    Doubles x = numbers(size(kRows * width), 18, 0.5);
    x[700] = x[900] = 2;
    x[size(2 * width - 1)] = kInfinity;
    x[size(2 * width) + 17] = kNan;
    const Value xv = c.input("x", {kRows, width}, x);
    c.output("y", argmax(xv), exact({700, last, 17}), DType::i32);
    const TopK top = top_k(xv, 2);
    Doubles values{2, 2, kInfinity, 0, kNan, 0};
    Doubles indices{700, 900, last, 0, 17, 0};
    for (const std::size_t row : {std::size_t{1}, std::size_t{2}}) {
        const auto begin = x.begin() + static_cast<std::ptrdiff_t>(row * size(width)), end = begin + width;
        const auto second = std::max_element(begin, end, [](double a, double b) {
            const double low = -kInfinity;
            return (std::isfinite(a) ? a : low) < (std::isfinite(b) ? b : low);
        });
        values[2 * row + 1] = *second;
        indices[2 * row + 1] = static_cast<double>(second - begin);
    }
    c.output("values", top.values, exact(values));
    c.output("indices", top.indices, exact(indices), DType::i32);
    return c;
}

/// Signs of zeros, infinities and NaN go through; views at odd offsets too.
Case elements() {
    Case c;
    constexpr std::int64_t kRows = 5, kWidth = 13;
    Doubles x = numbers(size(kRows * kWidth), 19, 4);
    x[0] = -0.0;
    x[1] = kInfinity;
    x[2] = -kInfinity;
    x[3] = kNan;
    x[4] = 65504;
    const Value xv = c.input("x", {kRows, kWidth}, x);
    const Value minus_zero = c.input("zero", {1}, {-0.0});
    c.output("y", add(xv, minus_zero), exact(x), DType::f32, true);
    Doubles part, activated;
    for (std::int64_t row = 1; row < kRows; ++row) {
        for (std::int64_t i = 3; i < kWidth; ++i) {
            part.push_back(x[size(row * kWidth + i)]);
        }
    }
    const Value window = slice(slice(xv, 0, 1, kRows - 1), 1, 3, kWidth - 3);
    c.output("z", contiguous(window), exact(part));
    for (const double v : part) {
        activated.push_back(activate(Activation::gelu, v) + activate(Activation::silu, v));
    }
    c.output("w", gelu(window) + silu(window), within(activated));
    return c;
}

/// f16: the largest, what rounds to it, what becomes infinite, the smallest and what is below it.
Case converted() {
    Case c;
    const Doubles x{65504, 65519.996, 65520, -65520, 0x1p-24, 0x1p-26, -0.0, 1.0009765625, kInfinity, 0x1p-14, -3};
    const Doubles want{65504, 65504, kInfinity, -kInfinity, 0x1p-24, 0, -0.0, 1.0009765625, kInfinity, 0x1p-14, -3};
    const auto count = static_cast<std::int64_t>(x.size());
    const Value half = to(c.input("x", {count}, x), DType::f16);
    c.output("y", half, exact(want), DType::f16, true);
    c.output("z", to(half, DType::f32), exact(want), DType::f32, true);
    return c;
}

Case packed_rows_case() {
    Case c;
    constexpr std::int64_t kRows = 6, kWidth = 35;
    Doubles x = numbers(size(kRows * kWidth), 20), want = x;
    for (std::int64_t row = 0; row < kRows; ++row) {
        double most = 0;
        for (std::int64_t i = 0; i < kWidth; ++i) {
            most = std::max(most, std::abs(x[size(row * kWidth + i)]));
        }
        for (std::int64_t i = 0; i < kWidth; ++i) {
            double& v = want[size(row * kWidth + i)];
            v = std::nearbyint(v / (most / 127)) * (most / 127);
        }
    }
    const auto words = static_cast<std::int64_t>(packed_row_words(WeightType::int8, size(kWidth)));
    const Value kept = pack_into(c.graph->state("kept", {kRows, words}, DType::i32), c.input("x", {kRows, kWidth}, x),
                                 WeightType::int8);
    // a number half way between two codes may become either
    c.output("y", unpack_rows(kept, WeightType::int8, kWidth), within(want, 1.01 / 127, 0));
    return c;
}

/// Rows of a page outside the pool are NaN.
Case paged_rows() {
    Case c;
    constexpr std::int64_t kPages = 5, kPage = 4, kWidth = 6;
    const Doubles pool = numbers(size(kPages * kPage * kWidth), 21), table{4, 0, 5, -1, 2, 2147483647};
    Doubles want;
    for (const double page : table) {
        for (std::int64_t i = 0; i < kPage * kWidth; ++i) {
            const bool there = page >= 0 && page < static_cast<double>(kPages);
            want.push_back(there ? pool[size(static_cast<std::int64_t>(page) * kPage * kWidth + i)] : kNan);
        }
    }
    const Value t = c.input("table", {2, 3}, table, DType::i32);
    c.output("y", gather_pages(c.input("pool", {kPages, kPage, 1, kWidth}, pool), t), exact(want));
    return c;
}

/// A label outside the vocabulary is NaN; one that is ignored counts nothing.
Case losses() {
    Case c;
    constexpr std::int64_t kRows = 4, kWidth = 37;
    const Doubles x = numbers(size(kRows * kWidth), 22, 8), labels{3, -100, 36, 0};
    const Doubles p = doctor::softmax(x, kWidth, [](std::size_t) { return false; });
    double sum = 0;
    for (const std::size_t row : {std::size_t{0}, std::size_t{2}, std::size_t{3}}) {
        sum -= std::log(p[row * size(kWidth) + static_cast<std::size_t>(labels[row])]) / 3;
    }
    const Value xv = c.input("x", {kRows, kWidth}, x);
    c.output("y", cross_entropy(xv, c.input("labels", {kRows}, labels, DType::i32)), within({sum}));
    c.output("z", cross_entropy(xv, c.input("wrong", {kRows}, {3, 37, 36, 0}, DType::i32)), exact({kNan}));
    return c;
}

Case sums() {
    Case c;
    const Doubles x = numbers(size(7 * 45), 23);
    Doubles columns(45, 0);
    for (std::size_t i = 0; i < x.size(); ++i) {
        columns[i % 45] += x[i];
    }
    c.output("y", sum_to(c.input("x", {7, 45}, x), {1, 45}), within(columns));
    return c;
}

constexpr CaseMaker kRowCases[] = {
    {"softmax of 37, NaN and infinities masked", false, [] { return masked_softmax(37); }},
    {"softmax of 64, NaN and infinities masked", false, [] { return masked_softmax(64); }},
    {"norms of 37, a small spread on a large mean", false, [] { return layer_norms(37); }},
    {"norms of 68", false, [] { return layer_norms(68); }},
    {"rotary positions, some out of range", false, rotary},
    {"rows by ids, some out of range", false, gathered},
    {"argmax and top_k of 1031, with NaN and equals", false, [] { return largest(1031); }},
    {"elements: -0.0, infinities, NaN, odd views", false, elements},
    {"f16: near 65504, below its smallest, -0.0", false, converted},
    {"softmax of 17,001, NaN and infinities masked", true, [] { return masked_softmax(17001); }},
    {"norms of 9004", true, [] { return layer_norms(9004); }},
    {"argmax and top_k of 20,011, with NaN and equals", true, [] { return largest(20011); }},
    {"rows packed as int8", true, packed_rows_case},
    {"pages, some out of range", true, paged_rows},
    {"cross entropy, labels ignored and out of range", true, losses},
    {"sums over rows", true, sums},
};

}  // namespace

std::span<const CaseMaker> row_cases() { return kRowCases; }

}  // namespace vkf::doctor
