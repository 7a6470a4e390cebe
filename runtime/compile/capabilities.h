// SPDX-License-Identifier: Apache-2.0
// What a device can do, as far as anything in this library asks. Nothing asks for a vendor; where a
// version of a driver is slow at something, query_capabilities() tells what.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "../base/export.h"

namespace vkf {

enum class DeviceType : std::uint8_t { other, integrated, discrete, virtual_gpu, cpu };

/// Matrices a subgroup multiplies at once: C (m, n) += A (m, k) B (k, n), A and B of f16, C of
/// fp32; or of int8 and int32.
struct MatrixShape {
    std::uint32_t m = 0, n = 0, k = 0;
    bool operator==(const MatrixShape&) const = default;
};

/// A kernel that ops do not take on a device, though it is offered all that the kernel needs.
struct LeftOut {
    std::string kernel;  ///< shader, as Program::explain() names it
    std::string why;     ///< the rest of a sentence: "its pipeline failed with VK_ERROR_UNKNOWN"
    bool operator==(const LeftOut&) const = default;
};

struct VKF_API Capabilities {
    std::string name;  ///< VkPhysicalDeviceProperties::deviceName
    /// driver name and version text where the driver tells, else the packed number
    std::string driver;
    DeviceType type = DeviceType::other;
    std::uint32_t api_version = 0;
    std::uint32_t vendor_id = 0, device_id = 0, driver_version = 0;
    std::array<std::uint8_t, 16> cache_uuid{};

