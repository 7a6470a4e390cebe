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

/// What a kernel computes: of those that compute the same in the same arithmetic one is chosen.
std::string_view work_of(std::string_view name) {
    return name.starts_with("attention_")                          ? "attention"
           : name.starts_with("rows_")                             ? "rows"
           : name == "matmul_coopmat_int8" || name == "matmul_dot" ? "products in int8"
           : name.starts_with("matmul_")                           ? "products in f16"
                                                                   : name;
}

}  // namespace

std::span<const char* const> variants() { return kVariants; }

void check_variants(const Capabilities& device) {
    const std::string_view all = device.variants;
    for (std::size_t at = 0; !all.empty() && at <= all.size();) {
        const std::size_t end = std::min(all.find(',', at), all.size());
        const std::string_view name = all.substr(at, end - at);
        if (!known(name)) {
            refuse(name);
        }
        for (const char* other : kVariants) {
            if (other != name && work_of(other) == work_of(name) && device.asks_for(other)) {
                throw Error("asks for " + std::string(name) + " and " + other + "; one at a time", "VKFORMER_VARIANT");
            }
        }
        at = end + 1;
    }
}

bool asks_for(const Capabilities& device, std::string_view variant) {
    check_variants(device);
    return device.asks_for(variant);
}

}  // namespace vkf
