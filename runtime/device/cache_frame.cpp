// SPDX-License-Identifier: Apache-2.0
#include "runtime/device/cache_frame.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstring>

namespace vkf {

namespace {

constexpr std::uint32_t kFrameMagic = 0x43464b56;  // "VKFC"
constexpr std::uint32_t kFrameVersion = 1;

struct FrameHeader {
    std::uint32_t magic, version, vendor_id, device_id, driver_version, api_version;
    std::array<std::uint8_t, 16> uuid;
    std::uint64_t bytes, checksum;
};
static_assert(sizeof(FrameHeader) == 56);

FrameHeader header_for(const Capabilities& device, std::span<const std::byte> data) {
    return {kFrameMagic,        kFrameVersion,     device.vendor_id, device.device_id, device.driver_version,
            device.api_version, device.cache_uuid, data.size(),      fnv1a(data)};
}

}  // namespace

std::uint64_t fnv1a(std::span<const std::byte> data, std::uint64_t hash) {
    for (const std::byte b : data) {
        hash = (hash ^ static_cast<std::uint8_t>(b)) * 0x100000001b3u;
    }
    return hash;
}

std::vector<std::byte> frame_cache(const Capabilities& device, std::span<const std::byte> data) {
    const FrameHeader header = header_for(device, data);
    std::vector<std::byte> out(sizeof(header) + data.size());
    std::memcpy(out.data(), &header, sizeof(header));
    std::copy(data.begin(), data.end(), out.begin() + sizeof(header));
    return out;
}

std::span<const std::byte> unframe_cache(const Capabilities& device, std::span<const std::byte> file) {
    if (file.size() < sizeof(FrameHeader)) {
        return {};
    }
    const auto data = file.subspan(sizeof(FrameHeader));
    const FrameHeader expected = header_for(device, data);
    return std::memcmp(file.data(), &expected, sizeof(expected)) == 0 ? data : std::span<const std::byte>();
}

std::string cache_file_name(const Capabilities& device, std::span<const std::uint8_t> more) {
    const FrameHeader header = header_for(device, {});
    const std::uint64_t hash = fnv1a(std::as_bytes(more), fnv1a(std::as_bytes(std::span(&header, 1))));
    char text[32];
    std::snprintf(text, sizeof(text), "%016llx.pipelines", static_cast<unsigned long long>(hash));
    return text;
}

}  // namespace vkf
