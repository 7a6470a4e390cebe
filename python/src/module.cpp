// SPDX-License-Identifier: Apache-2.0
// The extension module, and errors.
#include "bind.h"

namespace py {

namespace {

// Set once, when the module is made; they live as long as the interpreter.
PyObject *g_error, *g_lost, *g_argument, *g_missing, *g_memory;

constexpr int kForked = -1000;  // no VkResult

bool has(const std::string& text, const char* part) { return text.find(part) != std::string::npos; }

PyObject* class_of(const vkf::Error& e) {
    constexpr int kOutOfHostMemory = -1, kOutOfDeviceMemory = -2, kDeviceLost = -4;
    const std::string what = e.what();
    if (has(what, "the device is given up")) return g_lost;
    switch (e.result()) {
        case 0: break;
        case kOutOfHostMemory:
        case kOutOfDeviceMemory: return g_memory;
        case kDeviceLost: return g_lost;
        default: return g_error;
    }
    if (has(what, "No such file or directory") || has(what, "Not a directory") || has(what, "cannot find the file") ||
        has(what, "is not a folder")) {
        return g_missing;
    }
    if ((has(what, "the device has") && has(what, "needs ")) || has(what, "were asked; the heap has") ||
        has(what, "no memory of a fitting type")) {
        return g_memory;
    }
    if (has(what, "libvulkan") || has(what, "no usable") || has(what, "validation layer")) return g_error;
    return g_argument;
}

void raise(PyObject* type, const std::string& what, const std::string& where, int result) {
    const nb::object made = nb::borrow(type)(what);
    made.attr("where") = where;
    made.attr("result") = result == kForked ? 0 : result;
    PyErr_SetObject(type, made.ptr());
}

void translate(const std::exception_ptr& p, void*) {
    try {
        std::rethrow_exception(p);
    } catch (const vkf::Error& e) {
        raise(class_of(e), e.what(), e.where(), e.result());
    }
}

}  // namespace

namespace {

bool g_device_made = false, g_forked = false;

}  // namespace

void require_no_fork() {
    if (g_forked) {
        throw vkf::Error(
            "this process was forked from one that had made a device; make devices after the fork, or start "
            "processes with the method \"spawn\"",
            "vkformer", kForked);
    }
    g_device_made = true;
}

void forked() { g_forked = g_device_made; }

void fail(const std::string& what, const std::string& where) { throw vkf::Error(what, where); }

void bind_errors(nb::module_& m) {
    const nb::module_ errors = nb::module_::import_("vkformer._errors");
    const auto taken = [&](const char* name) {
        m.attr(name) = errors.attr(name);
        return nb::object(errors.attr(name)).release().ptr();
    };
    g_error = taken("Error");
    g_lost = taken("DeviceLost");
    g_argument = taken("ArgumentError");
    g_missing = taken("FileMissing");
    g_memory = taken("OutOfMemory");
    nb::register_exception_translator(translate);
}

}  // namespace py

NB_MODULE(_vkformer, m) {
    m.doc() = "vkformer's C++ interface, function by function. The package vkformer has all of it.";
    m.attr("__version__") = VKFORMER_VERSION;
    nb::set_leak_warnings(false);
    py::bind_errors(m);
    py::bind_graph(m);
    py::bind_files(m);
    py::bind_device(m);
    py::bind_program(m);
    py::bind_ops(m);
    py::bind_attention(m);
    py::bind_layers(m);
    py::bind_torch(m);
    py::bind_decoders(m);
    py::bind_encoders(m);
    py::bind_training(m);
#ifdef VKFORMER_TEXT
    py::bind_text(m);
#endif
    m.def(
        "_forked", [] { py::forked(); }, "Called in a child after a fork.");
    m.attr("has_text") =
#ifdef VKFORMER_TEXT
        true;
#else
        false;
#endif
}
