// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "runtime/base/error.h"
#include "runtime/graph/dim.h"

using namespace vkf;

namespace {

const Dim a = Dim::symbol(0);
const Dim b = Dim::symbol(1);
const Dim c = Dim::symbol(2);
const std::vector<std::string> names{"a", "b", "c"};

Dim quotient(const Dim& x, const Dim& divisor) {
    Dim out(-12345);
    return x.divided_by(divisor, out) ? out : Dim(-1);
}

}  // namespace

TEST_CASE("dim: equal polynomials are equal however they came about") {
    CHECK(a + b == b + a);
    CHECK(a * b == b * a);
    CHECK((a + 1) * (a - 1) == a * a - 1);
    CHECK((a + b) * (a + b) == a * a + 2 * a * b + b * b);
    CHECK((a * b) * c == a * (b * c));
    CHECK(a - a == Dim(0));
    CHECK((a - a).is_constant());
    CHECK((0 * a).is_constant());
    CHECK(a * 3 - a - a - a == Dim(0));
    CHECK_FALSE(a == b);
    CHECK_FALSE(a == Dim(1));
    CHECK_FALSE(2 * a == a);
    CHECK_FALSE(a * a == a);
    CHECK_FALSE(a + 1 == a);
}

TEST_CASE("dim: values") {
    const std::vector<std::int64_t> values{7, 11, 0};
    CHECK(Dim(5).eval(values) == 5);
    CHECK((a * b + 3 * a - 4).eval(values) == 77 + 21 - 4);
    CHECK((a * a * b * b).eval(values) == 7 * 7 * 11 * 11);
    CHECK((a * c + 2).eval(values) == 2);
    CHECK((b - a * 2).eval(values) == -3);
}

TEST_CASE("dim: text") {
    CHECK(Dim().str(names) == "0");
    CHECK(Dim(-3).str(names) == "-3");
    CHECK(a.str(names) == "a");
    CHECK((8 * a * b + 8).str(names) == "8*a*b+8");
    CHECK((b - a).str(names) == "-a+b");
    CHECK((a * a - 1).str(names) == "a*a-1");
    CHECK(Dim::symbol(9).str(names) == "?");
}

TEST_CASE("dim: division is exact or refused") {
    CHECK(quotient(Dim(12), Dim(4)) == Dim(3));
    CHECK(quotient(Dim(12), Dim(5)) == Dim(-1));
    CHECK(quotient(Dim(12), Dim(0)) == Dim(-1));
    CHECK(quotient(8 * a + 4, Dim(4)) == 2 * a + 1);
    CHECK(quotient(8 * a + 2, Dim(4)) == Dim(-1));
    CHECK(quotient(6 * a * b + 3 * b, b) == 6 * a + 3);
    CHECK(quotient(6 * a * b + 3 * b, 3 * b) == 2 * a + 1);
    CHECK(quotient(a * a * b, a) == a * b);
    CHECK(quotient(a * a * b, a * a) == b);
    CHECK(quotient(a * b + 1, a) == Dim(-1));
    CHECK(quotient(a, b) == Dim(-1));
    CHECK(quotient(a, a * a) == Dim(-1));
    CHECK(quotient(Dim(4), a) == Dim(-1));
    CHECK(quotient(Dim(0), a) == Dim(0));
    CHECK(quotient(a + b, a + b) == Dim(1));
    CHECK(quotient(a + b, a + c) == Dim(-1));
    constexpr std::int64_t kLeast = std::numeric_limits<std::int64_t>::min();
    Dim out(-12345);
    CHECK_FALSE((a + kLeast).divided_by(Dim(-1), out));
    CHECK(out == Dim(-12345));
    REQUIRE((a + (kLeast + 1)).divided_by(Dim(-1), out));
    CHECK(out == std::numeric_limits<std::int64_t>::max() - a);
}

TEST_CASE("dim: bounds hold whatever the symbols are") {
    const std::vector<std::int64_t> maxima{8, 5, 3};
    CHECK((8 - a).upper_bound(maxima) == 8);
    CHECK((8 - a).lower_bound(maxima) == 0);
    CHECK((a * b - 2 * c + 1).upper_bound(maxima) == 41);
    CHECK((a * b - 2 * c + 1).lower_bound(maxima) == -5);
    CHECK(Dim(7).upper_bound(maxima) == 7);
    CHECK(Dim(-7).lower_bound(maxima) == -7);
}

TEST_CASE("dim: a product of too many symbols is refused") {
    CHECK_NOTHROW(a * a * b * c);
    CHECK_THROWS_AS(a * a * b * c * a, Error);
    CHECK_THROWS_AS((a * a) * (b * b * c), Error);
}

TEST_CASE("dim: what does not fit in 64 bits is refused, and its bounds are the last that do") {
    constexpr std::int64_t kGreatest = std::numeric_limits<std::int64_t>::max();
    constexpr std::int64_t kLeast = std::numeric_limits<std::int64_t>::min();
    const Dim half(std::int64_t{1} << 62);
    CHECK_THROWS_AS(half + half, Error);
    CHECK_THROWS_AS(half * 2, Error);
    CHECK_THROWS_AS(a * half * 2, Error);
    CHECK_THROWS_AS((half * a) * (2 * b), Error);
    CHECK_THROWS_AS(half * a + half * a, Error);
    CHECK_THROWS_AS(Dim(-1) - half - half, Error);
    CHECK_THROWS_AS(Dim(0) - Dim(kLeast), Error);
    CHECK(half - 1 + half == Dim(kGreatest));
    CHECK(half * -1 - half == Dim(kLeast));
    CHECK(Dim(kGreatest) * -1 == Dim(-kGreatest));
    CHECK((Dim(-kGreatest) * a).str(names) == "-9223372036854775807*a");
    CHECK(((half * -1) * a - half * a).str(names) == "-9223372036854775808*a");
    const std::vector<std::int64_t> maxima{4, 3, 0};
    CHECK((half * a + 8).upper_bound(maxima) == kGreatest);
    CHECK((half * a + 8).lower_bound(maxima) == 8);
    CHECK((8 - half * a * b).lower_bound(maxima) == kLeast + 8);
    CHECK((half * b - 1 + half * a).upper_bound(maxima) == kGreatest);
    CHECK((half * a * c).upper_bound(maxima) == 0);
}

TEST_CASE("dim: strides and counts of shapes") {
    const Shape shape{a, 3, b, 4};
    const Shape strides = contiguous_strides(shape);
    REQUIRE(strides.size() == 4);
    CHECK(strides[3] == Dim(1));
    CHECK(strides[2] == Dim(4));
    CHECK(strides[1] == 4 * b);
    CHECK(strides[0] == 12 * b);
    CHECK(elements(shape) == 12 * a * b);
    CHECK(elements({}) == Dim(1));
    CHECK(contiguous_strides({}).empty());
}
