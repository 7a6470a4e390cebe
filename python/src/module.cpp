// SPDX-License-Identifier: Apache-2.0
// The extension module, and errors.
#include "bind.h"

#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/unique_ptr.h>

#include <cerrno>
#include <exception>
#include <memory>
#include <new>
#include <optional>
#include <string>
#include <system_error>
#include <typeinfo>
#include <utility>
#include <vector>

namespace py {

namespace {

// Set once, when the module is made; they live as long as the interpreter.
PyObject *g_error, *g_lost, *g_argument, *g_missing, *g_memory;

/// What the error says, without where() before and the VkResult behind.
std::string said(const vkf::Error& e) {
    std::string text = e.what();
    if (e.result() != 0) text = text.substr(0, text.rfind(" (VkResult"));
    return e.where().empty() ? text : text.substr(e.where().size() + 2);
}

/// True where the reason behind the text is that a file, or a folder on its way, is not there.
bool tells_missing(const std::string& text) {
    const auto ends = [&](const std::error_category& category, int code) {
        return text.ends_with(": " + category.message(code));
    };
    if (!text.starts_with("cannot ") && !text.starts_with("could not ") && !text.starts_with("its folder cannot ")) {
        return text == "is not a folder";
    }
#ifdef _WIN32
    constexpr int kFileNotFound = 2, kPathNotFound = 3;
    if (ends(std::system_category(), kFileNotFound) || ends(std::system_category(), kPathNotFound)) return true;
#endif
    return ends(std::generic_category(), ENOENT) || ends(std::generic_category(), ENOTDIR);
}

/// True where memory was refused before Vulkan was asked.
bool tells_memory(const std::string& text) {
    const std::string unfit = "the device has no memory of a fitting type";
    const bool begins_with_size = !text.empty() && text[0] >= '0' && text[0] <= '9';
    return text == unfit || (begins_with_size && text.ends_with(": " + unfit)) ||
           (text.starts_with("needs ") && text.find("); the device has ") != std::string::npos);
}

/// True where Vulkan is not there, or not as it was asked for.
bool tells_no_vulkan(const std::string& text) {
    return text.starts_with("no Vulkan on this machine") || text.starts_with("no usable Vulkan device") ||
           text == "the Vulkan loader is older than 1.1" ||
           text.starts_with("validation was asked for, but the layer ");
}

/// Texts that hold names of the caller's are looked at where these cannot be.
PyObject* class_of(const vkf::Error& e) {
    constexpr int kOutOfHostMemory = -1, kOutOfDeviceMemory = -2, kDeviceLost = -4, kTimeout = 2;
    switch (e.result()) {
        case 0: break;
        case kOutOfHostMemory:
        case kOutOfDeviceMemory: return g_memory;
        case kDeviceLost: return g_lost;
        case kTimeout: return said(e).ends_with("the device is given up; make a new Device") ? g_lost : g_error;
        default: return g_error;
    }
    const std::string text = said(e);
    if (tells_missing(text)) return g_missing;
    if (tells_memory(text)) return g_memory;
    return tells_no_vulkan(text) ? g_error : g_argument;
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

namespace {

/// This thread. Numbers of threads are given again when these have ended; what stands for one here
/// is not while somebody keeps it.
const std::shared_ptr<const char>& this_thread() {
    thread_local const auto thread = std::make_shared<const char>();
    return thread;
}

/// What threads take in turn from Python: see _turns.py. Another thread than took it may end it, as
/// with a stream that is closed there. The interpreter's lock guards all but the waiting.
class Turn {
public:
    /// A thread that has it already is told `busy`, or without that takes it once more.
    explicit Turn(std::optional<std::string> busy) : busy_(std::move(busy)), lock_(PyThread_allocate_lock()) {
        if (lock_ == nullptr) throw std::bad_alloc();
    }
    ~Turn() { PyThread_free_lock(lock_); }
    Turn(const Turn&) = delete;
    Turn& operator=(const Turn&) = delete;

    void require_free() const {
        require_no_fork();
        if (busy_ && owner_ == this_thread()) throw vkf::Error(*busy_, {}, kBusy);
    }
    void take() {
        require_free();
        const std::shared_ptr<const char>& thread = this_thread();
        if (owner_ != thread) {
            wait();
            owner_ = thread;
        }
        ++count_;
    }
    void end() noexcept {
        if (--count_ != 0) return;
        owner_.reset();
        PyThread_release_lock(lock_);
    }

private:
    void wait() {
        // until a daemon learns that the interpreter has ended
        constexpr PY_TIMEOUT_T kMicroseconds = 50'000;
        bool taken = PyThread_acquire_lock(lock_, NOWAIT_LOCK) != 0;
        while (!taken) {
            {
                const Released release;
                taken = PyThread_acquire_lock_timed(lock_, kMicroseconds, 1) == PY_LOCK_ACQUIRED;
            }
            if (!taken) check_signals();
        }
    }

    std::optional<std::string> busy_;
    PyThread_type_lock lock_;
    std::shared_ptr<const char> owner_;
    int count_ = 0;
};

/// A turn that is taken, until it ends or goes.
class Held {
public:
    explicit Held(std::shared_ptr<Turn> turn) : turn_(std::move(turn)) { turn_->take(); }
    ~Held() { end(); }
    Held(const Held&) = delete;
    Held& operator=(const Held&) = delete;

    void end() noexcept {
        if (const std::shared_ptr<Turn> turn = std::exchange(turn_, nullptr)) turn->end();
    }

private:
    std::shared_ptr<Turn> turn_;
};

void bind_turns(nb::module_& m) {
    nb::class_<Turn>(m, "_Turn", "What threads take in turn.")
        .def(nb::init<std::optional<std::string>>(), "busy"_a.none(),
             "busy: what a thread that has it already is told.")
        .def(
            "hold", [](std::shared_ptr<Turn> turn) { return std::make_unique<Held>(std::move(turn)); },
            "Waits for the turn and takes it, for a block of `with`.")
        .def("require_free", &Turn::require_free, "Tells the thread that has it so, and a forked child.");
    nb::class_<Held>(m, "_Held", "A turn that is taken.")
        .def(
            "__enter__", [](nb::object self) { return self; }, "The same.")
        .def(
            "__exit__", [](Held& held, const nb::args&) { held.end(); }, "Ends it.");
}

}  // namespace

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
    py::bind_turns(m);
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
