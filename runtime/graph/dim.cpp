// SPDX-License-Identifier: Apache-2.0
#include "runtime/graph/dim.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <utility>

#include "runtime/base/error.h"

namespace vkf {

namespace {

constexpr std::int64_t kGreatest = std::numeric_limits<std::int64_t>::max();
constexpr std::int64_t kLeast = std::numeric_limits<std::int64_t>::min();

/// Nothing where the sum does not fit.
std::optional<std::int64_t> sum(std::int64_t a, std::int64_t b) noexcept {
    return (b > 0 ? a > kGreatest - b : a < kLeast - b) ? std::nullopt : std::optional(a + b);
}

std::uint64_t magnitude(std::int64_t x) noexcept {
    return x < 0 ? 0 - static_cast<std::uint64_t>(x) : static_cast<std::uint64_t>(x);
}

/// Nothing where the product, or its negative, does not fit.
std::optional<std::int64_t> product(std::int64_t a, std::int64_t b) noexcept {
    const bool fits = b == 0 || magnitude(a) <= static_cast<std::uint64_t>(kGreatest) / magnitude(b);
    return fits ? std::optional(a * b) : std::nullopt;
}

std::int64_t fitting(std::optional<std::int64_t> coefficient) {
    if (!coefficient) {
        throw Error("a size with a coefficient that does not fit in 64 bits");
    }
    return *coefficient;
}

}  // namespace

Dim Dim::symbol(std::uint16_t id) {
    Dim d;
    Term t;
    t.coefficient = 1;
    t.symbols[0] = id;
    t.degree = 1;
    d.terms_.push_back(t);
    return d;
}

std::size_t Dim::symbols() const noexcept {
    std::size_t count = 0;
    for (const Term& t : terms_) {
        for (std::uint8_t i = 0; i < t.degree; ++i) {
            count = std::max(count, std::size_t{t.symbols[i]} + 1);
        }
    }
    return count;
}

std::int64_t Dim::eval(const Term& t, std::span<const std::int64_t> values) noexcept {
    std::int64_t product = t.coefficient;
    for (std::uint8_t i = 0; i < t.degree; ++i) {
        product *= values[t.symbols[i]];
    }
    return product;
}

std::int64_t Dim::eval(std::span<const std::int64_t> values) const noexcept {
    std::int64_t sum = constant_;
    for (const Term& t : terms_) {
        sum += eval(t, values);
    }
    return sum;
}

std::int64_t Dim::bound(std::span<const std::int64_t> maxima, bool upper) const noexcept {
    const std::int64_t last = upper ? kGreatest : kLeast;
    std::int64_t total = constant_;
    for (const Term& t : terms_) {
        if ((t.coefficient > 0) == upper) {
            std::int64_t term = t.coefficient;
            for (std::uint8_t i = 0; i < t.degree; ++i) {
                term = product(term, maxima[t.symbols[i]]).value_or(last);
            }
            total = sum(total, term).value_or(last);
        }
    }
    return total;
}

std::int64_t Dim::upper_bound(std::span<const std::int64_t> maxima) const noexcept { return bound(maxima, true); }

std::int64_t Dim::lower_bound(std::span<const std::int64_t> maxima) const noexcept { return bound(maxima, false); }

std::string Dim::str(std::span<const std::string> names) const {
    std::string out;
    for (const Term& t : terms_) {
        if (!out.empty() || t.coefficient < 0) {
            out += t.coefficient < 0 ? "-" : "+";
        }
        if (magnitude(t.coefficient) != 1) {
            out += std::to_string(magnitude(t.coefficient)) + "*";
        }
        for (std::uint8_t i = 0; i < t.degree; ++i) {
            out += (i ? "*" : "") + (t.symbols[i] < names.size() ? names[t.symbols[i]] : std::string("?"));
        }
    }
    if (constant_ != 0 || out.empty()) {
        out += (!out.empty() && constant_ > 0 ? "+" : "") + std::to_string(constant_);
    }
    return out;
}

bool Dim::same_symbols(const Term& a, const Term& b) noexcept {
    return a.degree == b.degree && std::equal(a.symbols.begin(), a.symbols.begin() + a.degree, b.symbols.begin());
}

void Dim::add(const Term& term) {
    if (term.coefficient == 0) {
        return;
    }
    const auto before = [](const Term& a, const Term& b) {
        return a.degree != b.degree ? a.degree > b.degree : a.symbols < b.symbols;
    };
    auto at = std::lower_bound(terms_.begin(), terms_.end(), term, before);
    if (at != terms_.end() && same_symbols(*at, term)) {
        at->coefficient = fitting(sum(at->coefficient, term.coefficient));
        if (at->coefficient == 0) {
            terms_.erase(at);
        }
    } else {
        terms_.insert(at, term);
    }
}

Dim operator+(const Dim& a, const Dim& b) {
    Dim out = a;
    out.constant_ = fitting(sum(a.constant_, b.constant_));
    for (const Dim::Term& t : b.terms_) {
        out.add(t);
    }
    return out;
}

Dim operator-(const Dim& a, const Dim& b) { return a + b * Dim(-1); }

Dim operator*(const Dim& a, const Dim& b) {
    Dim out(fitting(product(a.constant_, b.constant_)));
    const auto scaled = [&](const Dim& x, std::int64_t factor) {
        for (Dim::Term t : x.terms_) {
            t.coefficient = fitting(product(t.coefficient, factor));
            out.add(t);
        }
    };
    scaled(a, b.constant_);
    scaled(b, a.constant_);
    for (const Dim::Term& s : a.terms_) {
        for (const Dim::Term& t : b.terms_) {
            if (s.degree + t.degree > static_cast<int>(Dim::kMaxDegree)) {
                throw Error("a size, or a number of elements, that is a product of more than " +
                            std::to_string(Dim::kMaxDegree) + " symbols");
            }
            Dim::Term u;
            u.coefficient = fitting(product(s.coefficient, t.coefficient));
            u.degree = static_cast<std::uint8_t>(s.degree + t.degree);
            std::merge(s.symbols.begin(), s.symbols.begin() + s.degree, t.symbols.begin(), t.symbols.begin() + t.degree,
                       u.symbols.begin());
            out.add(u);
        }
    }
    return out;
}

bool operator==(const Dim& a, const Dim& b) noexcept {
    return a.constant_ == b.constant_ && std::equal(a.terms_.begin(), a.terms_.end(), b.terms_.begin(), b.terms_.end(),
                                                    [](const Dim::Term& s, const Dim::Term& t) {
                                                        return s.coefficient == t.coefficient &&
                                                               Dim::same_symbols(s, t);
                                                    });
}

bool Dim::divided_by(const Dim& divisor, Dim& out) const {
    Term by;
    if (divisor.is_constant()) {
        by.coefficient = divisor.constant_;
    } else if (divisor.terms_.size() == 1 && divisor.constant_ == 0) {
        by = divisor.terms_[0];
    } else {
        out = Dim(1);
        return *this == divisor;
    }
    if (by.coefficient == 0) {
        return false;
    }
    Dim quotient;
    const auto divide = [&](Term t) {
        if (by.coefficient == -1 && t.coefficient == std::numeric_limits<std::int64_t>::min()) {
            return false;  // there is no such quotient
        }
        if (t.coefficient % by.coefficient != 0) {
            return false;
        }
        Term q;
        q.coefficient = t.coefficient / by.coefficient;
        auto* const end = std::set_difference(t.symbols.data(), t.symbols.data() + t.degree, by.symbols.data(),
                                              // multiset difference: both sorted
                                              by.symbols.data() + by.degree, q.symbols.data());
        q.degree = static_cast<std::uint8_t>(end - q.symbols.data());
        if (q.degree + by.degree != t.degree) {
            return false;
        }
        if (q.degree == 0) {
            quotient.constant_ += q.coefficient;
        } else {
            quotient.add(q);
        }
        return true;
    };
    Term constant;
    constant.coefficient = constant_;
    if (constant_ != 0 && !divide(constant)) {
        return false;
    }
    for (const Term& t : terms_) {
        if (!divide(t)) {
            return false;
        }
    }
    out = std::move(quotient);
    return true;
}

Shape contiguous_strides(const Shape& shape) {
    Shape strides(shape.size());
    Dim stride = 1;
    for (std::size_t i = shape.size(); i-- > 0;) {
        strides[i] = stride;
        stride = stride * shape[i];
    }
    return strides;
}

bool is_contiguous(const Shape& shape, const Shape& strides) {
    Dim stride = 1;
    for (std::size_t i = shape.size(); i-- > 0;) {
        if (!(shape[i] == Dim(1)) && !(strides[i] == stride)) {
            return false;
        }
        stride = stride * shape[i];
    }
    return true;
}

Dim elements(const Shape& shape) {
    Dim product = 1;
    for (const Dim& d : shape) {
        product = product * d;
    }
    return product;
}

}  // namespace vkf
