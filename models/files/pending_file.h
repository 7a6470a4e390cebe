// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cerrno>
#include <cstddef>
#include <filesystem>
#include <fstream>
#include <random>
#include <string>
#include <system_error>

#include "runtime/base/error.h"
#include "runtime/base/map_file.h"
#include "runtime/base/write_file.h"

namespace vkf {

/// A file beside its destination, removed unless it takes the destination's place, which it does
/// once it is whole on its disk. Where that is a link, it is beside the file behind it; the
/// permissions of a file that was there are kept.
class PendingFile {
public:
    explicit PendingFile(const std::filesystem::path& path) : destination_(path), name_(utf8_name(path)) {
        std::error_code code;  // what is not there, or cannot be asked, shows when it is written
        auto permissions = std::filesystem::perms::unknown;
        const std::filesystem::file_status before = std::filesystem::status(path, code);
        if (std::filesystem::exists(before)) {
            if (!std::filesystem::is_regular_file(before)) {
                throw Error("is no regular file, and is not replaced", name_);
            }
            permissions = before.permissions() & std::filesystem::perms::all;
        }
        constexpr int kMostLinks = 40;
        for (int links = 0; std::filesystem::is_symlink(std::filesystem::symlink_status(destination_, code)); ++links) {
            if (links == kMostLinks) throw Error("is a link to itself", name_);
            destination_ = destination_.parent_path() / std::filesystem::read_symlink(destination_, code);
        }
        temporary_ = destination_;
        temporary_ += ".writing-" + std::to_string(std::random_device{}());
        errno = 0;
        stream_.open(temporary_, std::ios::binary | std::ios::trunc);
        if (!stream_) {
            throw Error("cannot create file: " + std::generic_category().message(errno != 0 ? errno : EIO), name_);
        }
        if (permissions != std::filesystem::perms::unknown) {
            // before anything is in it
            std::filesystem::permissions(temporary_, permissions, code);
        }
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
        flush_to_disk(temporary_);
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
