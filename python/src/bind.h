// SPDX-License-Identifier: Apache-2.0
// How C++ and Python meet: values that keep their graph, sizes that may be numbers, names for
// enumerators, arrays, errors.
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

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <type_traits>
#include <typeinfo>
#include <utility>
#include <vector>

namespace nb = nanobind;
using namespace nb::literals;

namespace py {

/// A value with the graph that it is valid in.
struct Value {
    vkf::Value value;
    nb::object graph;
};

/// y, which stands for the whole result, and what else an attention gives.
struct AttentionResult : Value {
    vkf::Value weights, log_sum_exp;
};

/// A size that symbols are in, with the graph that knows their names.
struct Dim {
    vkf::Dim dim;
    nb::object graph;
};

/// The Python object of the graph. Graphs that others own (a DecoderPlan's) have none.
nb::object graph_object(const vkf::Value& value);
nb::object wrap(const vkf::Value& value);
nb::object wrap(const vkf::AttentionResult& result);
nb::object wrap(const vkf::Dim& dim, const nb::object& graph);
nb::tuple wrap(const vkf::Shape& shape, const nb::object& graph);
/// A symbol's size when it is one by itself.
std::optional<std::size_t> only_symbol(const vkf::Dim& dim, std::size_t symbols);

/// What translate() makes an Error of no kind of: no VkResults.
constexpr int kForked = 1'000'000'001, kBusy = 1'000'000'002;
/// Throws the error that Python has for it: see translate().
[[noreturn]] void fail(const std::string& what, const std::string& where = {});

// --- names of enumerators --------------------------------------------------------------------

template <class E>
struct Names;  // static constexpr const char* kWhat; kNames[]: the enumerators in order

/// An enumerator, given by its name.
template <class E>
struct Choice {
    std::string text;
    operator E() const {
        std::string all;
        for (std::size_t i = 0; i < std::size(Names<E>::kNames); ++i) {
            if (text == Names<E>::kNames[i]) return static_cast<E>(i);
            all += (i == 0 ? "" : ", ") + std::string(Names<E>::kNames[i]);
        }
        fail(std::string(Names<E>::kWhat) + " is \"" + text + "\"; there are: " + all);
    }
};

template <class E>
const char* name(E value) {
    return Names<E>::kNames[static_cast<std::size_t>(value)];
}

#define PY_NAMES(E, what, hint, ...)                                \
    template <>                                                     \
    struct Names<E> {                                               \
        static constexpr const char* kWhat = what;                  \
        static constexpr const char* kNames[] = {__VA_ARGS__};      \
        static constexpr auto kHint = nb::detail::const_name(hint); \
    }
PY_NAMES(vkf::Causal, "causal", "typing.Literal['none', 'top_left', 'bottom_right']", "none", "top_left",
         "bottom_right");
PY_NAMES(vkf::Polarity, "polarity", "typing.Literal['attend', 'ignore']", "attend", "ignore");
PY_NAMES(vkf::Activation, "activation",
         "typing.Literal['none', 'relu', 'gelu', 'gelu_tanh', 'silu', 'tanh', 'sigmoid', 'rsqrt']", "none", "relu",
         "gelu", "gelu_tanh", "silu", "tanh", "sigmoid", "rsqrt");
PY_NAMES(vkf::RopeLayout, "layout", "typing.Literal['interleaved', 'half']", "interleaved", "half");
PY_NAMES(vkf::ScoreKind, "kind", "typing.Literal['dot', 'scaled_dot', 'general', 'additive']", "dot", "scaled_dot",
         "general", "additive");
PY_NAMES(vkf::WeightType, "the type of weights", "typing.Literal['f32', 'f16', 'bf16', 'int8', 'int4']", "f32", "f16",
         "bf16", "int8", "int4");
PY_NAMES(vkf::Arithmetic, "arithmetic", "typing.Literal['f32', 'f16', 'int8']", "f32", "f16", "int8");
PY_NAMES(vkf::Split, "split", "typing.Literal['tensor', 'layers']", "tensor", "layers");
PY_NAMES(vkf::PackOn, "pack_on", "typing.Literal['by_device', 'host', 'device']", "by_device", "host", "device");
PY_NAMES(vkf::Schedule::Kind, "kind", "typing.Literal['constant', 'linear', 'cosine']", "constant", "linear", "cosine");
PY_NAMES(vkf::DeviceType, "type", "str", "other", "integrated", "discrete", "virtual", "cpu");
PY_NAMES(vkf::ImageAccess, "access", "typing.Literal['none', 'sampled', 'storage']", "none", "sampled", "storage");
PY_NAMES(vkf::ImageFormat, "format", "typing.Literal['any', 'rgba8', 'rgba16f', 'r32f', 'rgba32f']", "any", "rgba8",
         "rgba16f", "r32f", "rgba32f");
PY_NAMES(vkf::DecoderTask, "task", "typing.Literal['prompt', 'step', 'score']", "prompt", "step", "score");
PY_NAMES(vkf::StorageKind, "kind", "str", "input", "weight", "state", "constant", "intermediate", "output");
PY_NAMES(vkf::RopeScaling::Kind, "kind", "typing.Literal['none', 'linear', 'ntk', 'llama3', 'yarn']", "none", "linear",
         "ntk", "llama3", "yarn");
#undef PY_NAMES

/// An element type: a name ("float32", "f32", "F32"), or what NumPy and PyTorch call their types.
struct Type {
    std::string text;
    operator vkf::DType() const;
};
/// NumPy's name.
const char* name(vkf::DType type);

/// Python's name of the object's type.
std::string name_of_type(nb::handle object);
/// cast() that names the argument: TypeError says what is wanted, and what was given.
template <class T>
T cast_as(nb::handle object, const std::string& what, const char* wanted) {
    try {
        return nb::cast<T>(object);
    } catch (const std::bad_cast&) {
        PyErr_Clear();
        throw nb::type_error((what + ": is a " + name_of_type(object) + "; " + wanted + " is wanted").c_str());
    }
}

/// A call policy: throws where a size with symbols is of another graph than the values and graphs
/// beside it. C++'s sizes do not know.
struct OneGraph {
    static void precall(PyObject** arguments, std::size_t count, nb::detail::cleanup_list*) { check(arguments, count); }
    template <class Result>
    static void postcall(PyObject**, std::size_t, Result&&) {}
    static void check(PyObject** arguments, std::size_t count);
};
constexpr nb::call_policy<OneGraph> kOneGraph{};
/// Throws where a size is of another graph.
void require_graph(const Dim& dim, nb::handle graph);

// --- arrays ----------------------------------------------------------------------------------

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

/// Tensors by name: a dict of arrays, the path of a safetensors file, or a Safetensors object.
struct Tensors {
    std::vector<vkf::HostTensor> list;
    std::vector<nb::object> keep;
    std::vector<Array> arrays;
    std::shared_ptr<vkf::Safetensors> file;
};
/// Types as devices have them, or as they are.
Tensors tensors_of(nb::handle object, bool as_they_are = false);

/// A copy of an array in device memory.
vkf::DeviceTensor tensor_of(const vkf::Device& device, nb::handle data);

/// The interpreter's lock is given up while it lives. Where the interpreter has ended meanwhile, a
/// daemon's thread sleeps from then on: Python would end it in a destructor, and so the process.
class Released {
public:
    Released();
    ~Released();
    Released(const Released&) = delete;
    Released& operator=(const Released&) = delete;

private:
    PyThreadState* state_;
};
/// True where this thread has the interpreter's lock, and may wait without it: the interpreter has
/// not ended, and the process was not forked.
bool may_release();
/// The interpreter's lock is held while it lives, whether or not the thread had it: for what C++
/// calls. A thread that has to take it after the interpreter has ended sleeps likewise.
class Locked {
public:
    Locked();
    ~Locked();
    Locked(const Locked&) = delete;
    Locked& operator=(const Locked&) = delete;

private:
    bool given_up_, foreign_;
    PyGILState_STATE state_;
};
/// The interpreter is about to end. Waits for threads that are in vkformer, two seconds at most:
/// the drivers that they are in end soon, too.
void ending();
/// Throws what the handler of a signal raised, Ctrl-C's too. The main thread alone calls handlers:
/// no other takes the interpreter's lock here, but it sleeps where the interpreter has ended.
void check_signals();
/// Tells which thread is the main one, as Python numbers it.
void become_main(unsigned long thread);

/// Deletes what holds objects of Python's, with or without the interpreter's lock. It stays where
/// the interpreter is gone already, as when C++'s own globals go last.
template <class T>
void delete_locked(T* holder) {
    if (Py_IsInitialized() == 0) return;
    const Locked lock;
    delete holder;
}
/// An object that C++ may copy and destroy without the interpreter's lock.
inline std::shared_ptr<nb::object> held(nb::object object) {
    return {new nb::object(std::move(object)), delete_locked<nb::object>};
}
/// Functions of Python's that C++ calls, with or without the interpreter's lock.
vkf::LoadProgress progress_of(const nb::object& function);
vkf::LoadOptions load_options(const std::optional<Choice<vkf::WeightType>>& matrices, const nb::object& choose,
                              const Choice<vkf::PackOn>& pack_on, const nb::object& progress);

/// What threads take in turn. A thread that has it already is told so instead of waiting for
/// itself: a callback, or the handler of a signal, called what called it.
class Mutex {
public:
    void lock() {
        refuse_owner();
        mutex_.lock();
        owner_ = std::this_thread::get_id();
    }
    /// False where others have it until then.
    bool try_lock_until(std::chrono::steady_clock::time_point end) {
        refuse_owner();
        if (!mutex_.try_lock_until(end)) return false;
        owner_ = std::this_thread::get_id();
        return true;
    }
    void unlock() {
        owner_ = std::thread::id();
        mutex_.unlock();
    }

