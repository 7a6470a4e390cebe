// SPDX-License-Identifier: Apache-2.0
#include "runtime/device/program.h"

#include <algorithm>

#include "runtime/base/text.h"
#include "runtime/compile/stored.h"
#include "runtime/device/build_pipelines.h"
#include "runtime/device/device.h"
#include "runtime/device/insides.h"
#include "runtime/device/program_core.h"
#include "runtime/device/tensor_store.h"
#include "runtime/graph/sixteen.h"

namespace vkf {

namespace {

/// Throws unless every state the program names is there, with its type and shape.
void check_state(const Plan& plan, const State& state) {
    for (const StorageInfo& s : plan.storages) {
        if (s.kind != StorageKind::state) {
            continue;
        }
        check_stored("state " + s.name, as_declared(s), state.find(s.name), WantedBy::graph);
    }
}

constexpr std::size_t size_of_host(HostType type) { return type == HostType::bits ? 2 : 4; }

constexpr const char* name_of_host(HostType type) {
    return type == HostType::f32 ? "F32" : type == HostType::i32 ? "I32" : "16 bits";
}

/// True where a caller may give, or have, elements of `dtype` as `host`.
constexpr bool goes_as(DType dtype, HostType host) {
    switch (host) {
        case HostType::f32: return is_floating(dtype);
        case HostType::i32: return dtype == DType::i32;
        case HostType::bits: return is_floating(dtype) && size_of(dtype) == 2;
    }
    return false;
}

/// True where floats of the host's are 16 bits in memory, or the other way round.
constexpr bool converts(DType dtype, HostType host) { return host == HostType::f32 && dtype != DType::f32; }

std::span<const float> floats_of(std::span<const std::byte> bytes) {
    return {reinterpret_cast<const float*>(bytes.data()), bytes.size() / sizeof(float)};
}

/// Throws unless every weight the plan names is there as it was planned with, and those that are
/// read as one lie behind each other.
void check_weights(const Plan& plan, const WeightLayout& given) {
    for (const StoredTensor& wanted : plan.weights) {
        check_stored("weight " + wanted.name, wanted, given.find(wanted.name), WantedBy::program);
    }
    for (const StorageInfo& joined : plan.storages) {
        const StoredTensor* before = nullptr;
        for (const StorageId part : joined.parts) {
            const StoredTensor* t = given.find(plan.storages[part].name);
            if (before && (t->block != before->block || t->offset != before->offset + before->bytes)) {
                throw Error("does not lie behind " + before->name + ", for which the program was compiled",
                            "weight " + t->name);
            }
            before = t;
        }
    }
}

/// Throws unless the ranks are there with which the plan's collectives are done.
void check_ranks(const Plan& plan, const CompileOptions& options) {
    for (const PlannedDispatch& d : plan.dispatches) {
        if (d.dispatch.collective == Collective::none) {
            continue;
        }
        const std::string& label = plan.nodes[d.dispatch.node].label;
        if (!options.communicator) {
            throw Error("is done by several ranks, and CompileOptions::communicator names none",
                        options.name + ": " + label);
        }
        const std::size_t ranks = d.dispatch.words.size(),
                          there = static_cast<std::size_t>(options.communicator->ranks());
        if (d.dispatch.collective == Collective::all_gather && ranks != there) {
            throw Error("gathers what " + std::to_string(ranks) + " ranks have, of " + std::to_string(there),
                        options.name + ": " + label);
        }
        if (d.dispatch.collective == Collective::broadcast && d.dispatch.words[0] >= there) {
            throw Error("gives what rank " + std::to_string(d.dispatch.words[0]) + " has, of " + std::to_string(there),
                        options.name + ": " + label);
        }
    }
}

void check_device(const std::shared_ptr<DeviceCore>& core, const Weights& weights, const std::string& name) {
    if (Insides::store(weights) && Insides::store(weights)->core != core) {
        throw Error("weights of another device", name);
    }
}

}  // namespace

Program Device::compile(const Graph& graph, const Weights& weights) const {
    return compile(graph, weights, CompileOptions{});
}

Program Device::compile(const Graph& graph, const Weights& weights, const CompileOptions& options) const {
    core_->check_alive();
    check_device(core_, weights, options.name);
    Program program = compile(graph, weights.layout(), options);
    program.core_->weights = weights;  // checked already, as far as the plan asks
    return program;
}

Program Device::compile(const Graph& graph, const WeightLayout& weights, const CompileOptions& options) const {
    Capabilities capabilities = core_->capabilities;
    capabilities.left_out = core_->left_out();
    Plan plan = make_plan(graph, capabilities, weights, {options.arithmetic, options.rewrite});
    if (weights.tensors().empty()) {  // else they are what the plan was made for
        check_weights(plan, weights);
    }
    return compile(std::move(plan), options);
}

Program Device::compile(Plan plan, const CompileOptions& options) const {
    core_->check_alive();
    if (options.slots == 0) {
        throw Error("CompileOptions::slots is 0, and a program has at least 1", options.name);
    }
    constexpr std::uint32_t kMostSlots = 4096;  // each has descriptor sets of its own
    if (options.slots > kMostSlots) {
        throw Error("CompileOptions::slots is " + std::to_string(options.slots) + ", and a program has at most " +
                        std::to_string(kMostSlots),
                    options.name);
    }
    auto core = std::make_unique<ProgramCore>();
    core->device = core_;
    core->options = options;
    core->state = options.state;
    if (options.state && Insides::store(options.state)->core != core_) {
        throw Error("a state of another device", options.name);
    }
    check_ranks(plan, options);
    const bool unified = core_->capabilities.unified_memory;
    if (plan.memory.mirrors != (unified ? 0 : plan.memory.inputs + plan.memory.outputs)) {
        throw Error(std::string("was planned for a device whose memory the host ") +
                        (unified ? "does not see" : "sees") + ", unlike this one's",
                    options.name);
    }
    core->pipelines = build_pipelines(*core_, plan, {.inputs_and_outputs = !core_->owned});
    core->plan = std::move(plan);
    if (core->state) {
        check_state(core->plan, core->state);
    }
    for (std::size_t d = 0; d < core->plan.dispatches.size(); ++d) {
        const PlannedDispatch& planned = core->plan.dispatches[d];
        for (const Pipeline* pipeline : core->pipelines[d]) {
            if (pipeline && pipeline->bindings != planned.windows.size()) {
                throw Error("binds " + std::to_string(planned.windows.size()) + " buffers, its shader has " +
                                std::to_string(pipeline->bindings),
                            core->plan.nodes[planned.dispatch.node].label);
            }
        }
    }
    for (const SymbolInfo& s : core->plan.symbols) {
        core->sizes.push_back(s.max);
    }
    for (StorageId s = 0; s < core->plan.storages.size(); ++s) {
        if (is_external(core->plan.storages[s].kind)) {
            core->externals.push_back(s);
        }
        if (core->plan.storages[s].kind == StorageKind::input) {
            core->inputs.push_back({.storage = s});
        }
    }
    core->checked_limits.resize(core->plan.content_checks.size());
    core->bound_tensors.resize(core->plan.storages.size());
    core->times.resize(core->plan.dispatches.size());
    for (std::size_t d = 0; d < core->times.size(); ++d) {
        const Dispatch& dispatch = core->plan.dispatches[d].dispatch;
        core->times[d].label = core->plan.nodes[dispatch.node].label;
        for (const Kernel& k : dispatch.kernels) {  // a run writes a name and must not allocate
            core->times[d].kernel.reserve(std::string_view(k.shader->name).size());
        }
        if (dispatch.collective != Collective::none) {
            core->times[d].kernel = name_of(dispatch.collective);
        }
    }
    return Program(std::move(core));
}

Program::Program(std::unique_ptr<ProgramCore> core) : core_(std::move(core)) {}
Program::Program(Program&&) noexcept = default;
Program& Program::operator=(Program&&) noexcept = default;
Program::~Program() = default;

Program::Core::Core(std::unique_ptr<ProgramCore> core) : core_(std::move(core)) {}

ProgramCore& Program::Core::operator*() const {
    if (!core_) {
        throw Error("a program was used that had been moved from");
    }
    return *core_;
}

const MemorySizes& Program::memory() const { return core_->plan.memory; }
const std::vector<DispatchTime>& Program::times() const {
    core_->finish_run();
    static const std::vector<DispatchTime> kNone;
    return core_->timed ? core_->times : kNone;
}

void Program::set_weights(const Weights& weights) {
    if (core_->allocated) {
        throw Error("its memory is there already: its weights must come before", core_->options.name);
    }
    check_device(core_->device, weights, core_->options.name);
    check_weights(core_->plan, weights.layout());
    core_->weights = weights;
}

void Program::allocate() { core_->allocate_for_host(); }

void Program::allocate(const BufferRange& scratch) {
    if (!scratch.buffer && core_->plan.memory.scratch != 0) {
        throw Error("scratch was given without a buffer", core_->options.name);
    }
    core_->allocate_for_host(scratch);
}

void Program::set(std::string_view symbol, std::int64_t value) {
    const std::size_t i = core_->plan.symbol(symbol, core_->options.name);
    const SymbolInfo& s = core_->plan.symbols[i];
    if (value < 0 || value > s.max) {
        throw Error("size " + s.name + " = " + std::to_string(value) + " is outside 0.." + std::to_string(s.max),
                    core_->options.name);
    }
    core_->sizes[i] = value;
}

std::vector<std::int64_t> Program::shape(std::string_view name) const {
    return core_->shape_of(core_->plan.external(name, core_->options.name));
}

void ProgramCore::refuse_image(const StorageInfo& info) const {
    if (info.image != ImageAccess::none) {
        throw Error("is an image, which only a host has: record() the program instead",
                    options.name + ": " + info.name);
    }
}

std::int64_t ProgramCore::check_numbers(std::size_t check, std::span<const std::byte> data) const {
    const ContentCheck& c = plan.content_checks[check];
    const std::int64_t limit = c.limit.eval(sizes);
    const std::span numbers(reinterpret_cast<const std::int32_t*>(data.data()), data.size() / sizeof(std::int32_t));
    if (const std::string wrong = c.fault(numbers, limit); !wrong.empty()) {
        throw Error(wrong, options.name + ": input " + plan.storages[c.storage].name + ", " + c.what);
    }
    return limit;
}

void ProgramCore::upload(std::string_view name, HostType type, std::span<const std::byte> data) {
    const StorageId id = plan.named(StorageKind::input, name, options.name);
    const StorageInfo& info = plan.storages[id];
    refuse_image(info);
    const std::uint64_t count = elements_of(id, sizes);
    if (!goes_as(info.dtype, type) || data.size() != count * size_of_host(type)) {
        throw Error("is " + shape_text(shape_of(id)) + " " + std::string(name_of(info.dtype)) + ", " +
                        std::to_string(data.size() / size_of_host(type)) + " elements of " + name_of_host(type) +
                        " were given",
                    options.name + ": input " + info.name);
    }
    for (std::size_t c = 0; c < plan.content_checks.size(); ++c) {
        if (plan.content_checks[c].storage == id) {
            check_numbers(c, data);
        }
    }
    finish_run();  // which may still read what is overwritten now
    allocate_io();
    const auto input = std::find_if(inputs.begin(), inputs.end(), [&](const InputState& i) { return i.storage == id; });
    std::byte* mapped = io.mapped() ? io.mapped() : upload_mirror.mapped();
    if (converts(info.dtype, type)) {
        narrow(info.dtype, floats_of(data), mapped + io_offset[id]);
    } else {
        std::copy(data.begin(), data.end(), mapped + io_offset[id]);
    }
    put_bound(id, {});
    input->uploaded = true;
    input->dirty = true;
    input->uploaded_elements = count;
    for (std::size_t i = 0; i < info.shape.size(); ++i) {
        input->uploaded_shape[i] = info.shape[i].eval(sizes);
    }
    for (std::size_t c = 0; c < plan.content_checks.size(); ++c) {
        if (plan.content_checks[c].storage == id) {
            checked_limits[c] = plan.content_checks[c].limit.eval(sizes);
        }
    }
}

void Program::upload(std::string_view input, std::span<const float> data) {
    core_->upload(input, HostType::f32, std::as_bytes(data));
}

void Program::upload(std::string_view input, std::span<const std::int32_t> data) {
    core_->upload(input, HostType::i32, std::as_bytes(data));
}

void Program::upload(std::string_view input, std::span<const std::uint16_t> data) {
    core_->upload(input, HostType::bits, std::as_bytes(data));
}

OutputBytes ProgramCore::output(std::string_view name, HostType type) {
    const StorageId id = plan.named(StorageKind::output, name, options.name);
    const StorageInfo& info = plan.storages[id];
    refuse_image(info);
    if (!goes_as(info.dtype, type)) {
        throw Error("holds " + std::string(name_of(info.dtype)) + ", not " + name_of_host(type),
                    options.name + ": output " + info.name);
    }
    if (bound_tensors[id]) {
        throw Error("is bound to a tensor: DeviceTensor::read() has it", options.name + ": output " + info.name);
    }
    finish_run();
    if (!ran) {
        device->check_alive();
        throw Error("no run has finished yet, or the last one failed", options.name + ": output " + info.name);
    }
    const std::byte* mapped = io.mapped() ? io.mapped() + outputs_at : readback_mirror.mapped();
    return {info.dtype, {mapped + io_offset[id] - outputs_at, elements_of(id, run_sizes) * size_of(info.dtype)}};
}

namespace {

void copy_out(const OutputBytes& from, HostType type, std::span<std::byte> to) {
    if (converts(from.dtype, type)) {
        widen(from.dtype, from.bytes.data(), {reinterpret_cast<float*>(to.data()), from.elements()});
    } else {
        std::copy(from.bytes.begin(), from.bytes.end(), to.begin());
    }
}

template <class T>
std::vector<T> all_of(ProgramCore& core, std::string_view name, HostType type) {
    const OutputBytes from = core.output(name, type);
    std::vector<T> out(from.elements());
    copy_out(from, type, std::as_writable_bytes(std::span(out)));
    return out;
}

}  // namespace

void ProgramCore::download(std::string_view name, HostType type, std::span<std::byte> to) {
    const OutputBytes from = output(name, type);
    if (from.elements() * size_of_host(type) != to.size()) {
        throw Error("has " + std::to_string(from.elements()) + " elements, there is room for " +
                        std::to_string(to.size() / size_of_host(type)),
                    options.name + ": output " + std::string(name));
    }
    copy_out(from, type, to);
}

void Program::download(std::string_view output, std::span<float> to) {
    core_->download(output, HostType::f32, std::as_writable_bytes(to));
}

void Program::download(std::string_view output, std::span<std::int32_t> to) {
    core_->download(output, HostType::i32, std::as_writable_bytes(to));
}

void Program::download(std::string_view output, std::span<std::uint16_t> to) {
    core_->download(output, HostType::bits, std::as_writable_bytes(to));
}

std::vector<float> Program::download(std::string_view output) { return all_of<float>(*core_, output, HostType::f32); }

std::vector<std::int32_t> Program::download_i32(std::string_view output) {
    return all_of<std::int32_t>(*core_, output, HostType::i32);
}

std::vector<std::uint16_t> Program::download_bits(std::string_view output) {
    return all_of<std::uint16_t>(*core_, output, HostType::bits);
}

Ticket Program::submit() { return core_->submit(true); }

void Program::run() { core_->run(); }

}  // namespace vkf
