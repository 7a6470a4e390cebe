// SPDX-License-Identifier: Apache-2.0
// The task: dates as people write them, and what they are in ISO 8601.
#pragma once

#include <cstdint>
#include <random>
#include <string>

struct DateExample {
    std::string written;  ///< "the 3rd of March, 1999"; at most 29 characters
    std::string iso;      ///< "1999-03-03"
};

/// One of 73,049 days from 1900 on, in one of 18 forms; some are all lower or all upper case. The
/// same generator gives the same examples everywhere.
DateExample random_date(std::mt19937_64& random);