    /// The last run that submit() began, of all programs that share the mutex: what changes their
    /// State waits for it. It changes behind the mutex.
    vkf::Ticket last_run;
    /// Who waits for a ticket takes this too, behind the mutex. The end of a program or model, that
    /// waits for the same runs, takes it alone: garbage is collected in threads that are at work
    /// with other programs, and two of these could wait for each other's mutex. Who has this waits
    /// for runs alone.
    std::recursive_timed_mutex waiting;

private:
    void refuse_owner() const {
        if (owner_ == std::this_thread::get_id()) {
            throw vkf::Error(
                "is at work already in this thread, and waits for the function that calls it now: a callback, or the "
                "handler of a signal, cannot use what called it",
                "vkformer", kBusy);
        }
    }

    std::timed_mutex mutex_;
    std::atomic<std::thread::id> owner_;
};
/// Deletes what waits for its runs as it ends, without the interpreter's lock.
struct DeleteUnlocked {
    std::shared_ptr<Mutex> mutex = std::make_shared<Mutex>();  ///< of those who call it
    template <class T>
    void operator()(T* object) const {
        if (!may_release()) {
            delete object;
            return;
        }
        const Released release;
        const std::lock_guard lock(mutex->waiting);
        delete object;
    }
};
template <class T>
using Owned = std::unique_ptr<T, DeleteUnlocked>;
template <class T>
Owned<T> owned(T object, std::shared_ptr<Mutex> mutex = std::make_shared<Mutex>()) {
    return Owned<T>(new T(std::move(object)), DeleteUnlocked{std::move(mutex)});
}

/// What the making of plans takes: a compiler of GLSL may be a function of Python's.
Mutex& glsl_mutex();

/// Work on a State is done by one thread at a time; programs that share one share the mutex too.
struct State {
    vkf::State state;
    std::shared_ptr<Mutex> mutex = std::make_shared<Mutex>();
};

/// An input or output as its program knows it.
struct Port {
    std::string name;
    vkf::Shape shape;
    vkf::DType dtype;
    std::vector<int> symbol;  ///< for each dimension the symbol that it is, -1: none
};

/// A program with what calling it by name needs. One thread at a time runs it.
struct Program {
    Program(vkf::Program made, const vkf::Device& device, const vkf::Graph& graph, std::shared_ptr<Mutex> lock);
    /// One that a model owns, which `owner` keeps.
    Program(vkf::Program& other, std::shared_ptr<Mutex> lock);

