// SPDX-License-Identifier: Apache-2.0
// Tensors that stay on the device, and pass from program to program.
#include <cstddef>
#include <cstdint>
#include <span>

#include "bind.h"

namespace py {

namespace {

using T = vkf::DeviceTensor;

std::string text_of(const T& t) { return nb::cast<std::string>(nb::str(nb::tuple(nb::cast(t.shape())))); }

nb::object numpy_of(const T& t) {
    if (t.dtype() == vkf::DType::bf16) {  // widened: NumPy has no such type
        std::vector<std::uint16_t> bits(t.bytes() / sizeof(std::uint16_t));
        unlocked([&] { t.read(std::as_writable_bytes(std::span(bits))); });
        return widened_bits(bits, t.shape());
    }
    void* data = nullptr;
    nb::object out = new_array(t.dtype(), t.shape(), &data);
    unlocked([&] { t.read({static_cast<std::byte*>(data), static_cast<std::size_t>(t.bytes())}); });
    return out;
}

void write(T& t, nb::handle data) {
    const Array array = array_as(data, t.dtype(), "data");
    if (array.shape != t.shape()) {
        fail("has the shape " + nb::cast<std::string>(nb::str(nb::tuple(nb::cast(array.shape)))) +
                 ", and the tensor has " + text_of(t),
             "data");
    }
    unlocked([&] { t.write(array.bytes); });
}

/// Sizes as NumPy's reshape() takes them: numbers or one tuple, one of them -1 where it is told by
/// the others.
std::vector<std::int64_t> shape_of(const T& t, const nb::args& sizes) {
    const bool numbers = sizes.size() != 1 || PyIndex_Check(nb::handle(sizes[0]).ptr()) != 0;
    auto shape = cast_as<std::vector<std::int64_t>>(numbers ? nb::object(sizes) : nb::object(sizes[0]), "reshape",
                                                    "sizes, which are whole numbers,");
    std::int64_t known = 1;
    std::int64_t* open = nullptr;
    for (std::int64_t& size : shape) {
        if (size == -1 && open == nullptr) {
            open = &size;
        } else {
            known *= size;
        }
    }
    const auto all = static_cast<std::int64_t>(t.bytes() / vkf::size_of(t.dtype()));
    if (open != nullptr && known > 0) *open = all / known;
    return shape;
}

}  // namespace

vkf::DeviceTensor tensor_of(const vkf::Device& device, nb::handle data) {
    const Array array = device_array_of(data, "data");
    return unlocked([&] {
        T out = device.make_tensor(array.shape, array.dtype);
        out.write(array.bytes);
        return out;
    });
}

void bind_tensors(nb::module_& m) {
    nb::class_<T>(m, "Tensor",
                  "Elements in device memory. Device.tensor(array) and Program.tensors(x=array) make them; programs, "
                  "functions of arrays and modules take them where they lie, and functions and modules give tensors "
                  "where their first argument is one. numpy() copies to the host.")
        .def_prop_ro(
            "shape", [](const T& t) { return nb::tuple(nb::cast(t.shape())); },
            nb::sig("def shape(self) -> tuple[int, ...]"), "Sizes, outermost first.")
        .def_prop_ro(
            "dtype", [](const T& t) { return name(t.dtype()); }, "NumPy's name of the type of elements.")
        .def_prop_ro("device", &T::device, "The device that it lies on.")
        .def_prop_ro(
            "ndim", [](const T& t) { return t.shape().size(); }, "How many dimensions it has.")
        .def_prop_ro("bytes", &T::bytes, "Its size in bytes.")
        .def(
            "reshape", [](const T& t, const nb::args& shape) { return t.reshape(shape_of(t, shape)); },
            nb::sig("def reshape(self, *shape: int | typing.Sequence[int]) -> Tensor"),
            "The same memory under another shape; one size may be -1.")
        .def(
            "numpy", [](const T& t) { return numpy_of(t); }, nb::sig("def numpy(self) -> numpy.ndarray"),
            "A copy on the host; bfloat16 is widened to float32. Waits for the device.")
        .def(
            "__array__",
            [](const T& t, const nb::object& dtype, const nb::object& copy) {
                if (copy.is(nb::bool_(false))) {
                    throw nb::value_error("a tensor lies on the device: an array of it is always a copy");
                }
                nb::object out = numpy_of(t);
                return dtype.is_none() ? out : nb::object(out.attr("astype")(dtype));
            },
            "dtype"_a = nb::none(), "copy"_a = nb::none(),
            nb::sig("def __array__(self, dtype: object = None, copy: bool | None = None) -> numpy.ndarray"))
        .def(
            "__dlpack__",
            [](const T& t, const nb::kwargs& options) {
                nb::dict others;  // and every copy is one already
                for (const auto& [key, value] : options) {
                    if (!key.equal(nb::str("copy"))) {
                        others[key] = value;
                    } else if (value.is(nb::bool_(false))) {
                        throw nb::buffer_error("a tensor lies on the device: an array of it is always a copy");
                    }
                }
                return numpy_of(t).attr("__dlpack__")(**others);
            },
            nb::sig("def __dlpack__(self, **options: object) -> object"), "A copy on the host, for torch.from_dlpack.")
        .def(
            "__dlpack_device__", [](const T&) { return nb::make_tuple(1, 0); },
            nb::sig("def __dlpack_device__(self) -> tuple[int, int]"))
        .def("write", write, "data"_a, nb::sig("def write(self, data: object) -> None"),
             "Writes all elements: an array of its shape. Waits for runs that were submitted before. Not while another "
             "thread submits a run of several submissions: that may read some elements of before and some of after.")
        .def("__len__",
             [](const T& t) {
                 if (t.shape().empty()) throw nb::type_error("a tensor of no dimension has no length");
                 return static_cast<std::size_t>(t.shape().front());
             })
        .def("__repr__", [](const T& t) { return "<Tensor " + text_of(t) + " " + name(t.dtype()) + ">"; });
}

}  // namespace py
