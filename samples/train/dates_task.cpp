// SPDX-License-Identifier: Apache-2.0
#include "dates_task.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <chrono>
#include <cstdio>

namespace {

constexpr std::array kMonths{"January", "February", "March",     "April",   "May",      "June",
                             "July",    "August",   "September", "October", "November", "December"};
constexpr std::array kDays{"Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"};

std::string two_digits(unsigned n) { return (n < 10 ? "0" : "") + std::to_string(n); }

std::string ordinal(unsigned n) {
    const bool teen = n % 100 >= 11 && n % 100 <= 13;
    const char* ending = teen || n % 10 > 3 || n % 10 == 0 ? "th" : n % 10 == 1 ? "st" : n % 10 == 2 ? "nd" : "rd";
    return std::to_string(n) + ending;
}

/// A whole number below `count`; std's distributions differ from library to library.
std::uint64_t below(std::mt19937_64& random, std::uint64_t count) { return (random() >> 11) % count; }

}  // namespace

DateExample random_date(std::mt19937_64& random) {
    using namespace std::chrono;
    constexpr std::uint64_t kRange = 73049;
    const sys_days first = year{1900} / January / 1;
    const sys_days when = first + days(static_cast<std::int64_t>(below(random, kRange)));
    const year_month_day date(when);
    const unsigned day = static_cast<unsigned>(date.day()), month = static_cast<unsigned>(date.month());
    const std::string d = std::to_string(day), m = kMonths[month - 1], a = m.substr(0, 3);
    const std::string y = std::to_string(static_cast<int>(date.year()));
    const std::string w = kDays[weekday(when).c_encoding()], o = ordinal(day);
    const std::array forms{
        m + " " + d + ", " + y,
        d + " " + m + " " + y,
        a + " " + d + ", " + y,
        d + " " + a + " " + y,
        o + " of " + m + " " + y,
        "the " + o + " of " + m + ", " + y,
        m + " " + o + ", " + y,
        d + "/" + std::to_string(month) + "/" + y,
        two_digits(day) + "/" + two_digits(month) + "/" + y,
        d + "." + std::to_string(month) + "." + y,
        w + ", " + d + " " + m + " " + y,
        w.substr(0, 3) + ", " + d + " " + a + " " + y,
        a + ". " + d + " " + y,
        y + "/" + two_digits(month) + "/" + two_digits(day),
        two_digits(day) + "-" + a + "-" + y,
        w + ", " + m + " " + d + ", " + y,
        y + " " + m + " " + d,
        a + " " + o + " " + y,
    };
    DateExample out{forms[below(random, forms.size())], y + "-" + two_digits(month) + "-" + two_digits(day)};
    const std::uint64_t tenth = below(random, 10);
    if (tenth < 4) {  // three in ten in lower case, one in upper case
        for (char& c : out.written) {
            const auto u = static_cast<unsigned char>(c);
            c = static_cast<char>(tenth < 3 ? std::tolower(u) : std::toupper(u));
        }
    }
    return out;
}