    Owned<vkf::Program> own;
    std::optional<vkf::Device> device;
    vkf::Program* program;
    std::shared_ptr<Mutex> mutex;
    std::uint32_t slots = 1;  ///< recordings in flight; a model's own programs have one
    std::vector<Port> inputs, outputs;
    std::vector<vkf::SymbolInfo> symbols;
    std::vector<std::string> symbol_names;
    /// what bind() gave, by input or output, and nobody took back; it changes behind the mutex
    std::map<std::string, vkf::DeviceTensor, std::less<>> bound;
    /// the outputs' shapes in the last run, where they have symbols; it changes behind the mutex
    std::vector<std::vector<std::int64_t>> ran;

    /// Keeps the outputs' shapes of a run that has begun.
    void keep_shapes();
    vkf::Program& get() const { return *program; }
    const Port* input(std::string_view name) const;
    const Port* output(std::string_view name) const;
};

/// Throws in a child of a process that had made a device: what is made of it has threads and memory
/// that a fork does not bring along. Throws within the lock functions of a host's queue, too.
void require_no_fork();
/// Tells that a device is made now.
void making_device();
/// Called in the child of a fork.
void forked();
/// True while this thread is in the lock functions of a host's queue.
bool& in_queue_hook();

/// Runs `work` without the interpreter's lock, behind the mutex.
template <class F>
auto unlocked(Mutex& mutex, F work) {
    require_no_fork();
    const Released release;
    const std::lock_guard lock(mutex);
    return work();
}
template <class F>
auto unlocked(F work) {
    require_no_fork();
    const Released release;
    return work();
}

/// Waits for a run of a program, behind its mutex.
inline void wait(Mutex& mutex, const vkf::Ticket& run) {
    const std::lock_guard lock(mutex.waiting);
    run.wait();
}
/// Runs `work`, which changes the state, behind the last run that was submitted.
template <class F>
void changed(State& state, F work) {
    unlocked(*state.mutex, [&] {
        wait(*state.mutex, state.mutex->last_run);
        work();
    });
}

/// A shape with the names of the program's symbols.
std::string text_of(const Program& p, const vkf::Shape& shape);
/// Uploads what belongs to an input, as its type.
void upload(Program& program, const std::string& name, nb::handle array);
nb::object download(Program& program, const std::string& name);
/// Where a call leaves its outputs: in arrays of the host's, or in tensors on the device.
enum class Results : std::uint8_t { arrays, tensors };
/// Sets symbols from the arrays' shapes and uploads, runs and downloads. Tensors are read where
/// they lie.
nb::dict call(Program& program, const nb::kwargs& arguments, Results results);
/// The same with the inputs in their order, and without names.
std::vector<nb::object> run(Program& program, const nb::list& arrays, Results results);

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

NAMESPACE_BEGIN(NB_NAMESPACE)
NAMESPACE_BEGIN(detail)

/// None is no tensor; a result of attention is its y.
template <>
struct type_caster<vkf::Value> {
    NB_TYPE_CASTER(vkf::Value, make_caster<py::Value>::Name)

