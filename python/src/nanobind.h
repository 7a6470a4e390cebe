// SPDX-License-Identifier: Apache-2.0
// nanobind, the library, and what is passed between them: every source sees the same of it.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/filesystem.h>
#include <nanobind/stl/map.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/vector.h>
#include <vkformer/vkformer.h>

namespace nb = nanobind;
using namespace nb::literals;
