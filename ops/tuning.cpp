// SPDX-License-Identifier: Apache-2.0
#include "ops/tuning.h"

#include "ops/support.h"
#include "shaders/matmul.h"

namespace vkf {

namespace {

using Values = std::vector<std::uint32_t>;

std::uint32_t lanes_of(const Capabilities& c) { return c.cpu() && c.subgroup_shuffle ? c.exact_subgroup_size : 0; }

Values matmul_rows(const Capabilities& c) {
    if (c.cpu()) {
        return lanes_of(c) == 8 ? Values{8, 16, 24} : Values{4, 8};
    }
    Values out;
    for (const std::uint32_t rows : {32u, 64u, 128u}) {
        if (rows * support::kSharedColumns / 16 <= std::min(c.max_invocations, c.max_group_size[0]) &&
            support::shared_tile_bytes(rows, support::kSharedDepth) <= c.shared_memory) {
            out.push_back(rows);
        }
    }
    return out;
}

Values matmul_depth(const Capabilities& c) {
    const Values rows = matmul_rows(c);
    Values out;
    for (const std::uint32_t depth : {8u, 16u, 32u}) {
        if (!c.cpu() && support::shared_tile_bytes(rows.back(), depth) <= c.shared_memory) {
            out.push_back(depth);
        }
    }
    return out;
}

Values matvec_split(const Capabilities& c) { return c.cpu() ? Values{} : Values{8, 16, 32, 64}; }

Values attention_split(const Capabilities& c) {
    return c.storage_buffers < support::kSplitBuffers ? Values{} : Values{128, 256, 512, 1024, 2048, 4096};
}

const Tunable kTunables[] = {
    {"matmul_rows", "rows of a tile of products with many rows", matmul_rows},
    {"matmul_depth", "depth of such a tile in shared memory", matmul_depth},
    {"matvec_split", "invocations that share a sum of a product with few rows", matvec_split},
    {"attention_split", "keys that a group takes where there are few queries", attention_split},
};

std::string list(const Values& values) {
    std::string out;
    for (const std::uint32_t v : values) {
        out += (out.empty() ? "" : ", ") + std::to_string(v);
    }
    return out;
}

const Tunable* find(std::string_view name) {
    const auto* found =
        std::find_if(std::begin(kTunables), std::end(kTunables), [&](const Tunable& t) { return t.name == name; });
    return found == std::end(kTunables) ? nullptr : found;
}

/// What is wrong with a choice; empty: nothing.
std::string objection(const Capabilities& device, std::string_view name, std::string_view value) {
    const Tunable* tunable = find(name);
    if (!tunable) {
        std::string known;
        for (const Tunable& t : kTunables) {
            known += (known.empty() ? "" : ", ") + std::string(t.name);
        }
        return "\"" + std::string(name) + "\" is not to be chosen; there are " + known;
    }
    const Values values = tunable->values(device);
    if (std::any_of(values.begin(), values.end(), [&](std::uint32_t v) { return std::to_string(v) == value; })) {
        return {};
    }
    return std::string(name) + "=" + std::string(value) + " does not fit this device, which " +
           (values.empty() ? "has no kernel that asks for it" : "takes " + list(values));
}

/// Throws for whatever is wrong in the list, wherever it stands.
void check(const Capabilities& device) {
    for (std::string_view rest = device.tuning; !rest.empty();) {
        const std::string_view part = rest.substr(0, rest.find(','));
        const std::size_t equals = std::min(part.find('='), part.size() - 1);
        const std::string wrong = objection(device, part.substr(0, equals), part.substr(equals + 1));
        if (!wrong.empty()) {
            throw Error(wrong, device.tuning_from);
        }
        rest.remove_prefix(std::min(part.size() + 1, rest.size()));
    }
}

}  // namespace

std::span<const Tunable> tunables() { return kTunables; }

support::Tuned support::tuned(const Capabilities& device, std::string_view name, std::uint32_t by_capability) {
    if (device.tuning_is_asked) {
        check(device);
    }
    const std::optional<std::uint32_t> value = device.tuned(name);
    if (!value) {
        return {by_capability, ""};
    }
    const std::string wrong = objection(device, name, std::to_string(*value));
    return wrong.empty() ? Tuned{*value, ", tuned"} : Tuned{by_capability, ", not tuned: " + wrong};
}

}  // namespace vkf