    bool from_python(handle src, std::uint8_t, cleanup_list*) noexcept {
        value = {};
        if (src.is_none()) return true;
        py::Value* found = nullptr;
        if (!nb::try_cast<py::Value*>(src, found) || found == nullptr) return false;
        value = found->value;
        return true;
    }
    static handle from_cpp(const vkf::Value& src, rv_policy, cleanup_list*) {
        return src ? py::wrap(src).release() : none().release();
    }
};

template <>
struct type_caster<vkf::AttentionResult> {
    NB_TYPE_CASTER(vkf::AttentionResult, make_caster<py::AttentionResult>::Name)

    bool from_python(handle, std::uint8_t, cleanup_list*) noexcept { return false; }
    static handle from_cpp(const vkf::AttentionResult& src, rv_policy, cleanup_list*) {
        return py::wrap(src).release();
    }
};

/// A number, or a size with symbols.
template <>
struct type_caster<vkf::Dim> {
    NB_TYPE_CASTER(vkf::Dim, const_name("int | ") + make_caster<py::Dim>::Name)

    bool from_python(handle src, std::uint8_t, cleanup_list*) noexcept {
        if (PyIndex_Check(src.ptr()) != 0) {
            const Py_ssize_t number = PyNumber_AsSsize_t(src.ptr(), PyExc_OverflowError);
            if (number == -1 && PyErr_Occurred() != nullptr) {
                PyErr_Clear();
                return false;
            }
            value = vkf::Dim(static_cast<std::int64_t>(number));
            return true;
        }
        py::Dim* found = nullptr;
        if (!nb::try_cast<py::Dim*>(src, found) || found == nullptr) return false;
        value = found->dim;
        return true;
    }
    static handle from_cpp(const vkf::Dim& src, rv_policy, cleanup_list*) { return py::wrap(src, object()).release(); }
};

/// Its files cannot be copied, which a vector of them does not tell.
template <>
struct is_copy_constructible<vkf::Checkpoint> : std::false_type {};

template <class E>
struct type_caster<py::Choice<E>> {
    NB_TYPE_CASTER(py::Choice<E>, py::Names<E>::kHint)

    bool from_python(handle src, std::uint8_t, cleanup_list*) noexcept {
        if (PyUnicode_Check(src.ptr()) == 0) return false;
        return nb::try_cast<std::string>(src, value.text);
    }
    static handle from_cpp(const py::Choice<E>& src, rv_policy, cleanup_list*) {
        return nb::str(src.text.c_str()).release();
    }
};

template <>
struct type_caster<py::Type> {
    NB_TYPE_CASTER(py::Type, const_name("object"))

    bool from_python(handle src, std::uint8_t, cleanup_list*) noexcept {
        if (src.is_none()) return false;
        try {
            const char* attribute = PyType_Check(src.ptr()) != 0 ? "__name__" : "name";
            object text = borrow(src);
            if (PyUnicode_Check(src.ptr()) == 0) {
                text = nb::hasattr(src, attribute) ? nb::getattr(src, attribute) : nb::object(nb::str(src));
            }
            value.text = nb::cast<std::string>(text);
            return true;
        } catch (...) {
            return false;
        }
    }
    static handle from_cpp(const py::Type& src, rv_policy, cleanup_list*) {
        return nb::str(src.text.c_str()).release();
    }
};

NAMESPACE_END(detail)
NAMESPACE_END(NB_NAMESPACE)
