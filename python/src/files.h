// SPDX-License-Identifier: Apache-2.0
// Tensors by name, of files or arrays, and how they are loaded.
#pragma once

#include "arrays.h"
#include "names.h"
#include "nanobind.h"

#include <memory>
#include <optional>
#include <vector>

namespace py {

/// Tensors by name: a dict of arrays, the path of a safetensors file, or a Safetensors object.
struct Tensors {
    std::vector<vkf::HostTensor> list;
    std::vector<nb::object> keep;
    std::vector<Array> arrays;
    std::shared_ptr<vkf::Safetensors> file;
};
/// Types as devices have them, or as they are.
Tensors tensors_of(nb::handle object, bool as_they_are = false);

/// Functions of Python's that C++ calls, with or without the interpreter's lock.
vkf::LoadProgress progress_of(const nb::object& function);
vkf::LoadOptions load_options(const std::optional<Choice<vkf::WeightType>>& matrices, const nb::object& choose,
                              const Choice<vkf::PackOn>& pack_on, const nb::object& progress);

}  // namespace py
