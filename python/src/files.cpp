// SPDX-License-Identifier: Apache-2.0
#include "bind.h"

#include <nanobind/stl/shared_ptr.h>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace py {

Tensors tensors_of(nb::handle object, bool as_they_are) {
    Tensors out;
    if (nb::isinstance<vkf::Safetensors>(object)) {
        const auto& file = nb::cast<vkf::Safetensors&>(object);
        out.list.assign(file.tensors().begin(), file.tensors().end());
        out.keep.push_back(nb::borrow(object));
        return out;
    }
    if (nb::hasattr(object, "items")) {
        for (const nb::handle item : nb::list(object.attr("items")())) {
            const auto name = cast_as<std::string>(item[0], "weights", "a name");
            if (nb::isinstance<vkf::HostTensor>(item[1])) {
                out.list.push_back(nb::cast<vkf::HostTensor&>(item[1]));
                out.list.back().name = name;
                out.keep.push_back(item[1]);
                continue;
            }
            const Array& array =
                out.arrays.emplace_back(as_they_are ? array_of(item[1], name) : device_array_of(item[1], name));
            out.list.push_back({name, array.dtype, array.shape, array.bytes, vkf::WeightType::f32});
        }
        return out;
    }
    std::filesystem::path path;
    if (nb::try_cast<std::filesystem::path>(object, path)) {
        out.file = std::make_shared<vkf::Safetensors>(path);
        out.list.assign(out.file->tensors().begin(), out.file->tensors().end());
        return out;
    }
    PyErr_Clear();
    fail("is " + kind_of(object) + "; weights are a dict of arrays, a safetensors file or its path", "weights");
}

vkf::LoadProgress progress_of(const nb::object& function) {
    const bool tells = function.is_valid() && !function.is_none();
    // without a function Ctrl-C ends it all the same
    return [shared = tells ? held(function) : nullptr](std::uint64_t done, std::uint64_t all) {
        check_signals();
        if (!shared) return;
        const Locked lock;
        (*shared)(done, all);
    };
}

vkf::LoadOptions load_options(const std::optional<Choice<vkf::WeightType>>& matrices, const nb::object& choose,
                              const Choice<vkf::PackOn>& pack_on, const nb::object& progress) {
    vkf::LoadOptions out;
    if (matrices) out.matrices = *matrices;
    out.pack_on = pack_on;
    out.progress = progress_of(progress);
    if (choose.is_valid() && !choose.is_none()) {
        out.choose = [shared = held(choose)](const vkf::HostTensor& tensor) -> std::optional<vkf::WeightType> {
            const Locked lock;
            const nb::object chosen = (*shared)(tensor.name, nb::tuple(nb::cast(tensor.shape)));
            if (chosen.is_none()) return {};
            return cast_as<Choice<vkf::WeightType>>(chosen, "choose: what its function gave",
                                                    "the name of a type, or None,");
        };
    }
    return out;
}

