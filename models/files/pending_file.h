// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <filesystem>
#include <fstream>
#include <random>
#include <string>
#include <system_error>

#include "runtime/base/error.h"
#include "runtime/base/map_file.h"

namespace vkf {

/// A file beside its destination, removed unless it takes the destination's place.
class PendingFile {
public:
    explicit PendingFile(const std::filesystem::path& path)
        : destination_(path), temporary_(path), name_(utf8_name(path)) {
        temporary_ += ".writing-" + std::to_string(std::random_device{}());
        stream_.open(temporary_, std::ios::binary | std::ios::trunc);
        if (!stream_) throw Error("cannot create file", name_);
    }
    PendingFile(const PendingFile&) = delete;
    PendingFile& operator=(const PendingFile&) = delete;
    ~PendingFile() {
        stream_.close();
        std::error_code ignored;
        std::filesystem::remove(temporary_, ignored);  // gone already once it was renamed
    }

    void write(const void* data, std::size_t size) {
        stream_.write(static_cast<const char*>(data), static_cast<std::streamsize>(size));
    }

    void publish() {
        stream_.close();
        if (!stream_) throw Error("cannot write file", name_);
        std::error_code code;
        std::filesystem::rename(temporary_, destination_, code);
        if (code) throw Error("cannot write file: " + code.message(), name_);
    }

private:
    std::filesystem::path destination_;
    std::filesystem::path temporary_;
    std::string name_;
    std::ofstream stream_;
};

}  // namespace vkf
