// SPDX-License-Identifier: Apache-2.0
// What devices can do, and what a host has to turn on.
#include "bind.h"

#include <nanobind/stl/array.h>

namespace py {

void bind_capabilities(nb::module_& m) {
    using C = vkf::Capabilities;
    nb::class_<vkf::MatrixShape>(m, "MatrixShape", "Matrices that a subgroup multiplies at once: m, n, k.")
        .def_ro("m", &vkf::MatrixShape::m)
        .def_ro("n", &vkf::MatrixShape::n)
        .def_ro("k", &vkf::MatrixShape::k)
        .def("__repr__", [](const vkf::MatrixShape& s) {
            return std::to_string(s.m) + "x" + std::to_string(s.n) + "x" + std::to_string(s.k);
        });
    nb::class_<C> c(m, "Capabilities", "What a device can do, as far as anything in this library asks.");
    c.def_prop_ro("type", [](const C& x) { return name(x.type); })
        .def_prop_ro("cpu", &C::cpu, "True for a processor.")
        .def_prop_ro("cache_uuid", [](const C& x) { return nb::bytes(x.cache_uuid.data(), x.cache_uuid.size()); })
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
#define MEMBER(member) c.def_ro(#member, &C::member)
    MEMBER(name);
    MEMBER(driver);
    MEMBER(api_version);
    MEMBER(vendor_id);
    MEMBER(device_id);
    MEMBER(driver_version);
    MEMBER(max_invocations);
    MEMBER(max_group_size);
    MEMBER(max_groups);
    MEMBER(shared_memory);
    MEMBER(push_constants);
    MEMBER(storage_buffers);
    MEMBER(storage_alignment);
    MEMBER(storage_range);
    MEMBER(max_allocation);
    MEMBER(device_memory);
    MEMBER(subgroup_size);
    MEMBER(exact_subgroup_size);
    MEMBER(subgroup_shuffle);
    MEMBER(subgroup_arithmetic);
    MEMBER(storage_16bit);
    MEMBER(int64);
    MEMBER(float16);
    MEMBER(cooperative_matrix);
    MEMBER(matrix_elements);
    MEMBER(matrix_shapes);
    MEMBER(cooperative_matrix_int8);
    MEMBER(int8_matrix_shapes);
    MEMBER(matrix_subgroup_size);
    MEMBER(max_subgroups);
    MEMBER(integer_dot);
    MEMBER(fast_integer_dot);
    MEMBER(storage_image_any_format);
    MEMBER(external_memory_fd);
    MEMBER(external_memory_host);
    MEMBER(external_memory_android);
    MEMBER(portability_subset);
    MEMBER(unified_memory);
    MEMBER(timeline_semaphore);
    MEMBER(timestamp_period);
    MEMBER(timestamp_bits);
    MEMBER(minimum_profile);
    MEMBER(variants);
    MEMBER(tuning);
    MEMBER(tuning_from);
    MEMBER(tuning_is_asked);
#undef MEMBER
    nb::class_<vkf::DeviceRequirement>(m, "DeviceRequirement",
                                       "An extension or feature that a host must, or may, turn on.")
        .def_ro("name", &vkf::DeviceRequirement::name)
        .def_ro("required", &vkf::DeviceRequirement::required)
        .def_ro("buys", &vkf::DeviceRequirement::buys)
        .def_ro("extension", &vkf::DeviceRequirement::extension);
    nb::class_<vkf::DeviceRequirements>(
        m, "DeviceRequirements",
        "The extensions and features to put into VkDeviceCreateInfo: those that the device has.")
        .def_prop_ro("list", [](const vkf::DeviceRequirements& r) { return r.list(); })
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
