// SPDX-License-Identifier: Apache-2.0
#include "tests/fault_lives.h"

#include <array>
#include <cstring>
#include <filesystem>
#include <optional>

#include "models/decoder.h"
#include "ops/ops.h"
#include "runtime/device/device_core.h"
#include "runtime/device/insides.h"
#include "runtime/device/shared_buffer.h"
#include "tests/bound_recording.h"
#include "tests/fixtures.h"
#include "tests/op_check.h"
#include "train/trainer.h"

#if defined(__unix__)
#include <unistd.h>
#endif

namespace vkf::test {

void Attempts::operator()(const char* what, const Step& step) {
    try {
        around_ ? around_(step) : step();
        return;
    } catch (const std::exception& e) {
        errors_.push_back(std::string(what) + ": " + e.what());
        if (last_) {
            throw;
        }
    }
    step();
}

void Attempts::watch(const Device& device) { instances_.push_back(Insides::core(device).instance); }

std::string Attempts::take_messages() {
    std::string said;
    for (const auto& instance : instances_) {
        for (const std::string& message : instance->log.take()) {
            said += message + "\n";
        }
    }
    instances_.clear();
    return said;
}

namespace {

constexpr std::int64_t kRows = 5;

void require(bool right, const char* what) {
    if (!right) {
        throw std::logic_error(std::string("a wrong answer: ") + what);
    }
}

void require_recorded(const Status& status) {
    if (!status) {
        throw Error(status.message.data(), {}, status.error_result());
    }
}

const std::vector<float>& ones() {
    static const std::vector<float> numbers(300, 1.0f);
    return numbers;
}

Device own_device(const fake::Vulkan& vulkan, Attempts& attempt, DeviceOptions options) {
    options.get_instance_proc_addr = vulkan.entry();
    std::optional<Device> device;
    attempt("Device::create", [&] { device = Device::create(options); });
    attempt.watch(*device);
    return *device;
}

/// A weight, a constant, a state: y = (cache = x + w) / 2.
void describe_halved(Graph& g) {
    const Value sum = g.input("x", {300}) + g.weight("w", {300});
    g.output("y", mul(copy_into(g.state("cache", {300}), sum), g.constant("half", {1}, std::vector<float>{0.5f})));
}

Weights load_ones(const Device& device, Attempts& attempt) {
    Weights weights;
    const HostTensor w{"w", DType::f32, {300}, std::as_bytes(std::span(ones()))};
    attempt("Device::load", [&] { weights = device.load({&w, 1}); });
    return weights;
}

Program compiled(const Device& device, Attempts& attempt, const Graph& g, const Weights& weights,
                 const CompileOptions& options = {}) {
    std::optional<Program> program;
    attempt("Device::compile", [&] { program = device.compile(g, weights, options); });
    return std::move(*program);
}

/// The program once more, on tensors of the device.
void live_bound(const Device& device, Program& program, Attempts& attempt) {
    DeviceTensor x, y;
    attempt("make_tensor", [&] {
        x = device.make_tensor({300});
        y = device.make_tensor({300});
    });
    attempt("DeviceTensor::write", [&] { x.write(std::as_bytes(std::span(ones()))); });
    attempt("bind", [&] {
        program.bind("x", x);
        program.bind("y", y);
    });
    attempt("run", [&] { program.run(); });
    std::vector<float> found(300);
    attempt("DeviceTensor::read", [&] { y.read(std::as_writable_bytes(std::span(found))); });
    require(found == ones(), "a tensor");
}

/// Staging, mirrors and times; whether a run did run is asked.
void live_alone(const fake::Vulkan& vulkan, Attempts& attempt) {
    const Device device = own_device(vulkan, attempt, {.minimum_profile = true, .staging_bytes = 1000, .canary = true});
    Insides::core(device).capabilities.unified_memory = false;
    const Weights weights = load_ones(device, attempt);
    Graph g;
    describe_halved(g);
    Program program = compiled(device, attempt, g, weights, {.profile = true});
    attempt("allocate", [&] { program.allocate(); });
    attempt("upload", [&] { program.upload("x", ones()); });
    for (int i = 0; i < 2; ++i) {
        attempt("run", [&] { program.run(); });
        std::vector<float> y;
        attempt("download", [&] { y = program.download("y"); });
        require(y == ones(), "a run");
    }
    live_bound(device, program, attempt);
}

/// One submission for each piece of work, asked whether it ran; a ticket and its semaphore.
void live_long(const fake::Vulkan& vulkan, Attempts& attempt) {
    const Device device = own_device(vulkan, attempt, {.submit_budget = 1, .canary = true});
    Weights weights;
    attempt("Device::load", [&] { weights = SmallModel::load(device); });
    Graph g;
    SmallModel::describe(g, kRows);
    Program program = compiled(device, attempt, g, weights);
    attempt("upload", [&] { upload(program, "x", SmallModel::input(kRows)); });
    for (int i = 0; i < 2; ++i) {
        Ticket ticket;
        attempt("submit", [&] { ticket = program.submit(); });
        attempt("wait", [&] { i == 0 ? void(ticket.wait(std::chrono::hours(1))) : ticket.wait(); });
        Tensor y;
        attempt("download", [&] {
            try {
                y = download(program, "y");
            } catch (const Error&) {  // of a run whose wait failed there are no outputs
                program.run();
                throw;
            }
        });
        require(difference(y, SmallModel::answer(kRows), SmallModel::tolerance()).empty(), "a long run");
    }
}

/// Recordings whole and in segments, into a host's command buffers.
void live_in_a_host(const fake::Vulkan& vulkan, Attempts& attempt) {
    Host host;
    std::optional<Device> device;
    attempt("Device::borrow", [&] { device = Device::borrow(through(host, vulkan)); });
    Weights weights;
    attempt("Device::load", [&] { weights = SmallModel::load(*device); });
    Graph g;
    SmallModel::describe(g, kMax);
    Program program = compiled(*device, attempt, g, weights, {.slots = 2});
    attempt("allocate", [&] { program.allocate(); });
    const Bound bound(host, kRows);
    VkCommandBuffer commands = host.begin();
    attempt("record", [&] { require_recorded(program.record(commands, bound.recording())); });
    host.submit(commands);
    host.wait_idle();
    require(bound.wrong().empty(), "a recording");
    std::memset(bound.y.mapped, 0, kBytes);
    attempt("begin", [&] { require_recorded(program.begin(bound.recording(1))); });
    for (Segment segment; !segment.last;) {
        commands = host.begin();
        attempt("record_segment", [&] {
            require_recorded(program.record_segment(commands, program.cost(bound.sizes).total() / 3, segment, 1));
        });
        host.submit(commands);
    }
    host.wait_idle();
    require(bound.wrong().empty(), "segments");
    require(host.messages().empty(), "validation speaks");
}

/// A host that keeps its queue for itself.
void live_without_a_queue(const fake::Vulkan& vulkan, Attempts& attempt) {
    Host host;
    BorrowedDevice handles = through(host, vulkan);
    handles.host_submits = true;
    handles.keep_uploads = true;
    std::optional<Device> device;
    attempt("Device::borrow", [&] { device = Device::borrow(handles, {.minimum_profile = true}); });
    const Weights weights = load_ones(*device, attempt);
    Graph g;
    describe_halved(g);
    Program program = compiled(*device, attempt, g, weights);
    attempt("allocate", [&] { program.allocate(); });
    const Host::Buffer in = host.make_buffer(1280), out = host.make_buffer(1280);
    const Host::Buffer staging = host.make_buffer(4096, VK_BUFFER_USAGE_TRANSFER_SRC_BIT);
    std::memcpy(in.mapped, ones().data(), 1200);
    while (device->pending_uploads() != 0) {
        VkCommandBuffer commands = host.begin();
        attempt("record_upload", [&] {
            require_recorded(device->record_upload(commands, {staging.buffer, 0, 4096, staging.mapped}));
        });
        host.submit(commands);
        host.wait_idle();
        device->uploads_finished(device->recorded_uploads());
    }
    const BufferRange ranges[] = {{"x", in.buffer, 0, 1280}, {"y", out.buffer, 0, 1280}};
    VkCommandBuffer commands = host.begin();
    attempt("record", [&] { require_recorded(program.record(commands, ranges, {})); });
    host.submit(commands);
    host.wait_idle();
    require(std::memcmp(out.mapped, ones().data(), 1200) == 0, "a recording");
    require(host.messages().empty(), "validation speaks");
}

/// Weights packed by the host and by the device.
void live_packed(const fake::Vulkan& vulkan, Attempts& attempt) {
    const Device device = own_device(vulkan, attempt, {.staging_bytes = 1 << 12});
    Insides::core(device).capabilities.unified_memory = false;
    const std::vector<float> w(64 * 32, 0.25f);
    const HostTensor tensor{"w", DType::f32, {64, 32}, std::as_bytes(std::span(w))};
    for (const PackOn where : {PackOn::host, PackOn::device}) {
        Weights weights;
        attempt("Device::load", [&] {
            weights = device.load({&tensor, 1}, {.matrices = WeightType::int8, .pack_on = where});
        });
        Graph g;
        g.output("y", linear(g.input("x", {1, 32}), g.weight("w", {64, 32})));
        Program program = compiled(device, attempt, g, weights);
        attempt("upload", [&] { program.upload("x", std::vector<float>(32, 1.0f)); });
        attempt("run", [&] { program.run(); });
        for (const float y : program.download("y")) {
            require(y > 7.9f && y < 8.1f, "a packed product");
        }
    }
}

#if defined(__unix__)

/// Memory given to others and taken from them.
void live_shared(const fake::Vulkan& vulkan, Attempts& attempt) {
    const Device device = own_device(vulkan, attempt, {});
    if (device.capabilities().external_memory_fd) {
        std::optional<SharedBuffer> shared, imported;
        attempt("make_shared_buffer", [&] { shared = device.make_shared_buffer(256); });
        int descriptor = -1;
        attempt("export_fd", [&] { descriptor = shared->export_fd(); });
        try {
            attempt("import_fd", [&] { imported = device.import_fd(descriptor, 256); });
        } catch (...) {  // it is the caller's still
            close(descriptor);
            throw;
        }
    }
    if (device.capabilities().external_memory_host) {
        const std::uint64_t alignment = device.shared_host_alignment();
        std::vector<std::byte> memory(2 * alignment);
        auto* const at = memory.data() + (alignment - reinterpret_cast<std::uintptr_t>(memory.data()) % alignment);
        std::optional<SharedBuffer> shared;
        attempt("import_host", [&] { shared = device.import_host({at, alignment}); });
    }
}

#endif

void live_as_a_decoder(const fake::Vulkan& vulkan, Attempts& attempt) {
    const Device device = own_device(vulkan, attempt, {.minimum_profile = true});
    std::optional<Checkpoint> checkpoint;
    std::optional<DecoderModel> model;
    attempt("read", [&] {
        checkpoint.emplace(VKFORMER_SOURCE_DIR "/tests/decoders/gpt2_bare");
        model = read_decoder(*checkpoint);
    });
    Weights weights;
    attempt("load_decoder", [&] { weights = load_decoder(device, *checkpoint, *model); });
    std::optional<Decoder> decoder;
    attempt("Decoder", [&] { decoder.emplace(device, weights, *model, DecoderOptions{.max_tokens = 16}); });
    static std::vector<std::int32_t> first_answer;
    std::vector<std::int32_t> answer;
    attempt("prompt", [&] { decoder->prompt({1, 5, 9, 4}); });
    for (int i = 0; i < 2; ++i) {
        answer.push_back(decoder->next()[0]);
        const std::array token{answer.back()};
        attempt("step", [&] { decoder->step(token); });
    }
    attempt("append", [&] { decoder->append(std::array{3, 7, 2}); });
    answer.push_back(decoder->next()[0]);
    first_answer = first_answer.empty() ? answer : first_answer;
    require(answer == first_answer, "a decoder");
}

void live_and_learn(const fake::Vulkan& vulkan, Attempts& attempt) {
    const Device device = own_device(vulkan, attempt, {});
    std::optional<Trainer> trainer;
    attempt("Trainer", [&] {
        Graph g;
        const Value w = g.weight("w", {4, 4});
        const Value wanted_less = scale(g.input("wanted", {3, 4}), -1.0f);
        const Value difference = matmul(g.input("x", {3, 4}), w) + wanted_less;
        trainer.emplace(device, g, sum(difference * difference), trainable(g), TrainerOptions{.max_norm = 1.0f});
    });
    const std::vector<float> zeros(16), x(12, 0.5f), wanted(12, 1.0f);
    attempt("State::write", [&] { trainer->state().write("w", std::as_bytes(std::span(zeros))); });
    attempt("upload", [&] {
        trainer->program().upload("x", x);
        trainer->program().upload("wanted", wanted);
    });
    const TemporaryFolder folder;
    const std::filesystem::path file = folder.path() / "training.safetensors";
    for (int i = 0; i < 3; ++i) {
        attempt("save", [&] { trainer->save(file); });
        attempt("take_step", [&] {
            try {
                trainer->take_step();
            } catch (const Error& error) {
                if (!contains(error.what(), "parameters may have been updated")) {
                    throw;
                }
                trainer->resume(file);
                trainer->take_step();
            }
        });
    }
    static std::vector<std::byte> first_trained;
    std::vector<std::byte> trained;
    attempt("State::read", [&] { trained = trainer->state().read("w"); });
    first_trained = first_trained.empty() ? trained : first_trained;
    require(trained == first_trained && trainer->step() == 3, "three steps");
}

constexpr Life kLives[] = {
    {"alone", live_alone},          {"long", live_long},
    {"in a host", live_in_a_host},  {"without a queue", live_without_a_queue},
    {"packed", live_packed},
#if defined(__unix__)
    {"shared", live_shared},
#endif
    {"decoder", live_as_a_decoder}, {"training", live_and_learn},
};

}  // namespace

std::span<const Life> fault_lives() { return kLives; }

}  // namespace vkf::test
