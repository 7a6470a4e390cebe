// SPDX-License-Identifier: Apache-2.0
#include "ops/checks.h"

namespace vkf::support {

void require_dtype(const char* op, const Value& x, DType dtype) {
    require(x.dtype() == dtype, op,
            x.str() + " must be " + std::string(name_of(dtype)) +
                (dtype == DType::f32 && size_of(x.dtype()) == 2 ? ": use to(x, DType::f32)" : ""));
}

void require_symbols(const char* op, const Graph& graph, const Dim& number) {
    require(number.symbols() <= graph.symbols().size(), op,
            "a number is made of symbol " + std::to_string(number.symbols() - 1) + ", and the graph has " +
                std::to_string(graph.symbols().size()) + ": it is of another graph");
}

void check_probability(const char* op, const char* parameter, float p) {
    require(p >= 0.0f && p <= 1.0f, op, std::string(parameter) + " = " + std::to_string(p) + " is not in 0..1");
}

void check_epsilon(const char* op, float eps) {
    require(std::isfinite(eps) && eps >= 0, op, "eps = " + std::to_string(eps) + " is not finite and >= 0");
}

void check_softcap(const char* op, float softcap) {
    require(std::isfinite(softcap) && softcap >= 0, op,
            "softcap = " + std::to_string(softcap) + " is not finite and >= 0");
}

void check_window(const char* op, Causal causal, std::int64_t window) {
    require(window >= 0 && (window == 0 || causal != Causal::none), op,
            "window = " + std::to_string(window) + " needs a causal mask and must not be negative");
}

void check_mask(const char* op, const Mask& mask) {
    require(!std::isnan(mask.fill) && mask.fill < 0, op,
            "mask fill = " + std::to_string(mask.fill) + " is neither -inf nor a finite negative number");
    check_window(op, mask.causal, mask.window);
    if (mask.keys) {
        require_dtype(op, mask.keys, DType::i32);
    }
    for (const Value& x : {mask.bias, mask.alibi_slopes}) {
        if (x) {
            require_dtype(op, x, DType::f32);
        }
    }
}

void check_sequence_numbers(const char* op, const char* what, const Value& numbers) {
    require_dtype(op, numbers, DType::i32);
    require(numbers.rank() == 1, op, std::string(what) + " " + numbers.str() + " must have one dimension");
}

void check_lengths(const char* op, const char* what, const Value& lengths, const Value& of, const Dim& sequences) {
    check_sequence_numbers(op, what, lengths);
    require(lengths.size(0) == sequences, op,
            lengths.str() + " must hold a length for each sequence of " + of.str() + ", " +
                lengths.graph().str(sequences) + " of them");
}

void check_cumulative_queries(const char* op, const Value& query, const Value& cumulative_queries) {
    check_sequence_numbers(op, "cumulative_queries", cumulative_queries);
    require(query.size(0) == Dim(1), op, "packed queries " + query.str() + " must be a batch of 1");
}

void check_cumulative_keys(const char* op, const Value& cumulative_keys, const Value& cumulative_queries) {
    check_sequence_numbers(op, "cumulative_keys", cumulative_keys);
    require(cumulative_keys.shape() == cumulative_queries.shape(), op,
            cumulative_queries.str() + " and " + cumulative_keys.str() + " differ in their number of sequences");
}

void constrain_cumulative(const Value& cumulative_queries) {
    cumulative_queries.graph().constrain(1, cumulative_queries.size(0), "cumulative_queries begin with 0");
}

}  // namespace vkf::support
