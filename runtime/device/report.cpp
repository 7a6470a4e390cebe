// SPDX-License-Identifier: Apache-2.0
// What a program tells of itself: explain(), dot(), tables and traces of times.
#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <fstream>
#include <system_error>

#include "runtime/device/program.h"
#include "runtime/device/program_core.h"

namespace vkf {

namespace {

template <class... Args>
std::string format(const char* pattern, Args... args) {
    std::string text(static_cast<std::size_t>(std::max(0, std::snprintf(nullptr, 0, pattern, args...))), '\0');
    std::snprintf(text.data(), text.size() + 1, pattern, args...);
    return text;
}

std::vector<std::string> names_of(const Plan& plan) {
    std::vector<std::string> names;
    for (const SymbolInfo& s : plan.symbols) {
        names.push_back(s.name);
    }
    return names;
}

std::string planned_shape(const Plan& plan, const Shape& shape) {
    const std::vector<std::string> names = names_of(plan);
    std::string out;
    for (const Dim& d : shape) {
        out += (out.empty() ? "" : ", ") + d.str(names);
    }
    return "(" + out + ")";
}

/// Says what decided for the kernel, behind the arithmetic that it multiplies in where that is not
/// fp32.
std::string why_text(const Kernel& kernel, Arithmetic asked) {
    const bool fewer = kernel.arithmetic != Arithmetic::f32;
    return (fewer ? std::string(name_of(kernel.arithmetic)) + " arithmetic, " : "") + kernel.why +
           (kernel.why_fp32.empty()
                ? ""
                : "; fp32, though " + std::string(name_of(asked)) + " was asked for: " + kernel.why_fp32);
}

/// Says which bindings are texel buffers in a program's own runs.
std::string texels_text(const Pipeline* pipeline) {
    std::string out;
    for (std::size_t i = 0; pipeline && i < pipeline->texel_bytes.size(); ++i) {
        if (pipeline->texel_bytes[i] != 0) {
            out += (out.empty() ? "\n            texel buffers at " : ", ") + std::to_string(i);
        }
    }
    return out;
}

std::string constants_text(const Kernel& kernel) {
    std::string out;
    for (const std::uint32_t c : kernel.constants.values()) {
        out += (out.empty() ? "" : ",") + std::to_string(c);
    }
    return out;
}

/// Says how much memory the program's packed weights take, a line a type.
std::string packed_weights(const Plan& plan) {
    std::string out;
    for (const WeightType type : {WeightType::f16, WeightType::bf16, WeightType::int8, WeightType::int4}) {
        std::uint64_t count = 0;
        std::uint64_t bytes = 0;
        for (StorageId s = 0; s < plan.storages.size(); ++s) {
            if (plan.storages[s].type == type && plan.storages[s].parts.empty()) {
                ++count;
                bytes += plan.storage_bytes[s];
            }
        }
        if (count != 0) {
            out += std::to_string(count) + " weights kept as " + std::string(name_of(type)) + ", " +
                   std::to_string(bytes) + " bytes\n";
        }
    }
    return out;
}

/// Text as JSON and Graphviz want it between double quotes.
std::string escape(const std::string& text) {
    std::string out;
    for (const char ch : text) {
        if (ch == '"' || ch == '\\') {
            out += '\\';
        }
        out += static_cast<unsigned char>(ch) < ' ' ? ' ' : ch;
    }
    return out;
}

std::string copy_text(const Plan& plan, const PlannedCopy& copy) {
    const StorageInfo& s = plan.storages[copy.storage];
    const bool in = copy.direction == CopyDirection::to_device;
    return format("%4u  %-44s", copy.step, ("copy " + s.name + (in ? " to the device" : " to the host")).c_str()) +
           " -> " + planned_shape(plan, s.shape) + "\n";
}

bool is_taken(const Plan& plan, std::string_view kernel) {
    return std::any_of(plan.dispatches.begin(), plan.dispatches.end(), [&](const PlannedDispatch& d) {
        const std::vector<Kernel>& all = d.dispatch.kernels;
        return std::any_of(all.begin(), all.end(), [&](const Kernel& k) { return k.shader->name == kernel; });
    });
}

/// The result: of what is written, the first.
const Binding& first_written(const Dispatch& d) {
    return *std::find_if(d.bindings.begin(), d.bindings.end(),
                         [](const Binding& b) { return b.access != Access::read; });
}

}  // namespace

std::string Program::explain() const {
    const Plan& plan = core_->plan;
    const Capabilities& caps = core_->device->capabilities;
    std::string out = core_->options.name + " on " + caps.name + (caps.minimum_profile ? ", minimum profile" : "") +
                      (core_->device->profile_by_variable ? " of VKFORMER_PROFILE" : "") +
                      (caps.variants.empty() ? "" : ", VKFORMER_VARIANT=" + caps.variants) +
                      (caps.tuning_from.empty()
                           ? ""
                           : ", tuning " + (caps.tuning.empty() ? "none" : caps.tuning) + " of " + caps.tuning_from) +
                      ": " + std::to_string(plan.dispatches.size()) + " dispatches in " + std::to_string(plan.steps) +
                      " steps\n";
    out += format(
        "memory: weights %llu, state %llu, constants %llu, scratch %llu (live peak %llu), inputs %llu, outputs %llu, "
        "mirrors %llu bytes\n",
        static_cast<unsigned long long>(plan.memory.weights), static_cast<unsigned long long>(plan.memory.state),
        static_cast<unsigned long long>(plan.memory.constants), static_cast<unsigned long long>(plan.memory.scratch),
        static_cast<unsigned long long>(peak_live_bytes(plan.intervals, caps.storage_alignment)),
        static_cast<unsigned long long>(plan.memory.inputs), static_cast<unsigned long long>(plan.memory.outputs),
        static_cast<unsigned long long>(plan.memory.mirrors));
    if (const std::uint64_t outside = core_->device->outside; outside != 0) {
        out += format("memory: %llu bytes of this device's lie in the host's memory, for its own gave no room: slow\n",
                      static_cast<unsigned long long>(outside));
    }
    const std::string not_asked = core_->device->owned ? ", for it does not offer it\n"
                                                       : ": it does not offer it, or the host did not enable it\n";
    if (!caps.keeps_special_f32) {
        out += "floats: this driver was not asked to keep NaN, infinities and -0.0" + not_asked;
    }
    const bool halves = std::any_of(plan.storages.begin(), plan.storages.end(),
                                    [](const StorageInfo& s) { return s.type == WeightType::f16; });
    if (halves && !caps.keeps_subnormal_f16) {
        out += "floats: this driver was not asked to keep f16 below 2^-14" + not_asked;
    }
    if (plan.memory.exchanged != 0) {
        out +=
            format("exchanged with other ranks: %llu bytes\n", static_cast<unsigned long long>(plan.memory.exchanged));
    }
    if (!caps.left_out_damage.empty()) {
        out += "kernels that are left out: " + caps.left_out_damage + "\n";
    }
    for (const LeftOut& kernel : plan.left_out) {
        out += kernel.kernel +
               (is_taken(plan, kernel.kernel) ? " is not left out, for nothing stands in for it: " : " is left out: ") +
               kernel.why + "\n";
    }
    out += packed_weights(plan);
    for (const PlannedWork& entry : plan.work) {
        if (entry.kind == WorkKind::copy) {
            out += copy_text(plan, plan.copies[entry.index]);
            continue;
        }
        const PlannedDispatch& d = plan.dispatches[entry.index];
        const NodeInfo& node = plan.nodes[d.dispatch.node];
        const ValueInfo& result = plan.values[first_written(d.dispatch).value];
        out += format("%4u  %-44s", d.step, node.label.c_str());
        out += " -> " + planned_shape(plan, result.shape);
        if (d.dispatch.collective != Collective::none) {
            out += format("\n        %s of rank %d of %d, on the host", name_of(d.dispatch.collective),
                          core_->options.communicator->rank(), core_->options.communicator->ranks());
            if (d.dispatch.collective == Collective::broadcast) {
                out += format(", of what rank %u has", d.dispatch.words[0]);
            }
            const auto meanwhile = d.over_before - static_cast<std::uint32_t>(&entry - plan.work.data()) - 1;
            out += meanwhile == 0 ? "" : format(", while the next %u run", meanwhile);
        } else if (plan.exchange_offset[result.storage] != Plan::kNotInArena) {
            out += ", exchanged by ranks";
        } else if (const std::uint64_t at = plan.arena_offset[result.storage]; at != Plan::kNotInArena) {
            out += format(" @%llu", static_cast<unsigned long long>(at));
        } else {
            out += " " + plan.storages[result.storage].name;
        }
        for (std::size_t i = 0; i < d.dispatch.kernels.size(); ++i) {
            const Kernel& k = d.dispatch.kernels[i];
            out += "\n        " + std::string(k.shader->name) + "<" + constants_text(k) +
                   ">: " + why_text(k, plan.arithmetic.asked);
            out += d.may_choose(i) ? "" : "; not built: the sizes are constant and choose another";
            out += texels_text(core_->pipelines[entry.index][i]);
        }
        out += "\n";
    }
    for (const std::string& note : plan.notes) {
        out += note + "\n";
    }
    return out;
}

const ArithmeticUse& Program::arithmetic() const { return core_->plan.arithmetic; }

std::string Program::dot() const {
    const Plan& plan = core_->plan;
    std::string out = "digraph program {\n  rankdir=TB; node [shape=box, fontname=\"sans-serif\", fontsize=10];\n";
    for (StorageId s = 0; s < plan.storages.size(); ++s) {
        const StorageInfo& info = plan.storages[s];
        const bool in_arena = plan.arena_offset[s] != Plan::kNotInArena;
        if (info.kind == StorageKind::intermediate && !in_arena && plan.exchange_offset[s] == Plan::kNotInArena) {
            continue;
        }
        std::string label =
            (info.name.empty() ? "" : escape(info.name) + "\\n") + escape(planned_shape(plan, info.shape));
        if (in_arena) {
            label += format("\\n@%llu +%llu", static_cast<unsigned long long>(plan.arena_offset[s]),
                            static_cast<unsigned long long>(plan.storage_bytes[s]));
        }
        const char* style = info.kind == StorageKind::input || info.kind == StorageKind::output
                                ? "fillcolor=\"#cfe8ff\""
                            : info.kind == StorageKind::state        ? "fillcolor=\"#ffe0b0\""
                            : info.kind == StorageKind::intermediate ? "fillcolor=\"#f4f4f4\""
                                                                     : "fillcolor=\"#d8f0d0\"";
        out += "  s" + std::to_string(s) + " [style=filled, " + style + ", shape=ellipse, label=\"" + label + "\"];\n";
        for (const StorageId part : info.parts) {
            out += "  s" + std::to_string(part) + " -> s" + std::to_string(s) + " [style=dotted];\n";
        }
    }
    for (std::size_t i = 0; i < plan.dispatches.size(); ++i) {
        const PlannedDispatch& d = plan.dispatches[i];
        out += "  d" + std::to_string(i) + " [label=\"" + escape(plan.nodes[d.dispatch.node].label) + "\\n" +
               (d.dispatch.collective == Collective::none ? d.dispatch.kernels.front().shader->name
                                                          : name_of(d.dispatch.collective)) +
               "\\nstep " + std::to_string(d.step) + "\"];\n";
        for (std::size_t b = 0; b < d.windows.size(); ++b) {
            const std::string storage = "s" + std::to_string(d.windows[b].storage);
            const std::string node = "d" + std::to_string(i);
            if (d.dispatch.bindings[b].access != Access::write) {
                out += "  " + storage + " -> " + node + ";\n";
            }
            if (d.dispatch.bindings[b].access != Access::read) {
                out += "  " + node + " -> " + storage + ";\n";
            }
        }
    }
    for (std::size_t i = 0; i < plan.copies.size(); ++i) {
        const PlannedCopy& copy = plan.copies[i];
        const std::string storage = "s" + std::to_string(copy.storage);
        const std::string node = "c" + std::to_string(i);
        const bool in = copy.direction == CopyDirection::to_device;
        out += "  " + node + " [label=\"copy\\nstep " + std::to_string(copy.step) + "\"];\n";
        out += "  " + (in ? node : storage) + " -> " + (in ? storage : node) + ";\n";
    }
    return out + "}\n";
}

namespace {

/// With so many digits behind the point, which is one whatever the host's locale.
std::string json_number(double value, int digits) {
    char text[400];  // the largest has 309 digits before the point
    const auto end = std::to_chars(text, text + sizeof(text), value, std::chars_format::fixed, digits);
    return {text, end.ptr};
}

/// Kernels that run during a collective are in its time already.
double time_in_all(const Plan& plan, const std::vector<DispatchTime>& times) {
    double total = 0;
    for (std::size_t d = 0; d < times.size(); ++d) {
        const DispatchTime& t = times[d];
        const bool meanwhile = std::any_of(times.begin(), times.end(), [&](const DispatchTime& other) {
            const auto i = static_cast<std::size_t>(&other - times.data());
            return i != d && plan.dispatches[i].dispatch.collective != Collective::none &&
                   t.start_ms >= other.start_ms && t.start_ms + t.ms <= other.start_ms + other.ms;
        });
        total += meanwhile ? 0 : t.ms;
    }
    return total;
}

}  // namespace

std::string Program::time_table() const {
    std::string out = "      ms  GFLOP/s     GB/s  kernel              node\n";
    for (const DispatchTime& t : times()) {
        const double seconds = std::max(t.ms, 1e-6) * 1e-3;
        out += format("%8.4f %8.2f %8.2f  %-18s  %s\n", t.ms, t.flops / seconds * 1e-9, t.bytes / seconds * 1e-9,
                      t.kernel.c_str(), t.label.c_str());
    }
    return out + format("%8.4f ms in all\n", time_in_all(core_->plan, times()));
}

void Program::write_trace(const std::filesystem::path& path) const {
    const std::vector<DispatchTime>& all = times();  // where it throws the file stays as it is
    errno = 0;
    std::ofstream out(path);
    if (!out) {
        throw Error("could not be written: " + std::generic_category().message(errno != 0 ? errno : EIO),
                    path.string());
    }
    out << "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n";
    out << "{\"ph\":\"M\",\"pid\":1,\"name\":\"process_name\",\"args\":{\"name\":\""
        << escape(core_->device->capabilities.name) << "\"}}";
    for (const DispatchTime& t : all) {
        out << ",\n{\"ph\":\"X\",\"pid\":1,\"tid\":1,\"ts\":" << json_number(t.start_ms * 1e3, 3)
            << ",\"dur\":" << json_number(t.ms * 1e3, 3) << ",\"name\":\"" << escape(t.label)
            << "\",\"args\":{\"kernel\":\"" << escape(t.kernel) << "\",\"flops\":" << json_number(t.flops, 0)
            << ",\"bytes\":" << json_number(t.bytes, 0) << "}}";
    }
    out << "\n]}\n";
    if (!out.flush()) {
        throw Error("could not be written", path.string());
    }
}

}  // namespace vkf
