// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <nlohmann/json.hpp>
#include <utility>

#include "report.h"

namespace {

using Json = nlohmann::ordered_json;

/// JSON has no infinities.
Json number(double x) { return std::isfinite(x) ? Json(x) : Json("infinite"); }

Json json_of(const vkf::Capabilities& c) {
    return {{"name", c.name},
            {"driver", c.driver},
            {"type", name_of(c.type)},
            {"vulkan", std::to_string(c.api_version >> 22) + "." + std::to_string(c.api_version >> 12 & 0x3ff)},
            {"vendor_id", c.vendor_id},
            {"device_id", c.device_id},
            {"driver_version", c.driver_version},
            {"minimum_profile", c.minimum_profile},
            {"device_memory", c.device_memory},
            {"unified_memory", c.unified_memory},
            {"max_invocations", c.max_invocations},
            {"shared_memory", c.shared_memory},
            {"storage_buffers", c.storage_buffers},
            {"storage_range", c.storage_range},
            {"max_allocation", c.max_allocation},
            {"subgroup_size", c.subgroup_size},
            {"exact_subgroup_size", c.exact_subgroup_size},
            {"subgroup_shuffle", c.subgroup_shuffle},
            {"subgroup_arithmetic", c.subgroup_arithmetic},
            {"subgroup_quad", c.subgroup_quad},
            {"storage_16bit", c.storage_16bit},
            {"int64", c.int64},
            {"texel_buffers", c.texel_buffers},
            {"float16", c.float16},
            {"matrix_kernels", c.matrix_kernels},
            {"cooperative_matrix", c.cooperative_matrix},
            {"matrix_elements", c.matrix_elements},
            {"matrix_elements_ext", c.matrix_elements_ext},
            {"cooperative_matrix_int8", c.cooperative_matrix_int8},
            {"integer_dot", c.integer_dot},
            {"fast_integer_dot", c.fast_integer_dot},
            {"timeline_semaphore", c.timeline_semaphore},
            {"timestamp_period", c.timestamp_period}};
}

Json json_of(const std::vector<Measured>& list) {
    Json out = Json::array();
    for (const Measured& m : list) {
        Json row{{"name", m.name}, {"kernel", m.kernel}, {"ms", m.ms}, {"gflops", m.gflops}, {"gbps", m.gbps}};
        if (m.share > 0) {
            row["share"] = m.share;
        }
        out.push_back(std::move(row));
    }
    return out;
}

}  // namespace

std::string json_of(const Report& report) {
    Json devices = Json::array(), checks = Json::array(), left_out = Json::array();
    for (const vkf::Capabilities& c : report.devices) {
        devices.push_back(json_of(c));
    }
    for (const vkf::SelfCheck& c : report.test.checks) {
        checks.push_back({{"kernel", c.kernel},
                          {"what", c.what},
                          {"problem", c.problem},
                          {"error", number(c.error)},
                          {"ms", c.ms},
                          {"chosen", c.chosen}});
    }
    for (const vkf::LeftOut& k : report.test.left_out) {
        left_out.push_back({{"kernel", k.kernel}, {"why", k.why}});
    }
    const vkf::FloatFacts& f = report.test.floats;
    Json all{{"vkformer", report.version},
             {"day", report.day},
             {"quick", report.quick},
             {"seconds", report.seconds},
             {"verdict", name_of(report.test.verdict)},
             {"devices", std::move(devices)},
             {"broken", report.broken},
             {"examined", json_of(report.device)},
             {"complete", report.test.complete},
             {"checks", std::move(checks)},
             {"left_out", std::move(left_out)},
             {"ceilings", json_of(report.ceilings)},
             {"ops", json_of(report.ops)},
             {"not_measured", report.not_measured}};
    if (knows_f32(report.test)) {
        all["fp32_keeps"] = {
            {"nan", f.nan}, {"infinity", f.infinity}, {"minus_zero", f.minus_zero}, {"denormals", f.denormals}};
    }
    if (knows_f16(report.test)) {
        all["f16_keeps"] = {{"denormals", f.f16_denormals}};
    }
    // names that drivers give may be anything
    return all.dump(1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}
