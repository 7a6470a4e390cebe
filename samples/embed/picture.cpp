// SPDX-License-Identifier: Apache-2.0
#include "picture.h"

#include <algorithm>
#include <stdexcept>
#include <string>

#define STB_IMAGE_WRITE_IMPLEMENTATION
#include <stb_image_write.h>

#include "../arguments.h"

void write_png(const std::filesystem::path& path, std::uint32_t width, std::uint32_t height,
               std::span<const std::byte> pixels) {
    std::string png;
    const auto append = [](void* to, void* bytes, int size) {
        static_cast<std::string*>(to)->append(static_cast<const char*>(bytes), static_cast<std::size_t>(size));
    };
    if (stbi_write_png_to_func(append, &png, static_cast<int>(width), static_cast<int>(height), 4, pixels.data(),
                               static_cast<int>(4 * width)) == 0) {
        throw std::runtime_error(path.string() + ": cannot be made");
    }
    write_file(path, png);
}

std::uint64_t digest(std::span<const std::byte> pixels, std::uint64_t before) {
    for (const std::byte b : pixels) {
        before = (before ^ std::to_integer<std::uint64_t>(b)) * 0x100000001b3;
    }
    return before;
}

double bright_share(std::span<const std::byte> pixels) {
    std::size_t bright = 0;
    for (std::size_t i = 0; i + 4 <= pixels.size(); i += 4) {
        bright += std::max({pixels[i], pixels[i + 1], pixels[i + 2]}) > std::byte{80} ? 1 : 0;
    }
    return 4.0 * static_cast<double>(bright) / static_cast<double>(pixels.size());
}
