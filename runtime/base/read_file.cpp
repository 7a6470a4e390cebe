// SPDX-License-Identifier: Apache-2.0
#include "runtime/base/read_file.h"

#include "runtime/base/error.h"
#include "runtime/base/map_file.h"
#include "runtime/base/mapped_bytes.h"

namespace vkf {

std::optional<std::vector<std::byte>> read_regular_file(const std::filesystem::path& path, std::uint64_t most) {
    try {
        const MappedFile file(path);
        if (file.bytes().size() > most) {
            return std::nullopt;
        }
        std::vector<std::byte> all(file.bytes().size());
        copy_bytes(file.bytes(), all.data());
        return all;
    } catch (const Error&) {  // missing, no regular file, or cut short meanwhile
        return std::nullopt;
    }
}

}  // namespace vkf
