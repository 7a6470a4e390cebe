// SPDX-License-Identifier: Apache-2.0
#include "runtime/device/left_out_store.h"

#include <algorithm>
#include <cstdlib>
#include <string_view>
#include <system_error>

#include "runtime/base/error.h"
#include "runtime/base/map_file.h"
#include "runtime/base/paths.h"
#include "runtime/base/read_file.h"
#include "runtime/base/text.h"
#include "runtime/base/write_file.h"
#include "runtime/device/cache_frame.h"

namespace vkf {

namespace {

/// The first line of a file; then one a kernel: its name, a space, and why.
constexpr std::string_view kLeftOutFirstLine = "vkformer left out 1\n";

constexpr std::uint64_t kMostLeftOutBytes = 1 << 16;

/// Asks for every kernel.
constexpr std::string_view kLeaveOutNone = "0";

std::vector<LeftOut> named(std::string_view names, const std::string& by) {
    std::vector<LeftOut> out;
    while (!names.empty()) {
        const std::string name(take_part(names, ','));
        if (name.empty()) {
            throw Error("has a kernel without a name", by);
        }
        if (name.find_first_of(" \t\r\n") != std::string::npos) {
            throw Error("has \"" + name + "\", and no kernel's name has spaces", by);
        }
        out.push_back({name, by + " says so"});
    }
    return out;
}

/// Adds a kernel for each line; returns how many lines tell of none.
std::size_t add_lines(std::string_view text, std::vector<LeftOut>& to) {
    std::size_t damaged = 0;
    while (!text.empty()) {
        const std::string_view line = take_part(text, '\n');
        const std::size_t space = line.find(' ');
        if (space == 0 || space == std::string_view::npos) {
            ++damaged;
        } else {
            to.push_back({std::string(line.substr(0, space)), std::string(line.substr(space + 1))});
        }
    }
    return damaged;
}

}  // namespace

std::filesystem::path left_out_path(const std::filesystem::path& folder, const Capabilities& device,
                                    const DeviceUuid& uuid) {
    return folder.empty() ? folder
                          : (folder / cache_file_name(device, uuid))
                                .replace_extension(device.minimum_profile ? ".minimum.left_out" : ".left_out");
}

void find_left_out(Capabilities& capabilities, const DeviceOptions& options, const std::filesystem::path& folder,
                   const DeviceUuid& uuid) {
    const char* variable = std::getenv("VKFORMER_LEAVE_OUT");
    const bool by_variable = variable && *variable != 0;
    const std::string asked = by_variable ? variable : options.leave_out;
    const std::string by = by_variable ? "VKFORMER_LEAVE_OUT" : "DeviceOptions::leave_out";
    if (!asked.empty() && asked != kLeaveOutNone) {
        capabilities.left_out = named(asked, by);
        return;
    }
    const std::filesystem::path path = left_out_path(folder, capabilities, uuid);
    if (path.empty() || is_absent(path)) {
        return;
    }
    if (asked == kLeaveOutNone) {
        capabilities.left_out_damage = utf8_name(path) + " is not used, for " + by + " is 0";
        return;
    }
    const std::vector<std::byte> bytes = read_regular_file(path, kMostLeftOutBytes).value_or(std::vector<std::byte>());
    const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    if (!text.starts_with(kLeftOutFirstLine)) {
        capabilities.left_out_damage = utf8_name(path) + " could not be read as a list of this version";
        return;
    }
    if (const std::size_t damaged = add_lines(text.substr(kLeftOutFirstLine.size()), capabilities.left_out)) {
        capabilities.left_out_damage =
            utf8_name(path) +
            " was damaged when the device was made: lines that name no kernel: " + std::to_string(damaged);
    }
}

void write_left_out(const std::filesystem::path& path, std::span<const LeftOut> kernels) {
    std::string text;
    for (const LeftOut& k : kernels) {
        if (k.kernel.empty() || k.kernel.find_first_of(" \n") != std::string::npos ||
            k.why.find('\n') != std::string::npos) {
            throw Error("cannot stand in a list of kernels that are left out", k.kernel + " " + k.why);
        }
        text += k.kernel + " " + k.why + "\n";
    }
    text = text.empty() ? text : std::string(kLeftOutFirstLine) + text;
    if (text.size() > kMostLeftOutBytes) {
        throw Error("a list of kernels that are left out has at most " + std::to_string(kMostLeftOutBytes) +
                        " bytes, not " + std::to_string(text.size()),
                    utf8_name(path));
    }
    write_whole_file(path, text);
}

void LeftOutSince::add(const LeftOut& kernel) {
    const std::scoped_lock lock(mutex_);
    const auto same = [&](const LeftOut& k) { return k.kernel == kernel.kernel; };
    if (std::none_of(kernels_.begin(), kernels_.end(), same)) {
        kernels_.push_back(kernel);
    }
}

std::vector<LeftOut> LeftOutSince::behind(std::vector<LeftOut> before) const {
    const std::scoped_lock lock(mutex_);
    for (const LeftOut& kernel : kernels_) {
        const auto same = [&](const LeftOut& k) { return k.kernel == kernel.kernel; };
        if (std::none_of(before.begin(), before.end(), same)) {
            before.push_back(kernel);
        }
    }
    return before;
}

}  // namespace vkf
