// SPDX-License-Identifier: Apache-2.0
#include "ops/variants.h"

#include <algorithm>
#include <string>

#include "runtime/base/error.h"

namespace vkf {

namespace {

constexpr const char* kVariants[] = {
    "attention_lanes", "attention_shared",    "attention_rows", "attention_coopmat", "attention_composed",
    "matmul_coopmat",  "matmul_coopmat_int8", "matmul_half",    "matmul_dot",        "matvec_columns",
    "rows_subgroups",  "rows_held",           "rows_looped",
};

bool known(std::string_view name) {
    return std::any_of(std::begin(kVariants), std::end(kVariants), [&](const char* v) { return name == v; });
}

[[noreturn]] void refuse(std::string_view name) {
    std::string all;
    for (const char* v : kVariants) {
        all += (all.empty() ? "" : ", ") + std::string(v);
    }
    throw Error("\"" + std::string(name) + "\" is no kernel to ask for; there are " + all, "VKFORMER_VARIANT");
}

}  // namespace

std::span<const char* const> variants() { return kVariants; }

bool asks_for(const Capabilities& device, std::string_view variant) {
    bool asks = false;
    for (std::string_view rest = device.variants; !rest.empty();) {
        const std::string_view name = rest.substr(0, rest.find(','));
        if (!known(name)) {
            refuse(name);
        }
        asks = asks || name == variant;
        rest.remove_prefix(std::min(name.size() + 1, rest.size()));
    }
    return asks;
}

}  // namespace vkf
