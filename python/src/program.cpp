// SPDX-License-Identifier: Apache-2.0
// Programs: called by name, run step by step, or recorded into a host's command buffer.
#include "bind.h"

#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/variant.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <deque>
#include <variant>

namespace py {

Program::Program(vkf::Program made, const vkf::Graph& graph, std::shared_ptr<std::mutex> lock)
    : own(std::move(made)), program(&*own), mutex(std::move(lock)), symbols(graph.symbols()) {
    for (const vkf::StorageInfo& s : graph.storages()) {
        if (s.image != vkf::ImageAccess::none) continue;
        if (s.kind == vkf::StorageKind::input) inputs.push_back({s.name, s.shape, s.dtype, {}});
        if (s.kind == vkf::StorageKind::output) outputs.push_back({s.name, s.shape, s.dtype, {}});
    }
    for (const vkf::SymbolInfo& s : symbols) symbol_names.push_back(s.name);
    for (Port& port : inputs) {
        for (const vkf::Dim& size : port.shape) {
            const std::optional<std::size_t> found = only_symbol(size, symbols.size());
            port.symbol.push_back(found ? static_cast<int>(*found) : -1);
        }
    }
}

Program::Program(vkf::Program& other, std::shared_ptr<std::mutex> lock) : program(&other), mutex(std::move(lock)) {}

namespace {

const Port* found(const std::vector<Port>& ports, std::string_view name) {
    for (const Port& port : ports) {
        if (port.name == name) return &port;
    }
    return nullptr;
}

std::string text_of(const std::vector<std::int64_t>& shape) {
    return nb::cast<std::string>(nb::str(nb::tuple(nb::cast(shape))));
}

std::string text_of(const Program& p, const vkf::Shape& shape) {
    std::string out;
    for (const vkf::Dim& size : shape) out += (out.empty() ? "(" : ", ") + size.str(p.symbol_names);
    return out.empty() ? "()" : out + ")";
}

std::string names_of(const std::vector<Port>& ports) {
    std::string out;
    for (const Port& port : ports) out += (out.empty() ? "" : ", ") + port.name;
    return out;
}

/// The array as its input wants it: f32 and the 16-bit types may be given for one another, since
/// Program::upload() rounds, but for i32.
Array fitting(const Port& port, nb::handle object) {
    Array array = device_array_of(object, port.name);
    if (array.dtype == port.dtype) return array;
    if (port.dtype == vkf::DType::i32 || array.dtype == vkf::DType::i32) {
        fail(std::string("is of ") + name(port.dtype) + ", and an array of " + name(array.dtype) + " was given", port.name);
    }
    return array_as(array, vkf::DType::f32, port.name);
}

void upload(vkf::Program& program, const std::string& input, const Array& array) {
    switch (array.dtype) {
        case vkf::DType::i32: return program.upload(input, array.as<std::int32_t>());
        case vkf::DType::f32: return program.upload(input, array.as<float>());
        default: return program.upload(input, array.as<std::uint16_t>());
    }
}

/// An array for an output at its current sizes.
struct Room {
    nb::object array;
    void* data = nullptr;
    std::size_t count = 0;
    vkf::DType dtype = vkf::DType::f32;
};

Room room_for(const Program& p, const Port& port) {
    Room out;
    // bf16 comes widened: NumPy has no such type
    out.dtype = port.dtype == vkf::DType::bf16 ? vkf::DType::f32 : port.dtype;
    const std::vector<std::int64_t> shape = p.get().shape(port.name);
    out.count = 1;
    for (const std::int64_t size : shape) out.count *= static_cast<std::size_t>(size);
    out.array = new_array(out.dtype, shape, &out.data);
    return out;
}

void download(vkf::Program& program, const std::string& output, const Room& room) {
    switch (room.dtype) {
        case vkf::DType::i32: return program.download(output, std::span(static_cast<std::int32_t*>(room.data), room.count));
        case vkf::DType::f16: return program.download(output, std::span(static_cast<std::uint16_t*>(room.data), room.count));
        default: return program.download(output, std::span(static_cast<float*>(room.data), room.count));
    }
}

}  // namespace

const Port* Program::input(std::string_view name) const { return found(inputs, name); }
const Port* Program::output(std::string_view name) const { return found(outputs, name); }

void upload(Program& p, const std::string& input, nb::handle object) {
    const Port* port = p.input(input);
    const Array array = port != nullptr ? fitting(*port, object) : device_array_of(object, input);
    unlocked(*p.mutex, [&] { upload(p.get(), input, array); });
}

nb::object download(Program& p, const std::string& output) {
    const Port* port = p.output(output);
    if (port == nullptr && !p.own) {  // a model's own program, of which only the type is asked
        const std::vector<float> data = unlocked(*p.mutex, [&] { return p.get().download(output); });
        return numpy_array(data, vkf::DType::f32, p.get().shape(output));
    }
    if (port == nullptr) fail("there is no such output; there are: " + names_of(p.outputs), output);
    const Room room = room_for(p, *port);
    unlocked(*p.mutex, [&] { download(p.get(), output, room); });
    return room.array;
}

namespace {

using Given = std::vector<std::pair<const Port*, Array>>;

/// Sets sizes (-1: as they are), uploads, runs and downloads, one thread at a time.
std::vector<Room> run(Program& p, const Given& given, std::vector<std::int64_t> sizes);

}  // namespace

std::vector<nb::object> run(Program& p, const nb::list& arrays) {
    Given given;
    given.reserve(p.inputs.size());
    for (const nb::handle array : arrays) {
        if (given.size() == p.inputs.size()) break;
        const Port& port = p.inputs[given.size()];
        given.emplace_back(&port, fitting(port, array));
    }
    std::vector<nb::object> out;
    for (Room& room : run(p, given, std::vector<std::int64_t>(p.symbols.size(), -1))) out.push_back(std::move(room.array));
    return out;
}

nb::dict call(Program& p, const nb::kwargs& arguments) {
    Given given;
    given.reserve(p.inputs.size());
    std::vector<std::int64_t> sizes(p.symbols.size(), -1);
    for (const auto& [key, object] : arguments) {
        const char* text = PyUnicode_AsUTF8AndSize(key.ptr(), nullptr);
        if (text == nullptr) throw nb::python_error();
        if (const Port* port = p.input(text)) {
            given.emplace_back(port, fitting(*port, object));
            continue;
        }
        const auto at = std::find(p.symbol_names.begin(), p.symbol_names.end(), text);
        if (at == p.symbol_names.end()) {
            fail("there is no such input or size; inputs: " + names_of(p.inputs), text);
        }
        std::int64_t number = 0;
        if (!nb::try_cast(object, number)) fail("is a size, given as a whole number", text);
        sizes[static_cast<std::size_t>(at - p.symbol_names.begin())] = number;
    }
    nb::dict out;
    std::vector<Room> rooms = run(p, given, std::move(sizes));
    for (std::size_t i = 0; i < rooms.size(); ++i) out[p.outputs[i].name.c_str()] = rooms[i].array;
    return out;
}

namespace {

std::vector<Room> run(Program& p, const Given& given, std::vector<std::int64_t> sizes) {
    std::vector<const Port*> told(p.symbols.size(), nullptr);
    for (const auto& [port, array] : given) {
        if (array.shape.size() != port->shape.size()) {
            fail("has the shape " + text_of(p, port->shape) + ", and " + text_of(array.shape) + " was given", port->name);
        }
        for (std::size_t d = 0; d < array.shape.size(); ++d) {
            const int symbol = port->symbol[d];
            if (symbol < 0) continue;
            const auto at = static_cast<std::size_t>(symbol);
            if (sizes[at] >= 0 && sizes[at] != array.shape[d]) {
                fail(p.symbol_names[at] + " is " + std::to_string(array.shape[d]) + " in " + port->name + " " +
                         text_of(array.shape) + ", and " + std::to_string(sizes[at]) +
                         (told[at] != nullptr ? " in " + told[at]->name : std::string(" as given")),
                     port->name);
            }
            sizes[at] = array.shape[d];
            told[at] = port;
        }
    }
    for (std::size_t s = 0; s < sizes.size(); ++s) {
        if (sizes[s] > p.symbols[s].max) {
            fail("is " + std::to_string(sizes[s]) + "; its largest is " + std::to_string(p.symbols[s].max), p.symbol_names[s]);
        }
    }
    std::vector<Room> rooms;
    rooms.reserve(p.outputs.size());
    const auto prepare = [&] {
        for (std::size_t s = 0; s < sizes.size(); ++s) {
            if (sizes[s] >= 0) p.get().set(p.symbol_names[s], sizes[s]);
        }
        for (const auto& [port, array] : given) {
            const std::vector<std::int64_t> shape = p.get().shape(port->name);
            if (shape != array.shape) {
                const nb::gil_scoped_acquire lock;
                fail("has the shape " + text_of(p, port->shape) + ", now " + text_of(shape) + ", and " +
                         text_of(array.shape) + " was given", port->name);
            }
            upload(p.get(), port->name, array);
        }
        p.get().run();
    };
    // One thread at a time from the first size to the last output.
    const auto mutex = p.mutex;
    {
        const nb::gil_scoped_release release;
        mutex->lock();
    }
    const std::unique_lock held(*mutex, std::adopt_lock);
    unlocked(prepare);
    for (const Port& port : p.outputs) rooms.push_back(room_for(p, port));
    unlocked([&] {
        for (std::size_t i = 0; i < rooms.size(); ++i) download(p.get(), p.outputs[i].name, rooms[i]);
    });
    return rooms;
}

template <class H>
H handle_of(std::uint64_t number) {
    return (H)(std::uintptr_t)number;  // a pointer, or on 32 bits a number
}

void require(const vkf::Status& status, const char* where) {
    if (!status) throw vkf::Error(status.message.data(), where, status.error_result());
}

/// What a host gives for one recording, with the texts that its parts name.
struct Bound {
    std::deque<std::string> texts;
    std::vector<vkf::BufferRange> buffers;
    std::vector<vkf::ImageView> images;
    std::vector<vkf::SizeSetting> sizes;
    vkf::Recording recording;
};

std::unique_ptr<Bound> bound(const nb::dict& buffers, const nb::dict& images, const std::map<std::string, std::int64_t>& sizes,
                             std::uint32_t slot) {
    auto out = std::make_unique<Bound>();
    const auto named = [&](nb::handle key) -> std::string_view { return out->texts.emplace_back(nb::cast<std::string>(key)); };
    for (const auto& [key, value] : buffers) {
        vkf::BufferRange range;
        if (nb::isinstance<vkf::BufferRange>(value)) {
            range = nb::cast<vkf::BufferRange>(value);
        } else {
            const auto parts = nb::cast<std::tuple<std::uint64_t, std::uint64_t, std::uint64_t>>(value);
            range.buffer = handle_of<VkBuffer>(std::get<0>(parts));
            range.offset = std::get<1>(parts);
            range.bytes = std::get<2>(parts);
        }
        range.name = named(key);
        out->buffers.push_back(range);
    }
    for (const auto& [key, value] : images) {
        vkf::ImageView image = nb::cast<vkf::ImageView>(value);
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
        .def("__init__", [](B* self, std::uint64_t buffer, std::uint64_t offset, std::uint64_t bytes, std::uint32_t acquire_from,
                            std::uint32_t release_to, std::uint64_t buffer_bytes, std::uint32_t buffer_usage, std::uint64_t buffer_device) {
            new (self) B{.name = {}, .buffer = handle_of<VkBuffer>(buffer), .offset = offset, .bytes = bytes, .acquire_from = acquire_from,
                         .release_to = release_to, .buffer_bytes = buffer_bytes, .buffer_usage = buffer_usage,
                         .buffer_device = handle_of<VkDevice>(buffer_device)};
        }, "buffer"_a, "offset"_a = 0, "bytes"_a = 0, "acquire_from"_a = vkf::kSameQueueFamily,
             "release_to"_a = vkf::kSameQueueFamily, "buffer_bytes"_a = 0, "buffer_usage"_a = 0, "buffer_device"_a = 0)
        .def_ro("offset", &B::offset)
        .def_ro("bytes", &B::bytes);
    nb::class_<vkf::ImageView>(m, "ImageView", "A host's image for an image_input() or image_output().")
        .def("__init__", [](vkf::ImageView* self, std::uint64_t view, std::uint32_t width, std::uint32_t height, std::uint32_t layout) {
            new (self) vkf::ImageView{.name = {}, .view = handle_of<VkImageView>(view), .layout = layout, .width = width, .height = height};
        }, "view"_a, "width"_a, "height"_a, "layout"_a = 1)
        .def_ro("width", &vkf::ImageView::width)
        .def_ro("height", &vkf::ImageView::height);
    nb::class_<vkf::Cost>(m, "Cost", "An amount of work, in arithmetic operations and bytes moved.")
        .def_ro("flops", &vkf::Cost::flops)
        .def_ro("bytes", &vkf::Cost::bytes)
        .def_prop_ro("total", &vkf::Cost::total)
        .def("__repr__", [](const vkf::Cost& c) { return "<Cost: " + std::to_string(c.flops) + " flops, " + std::to_string(c.bytes) + " bytes>"; });
    nb::class_<vkf::Segment>(m, "Segment", "One piece of a recording.")
        .def_ro("cost", &vkf::Segment::cost)
        .def_ro("done", &vkf::Segment::done, "The share of the whole that is recorded by now, 0 to 1.")
        .def_ro("last", &vkf::Segment::last);
    nb::class_<vkf::DispatchTime>(m, "DispatchTime", "One dispatch of a profiled run.")
        .def_ro("label", &vkf::DispatchTime::label)
        .def_ro("kernel", &vkf::DispatchTime::kernel)
        .def_ro("start_ms", &vkf::DispatchTime::start_ms)
        .def_ro("ms", &vkf::DispatchTime::ms)
        .def_ro("flops", &vkf::DispatchTime::flops)
        .def_ro("bytes", &vkf::DispatchTime::bytes);
    nb::class_<vkf::MemorySizes>(m, "MemorySizes", "Bytes by kind, all symbols at their maxima.")
        .def_ro("weights", &vkf::MemorySizes::weights)
        .def_ro("state", &vkf::MemorySizes::state)
        .def_ro("constants", &vkf::MemorySizes::constants)
        .def_ro("scratch", &vkf::MemorySizes::scratch)
        .def_ro("inputs", &vkf::MemorySizes::inputs)
        .def_ro("outputs", &vkf::MemorySizes::outputs)
        .def_ro("mirrors", &vkf::MemorySizes::mirrors);
    nb::class_<vkf::Fp32Reason>(m, "Fp32Reason", "Why products of a program for fewer bits stay in fp32.")
        .def_ro("reason", &vkf::Fp32Reason::reason)
        .def_ro("dispatches", &vkf::Fp32Reason::dispatches);
    nb::class_<vkf::ArithmeticUse>(m, "ArithmeticUse", "What came of `arithmetic`.")
        .def_prop_ro("asked", [](const vkf::ArithmeticUse& a) { return name(a.asked); })
        .def_prop_ro("used", [](const vkf::ArithmeticUse& a) { return name(a.used); })
        .def_ro("in_fp32", &vkf::ArithmeticUse::in_fp32);
    nb::class_<vkf::Ticket>(m, "Ticket", "A run that was submitted and is not waited for yet.")
        .def("done", &vkf::Ticket::done, "True once the run has finished. Does not wait.")
        .def("wait", [](const vkf::Ticket& t, std::optional<double> seconds) {
            return unlocked([&] {
                if (!seconds) {
                    t.wait();
                    return true;
                }
                return t.wait(std::chrono::nanoseconds(static_cast<std::int64_t>(*seconds * 1e9)));
            });
        }, "timeout"_a = nb::none(), "Waits until the run has finished; at most `timeout` seconds, and False where these are over first.")
        .def_prop_ro("semaphore", [](const vkf::Ticket& t) { return reinterpret_cast<std::uintptr_t>(t.semaphore()); },
                     "A timeline VkSemaphore that reaches `value`; 0 where the device has none.")
        .def_prop_ro("value", &vkf::Ticket::value);
}

}  // namespace

void bind_program(nb::module_& m) {
    bind_recording(m);
    using P = Program;
    nb::class_<P>(m, "Program",
                  "A graph compiled for a device. program(x=array)[\"y\"] sets sizes from the arrays' shapes, uploads, "
                  "runs and downloads; each of these can be had by itself. Threads that call it take turns.")
        .def("__call__", [](P& p, const nb::kwargs& inputs) { return call(p, inputs); }, nb::sig("def __call__(self, **inputs: object) -> dict[str, numpy.ndarray]"),
             "Runs on arrays by the names of inputs, and sizes by the names of symbols; symbols that are a dimension of "
             "an input are told by its array. Returns the outputs by name.")
        .def("_run", [](P& p, const nb::list& arrays) { return run(p, arrays); }, "arrays"_a, "Calls it with the inputs in their order.")
        .def_prop_ro("inputs", [](const P& p) {
            nb::dict out;
            for (const Port& port : p.inputs) out[port.name.c_str()] = nb::make_tuple(text_of(p, port.shape), name(port.dtype));
            return out;
        }, nb::sig("def inputs(self) -> dict[str, tuple[str, str]]"))
        .def_prop_ro("outputs", [](const P& p) {
            nb::dict out;
            for (const Port& port : p.outputs) out[port.name.c_str()] = nb::make_tuple(text_of(p, port.shape), name(port.dtype));
            return out;
        }, nb::sig("def outputs(self) -> dict[str, tuple[str, str]]"))
        .def("set_weights", [](P& p, const vkf::Weights& weights) { unlocked(*p.mutex, [&] { p.get().set_weights(weights); }); }, "weights"_a,
             "Gives weights to a program that was compiled for their layout alone.")
        .def("allocate", [](P& p, const vkf::BufferRange* scratch) {
            unlocked(*p.mutex, [&] { scratch != nullptr ? p.get().allocate(*scratch) : p.get().allocate(); });
        }, "scratch"_a = nb::none(), "Allocates scratch and constants, which is all that record() needs; or takes a host's scratch.")
        .def("set", [](P& p, const std::string& symbol, std::int64_t value) { unlocked(*p.mutex, [&] { p.get().set(symbol, value); }); },
             "symbol"_a, "value"_a, "Sets a symbol for the following uploads and runs.")
        .def("upload", [](P& p, const std::string& input, nb::handle data) { upload(p, input, data); }, "input"_a, "data"_a,
             nb::sig("def upload(self, input: str, data: object) -> None"), "Copies an input's elements at its current sizes.")
        .def("run", [](P& p) { unlocked(*p.mutex, [&] { p.get().run(); }); }, "Submits and waits.")
        .def("submit", [](P& p) { return unlocked(*p.mutex, [&] { return p.get().submit(); }); }, "Submits a run and does not wait for it.")
        .def("download", [](P& p, const std::string& output) { return download(p, output); }, "output"_a,
             nb::sig("def download(self, output: str) -> numpy.ndarray"), "An output of the last run; bfloat16 is widened to float32.")
        .def("shape", [](const P& p, const std::string& port) { return nb::tuple(nb::cast(p.get().shape(port))); }, "name"_a,
             nb::sig("def shape(self, name: str) -> tuple[int, ...]"), "The current sizes of an input or output.")
        .def_prop_ro("memory", [](const P& p) { return p.get().memory(); })
        .def("record", [](P& p, std::uint64_t commands, const nb::dict& buffers, const nb::dict& images,
                          const std::map<std::string, std::int64_t>& sizes, std::uint32_t slot) {
            const auto all = bound(buffers, images, sizes, slot);
            require(p.get().record(handle_of<VkCommandBuffer>(commands), all->recording), "record");
        }, "commands"_a, "buffers"_a, "images"_a = nb::dict(), "sizes"_a = std::map<std::string, std::int64_t>(), "slot"_a = 0,
             "Records the whole program into a host's VkCommandBuffer. buffers: BufferRange or (buffer, offset, bytes) "
             "by the name of the input or output.")
        .def("begin", [](P& p, const nb::dict& buffers, const nb::dict& images, const std::map<std::string, std::int64_t>& sizes,
                         std::uint32_t slot) { require(p.get().begin(bound(buffers, images, sizes, slot)->recording), "begin"); },
             "buffers"_a, "images"_a = nb::dict(), "sizes"_a = std::map<std::string, std::int64_t>(), "slot"_a = 0,
             "Binds the arguments of a recording in segments to a slot.")
        .def("record_segment", [](P& p, std::uint64_t commands, double budget, std::uint32_t slot) {
            vkf::Segment segment;
            require(p.get().record_segment(handle_of<VkCommandBuffer>(commands), budget, segment, slot), "record_segment");
            return segment;
        }, "commands"_a, "budget"_a, "slot"_a = 0, "Goes on where the last segment stopped, until `budget` (see cost()) is used up.")
        .def("cost", [](const P& p, const std::map<std::string, std::int64_t>& sizes) {
            std::vector<vkf::SizeSetting> settings;
            for (const auto& [symbol, value] : sizes) settings.push_back({symbol, value});
            return p.get().cost(settings);
        }, "sizes"_a = std::map<std::string, std::int64_t>(), "The cost of the whole program at these sizes.")
        .def("finished", [](P& p, std::uint32_t slot) { p.get().finished(slot); }, "slot"_a,
             "Tells a checked program that the slot's last recording has finished or was dropped.")
        .def_prop_ro("arithmetic", [](const P& p) { return p.get().arithmetic(); })
        .def("explain", [](const P& p) { return p.get().explain(); }, "A table: every dispatch with its kernel, memory, and why this variant.")
        .def("dot", [](const P& p) { return p.get().dot(); }, "The graph in Graphviz' language.")
        .def("times", [](const P& p) { return unlocked(*p.mutex, [&] { return p.get().times(); }); }, "Times of the last run, when compiled with profile=True.")
        .def("time_table", [](const P& p) { return unlocked(*p.mutex, [&] { return p.get().time_table(); }); })
        .def("write_trace", [](const P& p, const std::filesystem::path& path) { unlocked(*p.mutex, [&] { p.get().write_trace(path); }); }, "path"_a,
             "times() as a trace for chrome://tracing or ui.perfetto.dev.")
        .def("__repr__", [](const P& p) {
            std::string out = "<Program";
            for (const Port& port : p.inputs) out += " " + port.name + text_of(p, port.shape);
            out += " ->";
            for (const Port& port : p.outputs) out += " " + port.name + text_of(p, port.shape);
            return out + ">";
        });
}

}  // namespace py
