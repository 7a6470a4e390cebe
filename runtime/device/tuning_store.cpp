// SPDX-License-Identifier: Apache-2.0
#include "runtime/device/tuning_store.h"

#include <cstdlib>
#include <string_view>
#include <system_error>
#include <vector>

#include "runtime/base/error.h"
#include "runtime/base/map_file.h"
#include "runtime/base/paths.h"
#include "runtime/base/read_file.h"
#include "runtime/base/write_file.h"
#include "runtime/compile/tuning_list.h"
#include "runtime/device/cache_frame.h"

namespace vkf {

namespace {

/// The first line of a file. A number that means something else in a later version of the library
/// needs another one.
constexpr std::string_view kFirstLine = "vkformer tuning 1\n";

constexpr std::uint64_t kMostTuningBytes = 1 << 16;

/// Asks for what capabilities suggest.
constexpr std::string_view kNone = "0";

}  // namespace

void require_tuning(const std::string& choices, const std::string& where) {
    if (const std::string_view wrong = wrong_tuning_part(choices); !wrong.empty()) {
        throw Error("\"" + std::string(wrong) + "\" is not name=number", where);
    }
}

std::filesystem::path tuning_path(const std::filesystem::path& folder, const Capabilities& device) {
    return folder.empty() ? folder
                          : (folder / cache_file_name(device))
                                .replace_extension(device.minimum_profile ? ".minimum.tuning" : ".tuning");
}

void find_tuning(Capabilities& capabilities, const DeviceOptions& options, const std::filesystem::path& folder) {
    const char* variable = std::getenv("VKFORMER_TUNING");
    const bool by_variable = variable && *variable != 0;
    const std::string asked = by_variable ? variable : options.tuning;
    const std::string by = by_variable ? "VKFORMER_TUNING" : "DeviceOptions::tuning";
    if (!asked.empty() && asked != kNone) {
        capabilities.tuning = asked;
        capabilities.tuning_is_asked = true;
        capabilities.tuning_from = by;
        require_tuning(asked, by);
        return;
    }
    const std::filesystem::path path = tuning_path(folder, capabilities);
    if (path.empty() || is_absent(path)) {
        return;
    }
    capabilities.tuning_from = utf8_name(path);
    if (asked == kNone) {
        capabilities.tuning_from += ", which is not used, for " + by + " is 0";
        return;
    }
    const std::vector<std::byte> bytes = read_regular_file(path, kMostTuningBytes).value_or(std::vector<std::byte>());
    std::string text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    if (!text.starts_with(kFirstLine) || !text.ends_with('\n')) {
        capabilities.tuning_from += ", which is not of this version and not used";
        return;
    }
    text = text.substr(kFirstLine.size(), text.size() - kFirstLine.size() - 1);
    if (!wrong_tuning_part(text).empty()) {
        capabilities.tuning_from += ", which is damaged and not used";
        return;
    }
    capabilities.tuning = text;
}

void write_tuning(const std::filesystem::path& path, const std::string& choices) {
    write_whole_file(path, choices.empty() ? choices : std::string(kFirstLine) + choices + "\n");
}

}  // namespace vkf
