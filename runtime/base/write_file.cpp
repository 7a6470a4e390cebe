// SPDX-License-Identifier: Apache-2.0
#include "runtime/base/write_file.h"

#include <atomic>
#include <fstream>
#include <string>
#include <system_error>

#include "runtime/base/cache_folder.h"
#include "runtime/base/error.h"
#include "runtime/base/map_file.h"

namespace vkf {

void write_whole_file(const std::filesystem::path& path, std::span<const std::byte> bytes) {
    std::error_code error;
    if (bytes.empty()) {
        std::filesystem::remove(path, error);
    } else {
        std::filesystem::create_directories(path.parent_path(), error);
        if (error) {
            throw Error("its folder cannot be made: " + error.message(), utf8_name(path));
        }
        std::filesystem::path temporary = path;
        static std::atomic<unsigned> serial = 0;  // threads may save at once
        temporary += "." + std::to_string(process_number()) + "." + std::to_string(serial++);
        std::ofstream out(temporary, std::ios::binary);
        out.write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
        out.close();
        if (!out) {
            error = std::make_error_code(std::errc::io_error);
        } else {
            std::filesystem::rename(temporary, path, error);
        }
        if (error) {
            std::error_code ignored;
            std::filesystem::remove(temporary, ignored);
        }
    }
    if (error) {
        throw Error("cannot be written: " + error.message(), utf8_name(path));
    }
}

}  // namespace vkf