void bind_files(nb::module_& m) {
    nb::class_<vkf::HostTensor>(m, "HostTensor", "A tensor of a file, where it lies there.")
        .def_ro("name", &vkf::HostTensor::name, "Its name in the file.")
        .def_prop_ro(
            "dtype", [](const vkf::HostTensor& t) { return name(t.dtype); }, "NumPy's name of the type of elements.")
        .def_prop_ro(
            "shape", [](const vkf::HostTensor& t) { return nb::tuple(nb::cast(t.shape)); },
            nb::sig("def shape(self) -> tuple[int, ...]"), "Sizes, outermost first.")
        .def_prop_ro(
            "type", [](const vkf::HostTensor& t) { return name(t.type); }, "What a matrix is packed as.")
        .def_prop_ro(
            "bytes", [](const vkf::HostTensor& t) { return t.data.size(); }, "Its size in bytes.")
        .def(
            "numpy",
            [](nb::object self) -> nb::object {
                const auto& t = nb::cast<vkf::HostTensor&>(self);
                if (t.type != vkf::WeightType::f32) fail("is packed as " + std::string(name(t.type)), t.name);
                void* to = nullptr;
                const nb::object bytes = new_array(vkf::DType::u8, {static_cast<std::int64_t>(t.data.size())}, &to);
                unlocked([&] { vkf::read_bytes(t, {static_cast<std::byte*>(to), t.data.size()}); });
                nb::object flat = bytes.attr("view")(t.dtype == vkf::DType::bf16 ? "uint16" : name(t.dtype));
                if (t.dtype == vkf::DType::bf16) {
                    const nb::object wide = flat.attr("astype")("uint32");
                    flat = numpy().attr("left_shift")(wide, 16).attr("view")("float32");
                }
                return flat.attr("reshape")(nb::tuple(nb::cast(t.shape)));
            },
            nb::sig("def numpy(self) -> numpy.ndarray"), "A copy as an array; bfloat16 is widened to float32, exactly.")
        .def("__repr__", [](const vkf::HostTensor& t) {
            return "<HostTensor " + t.name + " " + nb::cast<std::string>(nb::str(nb::tuple(nb::cast(t.shape)))) + " " +
                   name(t.dtype) + ">";
        });

    nb::class_<vkf::Safetensors>(m, "Safetensors",
                                 "A checked safetensors file, mapped. Every claim of the header is compared with the "
                                 "bytes that are there. Behaves as a dict of HostTensor.")
        .def(nb::init<const std::filesystem::path&>(), "path"_a, nb::call_guard<Released>())
        .def_static(
            "parse",
            [](const nb::bytes& bytes, std::string name) {
                return vkf::Safetensors::parse({static_cast<const std::byte*>(bytes.data()), bytes.size()},
                                               std::move(name));
            },
            "bytes"_a, "name"_a, nb::keep_alive<0, 1>(), "A file that is in memory.")
        .def_prop_ro(
            "tensors",
            [](nb::object self) {
                nb::list out;
                for (const vkf::HostTensor& t : nb::cast<vkf::Safetensors&>(self).tensors()) {
                    out.append(nb::cast(&t, nb::rv_policy::reference_internal, self));
                }
                return out;
            },
            nb::sig("def tensors(self) -> list[HostTensor]"), "All tensors, in the order of the file's data.")
        .def(
            "find", [](const vkf::Safetensors& f, const std::string& name) { return f.find(name); }, "name"_a,
            nb::rv_policy::reference_internal, nb::sig("def find(self, name: str) -> HostTensor | None"),
            "The tensor of this name, or None.")
        .def(
            "at",
            [](const vkf::Safetensors& f, const std::string& name) -> const vkf::HostTensor& { return f.at(name); },
            "name"_a, nb::rv_policy::reference_internal,
            "The tensor of this name; ValueError names the file where it has none.")
        .def(
            "__getitem__",
            [](const vkf::Safetensors& f, const std::string& name) -> const vkf::HostTensor& {
                if (f.find(name) == nullptr) throw nb::key_error(name.c_str());
                return f.at(name);
            },
            "name"_a, nb::rv_policy::reference_internal)
        .def(
            "__contains__", [](const vkf::Safetensors& f, const std::string& name) { return f.find(name) != nullptr; },
            "name"_a)
        .def("__len__", [](const vkf::Safetensors& f) { return f.tensors().size(); })
        .def(
            "keys",
            [](const vkf::Safetensors& f) {
                std::vector<std::string> names;
                for (const vkf::HostTensor& t : f.tensors()) names.push_back(t.name);
                return names;
            },
            "Names of the tensors, in the order of the file's data.")
        .def(
            "items",
            [](nb::object self) {
                nb::list out;
                for (const nb::handle key : self.attr("keys")()) out.append(nb::make_tuple(key, self[key]));
                return out;
            },
            nb::sig("def items(self) -> list[tuple[str, HostTensor]]"),
            "Names and tensors, in the order of the file's data.")
        .def(
            "__iter__", [](nb::object self) { return nb::iter(self.attr("keys")()); },
            nb::sig("def __iter__(self) -> typing.Iterator[str]"))
        .def_prop_ro(
            "metadata", [](const vkf::Safetensors& f) { return f.metadata(); },
            "The strings that the file's header has, by name.")
        .def_prop_ro(
            "file", [](const vkf::Safetensors& f) { return f.file(); }, "The file's name.")
        .def("__repr__", [](const vkf::Safetensors& f) {
            return "<Safetensors " + f.file() + ": " + std::to_string(f.tensors().size()) + " tensors>";
        });
    m.def(
        "save_safetensors",
        [](const std::filesystem::path& path, nb::handle tensors, const std::map<std::string, std::string>& metadata) {
            const Tensors given = tensors_of(tensors, true);
            const Released release;
            vkf::save_safetensors(path, given.list, metadata);
        },
        "path"_a, "tensors"_a, "metadata"_a = std::map<std::string, std::string>(),
        nb::sig(
            "def save_safetensors(path: str | os.PathLike, tensors: object, metadata: dict[str, str] = {}) -> None"),
        "Writes a safetensors file, which appears whole or not at all. tensors: a dict of arrays, whose types are "
        "kept, float64 and 64-bit integers too.");
    m.def(
        "_listed", [](nb::handle data, const std::string& name) { return listed(data, name); }, "data"_a, "name"_a,
        "A list of numbers as an array of NumPy's, where functions take one.");
    m.def("read_text", &vkf::read_text, "path"_a, "Reads a whole text file.");

    nb::class_<vkf::Checkpoint>(m, "Checkpoint",
                                "A Hugging Face folder: config.json, and the tensors of model.safetensors or of the "
                                "shards that model.safetensors.index.json names.")
        .def(nb::init<const std::filesystem::path&>(), "folder"_a, nb::call_guard<Released>())
        .def(
            "find", [](const vkf::Checkpoint& c, const std::string& name) { return c.find(name); }, "name"_a,
            nb::rv_policy::reference_internal, nb::sig("def find(self, name: str) -> HostTensor | None"),
            "The tensor of this name in any shard, or None.")
        .def("names", &vkf::Checkpoint::names, "Names of all tensors.")
        .def_prop_ro(
            "config", [](const vkf::Checkpoint& c) { return c.config(); }, "The text of config.json.")
        .def_prop_ro(
            "config_file", [](const vkf::Checkpoint& c) { return c.config_file(); }, "The path of config.json.")
        .def_prop_ro(
            "folder", [](const vkf::Checkpoint& c) { return c.folder(); }, "The folder.");
}

}  // namespace py
