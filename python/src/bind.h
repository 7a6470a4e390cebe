// SPDX-License-Identifier: Apache-2.0
// How C++ and Python meet: every source that binds something sees all of it.
#pragma once

#include "arrays.h"
#include "casters.h"
#include "errors.h"
#include "files.h"
#include "lock.h"
#include "names.h"
#include "nanobind.h"
#include "program.h"
#include "values.h"

namespace py {

void bind_values(nb::module_& m);
void bind_graph(nb::module_& m);
void bind_ops(nb::module_& m);
void bind_attention(nb::module_& m);
void bind_layers(nb::module_& m);
void bind_ranks(nb::module_& m);
void bind_torch(nb::module_& m);
void bind_capabilities(nb::module_& m);
void bind_storage(nb::module_& m);
void bind_tensors(nb::module_& m);
void bind_device(nb::module_& m);
void bind_files(nb::module_& m);
void bind_program(nb::module_& m);
void bind_decoders(nb::module_& m);
void bind_encoders(nb::module_& m);
void bind_training(nb::module_& m);
void bind_text(nb::module_& m);
void bind_errors(nb::module_& m);

}  // namespace py
