// SPDX-License-Identifier: Apache-2.0
#include "runtime/tuning.h"

#include <algorithm>
#include <atomic>
#include <charconv>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string_view>
#include <system_error>

#include "runtime/cache_folder.h"
#include "runtime/device_core.h"
#include "runtime/map_file.h"
#include "runtime/tuning_choices.h"

namespace vkf {

namespace {

/// The first line of a file. A number that means something else in a later version of the library needs another one.
constexpr std::string_view kFirstLine = "vkformer tuning 1\n";

/// Asks for what capabilities suggest.
constexpr std::string_view kNone = "0";

std::string_view take(std::string_view& rest, char end) {
    const std::size_t at = std::min(rest.find(end), rest.size());
    const std::string_view part = rest.substr(0, at);
    rest.remove_prefix(std::min(at + 1, rest.size()));
    return part;
}

std::optional<std::uint32_t> number(std::string_view text) {
    std::uint32_t value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    return error == std::errc() && end == text.data() + text.size() ? std::optional(value) : std::nullopt;
}

/// The first part that is not name=number; empty: there is none.
std::string_view wrong_part(std::string_view choices) {
    while (!choices.empty()) {
        const std::string_view part = take(choices, ',');
        std::string_view value = part;
        if (take(value, '=').empty() || !number(value)) {
            return part.empty() ? "," : part;
        }
    }
    return {};
}

void require_choices(const std::string& choices, const std::string& where) {
    if (const std::string_view wrong = wrong_part(choices); !wrong.empty()) {
        throw Error("\"" + std::string(wrong) + "\" is not name=number", where);
    }
}

std::filesystem::path file_in(const std::filesystem::path& folder, const Capabilities& device) {
    return folder.empty() ? folder
                          : (folder / cache_file_name(device))
                                .replace_extension(device.minimum_profile ? ".minimum.tuning" : ".tuning");
}

std::filesystem::path folder_of(const DeviceOptions& options) {
    return options.cache_folder.empty() ? cache_folder() : options.cache_folder;
}

}  // namespace

std::optional<std::uint32_t> Capabilities::tuned(std::string_view name) const noexcept {
    for (std::string_view rest = tuning; !rest.empty();) {
        std::string_view value = take(rest, ',');
        if (take(value, '=') == name) {
            return number(value);
        }
    }
    return std::nullopt;
}

void find_tuning(Capabilities& capabilities, const DeviceOptions& options, const std::filesystem::path& folder) {
    const char* variable = std::getenv("VKFORMER_TUNING");
    const bool by_variable = variable && *variable != 0;
    if (const std::string asked = by_variable ? variable : options.tuning; !asked.empty()) {
        if (asked != kNone) {
            capabilities.tuning = asked;
            capabilities.tuning_is_asked = true;
            capabilities.tuning_from = by_variable ? "VKFORMER_TUNING" : "DeviceOptions::tuning";
            require_choices(capabilities.tuning, capabilities.tuning_from);
        }
        return;
    }
    const std::filesystem::path path = file_in(folder, capabilities);
    std::ifstream in(path, std::ios::binary);
    if (path.empty() || !in) {
        return;
    }
    std::ostringstream all;
    all << in.rdbuf();  // a read that fails, as of a folder, is an early end here and not an exception
    std::string text = all.str();
    capabilities.tuning_from = utf8_name(path);
    if (!text.starts_with(kFirstLine) || !text.ends_with('\n')) {
        capabilities.tuning_from += ", which is not of this version and not used";
        return;
    }
    text = text.substr(kFirstLine.size(), text.size() - kFirstLine.size() - 1);
    if (!wrong_part(text).empty()) {
        capabilities.tuning_from += ", which is damaged and not used";
        return;
    }
    capabilities.tuning = text;
}

std::filesystem::path tuning_file(const Device& device) {
    return file_in(folder_of(device.core().options), device.capabilities());
}

std::filesystem::path save_tuning(const Device& device, const std::string& choices) {
    const std::filesystem::path path = tuning_file(device);
    if (path.empty()) {
        throw Error("there is no cache folder to keep choices in; VKFORMER_CACHE_DIR names one", "save_tuning");
    }
    require_choices(choices, "save_tuning");
    std::error_code error;
    if (choices.empty()) {
        std::filesystem::remove(path, error);
    } else {
        std::filesystem::create_directories(path.parent_path(), error);
        std::filesystem::path temporary = path;
        static std::atomic<unsigned> serial = 0;  // threads may save at once
        temporary += "." + std::to_string(process_number()) + "." + std::to_string(serial++);
        std::ofstream out(temporary, std::ios::binary);
        out << kFirstLine << choices << "\n";
        out.close();
        if (!out) {
            error = std::make_error_code(std::errc::io_error);
        } else {
            std::filesystem::rename(temporary, path, error);  // readers see the old file or the new
        }
        if (error) {
            std::error_code ignored;
            std::filesystem::remove(temporary, ignored);
        }
    }
    if (error) {
        throw Error("cannot be written: " + error.message(), utf8_name(path));
    }
    return path;
}

}  // namespace vkf
