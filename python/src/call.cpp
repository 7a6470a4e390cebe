// SPDX-License-Identifier: Apache-2.0
// Programs called with arrays: sizes from their shapes, upload, run, download.
#include "bind.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <exception>
#include <functional>
#include <mutex>
#include <numeric>
#include <span>
#include <string_view>

namespace py {

Program::Program(vkf::Program made, const vkf::Device& on, const vkf::Graph& graph, std::shared_ptr<Mutex> lock)
    : own(owned(std::move(made), lock)),
      device(on),
      program(own.get()),
      mutex(std::move(lock)),
      symbols(graph.symbols()) {
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

Program::Program(vkf::Program& other, std::shared_ptr<Mutex> lock) : program(&other), mutex(std::move(lock)) {}

namespace {

const Port* found(const std::vector<Port>& ports, std::string_view name) {
    for (const Port& port : ports) {
        if (port.name == name) return &port;
    }
    return nullptr;
}

/// A shape as Python writes it.
std::string text_of(const std::vector<std::int64_t>& shape) {
    std::string out;
    for (const std::int64_t size : shape) out += (out.empty() ? "(" : ", ") + std::to_string(size);
    return out.empty() ? "()" : out + (shape.size() == 1 ? ",)" : ")");
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

/// An array for an output of the last run.
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
    const std::vector<std::int64_t> shape =
        p.ran.empty() ? p.get().shape(port.name) : p.ran[static_cast<std::size_t>(&port - p.outputs.data())];
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

void Program::keep_shapes() {
    if (symbols.empty()) return;
    ran.clear();
    for (const Port& port : outputs) ran.push_back(get().shape(port.name));
}

const Port* Program::input(std::string_view name) const { return found(inputs, name); }
const Port* Program::output(std::string_view name) const { return found(outputs, name); }

void upload(Program& p, const std::string& input, nb::handle object) {
    if (nb::isinstance<vkf::DeviceTensor>(object)) fail("is a tensor: bind() lets runs read it where it lies", input);
    const Port* port = p.input(input);
    const Array array = port != nullptr ? fitting(*port, object) : wide_array_of(object, input);
    unlocked(*p.mutex, [&] {
        if (array.shape.size() > 1) {  // one dimension is all elements, as in C++
            const std::vector<std::int64_t> shape = p.get().shape(input);
            if (shape != array.shape)
                fail("is " + text_of(shape) + " now, and " + text_of(array.shape) + " was given", input);
        }
        upload(p.get(), input, array);
        p.bound.erase(input);
    });
}

nb::object download(Program& p, const std::string& output) {
    const Port* port = p.output(output);
    if (port == nullptr && !p.own) {  // a model's own program, of which only the type is asked
        std::vector<std::int64_t> shape;
        std::vector<float> data = unlocked(*p.mutex, [&] {
            shape = p.get().shape(output);
            return p.get().download(output);
        });
        const auto count =
            static_cast<std::size_t>(std::accumulate(shape.begin(), shape.end(), std::int64_t{1}, std::multiplies<>()));
        if (data.size() != count) {
            fail("has " + std::to_string(data.size()) + " elements of the last run, and its shape is " +
                     text_of(shape) + " now",
                 output);
        }
        return numpy_array(data, vkf::DType::f32, shape);
    }
    if (port == nullptr) fail("there is no such output; there are: " + names_of(p.outputs), output);
    const auto mutex = p.mutex;
    const std::unique_lock<Mutex> turn = turn_of(*mutex);
    const Room room = room_for(p, *port);
    unlocked([&] { download(p.get(), output, room); });
    return room.array;
}

namespace {

/// An input: an array, or a tensor that lies on the device.
struct Given {
    const Port* port = nullptr;
    Array array = {};
    vkf::DeviceTensor tensor = {};

    const std::vector<std::int64_t>& shape() const { return tensor ? tensor.shape() : array.shape; }
};

Given given_for(const Port& port, nb::handle object) {
    if (nb::isinstance<vkf::DeviceTensor>(object)) return {&port, {}, nb::cast<const vkf::DeviceTensor&>(object)};
    return {&port, fitting(port, object)};
}

/// Sets sizes (-1: as they are), uploads, runs and downloads, one thread at a time. Inputs that are
/// not given are bound.
std::vector<nb::object> run(Program& p, const std::vector<Given>& given, std::vector<std::int64_t> sizes,
                            Results results);

}  // namespace

std::vector<nb::object> run(Program& p, const nb::list& arrays, Results results) {
    if (arrays.size() != p.inputs.size()) {
        fail("has " + std::to_string(p.inputs.size()) + " inputs, and " + std::to_string(arrays.size()) +
                 " were given: " + names_of(p.inputs),
             "a program");
    }
    std::vector<Given> given;
    given.reserve(p.inputs.size());
    for (const nb::handle array : arrays) {
        given.push_back(given_for(p.inputs[given.size()], array));
    }
    return run(p, given, std::vector<std::int64_t>(p.symbols.size(), -1), results);
}

nb::dict call(Program& p, const nb::kwargs& arguments, Results results) {
    if (!p.own) {  // a trainer's, say, would take a step that the trainer does not count
        fail("is a model's own and is not called: upload(), run() and download() are for it", "a program");
    }
    std::vector<Given> given;
    given.reserve(p.inputs.size());
    std::vector<std::int64_t> sizes(p.symbols.size(), -1);
    for (const auto& [key, object] : arguments) {
        Py_ssize_t length = 0;
        const char* utf8 = PyUnicode_AsUTF8AndSize(key.ptr(), &length);
        if (utf8 == nullptr) throw nb::python_error();
        const std::string text(utf8, static_cast<std::size_t>(length));
        if (const Port* port = p.input(text)) {
            given.push_back(given_for(*port, object));
            continue;
        }
        const auto at = std::find(p.symbol_names.begin(), p.symbol_names.end(), text);
        if (at == p.symbol_names.end()) {
            std::string sizes;
            for (const std::string& name : p.symbol_names) sizes += (sizes.empty() ? "; sizes: " : ", ") + name;
            fail("there is no such input or size; inputs: " + names_of(p.inputs) + sizes, text);
        }
        std::int64_t number = 0;
        if (!nb::try_cast(object, number)) fail("is a size, given as a whole number", text);
        if (number < 0) fail("is " + std::to_string(number) + "; sizes are not negative", text);
        sizes[static_cast<std::size_t>(at - p.symbol_names.begin())] = number;
    }
    nb::dict out;
    std::vector<nb::object> found = run(p, given, std::move(sizes), results);
    for (std::size_t i = 0; i < found.size(); ++i) out[nb::cast(p.outputs[i].name)] = std::move(found[i]);
    return out;
}

namespace {

/// Throws where an input is neither given nor bound.
void require_inputs(const Program& p, const std::vector<Given>& given) {
    for (const Port& port : p.inputs) {
        const bool has = std::any_of(given.begin(), given.end(), [&](const Given& one) { return one.port == &port; });
        if (!has && p.bound.count(port.name) == 0) {
            fail("is an input, and was not given; inputs: " + names_of(p.inputs), port.name);
        }
    }
}

/// Throws where an output lies in a tensor of bind(), so that there is nothing to download.
void refuse_bound_outputs(const Program& p) {
    for (const Port& port : p.outputs) {
        if (p.bound.count(port.name) != 0) {
            fail("is bound to a tensor, which run() writes; bind(\"" + port.name + "\", None) takes that back",
                 port.name);
        }
    }
}

/// Takes the shapes of what is given into `sizes`.
void read_sizes(const Program& p, const std::vector<Given>& given, std::vector<std::int64_t>& sizes) {
    std::vector<const Port*> told(p.symbols.size(), nullptr);
    for (const Given& one : given) {
        const Port* port = one.port;
        const std::vector<std::int64_t>& shape = one.shape();
        if (shape.size() != port->shape.size()) {
            fail("has the shape " + text_of(p, port->shape) + ", and " + text_of(shape) + " was given", port->name);
        }
        for (std::size_t d = 0; d < shape.size(); ++d) {
            const int symbol = port->symbol[d];
            if (symbol < 0) continue;
            const auto at = static_cast<std::size_t>(symbol);
            if (sizes[at] >= 0 && sizes[at] != shape[d]) {
                fail(p.symbol_names[at] + " is " + std::to_string(shape[d]) + " in " + port->name + " " +
                         text_of(shape) + ", and " + std::to_string(sizes[at]) +
                         (told[at] != nullptr ? " in " + told[at]->name : std::string(" as given")),
                     port->name);
            }
            sizes[at] = shape[d];
            told[at] = port;
        }
    }
    for (std::size_t s = 0; s < sizes.size(); ++s) {
        if (sizes[s] > p.symbols[s].max) {
            fail("is " + std::to_string(sizes[s]) + "; its largest is " + std::to_string(p.symbols[s].max),
                 p.symbol_names[s]);
        }
    }
}

/// Tensors that are bound to a program for the length of one run, and arrays that are uploaded for
/// it. What bind() gave before is bound again then; where an array took its place, only if the run
/// was refused.
class Bindings {
public:
    Bindings(vkf::Program& program, std::map<std::string, vkf::DeviceTensor, std::less<>> before)
        : program_(program), before_(std::move(before)) {}
    ~Bindings() {
        restore(names_);
        restore(replaced_);
    }
    Bindings(const Bindings&) = delete;
    Bindings& operator=(const Bindings&) = delete;

    void bind(const std::string& name, const vkf::DeviceTensor& tensor) {
        program_.bind(name, tensor);
        names_.push_back(&name);
    }
    void take_array(const std::string& name, const Array& array) {
        if (before_.count(name) != 0) replaced_.push_back(&name);
        upload(program_, name, array);
    }
    /// The run was made: arrays keep the places that they took.
    void keep_arrays() { replaced_.clear(); }

private:
    void restore(const std::vector<const std::string*>& names) {
        for (const std::string* name : names) {
            try {
                program_.bind(*name, before_[*name]);
            } catch (const std::exception&) {  // a lost device, which the run has told already
            }
        }
    }

    vkf::Program& program_;
    std::map<std::string, vkf::DeviceTensor, std::less<>> before_;
    std::vector<const std::string*> names_, replaced_;
};

std::vector<nb::object> run(Program& p, const std::vector<Given>& given, std::vector<std::int64_t> sizes,
                            Results results) {
    std::vector<vkf::DeviceTensor> tensors;
    std::map<std::string, vkf::DeviceTensor, std::less<>> before;  // what bind() gave
    const auto work = [&] {
        vkf::Program& program = p.get();
        for (std::size_t s = 0; s < sizes.size(); ++s) {
            if (sizes[s] >= 0) program.set(p.symbol_names[s], sizes[s]);
        }
        Bindings bindings(program, before);
        for (const Given& one : given) {
            const std::vector<std::int64_t> shape = program.shape(one.port->name);
            if (shape != one.shape()) {
                fail("has the shape " + text_of(p, one.port->shape) + ", now " + text_of(shape) + ", and " +
                         text_of(one.shape()) + " was given",
                     one.port->name);
            }
            if (one.tensor) {
                bindings.bind(one.port->name, one.tensor);
            } else {
                bindings.take_array(one.port->name, one.array);
            }
        }
        for (std::size_t i = 0; results == Results::tensors && i < p.outputs.size(); ++i) {
            const Port& port = p.outputs[i];
            tensors.push_back(p.device->make_tensor(program.shape(port.name), port.dtype));
            bindings.bind(port.name, tensors.back());
        }
        program.run();
        bindings.keep_arrays();
        for (const Given& one : given) {
            if (!one.tensor) p.bound.erase(one.port->name);
        }
        p.keep_shapes();
    };
    // One thread at a time from the first size to the last output.
    const auto mutex = p.mutex;
    const std::unique_lock<Mutex> turn = turn_of(*mutex);
    require_inputs(p, given);
    read_sizes(p, given, sizes);
    if (results == Results::arrays) refuse_bound_outputs(p);
    before = p.bound;
    unlocked(work);
    std::vector<nb::object> out;
    out.reserve(p.outputs.size());
    if (results == Results::tensors) {
        for (vkf::DeviceTensor& tensor : tensors) out.push_back(nb::cast(std::move(tensor)));
        return out;
    }
    std::vector<Room> rooms;
    rooms.reserve(p.outputs.size());
    for (const Port& port : p.outputs) rooms.push_back(room_for(p, port));
    unlocked([&] {
        for (std::size_t i = 0; i < rooms.size(); ++i) download(p.get(), p.outputs[i].name, rooms[i]);
    });
    for (Room& room : rooms) out.push_back(std::move(room.array));
    return out;
}

}  // namespace

}  // namespace py
