// SPDX-License-Identifier: Apache-2.0
// Programs called with arrays: sizes from their shapes, upload, run, download.
#include "bind.h"

#include <algorithm>
#include <array>
#include <cstring>

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
        fail(std::string("is of ") + name(port.dtype) + ", and an array of " + name(array.dtype) + " was given",
             port.name);
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
        case vkf::DType::i32:
            return program.download(output, std::span(static_cast<std::int32_t*>(room.data), room.count));
        case vkf::DType::f16:
            return program.download(output, std::span(static_cast<std::uint16_t*>(room.data), room.count));
        default: return program.download(output, std::span(static_cast<float*>(room.data), room.count));
    }
}

}  // namespace

std::string text_of(const Program& p, const vkf::Shape& shape) {
    std::string out;
    for (const vkf::Dim& size : shape) out += (out.empty() ? "(" : ", ") + size.str(p.symbol_names);
    return out.empty() ? "()" : out + ")";
}

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
    for (Room& room : run(p, given, std::vector<std::int64_t>(p.symbols.size(), -1)))
        out.push_back(std::move(room.array));
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
            fail("has the shape " + text_of(p, port->shape) + ", and " + text_of(array.shape) + " was given",
                 port->name);
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
            fail("is " + std::to_string(sizes[s]) + "; its largest is " + std::to_string(p.symbols[s].max),
                 p.symbol_names[s]);
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
                         text_of(array.shape) + " was given",
                     port->name);
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

}  // namespace

}  // namespace py
