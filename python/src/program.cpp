// SPDX-License-Identifier: Apache-2.0
// Programs as objects, and recordings into a host's command buffer.
#include "bind.h"

#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/tuple.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <deque>
#include <filesystem>
#include <mutex>
#include <string_view>
#include <tuple>

namespace py {

namespace {

template <class H>
H handle_of(std::uint64_t number) {
    return (H)(std::uintptr_t)number;  // a pointer, or on 32 bits a number
}

void require(const vkf::Status& status, const char* where) {
    if (!status) throw vkf::Error(status.message.data(), where, status.error_result());
}

void require_slot(const Program& p, std::uint32_t slot, const char* where) {
    if (slot >= p.slots) {
        fail("slot " + std::to_string(slot) + ", and the program has " + std::to_string(p.slots), where);
    }
}

/// A run, and the mutex of its program.
struct Ticket {
    vkf::Ticket ticket;
    std::shared_ptr<Mutex> mutex;
};

/// Waits so long for the turn and for the run. False where that was too short.
bool wait_for(const Ticket& t, double seconds) {
    using Clock = std::chrono::steady_clock;
    require_no_fork();
    const Released release;
    const auto end = Clock::now() + std::chrono::nanoseconds(static_cast<std::int64_t>(seconds * 1e9));
    if (!t.mutex->try_lock_until(end)) return false;
    const std::lock_guard turn(*t.mutex, std::adopt_lock);
    const std::unique_lock waiting(t.mutex->waiting, end);
    if (!waiting) return false;
    return t.ticket.wait(std::max<std::chrono::nanoseconds>(end - Clock::now(), std::chrono::nanoseconds(0)));
}

/// What a host gives for one recording, with the texts that its parts name.
struct Bound {
    std::deque<std::string> texts;
    std::vector<vkf::BufferRange> buffers;
    std::vector<vkf::ImageView> images;
    std::vector<vkf::SizeSetting> sizes;
    vkf::Recording recording;
};

std::unique_ptr<Bound> bound(const nb::dict& buffers, const nb::dict& images,
                             const std::map<std::string, std::int64_t>& sizes, std::uint32_t slot) {
    auto out = std::make_unique<Bound>();
    const auto named = [&](nb::handle key) -> std::string_view {
        return out->texts.emplace_back(cast_as<std::string>(key, "a recording", "the name of an input or output"));
    };
    for (const auto& [key, value] : buffers) {
        vkf::BufferRange range;
        if (nb::isinstance<vkf::BufferRange>(value)) {
            range = nb::cast<vkf::BufferRange>(value);
        } else {
            const auto parts = cast_as<std::tuple<std::uint64_t, std::uint64_t, std::uint64_t>>(
                value, "buffers", "a BufferRange, or (buffer, offset, bytes),");
            range.buffer = handle_of<VkBuffer>(std::get<0>(parts));
            range.offset = std::get<1>(parts);
            range.bytes = std::get<2>(parts);
        }
        range.name = named(key);
        out->buffers.push_back(range);
    }
    for (const auto& [key, value] : images) {
        vkf::ImageView image = cast_as<vkf::ImageView>(value, "images", "an ImageView");
        image.name = named(key);
        out->images.push_back(image);
    }
    for (const auto& [symbol, value] : sizes) out->sizes.push_back({out->texts.emplace_back(symbol), value});
    out->recording = {.buffers = out->buffers, .images = out->images, .sizes = out->sizes, .slot = slot};
    return out;
}

void bind_recording(nb::module_& m) {
    using B = vkf::BufferRange;
    nb::class_<B>(m, "BufferRange", "A host's buffer range for an input or output.")
        .def(
            "__init__",
            [](B* self, std::uint64_t buffer, std::uint64_t offset, std::uint64_t bytes, std::uint32_t acquire_from,
               std::uint32_t release_to, std::uint64_t buffer_bytes, std::uint32_t buffer_usage,
               std::uint64_t buffer_device) {
                new (self) B{.name = {},
                             .buffer = handle_of<VkBuffer>(buffer),
                             .offset = offset,
                             .bytes = bytes,
                             .acquire_from = acquire_from,
                             .release_to = release_to,
                             .buffer_bytes = buffer_bytes,
                             .buffer_usage = buffer_usage,
                             .buffer_device = handle_of<VkDevice>(buffer_device)};
            },
            "buffer"_a, "offset"_a = 0, "bytes"_a = 0, "acquire_from"_a = vkf::kSameQueueFamily,
            "release_to"_a = vkf::kSameQueueFamily, "buffer_bytes"_a = 0, "buffer_usage"_a = 0, "buffer_device"_a = 0)
        .def_ro("offset", &B::offset, "Bytes from the buffer's beginning.")
        .def_ro("bytes", &B::bytes, "Its size in bytes.");
    nb::class_<vkf::ImageView>(m, "ImageView", "A host's image for an image_input() or image_output().")
        .def(
            "__init__",
            [](vkf::ImageView* self, std::uint64_t view, std::uint32_t width, std::uint32_t height,
               std::uint32_t layout) {
                new (self) vkf::ImageView{.name = {},
                                          .view = handle_of<VkImageView>(view),
                                          .layout = layout,
                                          .width = width,
                                          .height = height};
            },
            "view"_a, "width"_a, "height"_a, "layout"_a = 1)
        .def_ro("width", &vkf::ImageView::width, "Columns.")
        .def_ro("height", &vkf::ImageView::height, "Rows.");
    nb::class_<vkf::Cost>(m, "Cost", "An amount of work, in arithmetic operations and bytes moved.")
        .def_ro("flops", &vkf::Cost::flops, "Arithmetic operations.")
        .def_ro("bytes", &vkf::Cost::bytes, "Bytes moved.")
        .def_prop_ro("total", &vkf::Cost::total, "Both together.")
        .def("__repr__", [](const vkf::Cost& c) {
            return "<Cost: " + std::to_string(c.flops) + " flops, " + std::to_string(c.bytes) + " bytes>";
        });
    nb::class_<vkf::Segment>(m, "Segment", "One piece of a recording.")
        .def_ro("cost", &vkf::Segment::cost, "The work of this piece.")
        .def_ro("done", &vkf::Segment::done, "The share of the whole that is recorded by now, 0 to 1.")
        .def_ro("last", &vkf::Segment::last, "True: nothing is left.");
    nb::class_<vkf::DispatchTime>(m, "DispatchTime", "One dispatch of a profiled run.")
        .def_ro("label", &vkf::DispatchTime::label, "The node that it computes.")
        .def_ro("kernel", &vkf::DispatchTime::kernel, "The kernel that ran.")
        .def_ro("start_ms", &vkf::DispatchTime::start_ms, "When it began, in milliseconds from the run's beginning.")
        .def_ro("ms", &vkf::DispatchTime::ms, "How long it took, in milliseconds.")
        .def_ro("flops", &vkf::DispatchTime::flops, "Arithmetic operations.")
        .def_ro("bytes", &vkf::DispatchTime::bytes, "Bytes moved.");
    nb::class_<vkf::MemorySizes>(m, "MemorySizes", "Bytes by kind, all symbols at their maxima.")
        .def_ro("weights", &vkf::MemorySizes::weights, "Bytes of the tensors that the graph names.")
        .def_ro("state", &vkf::MemorySizes::state, "Bytes of states.")
        .def_ro("constants", &vkf::MemorySizes::constants, "Bytes of tables.")
        .def_ro("scratch", &vkf::MemorySizes::scratch, "Bytes of results in between.")
        .def_ro("inputs", &vkf::MemorySizes::inputs, "Bytes of inputs.")
        .def_ro("outputs", &vkf::MemorySizes::outputs, "Bytes of outputs.")
        .def_ro("mirrors", &vkf::MemorySizes::mirrors,
                "Bytes of copies of inputs and outputs on the host's side; 0 where memory is unified.")
        .def_ro("exchanged", &vkf::MemorySizes::exchanged,
                "Bytes of scratch memory that the host sees, for what ranks do together.");
    nb::class_<vkf::Fp32Reason>(m, "Fp32Reason", "Why products of a program for fewer bits stay in fp32.")
        .def_ro("reason", &vkf::Fp32Reason::reason, "Why dispatches compute in float32.")
        .def_ro("dispatches", &vkf::Fp32Reason::dispatches, "How many stay there for it.");
    nb::class_<vkf::ArithmeticUse>(m, "ArithmeticUse", "What came of `arithmetic`.")
        .def_prop_ro(
            "asked", [](const vkf::ArithmeticUse& a) { return name(a.asked); }, "What was asked for.")
        .def_prop_ro(
            "used", [](const vkf::ArithmeticUse& a) { return name(a.used); },
            "What at least one kernel computes with; else f32.")
        .def_ro("in_fp32", &vkf::ArithmeticUse::in_fp32, "Why others compute in float32.");
    nb::class_<Ticket>(m, "Ticket",
                       "A run that was submitted and is not waited for yet. Threads that wait for it take turns with "
                       "those that call its program.")
        .def(
            "done", [](const Ticket& t) { return wait_for(t, 0); },
            "True once the run has finished. Does not wait: False, too, while another thread is at work on the "
            "program.")
        .def(
            "wait",
            [](const Ticket& t, std::optional<double> seconds) {
                constexpr double kLongest = 9e9;  // whose nanoseconds 64 bits count
                if (seconds && std::isnan(*seconds)) fail("is not a number", "timeout");
                if (seconds && *seconds < kLongest) return wait_for(t, std::max(*seconds, 0.0));
                unlocked(*t.mutex, [&] { wait(*t.mutex, t.ticket); });
                return true;
            },
            "timeout"_a = nb::none(),
            "Waits until the run has finished; at most `timeout` seconds, and False where these are over first.")
        .def_prop_ro(
            "semaphore", [](const Ticket& t) { return reinterpret_cast<std::uintptr_t>(t.ticket.semaphore()); },
            "A timeline VkSemaphore that reaches `value`; 0 where the device has none.")
        .def_prop_ro(
            "value", [](const Ticket& t) { return t.ticket.value(); },
            "What the semaphore reaches when the run has ended.");
}

}  // namespace

void bind_program(nb::module_& m) {
    bind_recording(m);
    using P = Program;
    nb::class_<P>(m, "Program",
                  "A graph compiled for a device. program(x=array)[\"y\"] sets sizes from the arrays' shapes, uploads, "
                  "runs and downloads; each of these can be had by itself. Threads that call it take turns.")
        .def(
            "__call__", [](P& p, const nb::kwargs& inputs) { return call(p, inputs, Results::arrays); },
            nb::sig("def __call__(self, **inputs: object) -> dict[str, numpy.ndarray]"),
            "Runs on arrays by the names of inputs, and sizes by the names of symbols; symbols that are a dimension of "
            "an input are told by its array. Returns the outputs by name.")
        .def(
            "tensors",
            [](P& p, const nb::kwargs& inputs) {
                if (!p.device) fail("is a model's own program, whose inputs and outputs are not told", "tensors");
                return call(p, inputs, Results::tensors);
            },
            nb::sig("def tensors(self, **inputs: object) -> dict[str, Tensor]"),
            "The same as a call, but the outputs stay on the device: as tensors, which other programs take as inputs.")
        .def(
            "_run", [](P& p, const nb::list& arrays) { return run(p, arrays, Results::arrays); }, "arrays"_a,
            "Calls it with the inputs in their order.")
        .def(
            "_run_tensors", [](P& p, const nb::list& arrays) { return run(p, arrays, Results::tensors); }, "arrays"_a,
            "Calls tensors() with the inputs in their order.")
        .def(
            "bind",
            [](P& p, const std::string& port, const vkf::DeviceTensor* tensor) {
                const vkf::DeviceTensor given = tensor != nullptr ? *tensor : vkf::DeviceTensor();
                unlocked(*p.mutex, [&] {
                    p.get().bind(port, given);
                    given ? void(p.bound.insert_or_assign(port, given)) : void(p.bound.erase(port));
                });
            },
            "name"_a, "tensor"_a.none(),
            "Lets run() read an input, or write an output, where a tensor lies, until the next bind() or upload(); "
            "None takes that back. Calls with arrays and tensors need no bind().")
        .def_prop_ro(
            "inputs",
            [](const P& p) {
                nb::dict out;
                for (const Port& port : p.inputs)
                    out[nb::cast(port.name)] = nb::make_tuple(text_of(p, port.shape), name(port.dtype));
                return out;
            },
            nb::sig("def inputs(self) -> dict[str, tuple[str, str]]"))
        .def_prop_ro(
            "outputs",
            [](const P& p) {
                nb::dict out;
                for (const Port& port : p.outputs)
                    out[nb::cast(port.name)] = nb::make_tuple(text_of(p, port.shape), name(port.dtype));
                return out;
            },
            nb::sig("def outputs(self) -> dict[str, tuple[str, str]]"))
        .def(
            "set_weights",
            [](P& p, const vkf::Weights& weights) { unlocked(*p.mutex, [&] { p.get().set_weights(weights); }); },
            "weights"_a, "Gives weights to a program that was compiled for their layout alone.")
        .def(
            "allocate",
            [](P& p, const vkf::BufferRange* scratch) {
                unlocked(*p.mutex, [&] { scratch != nullptr ? p.get().allocate(*scratch) : p.get().allocate(); });
            },
            "scratch"_a = nb::none(),
            "Makes what record() needs: scratch, which may be a host's, constants and descriptor sets.")
        .def(
            "set",
            [](P& p, const std::string& symbol, std::int64_t value) {
                unlocked(*p.mutex, [&] { p.get().set(symbol, value); });
            },
            "symbol"_a, "value"_a, "Sets a symbol for the following uploads and runs.")
        .def(
            "upload", [](P& p, const std::string& input, nb::handle data) { upload(p, input, data); }, "input"_a,
            "data"_a, nb::sig("def upload(self, input: str, data: object) -> None"),
            "Copies an input's elements at its current sizes.")
        .def(
            "run",
            [](P& p) {
                unlocked(*p.mutex, [&] {
                    p.get().run();
                    p.keep_shapes();
                });
            },
            "Submits and waits.")
        .def(
            "submit",
            [](P& p) {
                return unlocked(*p.mutex, [&] {
                    Ticket out{p.get().submit(), p.mutex};
                    p.mutex->last_run = out.ticket;
                    p.keep_shapes();
                    return out;
                });
            },
            "Submits a run and does not wait for it.")
        .def(
            "download", [](P& p, const std::string& output) { return download(p, output); }, "output"_a,
            nb::sig("def download(self, output: str) -> numpy.ndarray"),
            "An output of the last run; bfloat16 is widened to float32.")
        .def(
            "shape",
            [](const P& p, const std::string& port) {
                const auto turn = turn_of(*p.mutex);
                return nb::tuple(nb::cast(p.get().shape(port)));
            },
            "name"_a, nb::sig("def shape(self, name: str) -> tuple[int, ...]"),
            "The current sizes of an input or output.")
        .def_prop_ro(
            "memory", [](const P& p) { return p.get().memory(); },
            "Bytes that the program takes, by what they are for.")
        .def(
            "record",
            [](P& p, std::uint64_t commands, const nb::dict& buffers, const nb::dict& images,
               const std::map<std::string, std::int64_t>& sizes, std::uint32_t slot) {
                const auto all = bound(buffers, images, sizes, slot);
                const auto turn = turn_of(*p.mutex);
                require(p.get().record(handle_of<VkCommandBuffer>(commands), all->recording), "record");
            },
            "commands"_a, "buffers"_a, "images"_a = nb::dict(), "sizes"_a = std::map<std::string, std::int64_t>(),
            "slot"_a = 0,
            "Records the whole program into a host's VkCommandBuffer. It waits for calls of other threads, so the lock "
            "that "
            "borrow() was given is not held meanwhile. buffers: BufferRange or (buffer, offset, bytes) "
            "by the name of the input or output.")
        .def(
            "begin",
            [](P& p, const nb::dict& buffers, const nb::dict& images, const std::map<std::string, std::int64_t>& sizes,
               std::uint32_t slot) {
                const auto all = bound(buffers, images, sizes, slot);
                const auto turn = turn_of(*p.mutex);
                require(p.get().begin(all->recording), "begin");
            },
            "buffers"_a, "images"_a = nb::dict(), "sizes"_a = std::map<std::string, std::int64_t>(), "slot"_a = 0,
            "Binds the arguments of a recording in segments to a slot.")
        .def(
            "record_segment",
            [](P& p, std::uint64_t commands, double budget, std::uint32_t slot) {
                require_slot(p, slot, "record_segment");
                vkf::Segment segment;
                const auto turn = turn_of(*p.mutex);
                require(p.get().record_segment(handle_of<VkCommandBuffer>(commands), budget, segment, slot),
                        "record_segment");
                return segment;
            },
            "commands"_a, "budget"_a, "slot"_a = 0,
            "Goes on where the last segment stopped, until `budget` (see cost()) is used up.")
        .def(
            "cost",
            [](const P& p, const std::map<std::string, std::int64_t>& sizes) {
                std::vector<vkf::SizeSetting> settings;
                for (const auto& [symbol, value] : sizes) settings.push_back({symbol, value});
                const auto turn = turn_of(*p.mutex);
                return p.get().cost(settings);
            },
            "sizes"_a = std::map<std::string, std::int64_t>(), "The cost of the whole program at these sizes.")
        .def(
            "finished",
            [](P& p, std::uint32_t slot) {
                require_slot(p, slot, "finished");
                const auto turn = turn_of(*p.mutex);
                p.get().finished(slot);
            },
            "slot"_a,
            "Tells that the slot's last recording has finished or was dropped; segments that are left are given up.")
        .def_prop_ro(
            "arithmetic", [](const P& p) { return p.get().arithmetic(); }, "What came of `arithmetic`.")
        .def(
            "explain", [](const P& p) { return p.get().explain(); },
            "A table: every dispatch with its kernel, memory, and why this variant.")
        .def(
            "dot", [](const P& p) { return p.get().dot(); }, "The graph in Graphviz' language.")
        .def(
            "times", [](const P& p) { return unlocked(*p.mutex, [&] { return p.get().times(); }); },
            "Times of the last run, when compiled with profile=True.")
        .def(
            "time_table", [](const P& p) { return unlocked(*p.mutex, [&] { return p.get().time_table(); }); },
            "times() as a table of text, with GFLOP/s and GB/s.")
        .def(
            "write_trace",
            [](const P& p, const std::filesystem::path& path) {
                unlocked(*p.mutex, [&] { p.get().write_trace(path); });
            },
            "path"_a, "times() as a trace for chrome://tracing or ui.perfetto.dev.")
        .def("__repr__", [](const P& p) {
            std::string out = "<Program";
            for (const Port& port : p.inputs) out += " " + port.name + text_of(p, port.shape);
            out += " ->";
            for (const Port& port : p.outputs) out += " " + port.name + text_of(p, port.shape);
            return out + ">";
        });
}

}  // namespace py
