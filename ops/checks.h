// SPDX-License-Identifier: Apache-2.0
// Checks of arguments, in the words of all ops: each throws Error naming the op, and the tensor or
// the parameter.
#pragma once

#include <cmath>
#include <string>

#include "ops/mask.h"
#include "runtime/base/error.h"
#include "runtime/graph/graph.h"

namespace vkf::support {

[[noreturn]] inline void fail(const char* op, const std::string& what) { throw Error(what, op); }

inline void require(bool condition, const char* op, const std::string& what) {
    if (!condition) {
        fail(op, what);
    }
}

inline void require_finite(const char* op, const char* parameter, double value) {
    require(std::isfinite(value), op, std::string(parameter) + " = " + std::to_string(value) + " is not finite");
}

void require_dtype(const char* op, const Value& x, DType dtype);

/// Checks that what a run is told, `number`, is made of symbols that the graph has. A symbol of
/// another graph whose number this one has too cannot be told from its own.
void require_symbols(const char* op, const Graph& graph, const Dim& number);

/// Checks that `p` is from 0 to 1.
void check_probability(const char* op, const char* parameter, float p);
/// Checks the number that a norm adds to a variance.
void check_epsilon(const char* op, float eps);
/// Checks a softcap; 0 stands for none.
void check_softcap(const char* op, float softcap);

void check_window(const char* op, Causal causal, std::int64_t window);
/// Checks the types and numbers of a mask, its window too.
void check_mask(const char* op, const Mask& mask);

// Sequences with lengths of their own. `what` is the parameter.

/// Checks numbers of sequences: i32, of one dimension.
void check_sequence_numbers(const char* op, const char* what, const Value& numbers);
/// Checks that there is a length for each of the `sequences` that `of` is made of.
void check_lengths(const char* op, const char* what, const Value& lengths, const Value& of, const Dim& sequences);
/// Checks the first queries of all sequences and the end of the last, for queries (1, H, L, d).
void check_cumulative_queries(const char* op, const Value& query, const Value& cumulative_queries);
/// Checks the first keys of as many sequences likewise.
void check_cumulative_keys(const char* op, const Value& cumulative_keys, const Value& cumulative_queries);
/// Has a run refused whose tensor of first queries holds no number at all.
void constrain_cumulative(const Value& cumulative_queries);

}  // namespace vkf::support
