// SPDX-License-Identifier: Apache-2.0
#include "options.h"

#include <cstdio>
#include <map>

std::optional<vkf::WeightType> weight_type(const std::string& name) {
    using enum vkf::WeightType;
    static const std::map<std::string, vkf::WeightType> kTypes{
        {"fp32", f32}, {"fp16", f16}, {"bf16", bf16}, {"int8", int8}, {"int4", int4}};
    const auto found = kTypes.find(name);
    return found == kTypes.end() ? std::nullopt : std::optional(found->second);
}

vkf::Arithmetic arithmetic(const std::string& name) {
    return name == "fp16" ? vkf::Arithmetic::f16 : name == "int8" ? vkf::Arithmetic::int8 : vkf::Arithmetic::f32;
}

void print_arithmetic(const vkf::Program& prompt) {
    if (prompt.arithmetic().asked == vkf::Arithmetic::f32) {
        return;
    }
    const vkf::ArithmeticUse& use = prompt.arithmetic();
    std::string text(vkf::name_of(use.used));
    for (const vkf::Fp32Reason& stays : use.in_fp32) {
        text += "; " + std::to_string(stays.dispatches) + " products in fp32: " + stays.reason;
    }
    std::fprintf(stderr, "arithmetic: %s\n", text.c_str());
}
