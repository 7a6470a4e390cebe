// SPDX-License-Identifier: Apache-2.0
// Small graphs, what is uploaded to them, and what must come out.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "doctor/reference.h"
#include "runtime/compile/capabilities.h"

namespace vkf::doctor {

/// One graph. Inputs and results are held as doubles, whatever their type is.
struct Case {
    struct Given {
        std::string name;
        DType dtype;
        Doubles numbers;
    };
    struct Wanted {
        std::string name;
        DType dtype;
        Expected expected;
        bool zero_signs;  ///< a zero has the sign that it is expected to have
    };
    /// A matrix that is kept packed.
    struct Weight {
        std::string name;
        Sizes shape;
        std::vector<float> numbers;
        WeightType type;
    };

    std::unique_ptr<Graph> graph = std::make_unique<Graph>();
    Arithmetic arithmetic = Arithmetic::f32;
    std::vector<Given> given;
    std::vector<Weight> weights;
    std::vector<Wanted> wanted;

    Value input(const std::string& name, const Sizes& shape, Doubles numbers, DType dtype = DType::f32);
    /// A weight whose numbers the type holds exactly, or nearly: `numbers` become what it holds.
    Value weight(const std::string& name, const Sizes& shape, Doubles& numbers, WeightType type);
    void output(const std::string& name, const Value& value, Expected expected, DType dtype = DType::f32,
                bool zero_signs = false);
};

/// A case that can be made.
struct CaseMaker {
    const char* what;
    bool thorough;  ///< not of the short form
    Case (*make)();
};

std::span<const CaseMaker> product_cases();
std::span<const CaseMaker> row_cases();
std::span<const CaseMaker> attention_cases();
std::span<const CaseMaker> gradient_cases();

}  // namespace vkf::doctor
