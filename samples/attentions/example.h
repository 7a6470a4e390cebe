// SPDX-License-Identifier: Apache-2.0
// What the examples share: numbers to run with, and claims that are checked and printed.
#pragma once

#include <vkformer/vkformer.h>

#include <cstdint>
#include <map>
#include <string>
#include <vector>

using namespace vkf;  // of examples only: so that a line reads as it would in yours

using Floats = std::vector<float>;
using Integers = std::vector<std::int32_t>;
using Tensors = std::map<std::string, Floats>;

/// Numbers between -1 and 1 that look like something, the same for the same name at each run and on
/// each machine.
Floats numbers(const std::string& name, std::size_t count);

/// The numbers that an example gives itself. Other inputs and weights get numbers of their names.
struct Given {
    Tensors floats = {};
    std::map<std::string, Integers> integers = {};
};

/// Names a value of any layout as an output.
void give(const std::string& name, Value value);

/// Columns first..first+count-1 of rows of `width`.
Floats columns(const Floats& rows, std::size_t width, std::size_t first, std::size_t count);

/// Runs examples and counts the claims that do not hold.
class Examples {
public:
    explicit Examples(const Device& device) : device_(device) {}

    void family(const std::string& title);
    /// Compiles with weights, and uploads every input whose sizes are fixed.
    Program compile(const Graph& graph, const Given& given = {}, const CompileOptions& options = {});
    /// Compiles, runs once, and returns the outputs of floats by name.
    Tensors run(const Graph& graph, const Given& given = {});

    /// `got` is `want` within 1e-5 + 1e-4 |want|, the tolerance of docs/numerics.md.
    void close(const std::string& claim, const Floats& got, const Floats& want);
    /// Claims the same bits.
    void same(const std::string& claim, const Floats& got, const Floats& want);
    void holds(const std::string& claim, bool good);

    const Device& device() const { return device_; }
    int claims() const { return claims_; }
    int failures() const { return failures_; }

private:
    void compare(const std::string& claim, const Floats& got, const Floats& want, float absolute, float relative);

    Device device_;
    int claims_ = 0;
    int failures_ = 0;
};

// One file each.
void scaled_dot_product(Examples& e);
void options_of_scores(Examples& e);
void sequences(Examples& e);
void layers(Examples& e);
void grouped_queries(Examples& e);
void torch_modules(Examples& e);
void ways_to_score(Examples& e);
void positions(Examples& e);
void the_rest(Examples& e);
