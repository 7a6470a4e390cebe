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

void print_arithmetic(const std::string& name, const vkf::Program& prompt) {
    if (name == "fp32") {
        return;
    }
    const std::string explained = prompt.explain();
    const std::string kind = name == "int8" ? "int8" : "f16";
    const std::string mark = "fp32, though " + kind + " was asked for: ";
    std::map<std::string, int> reasons;
    for (std::size_t at = explained.find(mark); at != std::string::npos; at = explained.find(mark, at + 1)) {
        const std::size_t reason = at + mark.size();
        ++reasons[explained.substr(reason, explained.find('\n', reason) - reason)];
    }
    std::string text = explained.find(kind + " arithmetic") == std::string::npos ? "fp32" : kind;
    for (const auto& [reason, count] : reasons) {
        text += "; " + std::to_string(count) + " products in fp32: " + reason;
    }
    std::fprintf(stderr, "arithmetic: %s\n", text.c_str());
}
