// SPDX-License-Identifier: Apache-2.0
// Arrays of NumPy, PyTorch and others.
#include "bind.h"

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace py {

namespace {

std::optional<vkf::DType> type_of(const nb::dlpack::dtype& t) {
    using Code = nb::dlpack::dtype_code;
    if (t.lanes != 1) return {};
    switch (static_cast<Code>(t.code)) {
        case Code::Float:
            if (t.bits == 32) return vkf::DType::f32;
            if (t.bits == 16) return vkf::DType::f16;
            if (t.bits == 64) return vkf::DType::f64;
            return {};
        case Code::Bfloat: return vkf::DType::bf16;
        case Code::Int:
            if (t.bits == 64) return vkf::DType::i64;
            if (t.bits == 32) return vkf::DType::i32;
            if (t.bits == 16) return vkf::DType::i16;
            if (t.bits == 8) return vkf::DType::i8;
            return {};
        case Code::UInt:
            if (t.bits == 8) return vkf::DType::u8;
            return {};
        case Code::Bool: return vkf::DType::boolean;
        default: return {};
    }
}

/// str(), also of what an accessor gives.
std::string text_of(nb::handle object) { return nb::cast<std::string>(nb::steal<nb::str>(PyObject_Str(object.ptr()))); }

/// What NumPy has no DLPack type for: ml_dtypes' bfloat16, as its bits.
bool is_bfloat16(nb::handle object) {
    return nb::hasattr(object, "dtype") && nb::hasattr(object, "view") && text_of(object.attr("dtype")) == "bfloat16";
}

bool is_numpy(nb::handle object, const char* type) {
    return PyObject_IsInstance(object.ptr(), nb::object(numpy().attr(type)).ptr()) == 1;
}

/// The object, or NumPy's view of it where it has a buffer alone: that of ctypes lacks strides.
nb::object with_strides(nb::handle object, const std::string& what) {
    if (nb::hasattr(object, "__dlpack__") || PyObject_CheckBuffer(object.ptr()) == 0 || is_numpy(object, "ndarray") ||
        is_numpy(object, "generic")) {
        return nb::borrow(object);
    }
    try {
        return numpy().attr("asarray")(nb::steal(PyMemoryView_FromObject(object.ptr())));
    } catch (nb::python_error&) {
        fail("is " + kind_of(object) + ", not an array", what);
    }
}

/// Throws for an array whose mask would be lost.
void refuse_mask(nb::handle object, const std::string& what) {
    if (nb::hasattr(object, "filled") && is_numpy(object, "ndarray")) {
        fail("is a masked array, whose mask would be lost; take filled(value) of it", what);
    }
}

/// The same for what is in lists, too. Lists within more lists than an array has dimensions, and
/// those that hold themselves, are left to NumPy, which refuses them.
void refuse_masks(nb::handle object, const std::string& what, std::vector<PyObject*>& around) {
    constexpr std::size_t kMostDimensions = 64;
    if (PyFloat_Check(object.ptr()) != 0 || PyLong_Check(object.ptr()) != 0) return;
    if (PyList_Check(object.ptr()) == 0 && PyTuple_Check(object.ptr()) == 0) return refuse_mask(object, what);
    if (around.size() > kMostDimensions || std::find(around.begin(), around.end(), object.ptr()) != around.end())
        return;
    around.push_back(object.ptr());
    for (const nb::handle part : object) refuse_masks(part, what, around);
    around.pop_back();
}

Array plain(DenseArray array, vkf::DType type) {
    Array out;
    out.dtype = type;
    out.shape.resize(array.ndim());
    for (std::size_t i = 0; i < array.ndim(); ++i) out.shape[i] = static_cast<std::int64_t>(array.shape(i));
    out.bytes = {static_cast<const std::byte*>(array.data()), array.nbytes()};
    out.source = std::move(array);
    return out;
}

/// A copy of a tensor of the device's, bit for bit.
Array copied(const vkf::DeviceTensor& tensor) {
    void* data = nullptr;
    Array out;
    out.dtype = tensor.dtype();
    out.shape = tensor.shape();
    out.made = new_array(vkf::DType::u8, {static_cast<std::int64_t>(tensor.bytes())}, &data);
    const std::span<std::byte> bytes(static_cast<std::byte*>(data), static_cast<std::size_t>(tensor.bytes()));
    unlocked([&] { tensor.read(bytes); });
    out.bytes = bytes;
    return out;
}

/// What is_bfloat16(), as an array of its bits.
Array bits_of(const nb::object& object, const std::string& what) {
    Array bits = array_of(numpy().attr("ascontiguousarray")(object).attr("view")("uint8"), what);
    bits.dtype = vkf::DType::bf16;
    bits.shape = nb::cast<std::vector<std::int64_t>>(object.attr("shape"));
    return bits;
}

}  // namespace

const nb::object& numpy() {
    // Never destroyed: the interpreter is gone by then. Other threads run while it is imported, so
    // no guard of a static is held.
    static std::atomic<nb::object*> known{nullptr};
    if (!known.load()) {
        auto mine = std::make_unique<nb::object>(nb::module_::import_("numpy"));
        nb::object* none = nullptr;
        if (known.compare_exchange_strong(none, mine.get())) {
            mine.release();
        }
    }
    return *known.load();
}

std::string kind_of(nb::handle object) {
    std::string text = "a " + text_of(object.type().attr("__name__"));
    if (nb::hasattr(object, "dtype")) text += " of " + text_of(object.attr("dtype"));
    if (nb::hasattr(object, "device")) text += " on " + text_of(object.attr("device"));
    return text;
}

nb::object listed(nb::handle object, const std::string& what) {
    std::vector<PyObject*> around;
    refuse_masks(object, what, around);
    nb::object array = numpy().attr("asarray")(object);
    if (nb::cast<std::string>(array.attr("dtype").attr("name")) == "float64") {
        array = array.attr("astype")("float32");
    }
    return array;
}

Array array_of(nb::handle given, const std::string& what) {
    if (nb::isinstance<vkf::DeviceTensor>(given)) return copied(nb::cast<const vkf::DeviceTensor&>(given));
    refuse_mask(given, what);
    nb::object object = with_strides(given, what);
    if (nb::hasattr(object, "requires_grad") && PyObject_IsTrue(nb::object(object.attr("requires_grad")).ptr()) == 1) {
        fail("requires_grad, and gradients of PyTorch do not flow through vkformer; pass it with .detach()", what);
    }
    DenseArray array;
    const bool sequence =
        PyList_Check(object.ptr()) != 0 || PyTuple_Check(object.ptr()) != 0 || PyNumber_Check(object.ptr()) != 0;
    if (!nb::ndarray_check(object)) {
        if (is_bfloat16(object)) return bits_of(object, what);
        if (!sequence) fail("is " + kind_of(object) + ", not an array", what);
        object = listed(object, what);
    }
    // the name of a type is Python's code in NumPy, and is asked for where it has to be
    if (!nb::hasattr(object, "__dlpack_device__") && is_bfloat16(object)) {
        if (is_numpy(object, "generic")) {
            return array_of(numpy().attr("asarray")(object), what);
        }
        fail("is " + kind_of(object), what);
    }
    if (!nb::try_cast<DenseArray>(object, array)) {
        PyErr_Clear();
        if (is_bfloat16(object)) return bits_of(object, what);
        // a field of a record, say, whose stride is no multiple of an element
        if (is_numpy(object, "ndarray")) {
            object = numpy().attr("ascontiguousarray")(object);
        }
    }
    if (!array.is_valid() && !nb::try_cast<DenseArray>(object, array)) {
        PyErr_Clear();
        fail("is " + kind_of(object) + "; arrays are on the CPU, of float32, float16, bfloat16, int32, int64 or bool",
             what);
    }
    const std::optional<vkf::DType> type = type_of(array.dtype());
    if (!type) fail("is " + kind_of(object) + ", which has no type here", what);
    return plain(std::move(array), *type);
}

nb::object new_array(vkf::DType dtype, const std::vector<std::int64_t>& shape, void** data) {
    std::vector<std::size_t> sizes(shape.begin(), shape.end());
    std::size_t count = 1;
    for (const std::size_t size : sizes) count *= size;
    auto* bytes = new std::byte[std::max<std::size_t>(count * vkf::size_of(dtype), 1)];
    *data = bytes;
    const nb::capsule owner(bytes, [](void* p) noexcept { delete[] static_cast<std::byte*>(p); });
    using Code = nb::dlpack::dtype_code;
    const Code code = dtype == vkf::DType::i32 || dtype == vkf::DType::i64 ? Code::Int
                      : dtype == vkf::DType::u8                            ? Code::UInt
                      : dtype == vkf::DType::boolean                       ? Code::Bool
                                                                           : Code::Float;
    const nb::dlpack::dtype type{static_cast<std::uint8_t>(code), static_cast<std::uint8_t>(8 * vkf::size_of(dtype)),
                                 1};
    return nb::cast(nb::ndarray<nb::numpy>(bytes, sizes.size(), sizes.data(), owner, nullptr, type));
}

nb::object numpy_array(const void* data, vkf::DType dtype, const std::vector<std::int64_t>& shape) {
    void* to = nullptr;
    nb::object out = new_array(dtype, shape, &to);
    std::size_t count = vkf::size_of(dtype);
    for (const std::int64_t size : shape) count *= static_cast<std::size_t>(size);
    if (count != 0) std::memcpy(to, data, count);
    return out;
}

namespace {

/// An array of int32 of numbers that may be too large for it.
template <class Number>
Array narrowed(const std::vector<std::int64_t>& shape, std::span<const Number> numbers, const std::string& what) {
    void* data = nullptr;
    Array out;
    out.dtype = vkf::DType::i32;
    out.shape = shape;
    out.made = new_array(out.dtype, out.shape, &data);
    auto* to = static_cast<std::int32_t*>(data);
    for (std::size_t i = 0; i < numbers.size(); ++i) {
        if (!std::in_range<std::int32_t>(numbers[i])) {
            fail("element " + std::to_string(i) + " is " + std::to_string(numbers[i]) + ", which 32 bits do not hold",
                 what);
        }
        to[i] = static_cast<std::int32_t>(numbers[i]);
    }
    out.bytes = {static_cast<const std::byte*>(data), 4 * numbers.size()};
    return out;
}

/// Unsigned integers of more than 8 bits, for which vkf::DType has no names.
std::optional<Array> narrowed_unsigned(nb::handle given, const std::string& what) {
    if (nb::isinstance<vkf::DeviceTensor>(given)) return {};
    refuse_mask(given, what);
    const nb::object object = with_strides(given, what);
    DenseArray array;
    if (!nb::ndarray_check(object) || !nb::try_cast<DenseArray>(object, array)) {
        PyErr_Clear();
        return {};
    }
    const nb::dlpack::dtype type = array.dtype();
    if (static_cast<nb::dlpack::dtype_code>(type.code) != nb::dlpack::dtype_code::UInt || type.lanes != 1) return {};
    std::vector<std::int64_t> shape(array.ndim());
    for (std::size_t i = 0; i < shape.size(); ++i) shape[i] = static_cast<std::int64_t>(array.shape(i));
    const auto as = [&]<class Number>(Number) {
        return narrowed(shape, std::span(static_cast<const Number*>(array.data()), array.size()), what);
    };
    if (type.bits == 16) return as(std::uint16_t{});
    if (type.bits == 32) return as(std::uint32_t{});
    if (type.bits == 64) return as(std::uint64_t{});
    return {};
}

}  // namespace

Array device_array_of(nb::handle object, const std::string& what) {
    if (std::optional<Array> array = narrowed_unsigned(object, what)) return *std::move(array);
    const Array in = array_of(object, what);
    switch (in.dtype) {
        case vkf::DType::f32:
        case vkf::DType::f16:
        case vkf::DType::bf16:
        case vkf::DType::i32: return in;
        case vkf::DType::i64: return narrowed(in.shape, in.as<std::int64_t>(), what);
        case vkf::DType::i16: return narrowed(in.shape, in.as<std::int16_t>(), what);
        case vkf::DType::i8: return narrowed(in.shape, in.as<std::int8_t>(), what);
        case vkf::DType::u8: return narrowed(in.shape, in.as<std::uint8_t>(), what);
        case vkf::DType::boolean: {
            const auto bytes = in.as<std::uint8_t>();
            std::vector<std::uint8_t> bits(bytes.begin(), bytes.end());
            for (std::uint8_t& bit : bits) bit = bit != 0 ? 1 : 0;
            return narrowed(in.shape, std::span<const std::uint8_t>(bits), what);
        }
        case vkf::DType::f64: break;
    }
    fail("is of float64; graphs compute in float32: convert it with astype(numpy.float32) or .float()", what);
}

namespace {

float widened(std::uint16_t bits, vkf::DType type) {
    std::uint32_t out = std::uint32_t{bits} << 16;
    if (type == vkf::DType::f16) {
        const std::uint32_t sign = (bits & 0x8000u) << 16, exponent = (bits >> 10) & 31u, fraction = bits & 1023u;
        if (exponent == 0) {
            const float value = static_cast<float>(fraction) * 0x1p-24f;
            return sign != 0 ? -value : value;
        }
        out = sign | (exponent == 31 ? 0x7F800000u : (exponent + 112) << 23) | fraction << 13;
    }
    float value = 0;
    std::memcpy(&value, &out, sizeof(value));
    return value;
}

/// To bf16, ties to even.
Array rounded(const Array& in) {
    void* data = nullptr;
    Array out = in;
    out.dtype = vkf::DType::bf16;
    out.made = new_array(vkf::DType::f16, in.shape, &data);  // as many bytes
    const auto from = in.as<std::uint32_t>();
    for (std::size_t i = 0; i < from.size(); ++i) {
        const bool nan = (from[i] & 0x7FFFFFFFu) > 0x7F800000u;
        const std::uint32_t bits = nan ? from[i] | 0x400000u : from[i] + 0x7FFFu + (from[i] >> 16 & 1u);
        static_cast<std::uint16_t*>(data)[i] = static_cast<std::uint16_t>(bits >> 16);
    }
    out.bytes = {static_cast<const std::byte*>(data), 2 * from.size()};
    return out;
}

}  // namespace

nb::object widened_bits(const std::vector<std::uint16_t>& bits, const std::vector<std::int64_t>& shape) {
    void* data = nullptr;
    nb::object out = new_array(vkf::DType::f32, shape, &data);
    for (std::size_t i = 0; i < bits.size(); ++i) static_cast<float*>(data)[i] = widened(bits[i], vkf::DType::bf16);
    return out;
}

Array wide_array_of(nb::handle object, const std::string& what) {
    Array array = device_array_of(object, what);
    return array.dtype == vkf::DType::i32 ? array : array_as(std::move(array), vkf::DType::f32, what);
}

Array array_as(nb::handle object, vkf::DType dtype, const std::string& what) {
    return array_as(device_array_of(object, what), dtype, what);
}

Array array_as(Array in, vkf::DType dtype, const std::string& what) {
    if (in.dtype == dtype) return in;
    if (dtype == vkf::DType::bf16 && in.dtype == vkf::DType::f32) return rounded(in);
    if (dtype != vkf::DType::f32 || in.dtype == vkf::DType::i32) {
        fail(std::string("is of ") + name(in.dtype) + "; " + name(dtype) + " is wanted", what);
    }
    void* data = nullptr;
    Array out = in;
    out.dtype = vkf::DType::f32;
    out.made = new_array(out.dtype, out.shape, &data);
    const auto from = in.as<std::uint16_t>();
    for (std::size_t i = 0; i < from.size(); ++i) static_cast<float*>(data)[i] = widened(from[i], in.dtype);
    out.bytes = {static_cast<const std::byte*>(data), 4 * from.size()};
    return out;
}

}  // namespace py
