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

/// 0 to 1.
void check_probability(const char* op, const char* parameter, float p);
/// What a norm adds to a variance.
void check_epsilon(const char* op, float eps);
/// 0: no cap.
void check_softcap(const char* op, float softcap);

void check_window(const char* op, Causal causal, std::int64_t window);
/// The types and numbers of a mask, its window too.
void check_mask(const char* op, const Mask& mask);

// Sequences with lengths of their own. `what` is the parameter.

/// Numbers of sequences: i32, of one dimension.
void check_sequence_numbers(const char* op, const char* what, const Value& numbers);
/// A length for each of the sequences, so many, that `of` is made of.
void check_lengths(const char* op, const char* what, const Value& lengths, const Value& of, const Dim& sequences);
/// The first queries of all sequences and the end of the last, for queries (1, H, L, d).
void check_cumulative_queries(const char* op, const Value& query, const Value& cumulative_queries);
/// The same of keys, of as many sequences.
void check_cumulative_keys(const char* op, const Value& cumulative_keys, const Value& cumulative_queries);
/// Has a run refused that gives no number at all.
void constrain_cumulative(const Value& cumulative_queries);

}  // namespace vkf::support
