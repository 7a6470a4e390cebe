// SPDX-License-Identifier: Apache-2.0
#include "ops/tuned.h"

#include <algorithm>
#include <optional>

#include "ops/tuning.h"
#include "ops/variants.h"
#include "runtime/base/error.h"
#include "runtime/base/text.h"
#include "runtime/compile/asked_for.h"

namespace vkf {

namespace {

std::string list(const std::vector<std::uint32_t>& values) {
    std::string out;
    for (const std::uint32_t v : values) {
        out += (out.empty() ? "" : ", ") + std::to_string(v);
    }
    return out;
}

const Tunable* find(std::string_view name) {
    const std::span<const Tunable> all = tunables();
    const auto found = std::find_if(all.begin(), all.end(), [&](const Tunable& t) { return t.name == name; });
    return found == all.end() ? nullptr : &*found;
}

/// Says what is wrong with a choice; empty: nothing.
std::string objection(const Capabilities& device, std::string_view name, std::string_view value) {
    const Tunable* tunable = find(name);
    if (!tunable) {
        std::string known;
        for (const Tunable& t : tunables()) {
            known += (known.empty() ? "" : ", ") + std::string(t.name);
        }
        return "\"" + std::string(name) + "\" is not to be chosen; there are " + known;
    }
    const std::vector<std::uint32_t> values = tunable->values(device);
    if (std::any_of(values.begin(), values.end(), [&](std::uint32_t v) { return std::to_string(v) == value; })) {
        return {};
    }
    return std::string(name) + "=" + std::string(value) + " does not fit this device, which " +
           (values.empty() ? "has no kernel that asks for it" : "takes " + list(values));
}

/// Throws for whatever is wrong in the list, wherever it stands.
void check(const Capabilities& device) {
    std::vector<std::string_view> names;
    std::string_view rest = device.tuning;
    while (!rest.empty()) {
        std::string_view value = take_part(rest, ',');
        const std::string_view name = take_part(value, '=');
        const std::string wrong = std::find(names.begin(), names.end(), name) != names.end()
                                      ? std::string(name) + " is given twice"
                                      : objection(device, name, value);
        if (!wrong.empty()) {
            throw Error(wrong, device.tuning_from);
        }
        names.push_back(name);
    }
}

}  // namespace

void check_asked_for(const Capabilities& device) {
    check_variants(device);
    if (device.tuning_is_asked) {
        check(device);
    }
}

support::Tuned support::tuned(const Capabilities& device, std::string_view name, std::uint32_t by_capability) {
    if (device.tuning_is_asked) {
        check(device);
    }
    const std::optional<std::uint32_t> value = device.tuned(name);
    if (!value) {
        return {by_capability};
    }
    const std::string wrong = objection(device, name, std::to_string(*value));
    return wrong.empty() ? Tuned{*value, ", tuned", true} : Tuned{by_capability, ", not tuned: " + wrong};
}

}  // namespace vkf
