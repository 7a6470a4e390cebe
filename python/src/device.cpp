// SPDX-License-Identifier: Apache-2.0
// Devices, weights, states and shared buffers.
#include <vkformer/advanced/plan.h>

#include "options.h"

#include <nanobind/stl/array.h>
#include <nanobind/stl/function.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/variant.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <functional>
#include <span>
#include <type_traits>
#include <variant>

namespace py {

namespace {

template <class H>
H handle_of(std::uint64_t number) {
    if constexpr (std::is_pointer_v<H>) {
        return reinterpret_cast<H>(static_cast<std::uintptr_t>(number));
    } else {
        return number;
    }
}

vkf::DeviceOptions device_options(const std::string& select, bool validation, bool minimum_profile,
                                  const std::optional<std::filesystem::path>& cache_folder, std::uint64_t staging_bytes,
                                  std::optional<double> submit_budget, bool checked, const std::string& tuning,
                                  std::optional<double> wait_seconds, bool canary, const std::string& leave_out) {
    return {.select = select,
            .validation = validation,
            .minimum_profile = minimum_profile,
            .cache_folder = cache_folder.value_or(std::filesystem::path()),
            .staging_bytes = staging_bytes,
            .submit_budget = submit_budget,
            .wait_seconds = wait_seconds,
            .canary = canary,
            .checked = checked,
            .tuning = tuning,
            .leave_out = leave_out};
}

const std::uint64_t kStagingBytes = vkf::DeviceOptions().staging_bytes;

#define DEVICE_OPTIONS                                                                                       \
    "validation"_a = false, "minimum_profile"_a = false, "cache_folder"_a = nb::none(),                      \
    "staging_bytes"_a = kStagingBytes, "submit_budget"_a = nb::none(), "checked"_a = false, "tuning"_a = "", \
    "wait_seconds"_a = nb::none(), "canary"_a = false, "leave_out"_a = ""

/// Functions of a host around each use of its queue.
struct QueueLock {
    nb::object lock, unlock;
};

void call_hook(const nb::object& function) {
    if (Py_IsInitialized() == 0) return;
    const Locked gil;
    in_queue_hook() = true;
    try {
        function();
    } catch (nb::python_error& e) {
        e.discard_as_unraisable("the queue's lock");
    }
    in_queue_hook() = false;
}

vkf::Device borrow(std::uint64_t instance, std::uint64_t physical, std::uint64_t device, std::uint32_t queue_family,
                   std::uint64_t queue, bool host_submits, nb::object lock, nb::object unlock,
                   std::uint64_t created_with, std::uint64_t get_instance_proc_addr, bool debug_utils,
                   std::uint64_t pipeline_cache, bool minimum_profile, bool checked, const std::string& tuning,
                   bool keep_uploads, const std::optional<std::filesystem::path>& cache_folder,
                   std::uint64_t staging_bytes, std::optional<double> submit_budget, std::optional<double> wait_seconds,
                   bool canary, const std::string& leave_out) {
    vkf::BorrowedDevice host;
    host.instance = handle_of<VkInstance>(instance);
    host.physical = handle_of<VkPhysicalDevice>(physical);
    host.device = handle_of<VkDevice>(device);
    host.queue_family = queue_family;
    host.queue = handle_of<VkQueue>(queue);
    host.host_submits = host_submits;
    host.created_with = handle_of<const VkDeviceCreateInfo*>(created_with);
    host.get_instance_proc_addr = handle_of<vkf::GetInstanceProcAddr>(get_instance_proc_addr);
    host.debug_utils = debug_utils;
    host.pipeline_cache = handle_of<VkPipelineCache>(pipeline_cache);
    if (lock.is_none() != unlock.is_none()) fail("the queue's lock and unlock go together", "Device.borrow");
    if (!lock.is_none()) {
        for (const nb::object& hook : {lock, unlock}) {
            if (PyCallable_Check(hook.ptr()) == 0) {
                throw nb::type_error(
                    ("lock and unlock: one is a " + name_of_type(hook) + "; a function is wanted").c_str());
            }
        }
        const std::shared_ptr<QueueLock> hooks(new QueueLock{std::move(lock), std::move(unlock)},
                                               delete_locked<QueueLock>);
        host.lock = [](void* user) { call_hook(static_cast<QueueLock*>(user)->lock); };
        host.unlock = [](void* user) { call_hook(static_cast<QueueLock*>(user)->unlock); };
        host.user = hooks.get();
        host.keep = hooks;
    }
    const vkf::DeviceOptions options = device_options("", false, minimum_profile, cache_folder, staging_bytes,
                                                      submit_budget, checked, tuning, wait_seconds, canary, leave_out);
    host.keep_uploads = keep_uploads;
    making_device();
    return unlocked([&] { return vkf::Device::borrow(host, options); });
}

vkf::Weights load(const vkf::Device& device, nb::handle tensors, const vkf::Graph* graph,
                  const vkf::LoadOptions& options) {
    const Tensors given = tensors_of(tensors);
    std::optional<vkf::WeightLayout> layout;
    if (graph != nullptr) layout = vkf::make_weight_layout(*graph, given.list, device.capabilities(), options);
    return unlocked([&] {
        return layout ? device.load(given.list, *layout, options.progress, options.pack_on)
                      : device.load(given.list, options);
    });
}

/// Weights that are written out by name are all meant: files may have more than a graph wants.
void require_known(const vkf::Graph& graph, nb::handle weights) {
    if (!nb::hasattr(weights, "items") || nb::isinstance<vkf::Safetensors>(weights)) return;
    for (const nb::handle key : nb::list(weights.attr("keys")())) {
        const auto given = cast_as<std::string>(key, "weights", "a name");
        std::string names;
        std::size_t count = 0;
        bool found = false;
        for (const vkf::StorageInfo& s : graph.storages()) {
            if (s.kind != vkf::StorageKind::weight) continue;
            found = found || s.name == given;
            if (++count <= 8) names += (count == 1 ? "" : ", ") + s.name;
        }
        if (!found) {
            fail("the graph has no such weight; it has: " + names + (count > 8 ? ", ..." : ""), given);
        }
    }
}

std::shared_ptr<Program> compile(const vkf::Device& device, const vkf::Graph& graph, nb::handle weights,
                                 const std::string& name, const State* state, std::uint32_t slots,
                                 const Choice<vkf::Arithmetic>& arithmetic, bool rewrite, bool profile, bool checked,
                                 const Ranks* communicator) {
    vkf::CompileOptions options{.name = name,
                                .slots = slots,
                                .arithmetic = arithmetic,
                                .rewrite = rewrite,
                                .profile = profile,
                                .checked = checked};
    if (state != nullptr) options.state = state->state;
    if (communicator != nullptr) options.communicator = communicator->communicator;
    vkf::Weights loaded;
    const vkf::WeightLayout* layout = &vkf::WeightLayout::none();
    if (nb::isinstance<vkf::Weights>(weights)) {
        loaded = nb::cast<vkf::Weights>(weights);
    } else if (nb::isinstance<vkf::WeightLayout>(weights)) {
        layout = nb::cast<vkf::WeightLayout*>(weights);
    } else if (!weights.is_none()) {
        require_known(graph, weights);
        loaded = load(device, weights, &graph, {});
    }
    const bool has_weights = !loaded.layout().tensors().empty();
    if (has_weights) layout = &loaded.layout();
    // The plan is made of the graph with the interpreter's lock; pipelines need the plan alone.
    require_no_fork();
    vkf::Plan plan = vkf::make_plan(graph, device.capabilities(), *layout, {options.arithmetic, options.rewrite});
    if (!plan.weights.empty() && layout->tensors().empty()) {
        device.compile(graph, vkf::Weights(), options);  // throws, naming the weight
    }
    const bool wanted = !plan.weights.empty();
    vkf::Program program = unlocked([&] {
        vkf::Program made = device.compile(std::move(plan), options);
        if (has_weights && wanted) made.set_weights(loaded);
        return made;
    });
    auto out = std::make_shared<Program>(std::move(program), device, graph,
                                         state != nullptr ? state->mutex : std::make_shared<Mutex>());
    out->slots = slots;
    return out;
}

void bind_shared_buffer(nb::module_& m) {
    nb::class_<vkf::SharedBuffer>(m, "SharedBuffer", "A storage buffer on memory that others see too.")
        .def_prop_ro(
            "buffer", [](const vkf::SharedBuffer& b) { return reinterpret_cast<std::uintptr_t>(b.buffer()); },
            "The VkBuffer.")
        .def_prop_ro("bytes", &vkf::SharedBuffer::bytes, "Its size in bytes.")
        .def("export_fd", &vkf::SharedBuffer::export_fd, "A new file descriptor of the memory, the caller's to close.");
}

}  // namespace

void bind_device(nb::module_& m) {
    bind_capabilities(m);
    nb::class_<vkf::DeviceMemory>(m, "DeviceMemory", "Memory of a device, in bytes.")
        .def_ro("allocated", &vkf::DeviceMemory::allocated, "Allocated by the library and not yet given back.")
        .def_ro("outside", &vkf::DeviceMemory::outside,
                "Of these, what lies in the host's memory because the device's was full.")
        .def_ro("heap", &vkf::DeviceMemory::heap, "The largest heap of device-local memory.")
        .def_ro("budget", &vkf::DeviceMemory::budget, "What the process may have in that heap; 0: not told.")
        .def_ro("used", &vkf::DeviceMemory::used, "What the process has in that heap; 0: not told.");
    bind_storage(m);
    bind_tensors(m);
    bind_shared_buffer(m);
    using D = vkf::Device;
    nb::class_<D> device(m, "Device",
                         "A Vulkan device: our own, or a host's, borrowed. Device() is the best there is, or what "
                         "VKFORMER_DEVICE names; Device(\"llvmpipe\") one by a part of its name or its index in "
                         "Device.list(). Several threads may use it; it lives as long as anything made from it.");
    const auto create = [](const std::string& select, bool validation, bool minimum_profile,
                           const std::optional<std::filesystem::path>& cache_folder, std::uint64_t staging_bytes,
                           std::optional<double> submit_budget, bool checked, const std::string& tuning,
                           std::optional<double> wait_seconds, bool canary, const std::string& leave_out) {
        const vkf::DeviceOptions options =
            device_options(select, validation, minimum_profile, cache_folder, staging_bytes, submit_budget, checked,
                           tuning, wait_seconds, canary, leave_out);
        making_device();
        return unlocked([&] { return D::create(options); });
    };
    device.def(nb::new_(create), "select"_a = "", nb::kw_only(), DEVICE_OPTIONS)
        .def_static("create", create, "select"_a = "", nb::kw_only(), DEVICE_OPTIONS, "The same as Device().")
        .def_static(
            "list",
            [] {
                std::vector<std::string> broken;
                auto devices = unlocked([&] { return D::list(nullptr, &broken); });
                for (const std::string& why : broken) {
                    if (PyErr_WarnEx(PyExc_RuntimeWarning, ("a device cannot be asked: " + why).c_str(), 1) != 0) {
                        throw nb::python_error();
                    }
                }
                return devices;
            },
            "Every usable device, in the loader's order. Warns of each whose driver cannot be asked.")
        .def_static("borrow", borrow, nb::kw_only(), "instance"_a, "physical"_a, "device"_a, "queue_family"_a = 0,
                    "queue"_a = 0, "host_submits"_a = false, "lock"_a = nb::none(), "unlock"_a = nb::none(),
                    "created_with"_a = 0, "get_instance_proc_addr"_a = 0, "debug_utils"_a = false,
                    "pipeline_cache"_a = 0, "minimum_profile"_a = false, "checked"_a = false, "tuning"_a = "",
                    "keep_uploads"_a = false, "cache_folder"_a = nb::none(), "staging_bytes"_a = kStagingBytes,
                    "submit_budget"_a = nb::none(), "wait_seconds"_a = nb::none(), "canary"_a = false,
                    "leave_out"_a = "",
                    "Uses a host's device; handles and addresses are integers, 0 for none. created_with: the address "
                    "of the VkDeviceCreateInfo, whose extensions and features are read. lock and unlock are "
                    "called around each use of the queue; they, and what they keep, live as long as the device and "
                    "what was made from it: let them keep neither.")
        .def_static(
            "requirements",
            [](std::uint64_t instance, std::uint64_t physical, std::uint64_t get) {
                return D::requirements(handle_of<VkInstance>(instance), handle_of<VkPhysicalDevice>(physical),
                                       handle_of<vkf::GetInstanceProcAddr>(get));
            },
            "instance"_a, "physical"_a, "get_instance_proc_addr"_a = 0,
            "What a host that will lend this device should enable at vkCreateDevice.")
        .def("memory_use", &D::memory_use, "Memory as of now: what there is, and what is in use.")
        .def_prop_ro("capabilities", &D::capabilities, nb::rv_policy::copy, "What the device can do.")
        .def_prop_ro(
            "name", [](const D& d) { return d.capabilities().name; }, "The device's name, as its driver has it.")
        .def(
            "__eq__",
            [](const D& d, nb::handle other) {
                // copies share what they stand on
                return nb::isinstance<D>(other) && &d.capabilities() == &nb::cast<D&>(other).capabilities();
            },
            "other"_a.none(), "True for the same device, which Tensor.device gives anew each time.")
        .def("__hash__", [](const D& d) { return reinterpret_cast<std::uintptr_t>(&d.capabilities()) >> 4; })
        .def(
            "load",
            [](const D& d, nb::handle tensors, const vkf::Graph* graph,
               const std::optional<Choice<vkf::WeightType>>& matrices, const nb::object& choose,
               const Choice<vkf::PackOn>& pack_on, const nb::object& progress) {
                return load(d, tensors, graph, load_options(matrices, choose, pack_on, progress));
            },
            "tensors"_a, "graph"_a = nb::none(), nb::kw_only(), "matrices"_a = nb::none(), "choose"_a = nb::none(),
            "pack_on"_a = Choice<vkf::PackOn>{"by_device"}, "progress"_a = nb::none(),
            nb::sig("def load(self, tensors: object, graph: Graph | None = None, *, matrices: typing.Literal['f32', "
                    "'f16', 'bf16', 'int8', 'int4'] | None = None, choose: typing.Callable[[str, tuple[int, ...]], str "
                    "| None] | None = None, pack_on: typing.Literal['by_device', 'host', 'device'] = 'by_device', "
                    "progress: typing.Callable[[int, int], None] | None = None) -> Weights"),
            "Uploads tensors under their names: a dict of arrays, a safetensors file or its path. graph: weights that "
            "one launch of it reads together then lie behind each other. matrices: what matrices are kept as, None: "
            "as they come; choose(name, shape) says it for each. progress(done, all) counts bytes.")
        .def(
            "make_state",
            [](const D& d, const std::vector<const vkf::Graph*>& graphs) {
                // graphs are read with the lock, and memory is zeroed without it
                std::vector<std::unique_ptr<vkf::Graph>> states;
                std::vector<const vkf::Graph*> read;
                for (const vkf::Graph* graph : graphs) {
                    if (graph == nullptr) throw nb::type_error("graphs: one is None; a Graph is wanted");
                    states.push_back(std::make_unique<vkf::Graph>());
                    read.push_back(states.back().get());
                    for (const vkf::StorageInfo& s : graph->storages()) {
                        if (s.kind == vkf::StorageKind::state) states.back()->state(s.name, s.shape, s.dtype);
                    }
                }
                return State{unlocked([&] { return d.make_state(std::span<const vkf::Graph* const>(read)); })};
            },
            "graphs"_a, "Zeroed memory for every state that the graphs name; programs compiled with it share it.")
        .def(
            "make_tensor",
            [](const D& d, const std::vector<std::int64_t>& shape, const Type& dtype) {
                return unlocked([&] { return d.make_tensor(shape, dtype); });
            },
            "shape"_a, "dtype"_a = Type{"float32"},
            "A tensor for Program.bind(), of float32, float16, bfloat16 or int32. Its elements are undefined until "
            "something writes them.")
        .def(
            "tensor", [](const D& d, nb::handle data) { return tensor_of(d, data); }, "data"_a,
            nb::sig("def tensor(self, data: object) -> Tensor"), "An array's copy in device memory.")
        .def("compile", compile, "graph"_a, "weights"_a = nb::none(), nb::kw_only(), "name"_a = "program",
             "state"_a = nb::none(), "slots"_a = 1, "arithmetic"_a = Choice<vkf::Arithmetic>{"f32"}, "rewrite"_a = true,
             "profile"_a = false, "checked"_a = false, "communicator"_a = nb::none(),
             nb::sig(
                 "def compile(self, graph: Graph, weights: object = None, *, name: str = 'program', state: State | "
                 "None = None, slots: int = 1, arithmetic: typing.Literal['f32', 'f16', 'int8'] = 'f32', rewrite: "
                 "bool = True, profile: bool = False, checked: bool = False, communicator: Communicator | None = None) "
                 "-> Program"),
             "Chooses kernels, plans memory and builds pipelines. weights: Weights, what load() takes, or a "
             "WeightLayout, for Program.set_weights(). ValueError names a weight that is missing or has another shape.")
        .def(
            "record_upload",
            [](const D& d, std::uint64_t commands, std::uint64_t buffer, std::uint64_t offset, std::uint64_t bytes,
               std::uint64_t mapped) {
                const vkf::Status status =
                    d.record_upload(handle_of<VkCommandBuffer>(commands), {.buffer = handle_of<VkBuffer>(buffer),
                                                                           .offset = offset,
                                                                           .bytes = bytes,
                                                                           .mapped = handle_of<void*>(mapped)});
                if (!status) throw vkf::Error(status.message.data(), "record_upload", status.error_result());
            },
            "commands"_a, "buffer"_a, "offset"_a, "bytes"_a, "mapped"_a,
            "Records what waits for upload into a host's command buffer, from its mapped staging buffer.")
        .def("recorded_uploads", &D::recorded_uploads,
             "Bytes that record_upload() has recorded in all, also those that were dropped.")
        .def("uploads_finished", &D::uploads_finished, "recorded"_a,
             "Tells that everything recorded before recorded_uploads() was `recorded` has been executed.")
        .def(
            "uploads_dropped",
            [](const D& d) {
                const vkf::Status status = d.uploads_dropped();
                if (!status) throw vkf::Error(status.message.data(), "uploads_dropped", status.error_result());
            },
            "Tells that what was recorded since will not be executed: it waits again. Needs keep_uploads=True.")
        .def("pending_uploads", &D::pending_uploads, "Bytes that wait for record_upload().")
        .def("make_shared_buffer", &D::make_shared_buffer, "bytes"_a,
             "Makes a buffer that SharedBuffer.export_fd() gives to other devices and processes. Needs "
             "external_memory_fd.")
        .def("import_fd", &D::import_fd, "descriptor"_a, "bytes"_a,
             "Takes ownership of the descriptor unless it throws.")
        .def(
            "import_host",
            [](const D& d, std::uint64_t address, std::uint64_t bytes) {
                return d.import_host({handle_of<std::byte*>(address), static_cast<std::size_t>(bytes)});
            },
            "address"_a, "bytes"_a,
            "Lets the device see host memory, which must outlive the buffer; address and size are "
            "multiples of shared_host_alignment().")
        .def("shared_host_alignment", &D::shared_host_alignment,
             "What addresses and sizes of import_host() are multiples of.")
        .def("messages", &D::messages, "Validation messages of warning or worse since the last call.")
        .def("save_pipeline_cache", &D::save_pipeline_cache,
             "Writes the pipeline cache now, which the device else does at its end. False where there is nowhere to "
             "write.")
        .def("left_out", &D::left_out,
             "The kernels that no program is given, and why: what was asked for or kept, what the driver refused, what "
             "self_test() found.")
        .def(
            "self_test",
            [](const D& d, bool thorough, std::uint32_t repeats, double seconds) {
                return unlocked([&] {
                    return d.self_test({.thorough = thorough, .repeats = repeats, .seconds = seconds, .progress = {}});
                });
            },
            nb::kw_only(), "thorough"_a = false, "repeats"_a = 2, "seconds"_a = 0.0,
            "Runs the kernels that the device would choose on small inputs and compares with double precision. Those "
            "that fail are left out of what this device compiles from now on. thorough: every kernel that it can run; "
            "seconds: begins no further check then, 0: no bound.")
        .def("__repr__", [](const D& d) {
            const vkf::Capabilities& c = d.capabilities();
            return "<Device " + c.name + ", " + name(c.type) + ", " + c.driver + ">";
        });
    m.def("tuning_file", &vkf::tuning_file, "device"_a,
          "The file in which save_tuning() keeps the choices for this device.");
    m.def("save_tuning", &vkf::save_tuning, "device"_a, "choices"_a,
          "Keeps choices, \"name=number\" with commas between, for every Device that is made of this device later.");
    m.def("left_out_file", &vkf::left_out_file, "device"_a,
          "The file in which save_left_out() keeps the kernels that this device does without.");
    m.def(
        "save_left_out",
        [](const vkf::Device& d,
           const std::vector<std::variant<vkf::LeftOut, std::pair<std::string, std::string>>>& kernels) {
            std::vector<vkf::LeftOut> list;
            for (const auto& kernel : kernels) {
                const auto* pair = std::get_if<1>(&kernel);
                list.push_back(pair ? vkf::LeftOut{pair->first, pair->second} : std::get<0>(kernel));
            }
            return vkf::save_left_out(d, list);
        },
        "device"_a, "kernels"_a,
        "Keeps kernels, pairs of a name and why or what left_out() gives, that every Device made of this device later "
        "does without. An empty list removes what was kept.");
    nb::class_<vkf::Tunable>(m, "Tunable", "A number by which ops choose kernels.")
        .def_prop_ro(
            "name", [](const vkf::Tunable& t) { return t.name; }, "The name, as in \"name=number\".")
        .def_prop_ro(
            "what", [](const vkf::Tunable& t) { return t.what; }, "What the number means, in words.")
        .def(
            "values", [](const vkf::Tunable& t, const vkf::Capabilities& c) { return t.values(c); }, "capabilities"_a,
            "The values that the device can take, ascending.");
    m.def(
        "tunables",
        [] {
            std::vector<vkf::Tunable> out;
            for (const vkf::Tunable& t : vkf::tunables()) out.push_back(t);
            return out;
        },
        "Numbers that are worth measuring on a device.");
    m.def(
        "glsl_compiler", [] { return unlocked([] { return vkf::glsl_compiler(); }); },
        "The compiler of GLSL that is used; empty: there is none.");
    m.def(
        "compile_glsl",
        [](const std::string& source, const std::string& shader) {
            return unlocked([&] { return vkf::compile_glsl(source, shader); });
        },
        "source"_a, "name"_a, "Compiles a compute shader's text to SPIR-V words. ValueError has the compiler's text.");
    m.def(
        "use_glsl_compiler",
        [](nb::object compiler) {
            vkf::GlslCompiler made;
            if (!compiler.is_none()) {
                if (PyCallable_Check(compiler.ptr()) == 0) {
                    throw nb::type_error(
                        ("use_glsl_compiler: is a " + name_of_type(compiler) + "; a function, or None, is wanted")
                            .c_str());
                }
                made = [shared = held(std::move(compiler))](const std::string& source, const std::string& shader) {
                    const Locked lock;
                    return cast_as<std::vector<std::uint32_t>>(
                        (*shared)(source, shader), "use_glsl_compiler: what its function gave", "a list of words");
                };
            }
            unlocked([&] { vkf::use_glsl_compiler(std::move(made), true); });
        },
        "compiler"_a.none(),
        nb::sig("def use_glsl_compiler(compiler: typing.Callable[[str, str], list[int]] | None) -> None"),
        "Sets a compiler of GLSL, (source, name) -> SPIR-V words, that is used from now on; None removes it. "
        "Several threads may call it at once.");
}

}  // namespace py
