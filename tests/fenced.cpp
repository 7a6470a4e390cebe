// SPDX-License-Identifier: Apache-2.0
#include "tests/fenced.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <span>

#include "ops/ops.h"
#include "runtime/base/numbers.h"
#include "runtime/device/device_core.h"
#include "runtime/device/insides.h"
#include "runtime/device/program_core.h"
#include "runtime/device/tensor_store.h"
#include "tests/device.h"
#include "tests/fixtures.h"
#include "tests/op_check.h"

namespace vkf::test {

namespace {

constexpr std::uint32_t kFences[] = {0x7fa0feedu,   // a NaN
                                     0x4b3c614eu};  // a large number, and a large index

/// Floats in [-1, 1), integers 0 and 1: indices that every table has.
Fenced::Words some_data(std::uint64_t count, DType dtype, std::uint32_t seed) {
    Fenced::Words out(count);
    std::uint32_t state = seed;
    for (std::uint32_t& word : out) {
        state = state * 1664525 + 1013904223;  // Numerical Recipes' generator
        word = dtype == DType::i32 ? state >> 31
                                   : std::bit_cast<std::uint32_t>(static_cast<float>(state >> 8) * 0x1p-23f - 1.0f);
    }
    return out;
}

/// memcpy, which takes no null pointer even for no bytes.
void copy_bytes(void* to, const void* from, std::size_t bytes) {
    if (bytes != 0) {
        std::memcpy(to, from, bytes);
    }
}

void fill(std::byte* at, std::uint64_t bytes, std::uint32_t word) {
    const Fenced::Words words(bytes / 4, word);
    copy_bytes(at, words.data(), words.size() * 4);
}

/// The first word that is not the fence's; -1: there is none.
std::int64_t first_other(const std::byte* at, std::uint64_t bytes, std::uint32_t fence) {
    Fenced::Words words(bytes / 4);
    copy_bytes(words.data(), at, words.size() * 4);
    const auto other = std::find_if(words.begin(), words.end(), [&](std::uint32_t w) { return w != fence; });
    return other == words.end() ? -1 : other - words.begin();
}

/// Gives every tensor that lies in the arena, beside other inputs, or beside other outputs a fence
/// behind it, and memory that it shares with no other.
void spread(Plan& plan, std::uint64_t alignment) {
    std::uint64_t end = Fenced::kFence;
    plan.memory.inputs = plan.memory.outputs = 0;
    for (StorageId s = 0; s < plan.storages.size(); ++s) {
        const std::uint64_t room = align_up(plan.storage_bytes[s], alignment) + Fenced::kFence;
        switch (plan.storages[s].kind) {
            case StorageKind::intermediate:
                if (plan.arena_offset[s] != Plan::kNotInArena) {
                    plan.arena_offset[s] = end;
                    end += room;
                }
                break;
            case StorageKind::input:
                plan.storage_bytes[s] = room;
                plan.memory.inputs += room;
                break;
            case StorageKind::output:
                plan.storage_bytes[s] = room;
                plan.memory.outputs += room;
                break;
            case StorageKind::constant: plan.storage_bytes[s] = room; break;
            default: break;
        }
    }
    plan.memory.scratch = plan.memory.scratch == 0 ? 0 : end;
    plan.memory.mirrors = plan.memory.mirrors == 0 ? 0 : plan.memory.inputs + plan.memory.outputs;
}

/// States of this name are fences themselves: they hold what fences hold.
bool is_guard(const std::string& state) { return state.starts_with("guard"); }

/// A device of other capabilities, while it lives.
class Variants {
public:
    Variants(const Device& device, const std::string& names) : device_(device), before_(device.capabilities()) {
        Insides::core(device_).capabilities.variants = names;
    }
    ~Variants() { Insides::core(device_).capabilities = before_; }
    Variants(const Variants&) = delete;
    Variants& operator=(const Variants&) = delete;

private:
    const Device& device_;
    Capabilities before_;
};

}  // namespace

/// A program, what is bound to it, and what it found.
struct Fenced::Case {
    Graph graph;
    Weights weights;
    State state;
    std::optional<Program> program;
    std::vector<std::uint64_t> bytes;  ///< of each storage, at its largest
    std::vector<Tensor> tensors;
    std::map<std::string, Words> states;  ///< what they begin with, and what a run made of them
};

Fenced::Fenced(bool whole) {
    const Environment quiet("VKFORMER_VALIDATION", "0");
    host_.emplace(whole);
    BorrowedDevice handles = host_->handles();
    handles.get_instance_proc_addr = vulkan_.entry();
    put_fences();
    device_.emplace(Device::borrow(handles));
}

Fenced::~Fenced() = default;

std::string Fenced::trespass(const Build& build, const Options& options) {
    std::string found;
    {
        const Variants variants(*device_, options.variants);
        found = trespass_of(build, options);
    }
    if (found.empty() && options.small_gpu) {
        const AsSmallGpu small_gpu(*device_);
        found = trespass_of(build, options);
        found = found.empty() ? found : "as on a small GPU: " + found;
    }
    return found;
}

std::string Fenced::trespass_of(const Build& build, const Options& options) {
    Case c;
    std::size_t outputs = 0;
    for (const Value& y : build(c.graph)) {
        const ValueInfo& info = c.graph.values()[y.id()];
        const bool whole = is_contiguous(info.shape, info.strides) && info.offset == Dim(0) &&
                           c.graph.storages()[info.storage].kind == StorageKind::intermediate;
        c.graph.output("y" + std::to_string(outputs++), whole ? y : contiguous(y));
    }
    std::vector<HostTensor> weights;
    std::vector<Words> numbers;
    numbers.reserve(c.graph.storages().size());
    for (const StorageInfo& s : c.graph.storages()) {
        if (s.kind == StorageKind::weight) {
            HostTensor t{s.name, DType::f32, {}, {}};
            std::uint64_t count = 1;
            for (const Dim& d : s.shape) {
                t.shape.push_back(d.constant());
                count *= static_cast<std::uint64_t>(d.constant());
            }
            numbers.push_back(some_data(count, DType::f32, static_cast<std::uint32_t>(weights.size() + 77)));
            t.data = std::as_bytes(std::span(numbers.back()));
            weights.push_back(std::move(t));
        }
    }
    c.weights = device_->load(weights, {.matrices = options.weights});
    c.state = device_->make_state({&c.graph});
    Plan plan = make_plan(c.graph, device_->capabilities(), c.weights.layout(), {.arithmetic = options.arithmetic});
    c.bytes = plan.storage_bytes;
    spread(plan, device_->capabilities().storage_alignment);
    c.program = device_->compile(std::move(plan), CompileOptions{.state = c.state});
    if (!weights.empty()) {
        c.program->set_weights(c.weights);
    }
    c.program->allocate();
    for (const auto& [symbol, value] : options.sizes) {
        c.program->set(symbol, value);
    }
    const Plan& planned = plan_of(*c.program);
    for (StorageId id = 0; id < planned.storages.size(); ++id) {
        const StorageInfo& info = planned.storages[id];
        if (info.kind != StorageKind::input && info.kind != StorageKind::output) {
            continue;
        }
        std::uint64_t count = 1;
        for (const std::int64_t size : c.program->shape(info.name)) {
            count *= static_cast<std::uint64_t>(size);
        }
        Tensor t;
        t.name = info.name;
        t.output = info.kind == StorageKind::output;
        t.dtype = info.dtype;
        t.data = t.output ? Words(count) : some_data(count, info.dtype, id + 1);
        t.most_bytes = planned.storage_bytes[id];
        t.buffer = host_->make_buffer(2 * kFence + t.most_bytes);
        bound_.insert(t.buffer.buffer);
        c.tensors.push_back(std::move(t));
    }
    std::string found;
    for (std::size_t i = 0; i < std::max<std::size_t>(options.changes.size(), 1) && found.empty(); ++i) {
        found = look_at(c, options, options.changes.empty() ? Change() : options.changes[i]);
        found = found.empty() || options.changes.empty() ? found : "data " + std::to_string(i) + ": " + found;
    }
    for (const Tensor& t : c.tensors) {
        bound_.erase(t.buffer.buffer);
        host_->destroy(t.buffer);
    }
    return found;
}

std::string Fenced::look_at(Case& c, const Options& options, const Change& change) {
    std::uint32_t seed = 1000;
    std::map<std::string, Words> states;
    for (const StoredTensor& t : c.state.layout().tensors()) {
        states[t.name] = some_data(t.bytes / 4, DType::f32, ++seed);
        if (change) {
            change(t.name, t.dtype, states[t.name]);
        }
    }
    seed = 0;
    for (Tensor& t : c.tensors) {
        if (!t.output && change) {
            t.data = some_data(t.data.size(), t.dtype, ++seed);
            change(t.name, t.dtype, t.data);
        }
    }
    std::string found;
    std::vector<Words> first;
    for (const std::uint32_t fence : kFences) {
        for (const bool recorded : {true, false}) {
            // A run's tensors lie where the host may not see them.
            if (recorded || (shift == 0 && device_->capabilities().unified_memory)) {
                c.states = states;
                for (auto& [name, words] : c.states) {
                    if (is_guard(name)) {
                        std::fill(words.begin(), words.end(), fence);
                    }
                }
                const std::string wrong = recorded ? record(c, options, fence) : run(c, fence);
                found += wrong.empty() ? wrong : (recorded ? "recorded: " : "run: ") + wrong;
                ++runs_;
                std::vector<Words> got;
                for (const Tensor& t : c.tensors) {
                    got.push_back(t.output ? t.data : Words());
                }
                for (auto& [name, words] : c.states) {
                    if (!is_guard(name)) {
                        got.push_back(words);
                    } else if (std::any_of(words.begin(), words.end(), [&](std::uint32_t w) { return w != fence; })) {
                        found += name + " was changed; ";
                    }
                }
                if (options.judge) {
                    std::map<std::string, Words> all = c.states;
                    for (const Tensor& t : c.tensors) {
                        all[t.name] = t.data;
                    }
                    found += options.judge(all);
                }
                first = first.empty() ? got : first;
                for (std::size_t i = 0; i < got.size(); ++i) {
                    if (got[i] != first[i]) {
                        found += (i < c.tensors.size() ? c.tensors[i].name : std::string("a state")) +
                                 " depends on what lies outside the tensors; ";
                    }
                }
            }
        }
    }
    return found;
}

std::vector<Fenced::Zone> Fenced::zones_of(const Case& c) const {
    const ProgramCore& core = Insides::core(*c.program);
    std::vector<Zone> zones;
    for (const auto& [buffer, owned] : owned_) {
        if (owned.base != nullptr) {
            zones.push_back({"a buffer of the library's", owned.base, kFence});
            zones.push_back({"a buffer of the library's", owned.base + kFence + align_up(owned.bytes, 4),
                             kFence - (align_up(owned.bytes, 4) - owned.bytes)});
        }
    }
    // What of a block no tensor has. `used`: offsets and bytes.
    const auto rest = [&](const char* name, std::byte* base, std::uint64_t bytes,
                          std::vector<std::pair<std::uint64_t, std::uint64_t>> used) {
        if (base == nullptr) {
            return;
        }
        std::sort(used.begin(), used.end());
        std::uint64_t at = 0;
        used.emplace_back(bytes, 0);
        for (const auto& [offset, size] : used) {
            if (offset > at) {
                zones.push_back({name, base + at, offset - at});
            }
            at = std::max(at, align_up(offset + size, 4));
        }
    };
    std::vector<std::pair<std::uint64_t, std::uint64_t>> arena, io;
    for (StorageId s = 0; s < core.plan.storages.size(); ++s) {
        const StorageKind kind = core.plan.storages[s].kind;
        if (kind == StorageKind::intermediate && core.plan.arena_offset[s] != Plan::kNotInArena) {
            arena.emplace_back(core.plan.arena_offset[s], c.bytes[s]);
        }
        if (is_external(kind)) {
            io.emplace_back(core.io_offset[s], core.elements_of(s, core.sizes) * size_of(core.plan.storages[s].dtype));
        }
    }
    rest("scratch", core.arena.mapped(), core.arena.bytes(), arena);
    rest("inputs and outputs", core.io.mapped(), core.io.bytes(), io);
    return zones;
}

std::string Fenced::written_outside(const std::vector<Zone>& zones, std::uint32_t fence) {
    std::string found;
    for (const Zone& zone : zones) {
        if (const std::int64_t at = first_other(zone.at, zone.bytes, fence); at >= 0) {
            found += zone.name + ": written outside, at word " + std::to_string(at) + " of a fence; ";
        }
    }
    return found;
}

std::string Fenced::record(Case& c, const Options& options, std::uint32_t fence) {
    std::vector<BufferRange> ranges;
    for (const Tensor& t : c.tensors) {
        Words all((2 * kFence + t.most_bytes) / 4, fence);
        if (!t.output) {
            std::copy(t.data.begin(), t.data.end(), all.begin() + kFence / 4);
        }
        copy_bytes(t.buffer.mapped, all.data(), all.size() * 4);
        ranges.push_back({t.name, t.buffer.buffer, kFence, t.most_bytes});
    }
    for (const auto& [name, words] : c.states) {
        c.state.write(name, std::as_bytes(std::span(words)));
    }
    const std::vector<Zone> zones = zones_of(c);
    for (const Zone& zone : zones) {
        fill(zone.at, zone.bytes, fence);
    }
    std::vector<SizeSetting> settings;
    for (const auto& [symbol, value] : options.sizes) {
        settings.push_back({symbol, value});
    }
    VkCommandBuffer commands = host_->begin();
    const Status status = c.program->record(commands, ranges, settings);
    host_->submit(commands);
    host_->wait_idle();
    if (!status) {
        return status.message.data();
    }
    std::string found = written_outside(zones, fence);
    for (Tensor& t : c.tensors) {
        Words all((2 * kFence + t.most_bytes) / 4);
        copy_bytes(all.data(), t.buffer.mapped, all.size() * 4);
        const std::size_t from = kFence / 4;
        const std::size_t to = from + t.data.size();
        for (std::size_t i = 0; i < all.size(); ++i) {
            const bool outside = i < from || i >= to;
            if (outside ? all[i] != fence : t.output ? all[i] == fence : all[i] != t.data[i - from]) {
                found += t.name +
                         (outside    ? ": written outside, at element "
                          : t.output ? ": not written, element "
                                     : ": an input was changed, element ") +
                         std::to_string(static_cast<std::int64_t>(i) - static_cast<std::int64_t>(from)) + " of " +
                         std::to_string(t.data.size()) + "; ";
                break;
            }
        }
        if (t.output) {
            t.data.assign(all.begin() + static_cast<std::ptrdiff_t>(from),
                          all.begin() + static_cast<std::ptrdiff_t>(to));
        }
    }
    for (auto& [name, words] : c.states) {
        const std::vector<std::byte> bytes = c.state.read(name);
        copy_bytes(words.data(), bytes.data(), bytes.size());
    }
    return found;
}

std::string Fenced::run(Case& c, std::uint32_t fence) {
    ProgramCore& core = Insides::core(*c.program);
    core.allocate_io();
    for (const auto& [name, words] : c.states) {
        c.state.write(name, std::as_bytes(std::span(words)));
    }
    fill(core.io.mapped(), core.io.mapped() == nullptr ? 0 : core.io.bytes(), fence);
    const std::vector<Zone> zones = zones_of(c);
    for (const Zone& zone : zones) {
        fill(zone.at, zone.bytes, fence);
    }
    const auto place_of = [&](const Tensor& t) {
        return core.io.mapped() +
               core.io_offset[core.plan.named(t.output ? StorageKind::output : StorageKind::input, t.name)];
    };
    // Copied where upload() would, which refuses some numbers that a host's buffers may hold.
    for (const Tensor& t : c.tensors) {
        if (!t.output) {
            copy_bytes(place_of(t), t.data.data(), t.data.size() * 4);
        }
    }
    for (InputState& input : core.inputs) {
        input.uploaded = true;
        input.dirty = true;
        input.uploaded_elements = core.elements_of(input.storage, core.sizes);
        for (std::size_t i = 0; i < core.plan.storages[input.storage].shape.size(); ++i) {
            input.uploaded_shape[i] = core.plan.storages[input.storage].shape[i].eval(core.sizes);
        }
    }
    for (std::size_t i = 0; i < core.plan.content_checks.size(); ++i) {
        core.checked_limits[i] = core.plan.content_checks[i].limit.eval(core.sizes);
    }
    c.program->run();
    require_quiet(*c.program);
    std::string found = written_outside(zones, fence);
    for (Tensor& t : c.tensors) {
        Words now(t.data.size());
        copy_bytes(now.data(), place_of(t), now.size() * 4);
        if (!t.output && now != t.data) {
            found += t.name + ": an input was changed; ";
        }
        if (t.output && std::find(now.begin(), now.end(), fence) != now.end()) {
            found += t.name + ": not written, element " +
                     std::to_string(std::find(now.begin(), now.end(), fence) - now.begin()) + "; ";
        }
        t.data = std::move(now);
    }
    for (auto& [name, words] : c.states) {
        const std::vector<std::byte> bytes = c.state.read(name);
        copy_bytes(words.data(), bytes.data(), bytes.size());
    }
    return found;
}

}  // namespace vkf::test
