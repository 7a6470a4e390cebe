// SPDX-License-Identifier: Apache-2.0
// What devices can do, and what a host has to turn on.
#include <cstdint>

#include <nanobind/stl/array.h>

#include "bind.h"

namespace py {

void bind_capabilities(nb::module_& m) {
    using C = vkf::Capabilities;
    nb::class_<vkf::MatrixShape>(m, "MatrixShape", "Matrices that a subgroup multiplies at once: m, n, k.")
        .def_ro("m", &vkf::MatrixShape::m, "Rows of the product.")
        .def_ro("n", &vkf::MatrixShape::n, "Columns of the product.")
        .def_ro("k", &vkf::MatrixShape::k, "Length of the sums.")
        .def("__repr__", [](const vkf::MatrixShape& s) {
            return std::to_string(s.m) + "x" + std::to_string(s.n) + "x" + std::to_string(s.k);
        });
    nb::class_<vkf::LeftOut>(m, "LeftOut", "A kernel that a device does without.")
        .def_ro("kernel", &vkf::LeftOut::kernel, "The kernel, as explain() names it.")
        .def_ro("why", &vkf::LeftOut::why, "Why, as the rest of a sentence.")
        .def("__repr__", [](const vkf::LeftOut& k) { return k.kernel + " is left out: " + k.why; });
    nb::class_<vkf::SelfCheck>(m, "SelfCheck", "One kernel on one input.")
        .def_ro("kernel", &vkf::SelfCheck::kernel, "The kernel, as explain() names it.")
        .def_ro("what", &vkf::SelfCheck::what, "The op, its sizes, and what is special in the input.")
        .def_ro("problem", &vkf::SelfCheck::problem, "Empty where results are right, and the same each time.")
        .def_ro("error", &vkf::SelfCheck::error, "The largest error as a share of what is allowed.")
        .def_ro("ms", &vkf::SelfCheck::ms, "Milliseconds on the host, compilation too.")
        .def_ro("chosen", &vkf::SelfCheck::chosen, "True where the device chooses the kernel unasked.");
    nb::class_<vkf::FloatFacts>(m, "FloatFacts", "What fp32 numbers keep on their way through a kernel.")
        .def_ro("denormals", &vkf::FloatFacts::denormals, "Denormal numbers stay.")
        .def_ro("f16_denormals", &vkf::FloatFacts::f16_denormals, "Weights in f16 below 2**-14 are not read as 0.")
        .def_ro("nan", &vkf::FloatFacts::nan, "NaN stays.")
        .def_ro("infinity", &vkf::FloatFacts::infinity, "Infinities stay.")
        .def_ro("minus_zero", &vkf::FloatFacts::minus_zero, "The sign of a zero stays.");
    nb::class_<vkf::SelfTest>(m, "SelfTest", "What Device.self_test() found.")
        .def_ro("checks", &vkf::SelfTest::checks, "Each kernel on each input.")
        .def_ro("left_out", &vkf::SelfTest::left_out, "Kernels that failed and that others stand in for.")
        .def_ro("floats", &vkf::SelfTest::floats, "What fp32 numbers keep.")
        .def_ro("complete", &vkf::SelfTest::complete,
                "False where the time was over, memory was short, or the device was lost.")
        .def_prop_ro(
            "verdict",
            [](const vkf::SelfTest& t) {
                constexpr const char* kNames[] = {"healthy", "degraded", "unusable"};
                return kNames[static_cast<std::size_t>(t.verdict)];
            },
            "healthy; degraded: others stand in for kernels that failed; unusable: for one there is no other.");
    nb::class_<C> c(m, "Capabilities", "What a device can do, as far as anything in this library asks.");
    c.def_prop_ro(
         "type", [](const C& x) { return name(x.type); }, "discrete, integrated, virtual, cpu or other.")
        .def_prop_ro("cpu", &C::cpu, "True for a processor.")
        .def_prop_ro(
            "cache_uuid", [](const C& x) { return nb::bytes(x.cache_uuid.data(), x.cache_uuid.size()); },
            "The 16 bytes by which a driver knows its pipeline caches.")
        .def(
            "asks_for", [](const C& x, const std::string& variant) { return x.asks_for(variant); }, "variant"_a,
            "True when `variants` has this one.")
        .def(
            "tuned", [](const C& x, const std::string& number) { return x.tuned(number); }, "name"_a,
            "The number of this name in `tuning`, or None.")
        .def("clamp_to_minimum", &C::clamp_to_minimum, "Lowers everything to what Vulkan 1.1 guarantees.")
        .def("__copy__", [](const C& x) { return C(x); })
        .def("__repr__", [](const C& x) {
            return "<" + x.name + ", " + name(x.type) + ", " + x.driver + ", Vulkan " +
                   std::to_string(x.api_version >> 22) + "." + std::to_string((x.api_version >> 12) & 0x3FF) + ", " +
                   std::to_string(x.device_memory >> 20) + " MiB>";
        });
#define MEMBER(member, doc) c.def_ro(#member, &C::member, doc)
    MEMBER(name, "The device's name, as its driver has it.");
    MEMBER(driver, "The driver's name and version as text.");
    MEMBER(api_version, "Vulkan's version, packed.");
    MEMBER(vendor_id, "The vendor's number.");
    MEMBER(device_id, "The device's number.");
    MEMBER(driver_version, "The driver's version, packed as its vendor packs it.");
    MEMBER(max_invocations, "Most invocations of a work group.");
    MEMBER(max_group_size, "Most invocations of a work group along x, y, z.");
    MEMBER(max_groups, "Most work groups of a dispatch along x, y, z.");
    MEMBER(shared_memory, "Bytes of shared memory a work group.");
    MEMBER(push_constants, "Bytes of push constants.");
    MEMBER(storage_buffers, "Storage buffers of a stage.");
    MEMBER(storage_alignment, "What offsets of descriptors are multiples of, in bytes.");
    MEMBER(storage_range, "Most bytes of one descriptor.");
    MEMBER(max_allocation, "Most bytes of one allocation, and of its buffer.");
    MEMBER(device_memory, "Bytes of the largest heap of device-local memory.");
    MEMBER(subgroup_size, "The size that the driver tells; a hint, since some run at another.");
    MEMBER(exact_subgroup_size, "The only size that subgroups can have; 0: they vary, or it is not told.");
    MEMBER(subgroup_shuffle, "True for shuffles in compute shaders.");
    MEMBER(subgroup_arithmetic, "True for sums over subgroups in compute shaders.");
    MEMBER(subgroup_quad, "True for exchanges within quads, four lanes, in compute shaders.");
    MEMBER(storage_16bit, "True for float16 in storage buffers.");
    MEMBER(int64, "True for 64-bit integers in shaders, of processors alone.");
    MEMBER(texel_buffers,
           "True where kernels are to fetch from texel buffers what they only read: lavapipe before 26.");
    MEMBER(float16, "True for arithmetic in float16 that rounds to the nearest.");
    MEMBER(float_controls, "True for VK_KHR_shader_float_controls.");
    MEMBER(keeps_special_f32, "True where NaN, infinities and the sign of 0 are kept in float32.");
    MEMBER(keeps_special_f16, "True where NaN, infinities and the sign of 0 are kept in float16.");
    MEMBER(keeps_subnormal_f16, "True where subnormal numbers of float16 are kept.");
    MEMBER(rounds_alike, "True where what says how float16 is rounded must say the same of float32.");
    MEMBER(matrix_kernels, "True where this build has kernels on cooperative matrices.");
    MEMBER(cooperative_matrix, "True for VK_KHR_cooperative_matrix and what its kernels need beside it.");
    MEMBER(matrix_elements, "True for operations on single elements of cooperative matrices.");
    MEMBER(matrix_elements_ext, "True where these are of VK_EXT_cooperative_matrix_maintenance1.");
    MEMBER(matrix_shapes, "Shapes of cooperative matrices of float16.");
    MEMBER(cooperative_matrix_int8, "True for cooperative matrices of int8.");
    MEMBER(int8_matrix_shapes, "Shapes of cooperative matrices of int8.");
    MEMBER(matrix_subgroup_size, "The size of subgroups that their pipelines require.");
    MEMBER(max_subgroups, "Most subgroups in a work group of such pipelines.");
    MEMBER(integer_dot, "True for VK_KHR_shader_integer_dot_product.");
    MEMBER(fast_integer_dot, "True where dot products of four signed 8-bit numbers are told to be fast.");
    MEMBER(storage_image_any_format,
           "True where image_output() can write other formats than the four of every device.");
    MEMBER(external_memory_fd, "True where storage buffers can be shared by file descriptors.");
    MEMBER(external_memory_host, "True where the device can see the host's memory.");
    MEMBER(external_memory_android, "True where Android's hardware buffers can be imported.");
    MEMBER(portability_subset, "True where VK_KHR_portability_subset is offered, which a host has to enable.");
    MEMBER(unified_memory, "True where the device's memory is the host's.");
    MEMBER(timeline_semaphore, "True for VK_KHR_timeline_semaphore: Ticket.semaphore.");
    MEMBER(timestamp_period, "Nanoseconds a tick of timestamps; 0: there are none.");
    MEMBER(timestamp_bits, "Valid bits of a timestamp.");
    MEMBER(minimum_profile, "True where everything was lowered to what Vulkan 1.1 guarantees.");
    MEMBER(variants, "Kernel variants that are forced, with commas between: VKFORMER_VARIANT.");
    MEMBER(tuning, "Numbers by which ops choose kernels, \"name=number\" with commas between.");
    MEMBER(tuning_from, "Where `tuning` comes from.");
    MEMBER(tuning_is_asked,
           "True where a variable or an option asked for `tuning`: a number that does not fit is an error then.");
    MEMBER(left_out, "Kernels that ops do not take: what was asked for, or what vkformer-doctor found.");
    MEMBER(left_out_damage, "What of the list of these is not used, and why.");
#undef MEMBER
    nb::class_<vkf::DeviceRequirement>(m, "DeviceRequirement",
                                       "An extension or feature that a host must, or may, turn on.")
        .def_ro("name", &vkf::DeviceRequirement::name, "An extension, or \"Struct::member\" of a feature.")
        .def_ro("required", &vkf::DeviceRequirement::required, "False: it is of use, and not necessary.")
        .def_ro("buys", &vkf::DeviceRequirement::buys, "What it is good for, in words.")
        .def_ro("extension", &vkf::DeviceRequirement::extension, "True: an extension; False: a feature.");
    nb::class_<vkf::DeviceRequirements>(
        m, "DeviceRequirements",
        "The extensions and features to put into VkDeviceCreateInfo: those that the device has.")
        .def_prop_ro(
            "list", [](const vkf::DeviceRequirements& r) { return r.list(); }, "All of them.")
        .def(
            "extensions",
            [](const vkf::DeviceRequirements& r, bool wished) {
                std::vector<std::string> out;
                for (const char* one : r.extensions(wished)) out.emplace_back(one);
                return out;
            },
            "wished"_a = true, "Names for ppEnabledExtensionNames; with wished=False only those that are required.")
        .def(
            "features",
            [](vkf::DeviceRequirements& r, std::uint64_t next) {
                return reinterpret_cast<std::uintptr_t>(
                    r.features(reinterpret_cast<const void*>(static_cast<std::uintptr_t>(next))));
            },
            "next"_a = std::uint64_t{0},
            "The address of the structs to chain in VkDeviceCreateInfo.pNext, ending in `next`; they live in this "
            "object.")
        .def("__str__", [](const vkf::DeviceRequirements& r) { return r.str(); });
}

}  // namespace py
