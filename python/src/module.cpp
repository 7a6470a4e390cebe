// SPDX-License-Identifier: Apache-2.0
// The extension module, and errors.
#include "bind.h"

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <thread>
#include <typeinfo>
#if defined(__GLIBC__)
#include <unistd.h>
#endif

namespace py {

namespace {

// Set once, when the module is made; they live as long as the interpreter.
PyObject *g_error, *g_lost, *g_argument, *g_missing, *g_memory;

std::atomic<bool> g_ending = false;
/// Threads that gave the interpreter's lock up, or took it for a callback.
std::atomic<int> g_inside = 0;
std::thread::id g_last_thread;  ///< the one that ends the interpreter; written ahead of g_ending
/// The one that calls handlers of signals, as Python numbers it.
std::atomic<unsigned long> g_main_thread = 0;

/// True while a Released lives in this thread, and no Locked within it.
bool& lock_given_up() {
    thread_local bool given_up = false;
    return given_up;
}

/// The end of a thread, which is inside, where the interpreter has ended.
void sleep_if_ended() noexcept {
    if (!g_ending || std::this_thread::get_id() == g_last_thread) return;
    --g_inside;
    while (true) std::this_thread::sleep_for(std::chrono::hours(1));
}

bool has(const std::string& text, const char* part) { return text.find(part) != std::string::npos; }

PyObject* class_of(const vkf::Error& e) {
    constexpr int kOutOfHostMemory = -1, kOutOfDeviceMemory = -2, kDeviceLost = -4;
    const std::string what = e.what();
    if (e.result() == kForked || e.result() == kBusy) return g_error;
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
    const bool ours = result == kForked || result == kBusy;
    // of what is no VkResult, what() tells nothing
    // messages quote files, which may hold no UTF-8
    const auto text = [](const std::string& bytes) {
        return nb::steal(PyUnicode_DecodeUTF8(bytes.data(), static_cast<Py_ssize_t>(bytes.size()), "replace"));
    };
    const nb::object made = nb::borrow(type)(text(ours ? what.substr(0, what.rfind(" (VkResult")) : what));
    made.attr("where") = text(where);
    made.attr("result") = ours ? 0 : result;
    PyErr_SetObject(type, made.ptr());
}

void translate(const std::exception_ptr& p, void*) {
    try {
        std::rethrow_exception(p);
    } catch (const vkf::Error& e) {
        raise(class_of(e), e.what(), e.where(), e.result());
    } catch (const std::bad_cast&) {
        PyErr_SetString(PyExc_TypeError, "an argument, or what a function of the caller's gave, has a wrong type");
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
    if (in_queue_hook()) {
        throw vkf::Error("the lock functions of a queue cannot use its device", "Device.borrow", kBusy);
    }
}

void making_device() {
    require_no_fork();
    g_device_made = true;
}

void forked() {
    vkf::Device::give_up_all();
    if (g_forked || !g_device_made) return;
    g_forked = true;
#if defined(__GLIBC__)
    // drivers wait in their own handlers of exit() for threads that this process does not have;
    // this one is called before theirs
    on_exit(
        [](int status, void*) {
            std::fflush(nullptr);
            _exit(status);
        },
        nullptr);
#endif
}

bool& in_queue_hook() {
    thread_local bool inside = false;
    return inside;
}

Mutex& glsl_mutex() {
    static auto* mutex = new Mutex;  // threads may outlive what is static
    return *mutex;
}

std::string name_of_type(nb::handle object) {
    return nb::cast<std::string>(nb::str(nb::object(object.type().attr("__name__"))));
}

void require_graph(const Dim& dim, nb::handle graph) {
    if (dim.graph.is_valid() && graph.is_valid() && !graph.is_none() && !dim.graph.is(graph)) {
        fail(nb::cast<std::string>(nb::repr(nb::cast(dim))) + " is a size of another graph", "Dim");
    }
}

namespace {

/// Finds the graph that an argument belongs to, and the sizes in it.
void look_at(nb::handle argument, nb::object& graph, std::vector<Dim>& sizes, int depth) {
    if (!argument.is_valid() || argument.is_none()) return;
    const auto belongs = [&](const nb::object& to) {
        if (!graph.is_valid() && to.is_valid() && !to.is_none()) graph = to;
    };
    if (PyLong_Check(argument.ptr()) != 0 || PyUnicode_Check(argument.ptr()) != 0) return;
    if (nb::isinstance<Value>(argument)) {
        belongs(nb::cast<Value&>(argument).graph);
    } else if (nb::isinstance<Dim>(argument)) {
        sizes.push_back(nb::cast<Dim&>(argument));
    } else if (nb::isinstance<vkf::Graph>(argument)) {
        belongs(nb::borrow(argument));
    } else if (nb::isinstance<vkf::RingRows>(argument)) {
        look_at(nb::object(argument.attr("_sizes")), graph, sizes, depth + 1);
    } else if (depth < 3 && (PyTuple_Check(argument.ptr()) != 0 || PyList_Check(argument.ptr()) != 0)) {
        for (const nb::handle part : argument) look_at(part, graph, sizes, depth + 1);
    } else if (PySlice_Check(argument.ptr()) != 0) {
        for (const char* end : {"start", "stop"}) look_at(nb::object(argument.attr(end)), graph, sizes, depth + 1);
    }
}

}  // namespace

void OneGraph::check(PyObject** arguments, std::size_t count) {
    nb::object graph;
    std::vector<Dim> sizes;
    for (std::size_t i = 0; i < count; ++i) look_at(arguments[i], graph, sizes, 0);
    if (sizes.empty()) return;
    if (!graph.is_valid()) graph = sizes.front().graph;
    for (const Dim& size : sizes) require_graph(size, graph);
}

Released::Released() {
    ++g_inside;
    lock_given_up() = true;
    state_ = PyEval_SaveThread();
}

Released::~Released() {
    sleep_if_ended();
    PyEval_RestoreThread(state_);
    lock_given_up() = false;
    --g_inside;
}

Locked::Locked() : given_up_(lock_given_up()), foreign_(PyGILState_GetThisThreadState() == nullptr) {
    if (foreign_) ++g_inside;
    // a thread that has the lock may not sleep with it
    if (given_up_ || foreign_) sleep_if_ended();
    state_ = PyGILState_Ensure();
    lock_given_up() = false;
}

Locked::~Locked() {
    PyGILState_Release(state_);
    lock_given_up() = given_up_;
    if (foreign_) --g_inside;
}

void check_signals() {
    if (lock_given_up()) sleep_if_ended();
    if (PyThread_get_thread_ident() != g_main_thread) return;
    const Locked lock;
    if (PyErr_CheckSignals() != 0) throw nb::python_error();
}

void become_main(unsigned long thread) { g_main_thread = thread; }

void ending() {
    constexpr auto kMost = std::chrono::seconds(2);
    const auto start = std::chrono::steady_clock::now();
    g_last_thread = std::this_thread::get_id();
    g_ending = true;
    PyThreadState* state = PyEval_SaveThread();
    while (g_inside > 0 && std::chrono::steady_clock::now() - start < kMost) {
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    PyEval_RestoreThread(state);
}

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
    py::become_main(nb::cast<unsigned long>(nb::module_::import_("threading").attr("main_thread")().attr("ident")));
    py::bind_graph(m);
    py::bind_files(m);
    py::bind_device(m);
    py::bind_program(m);
    py::bind_ops(m);
    py::bind_attention(m);
    py::bind_layers(m);
    py::bind_ranks(m);
    py::bind_torch(m);
    py::bind_decoders(m);
    py::bind_encoders(m);
    py::bind_training(m);
#ifdef VKFORMER_TEXT
    py::bind_text(m);
#endif
    m.def(
        "_forked",
        [] {
            py::g_inside = 0;  // the threads that were are not here
            py::become_main(PyThread_get_thread_ident());
            py::forked();
        },
        "Called in a child after a fork.");
    m.def(
        "_ending", [] { py::ending(); }, "Called when the interpreter is about to end.");
    m.def("_require_no_fork", &py::require_no_fork, "Called ahead of locks that a thread of the parent may have had.");
    m.attr("has_text") =
#ifdef VKFORMER_TEXT
        true;
#else
        false;
#endif
}
