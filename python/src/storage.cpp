// SPDX-License-Identifier: Apache-2.0
// Weights and states in device memory.
#include "bind.h"

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>

namespace py {

namespace {

nb::dict tensors_dict(const vkf::WeightLayout& layout) {
    nb::dict out;
    for (const vkf::StoredTensor& t : layout.tensors()) out[nb::cast(t.name)] = nb::cast(t);
    return out;
}

/// The first `length` elements along `dim`; -1: all.
vkf::StatePart part_of(const std::string& tensor, std::size_t dim, std::int64_t length) {
    if (length < -1) fail("length is " + std::to_string(length) + "; it is not negative, or -1 for all", tensor);
    return {.dim = dim, .length = length};
}

nb::object read_state(const State& state, const std::string& tensor, std::size_t dim, std::int64_t length) {
    const vkf::StoredTensor* found = state.state.find(tensor);
    if (found == nullptr) fail("there is no such state", tensor);
    const vkf::StatePart part = part_of(tensor, dim, length);
    const std::vector<std::byte> bytes = unlocked(*state.mutex, [&] { return state.state.read(tensor, part); });
    std::vector<std::int64_t> shape = found->shape;
    if (length >= 0 && dim < shape.size()) shape[dim] = length;
    if (found->dtype == vkf::DType::bf16) {
        std::vector<std::uint16_t> bits(bytes.size() / sizeof(std::uint16_t));
        std::memcpy(bits.data(), bytes.data(), bytes.size());
        return widened_bits(bits, shape);
    }
    return numpy_array(bytes.data(), found->dtype, shape);
}

/// An array of a tensor's type and shape. Throws for any other.
Array fitting(nb::handle data, vkf::DType dtype, const std::vector<std::int64_t>& shape, const std::string& tensor) {
    Array array = array_as(data, dtype, tensor);
    if (array.shape != shape) {
        fail("has the shape " + nb::cast<std::string>(nb::str(nb::tuple(nb::cast(shape)))) + ", and " +
                 nb::cast<std::string>(nb::str(nb::tuple(nb::cast(array.shape)))) + " was given",
             tensor);
    }
    return array;
}

void write_state(State& state, const std::string& tensor, nb::handle data, std::size_t dim, std::int64_t length) {
    const vkf::StoredTensor* found = state.state.find(tensor);
    if (found == nullptr) fail("there is no such state", tensor);
    const vkf::StatePart part = part_of(tensor, dim, length);
    std::vector<std::int64_t> shape = found->shape;
    if (length >= 0 && dim < shape.size()) shape[dim] = length;
    const Array array = fitting(data, found->dtype, shape, tensor);
    changed(state, [&] { state.state.write(tensor, array.bytes, part); });
}

void bind_weights(nb::module_& m) {
    nb::class_<vkf::StoredTensor>(m, "StoredTensor", "One tensor of a layout: name, type, shape and place.")
        .def_ro("name", &vkf::StoredTensor::name, "Its name.")
        .def_prop_ro(
            "dtype", [](const vkf::StoredTensor& t) { return name(t.dtype); },
            "NumPy's name of the type that graphs see.")
        .def_prop_ro(
            "shape", [](const vkf::StoredTensor& t) { return nb::tuple(nb::cast(t.shape)); },
            nb::sig("def shape(self) -> tuple[int, ...]"), "Sizes, outermost first.")
        .def_ro("block", &vkf::StoredTensor::block, "The number of the block of memory that it lies in.")
        .def_ro("offset", &vkf::StoredTensor::offset, "Bytes from the block's beginning.")
        .def_ro("bytes", &vkf::StoredTensor::bytes, "Its size in bytes.")
        .def_prop_ro(
            "type", [](const vkf::StoredTensor& t) { return name(t.type); },
            "How the numbers lie in memory, where graphs see float32.")
        .def("__repr__", [](const vkf::StoredTensor& t) {
            return "<" + t.name + " " + nb::cast<std::string>(nb::str(nb::tuple(nb::cast(t.shape)))) + " " +
                   name(t.type) + ">";
        });
    nb::class_<vkf::WeightLayout>(m, "WeightLayout", "Names, types, shapes and places of tensors in device memory.")
        .def_prop_ro(
            "tensors", [](const vkf::WeightLayout& l) { return l.tensors(); }, "All tensors, in their order.")
        .def_prop_ro(
            "blocks", [](const vkf::WeightLayout& l) { return l.blocks(); }, "Bytes of each block of memory.")
        .def_prop_ro("bytes", &vkf::WeightLayout::bytes, "Bytes of all blocks.")
        .def(
            "find", [](const vkf::WeightLayout& l, const std::string& tensor) { return l.find(tensor); }, "name"_a,
            nb::rv_policy::copy, nb::sig("def find(self, name: str) -> StoredTensor | None"),
            "The tensor of this name, or None.");
    m.def(
        "make_weight_layout",
        [](nb::handle tensors, const vkf::Capabilities& device, const vkf::Graph* graph,
           const std::optional<Choice<vkf::WeightType>>& matrices, const nb::object& choose,
           const Choice<vkf::PackOn>& pack_on) {
            const Tensors given = tensors_of(tensors);
            const vkf::LoadOptions options = load_options(matrices, choose, pack_on, nb::none());
            return graph != nullptr ? vkf::make_weight_layout(*graph, given.list, device, options)
                                    : vkf::make_weight_layout(given.list, device, options);
        },
        "tensors"_a, "device"_a, "graph"_a = nb::none(), "matrices"_a = nb::none(), "choose"_a = nb::none(),
        "pack_on"_a = Choice<vkf::PackOn>{"by_device"},
        "Says where Device.load() will put these tensors, and as what.");
    nb::class_<vkf::Weights>(m, "Weights",
                             "Trained parameters in device memory, shared by programs. Immutable once loaded.")
        .def(nb::init<>(), "None at all.")
        .def_prop_ro("layout", &vkf::Weights::layout, nb::rv_policy::copy, "Names, types, shapes and places.")
        .def(
            "find", [](const vkf::Weights& w, const std::string& tensor) { return w.find(tensor); }, "name"_a,
            nb::rv_policy::copy, nb::sig("def find(self, name: str) -> StoredTensor | None"),
            "The tensor of this name, or None.")
        .def("names", &vkf::Weights::names, "Names of the tensors.")
        .def(
            "bytes",
            [](const vkf::Weights& w, const std::optional<Choice<vkf::WeightType>>& type) {
                return type ? w.bytes(*type) : w.bytes();
            },
            "type"_a = nb::none(), "Device memory held; of floating tensors kept as this type, where one is named.")
        .def("bytes_packed_on_device", &vkf::Weights::bytes_packed_on_device,
             "Bytes of the matrices that the device itself packed.")
        .def("__repr__", [](const vkf::Weights& w) {
            return "<Weights: " + std::to_string(w.layout().tensors().size()) + " tensors, " +
                   std::to_string(w.bytes()) + " bytes>";
        });
}

void bind_states(nb::module_& m) {
    nb::class_<State>(m, "State", "Tensors that outlive a run, by name. Programs that share one take turns.")
        .def_prop_ro(
            "tensors", [](const State& s) { return tensors_dict(s.state.layout()); },
            nb::sig("def tensors(self) -> dict[str, StoredTensor]"), "Types, shapes and places, by name.")
        .def_prop_ro(
            "layout", [](const State& s) { return s.state.layout(); }, "Names, types, shapes and places.")
        .def(
            "find", [](const State& s, const std::string& tensor) { return s.state.find(tensor); }, "name"_a,
            nb::rv_policy::copy, nb::sig("def find(self, name: str) -> StoredTensor | None"),
            "The tensor of this name, or None.")
        .def("read", read_state, "name"_a, "dim"_a = 0, "length"_a = -1,
             nb::sig("def read(self, name: str, dim: int = 0, length: int = -1) -> numpy.ndarray"),
             "The elements of a state, or the first `length` of them along `dim`, as an array. bfloat16 is widened.")
        .def("write", write_state, "name"_a, "data"_a, "dim"_a = 0, "length"_a = -1,
             nb::sig("def write(self, name: str, data: object, dim: int = 0, length: int = -1) -> None"),
             "Writes a state, or its first `length` elements along `dim`; the rest stays as it is.")
        .def(
            "__getitem__",
            [](const State& s, const std::string& tensor) {
                if (s.state.find(tensor) == nullptr) throw nb::key_error(tensor.c_str());
                return read_state(s, tensor, 0, -1);
            },
            "name"_a, nb::sig("def __getitem__(self, name: str) -> numpy.ndarray"))
        .def(
            "__setitem__",
            [](State& s, const std::string& tensor, nb::handle data) { write_state(s, tensor, data, 0, -1); }, "name"_a,
            "data"_a)
        .def(
            "__contains__", [](const State& s, const std::string& tensor) { return s.state.find(tensor) != nullptr; },
            "name"_a)
        .def("__len__", [](const State& s) { return s.state.layout().tensors().size(); })
        .def(
            "__iter__", [](nb::object self) { return nb::iter(self.attr("tensors")); },
            nb::sig("def __iter__(self) -> typing.Iterator[str]"))
        .def(
            "bytes", [](const State& s) { return s.state.bytes(); }, "Device memory held.")
        .def(
            "clear", [](State& s) { changed(s, [&] { s.state.clear(); }); }, "Sets every byte to zero.")
        .def("__repr__", [](const State& s) {
            return "<State: " + std::to_string(s.state.layout().tensors().size()) + " tensors, " +
                   std::to_string(s.state.bytes()) + " bytes>";
        });
    m.def(
        "_require_fitting",
        [](const std::string& tensor, const std::vector<std::int64_t>& shape, nb::handle data) {
            fitting(data, vkf::DType::f32, shape, tensor);
        },
        "name"_a, "shape"_a, "data"_a, "Throws where State.write() will, for a state of float32 that is not made yet.");
    using Parts = std::map<std::string, std::pair<std::size_t, std::int64_t>>;
    m.def(
        "save_state",
        [](const std::filesystem::path& path, const State& state, const Parts& parts) {
            std::map<std::string, vkf::StatePart> out;
            for (const auto& [key, part] : parts) out[key] = part_of(key, part.first, part.second);
            unlocked(*state.mutex, [&] { vkf::save_state(path, state.state, out); });
        },
        "path"_a, "state"_a, "parts"_a = Parts(),
        "Writes every state to a safetensors file, bit for bit. parts: for some names (dim, length), of which only "
        "the first `length` elements along `dim` are written.");
    m.def(
        "restore_state",
        [](const std::filesystem::path& path, State& state) {
            changed(state, [&] { vkf::restore_state(path, state.state); });
        },
        "path"_a, "state"_a, "Writes the contents of a file of save_state() back.");
}

}  // namespace

void bind_storage(nb::module_& m) {
    bind_weights(m);
    bind_states(m);
}

}  // namespace py
