// SPDX-License-Identifier: Apache-2.0
// Arrays of NumPy, PyTorch and others.
#pragma once

#include "nanobind.h"

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace py {

/// The module of NumPy.
const nb::object& numpy();
/// What the object is, for errors: "a Tensor of torch.float32 on cuda:0".
std::string kind_of(nb::handle object);
/// Numbers written out in Python as an array: their type is not one that somebody chose.
nb::object listed(nb::handle object, const std::string& what);

using DenseArray = nb::ndarray<nb::ro, nb::device::cpu, nb::c_contig>;

/// An array of the host, dense and row-major, and what keeps it.
struct Array {
    vkf::DType dtype = vkf::DType::f32;
    std::vector<std::int64_t> shape;
    std::span<const std::byte> bytes;
    DenseArray source;  ///< one of these two
    nb::object made;

    std::size_t size() const { return bytes.size() / vkf::size_of(dtype); }
    template <class T>
    std::span<const T> as() const {
        return {reinterpret_cast<const T*>(bytes.data()), size()};
    }
};
/// Reads NumPy, anything with __dlpack__ on the CPU, and sequences of numbers. `what` names it in
/// errors. Copies only what is not dense.
Array array_of(nb::handle object, const std::string& what);
/// The same as one of f32, f16, bf16 and i32. 64-bit ids are narrowed, with a check; booleans
/// become 0 and 1. Double precision is refused.
Array device_array_of(nb::handle object, const std::string& what);
/// The same as one of f32 and i32, for an input whose type is not known here: Program::upload()
/// rounds f32 to 16 bits where the input has those, and refuses what does not fit.
Array wide_array_of(nb::handle object, const std::string& what);
/// As that type exactly. f16 and bf16 are widened to f32, and f32 is rounded to bf16, which NumPy
/// does not have; other conversions are refused.
Array array_as(nb::handle object, vkf::DType dtype, const std::string& what);
Array array_as(Array array, vkf::DType dtype, const std::string& what);
/// A new array of NumPy's, and where its elements are.
nb::object new_array(vkf::DType dtype, const std::vector<std::int64_t>& shape, void** data);
/// A copy as an array of NumPy's.
nb::object numpy_array(const void* data, vkf::DType dtype, const std::vector<std::int64_t>& shape);
/// bfloat16's bits as an array of float32.
nb::object widened_bits(const std::vector<std::uint16_t>& bits, const std::vector<std::int64_t>& shape);
template <class T>
nb::object numpy_array(const std::vector<T>& data, vkf::DType dtype, const std::vector<std::int64_t>& shape) {
    return numpy_array(static_cast<const void*>(data.data()), dtype, shape);
}

/// A copy of an array in device memory.
vkf::DeviceTensor tensor_of(const vkf::Device& device, nb::handle data);

}  // namespace py
