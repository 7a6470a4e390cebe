// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <vector>

/// Milliseconds of one candidate in each round; the rounds of all are taken in turn.
using Rounds = std::vector<double>;

double median(Rounds samples);

/// The candidate to take: `usual`, unless another's median is at least 3 % less and it was faster
/// in three of four rounds. Of several such the one with the least median.
std::size_t best_of(const std::vector<Rounds>& candidates, std::size_t usual);