    std::uint32_t max_invocations = 128;
    std::array<std::uint32_t, 3> max_group_size = {128, 128, 64};
    std::array<std::uint32_t, 3> max_groups = {65535, 65535, 65535};
    std::uint32_t shared_memory = 16384;       ///< bytes a work group
    std::uint32_t push_constants = 128;        ///< bytes
    std::uint32_t storage_buffers = 4;         ///< a stage
    std::uint64_t storage_alignment = 256;     ///< alignment of descriptor offsets, bytes
    std::uint64_t storage_range = 128u << 20;  ///< most bytes of one descriptor
    std::uint64_t max_allocation = 1u << 30;   ///< most bytes of an allocation, and of its buffer
    /// bytes of the largest heap of device-local memory
    std::uint64_t device_memory = 0;
    /// the size that the driver reports; only a hint, since some drivers run at another size
    std::uint32_t subgroup_size = 0;
    /// the only size subgroups can have (smallest = largest); 0: they vary or it is not told
    std::uint32_t exact_subgroup_size = 0;
    bool subgroup_shuffle = false;     ///< shuffles in compute shaders
    bool subgroup_arithmetic = false;  ///< arithmetic in compute shaders
    bool subgroup_quad = false;        ///< exchanges within a quad, four lanes, in compute shaders
    bool storage_16bit = false;        ///< float16_t in storage buffers
    /// 64-bit integers in shaders; true only for processors, whose kernels then load 8 bytes at a
    /// time
    bool int64 = false;
    /// Kernels are to fetch what they only read from uniform texel buffers, which can be wherever
    /// storage buffers are: lavapipe before 26 loads from those lane by lane.
    bool texel_buffers = false;
    /// Arithmetic in f16 that rounds to the nearest: VK_KHR_shader_float16_int8,
    /// VK_KHR_shader_float_controls.
    bool float16 = false;
    /// A module that says how f16 is rounded must say the same of fp32, as on Intel's GPUs.
    bool rounds_alike = false;
    /// VK_KHR_shader_float_controls: what shaders may ask the driver to keep. Numerical promises
    /// about NaN, infinities and -0.0 are the driver's too only with the first.
    bool float_controls = false;
    bool keeps_special_f32 = false;    ///< NaN, infinities and the sign of 0, in fp32
    bool keeps_special_f16 = false;    ///< likewise in f16
    bool keeps_subnormal_f16 = false;  ///< subnormal numbers of f16, whatever becomes of fp32's
    /// This build has kernels on cooperative matrices, for its Vulkan headers and its shader
    /// compiler know them.
    bool matrix_kernels = false;
    /// VK_KHR_cooperative_matrix, and what its kernels need beside it: f16 that is rounded to the
    /// nearest, Vulkan's memory model, full subgroups of a required size. False too where this
    /// build's shader compiler could not compile such kernels.
    bool cooperative_matrix = false;
    /// cooperative_matrix together with the reductions, conversions and per-element operations of
    /// VK_NV_cooperative_matrix2 or VK_EXT_cooperative_matrix_maintenance1. Never true for a host's
    /// device: their kernels need an instance made for Vulkan 1.3, and a host's instance does not
    /// tell its version.
    bool matrix_elements = false;
    /// matrix_elements are those of VK_EXT_cooperative_matrix_maintenance1; where a device offers
    /// both, NVIDIA's are taken
    bool matrix_elements_ext = false;
    std::vector<MatrixShape> matrix_shapes;  ///< shapes of cooperative_matrix, within a subgroup
    bool cooperative_matrix_int8 = false;    ///< cooperative_matrix for int8
    std::vector<MatrixShape> int8_matrix_shapes;
    std::uint32_t matrix_subgroup_size = 0;  ///< the size that its pipelines require
    std::uint32_t max_subgroups = 0;         ///< most in a work group of such pipelines
    bool integer_dot = false;                ///< VK_KHR_shader_integer_dot_product
    /// the device reports dot products of four signed 8-bit numbers a word as accelerated
    bool fast_integer_dot = false;
    /// image_output() can write other formats than the four that every device writes
    bool storage_image_any_format = false;
    bool external_memory_fd = false;       ///< VK_KHR_external_memory_fd, for storage buffers
    bool external_memory_host = false;     ///< VK_EXT_external_memory_host, for storage buffers
    bool external_memory_android = false;  ///< VK_ANDROID_external_memory_android_hardware_buffer
    /// VK_KHR_portability_subset: must be enabled where it is offered
    bool portability_subset = false;
    /// device-local memory is the host's memory: no staging needed
    bool unified_memory = false;
    bool timeline_semaphore = false;  ///< VK_KHR_timeline_semaphore: Ticket::semaphore()
    float timestamp_period = 0;       ///< nanoseconds a tick; 0: no timestamps
    /// valid bits of a timestamp; beyond them it begins again at 0
    std::uint32_t timestamp_bits = 0;
    bool minimum_profile = false;  ///< clamped by VKFORMER_PROFILE=minimum
    /// names of kernel variants that are forced, with commas between: VKFORMER_VARIANT
    std::string variants;

    /// "name=number" with commas between: numbers by which ops choose, instead of what capabilities
    /// suggest (ops/tuning.h).
    std::string tuning;
    std::string tuning_from;  ///< the source of `tuning`, for explain()
    /// `tuning` comes from a variable or an option, so a number that does not fit is an error; a
    /// number of a file that does not fit is not used
    bool tuning_is_asked = false;

    /// Kernels that ops do not take: DeviceOptions::leave_out, or what vkformer-doctor found. Those
    /// that were found since the device was made are in Device::left_out() alone.
    std::vector<LeftOut> left_out;
    std::string left_out_damage;  ///< what of the list is not used, and why, for explain()

    /// Kernels for processors: no shared memory, work per invocation instead of across a group.
    bool cpu() const noexcept { return type == DeviceType::cpu; }
    /// True when `variants`, names with commas between, has this one. Ops refuse names that are no
    /// kernel's.
    bool asks_for(std::string_view variant) const noexcept;
    bool leaves_out(std::string_view kernel) const noexcept;
    /// "KERNEL is left out: WHY"; empty where it is not.
    std::string why_left_out(std::string_view kernel) const;
    /// The number of this name in `tuning`; nothing where there is none.
    std::optional<std::uint32_t> tuned(std::string_view name) const noexcept;
    /// Lowers everything to what Vulkan 1.1 guarantees.
    void clamp_to_minimum();
};

}  // namespace vkf
