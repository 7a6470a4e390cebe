// SPDX-License-Identifier: Apache-2.0
// Devices, weights, states and shared buffers.
#include <vkformer/advanced/plan.h>

#include "bind.h"

#include <nanobind/stl/array.h>
#include <nanobind/stl/function.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/variant.h>

#include <cstring>
#include <functional>
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
                                  const std::filesystem::path& cache_folder, std::uint64_t staging_bytes,
                                  std::optional<double> submit_budget, bool checked, const std::string& tuning) {
    return {.select = select,
            .validation = validation,
            .minimum_profile = minimum_profile,
            .cache_folder = cache_folder,
            .staging_bytes = staging_bytes,
            .submit_budget = submit_budget,
            .checked = checked,
            .tuning = tuning};
}

#define DEVICE_OPTIONS                                                                                       \
    "validation"_a = false, "minimum_profile"_a = false, "cache_folder"_a = std::filesystem::path(),         \
    "staging_bytes"_a = std::uint64_t{16u << 20}, "submit_budget"_a = nb::none(), "checked"_a = false, "tuning"_a = ""

/// Functions of a host around each use of its queue.
struct QueueLock {
    nb::object lock, unlock;
};

void call_hook(const nb::object& function) {
    const nb::gil_scoped_acquire gil;
    try {
        function();
    } catch (nb::python_error& e) {
        e.discard_as_unraisable("the queue's lock");
    }
}

vkf::Device borrow(std::uint64_t instance, std::uint64_t physical, std::uint64_t device, std::uint32_t queue_family,
                   std::uint64_t queue, bool host_submits, nb::object lock, nb::object unlock,
                   std::uint64_t created_with, std::uint64_t get_instance_proc_addr, bool debug_utils,
                   std::uint64_t pipeline_cache, bool minimum_profile, bool checked, const std::string& tuning) {
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
        const std::shared_ptr<QueueLock> hooks(new QueueLock{std::move(lock), std::move(unlock)}, [](QueueLock* h) {
            const nb::gil_scoped_acquire gil;
            delete h;
        });
        host.lock = [](void* user) { call_hook(static_cast<QueueLock*>(user)->lock); };
        host.unlock = [](void* user) { call_hook(static_cast<QueueLock*>(user)->unlock); };
        host.user = hooks.get();
        host.keep = hooks;
    }
    const vkf::DeviceOptions options{.minimum_profile = minimum_profile, .checked = checked, .tuning = tuning};
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

std::shared_ptr<Program> compile(const vkf::Device& device, const vkf::Graph& graph, nb::handle weights,
                                 const std::string& name, const State* state, std::uint32_t slots,
                                 const Choice<vkf::Arithmetic>& arithmetic, bool rewrite, bool profile, bool checked) {
    vkf::CompileOptions options{.name = name,
                                .slots = slots,
                                .arithmetic = arithmetic,
                                .rewrite = rewrite,
                                .profile = profile,
                                .checked = checked};
    if (state != nullptr) options.state = state->state;
    vkf::Weights loaded;
    const vkf::WeightLayout* layout = &vkf::WeightLayout::none();
    if (nb::isinstance<vkf::Weights>(weights)) {
        loaded = nb::cast<vkf::Weights>(weights);
    } else if (nb::isinstance<vkf::WeightLayout>(weights)) {
        layout = nb::cast<vkf::WeightLayout*>(weights);
    } else if (!weights.is_none()) {
        loaded = load(device, weights, &graph, {});
    }
    const bool has_weights = !loaded.layout().tensors().empty();
    if (has_weights) layout = &loaded.layout();
    // The plan is made of the graph with the interpreter's lock; pipelines need the plan alone.
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
    return std::make_shared<Program>(std::move(program), graph,
                                     state != nullptr ? state->mutex : std::make_shared<std::mutex>());
}

nb::dict tensors_dict(const vkf::WeightLayout& layout) {
    nb::dict out;
    for (const vkf::StoredTensor& t : layout.tensors()) out[t.name.c_str()] = nb::cast(t);
    return out;
}

vkf::StatePart part_of(std::size_t dim, std::int64_t length) { return {.dim = dim, .length = length}; }

nb::object read_state(const State& state, const std::string& tensor, std::size_t dim, std::int64_t length) {
    const vkf::StoredTensor* found = state.state.find(tensor);
    if (found == nullptr) fail("there is no such state", tensor);
    const std::vector<std::byte> bytes =
        unlocked(*state.mutex, [&] { return state.state.read(tensor, part_of(dim, length)); });
    std::vector<std::int64_t> shape = found->shape;
    if (length >= 0 && dim < shape.size()) shape[dim] = length;
    if (found->dtype == vkf::DType::bf16) {
        const nb::object bits = numpy_array(bytes.data(), vkf::DType::f16, shape).attr("view")("uint16");
        return bits.attr("astype")("uint32").attr("__lshift__")(16).attr("view")("float32");
    }
    return numpy_array(bytes.data(), found->dtype, shape);
}

void write_state(State& state, const std::string& tensor, nb::handle data, std::size_t dim, std::int64_t length) {
    const vkf::StoredTensor* found = state.state.find(tensor);
    if (found == nullptr) fail("there is no such state", tensor);
    std::vector<std::int64_t> shape = found->shape;
    if (length >= 0 && dim < shape.size()) shape[dim] = length;
    const Array array = array_as(data, found->dtype, tensor);
    if (array.shape != shape) {
        fail("has the shape " + nb::cast<std::string>(nb::str(nb::tuple(nb::cast(shape)))) + ", and " +
                 nb::cast<std::string>(nb::str(nb::tuple(nb::cast(array.shape)))) + " was given",
             tensor);
    }
    unlocked(*state.mutex, [&] { state.state.write(tensor, array.bytes, part_of(dim, length)); });
}

void bind_capabilities(nb::module_& m) {
    using C = vkf::Capabilities;
    nb::class_<vkf::MatrixShape>(m, "MatrixShape", "Matrices that a subgroup multiplies at once: m, n, k.")
        .def_ro("m", &vkf::MatrixShape::m)
        .def_ro("n", &vkf::MatrixShape::n)
        .def_ro("k", &vkf::MatrixShape::k)
        .def("__repr__", [](const vkf::MatrixShape& s) {
            return std::to_string(s.m) + "x" + std::to_string(s.n) + "x" + std::to_string(s.k);
        });
    nb::class_<C> c(m, "Capabilities", "What a device can do, as far as anything in this library asks.");
    c.def_prop_ro("type", [](const C& x) { return name(x.type); })
        .def_prop_ro("cpu", &C::cpu, "True for a processor.")
        .def_prop_ro("cache_uuid", [](const C& x) { return nb::bytes(x.cache_uuid.data(), x.cache_uuid.size()); })
        .def("asks_for", [](const C& x, const std::string& variant) { return x.asks_for(variant); }, "variant"_a,
             "True when `variants` has this one.")
        .def("tuned", [](const C& x, const std::string& number) { return x.tuned(number); }, "name"_a,
             "The number of this name in `tuning`, or None.")
        .def("clamp_to_minimum", &C::clamp_to_minimum, "Lowers everything to what Vulkan 1.1 guarantees.")
        .def("__copy__", [](const C& x) { return C(x); })
        .def("__repr__", [](const C& x) {
            return "<" + x.name + ", " + name(x.type) + ", " + x.driver + ", Vulkan " + std::to_string(x.api_version >> 22) +
                   "." + std::to_string((x.api_version >> 12) & 0x3FF) + ", " + std::to_string(x.device_memory >> 20) + " MiB>";
        });
#define MEMBER(member) c.def_ro(#member, &C::member)
    MEMBER(name);
    MEMBER(driver);
    MEMBER(api_version);
    MEMBER(vendor_id);
    MEMBER(device_id);
    MEMBER(driver_version);
    MEMBER(max_invocations);
    MEMBER(max_group_size);
    MEMBER(max_groups);
    MEMBER(shared_memory);
    MEMBER(push_constants);
    MEMBER(storage_buffers);
    MEMBER(storage_alignment);
    MEMBER(storage_range);
    MEMBER(max_allocation);
    MEMBER(device_memory);
    MEMBER(subgroup_size);
    MEMBER(exact_subgroup_size);
    MEMBER(subgroup_shuffle);
    MEMBER(subgroup_arithmetic);
    MEMBER(storage_16bit);
    MEMBER(int64);
    MEMBER(float16);
    MEMBER(cooperative_matrix);
    MEMBER(matrix_elements);
    MEMBER(matrix_shapes);
    MEMBER(cooperative_matrix_int8);
    MEMBER(int8_matrix_shapes);
    MEMBER(matrix_subgroup_size);
    MEMBER(max_subgroups);
    MEMBER(integer_dot);
    MEMBER(fast_integer_dot);
    MEMBER(storage_image_any_format);
    MEMBER(external_memory_fd);
    MEMBER(external_memory_host);
    MEMBER(external_memory_android);
    MEMBER(portability_subset);
    MEMBER(unified_memory);
    MEMBER(timeline_semaphore);
    MEMBER(timestamp_period);
    MEMBER(timestamp_bits);
    MEMBER(minimum_profile);
    MEMBER(variants);
    MEMBER(tuning);
    MEMBER(tuning_from);
    MEMBER(tuning_is_asked);
#undef MEMBER
    nb::class_<vkf::DeviceRequirement>(m, "DeviceRequirement", "An extension or feature that a host must, or may, turn on.")
        .def_ro("name", &vkf::DeviceRequirement::name)
        .def_ro("required", &vkf::DeviceRequirement::required)
        .def_ro("buys", &vkf::DeviceRequirement::buys)
        .def_ro("extension", &vkf::DeviceRequirement::extension);
    nb::class_<vkf::DeviceRequirements>(m, "DeviceRequirements",
                                        "The extensions and features to put into VkDeviceCreateInfo: those that the device has.")
        .def_prop_ro("list", [](const vkf::DeviceRequirements& r) { return r.list(); })
        .def("extensions", [](const vkf::DeviceRequirements& r, bool wished) {
            std::vector<std::string> out;
            for (const char* one : r.extensions(wished)) out.emplace_back(one);
            return out;
        }, "wished"_a = true, "Names for ppEnabledExtensionNames; with wished=False only those that are required.")
        .def("features", [](vkf::DeviceRequirements& r, std::uint64_t next) {
            return reinterpret_cast<std::uintptr_t>(r.features(handle_of<const void*>(next)));
        }, "next"_a = std::uint64_t{0},
             "The address of the structs to chain in VkDeviceCreateInfo.pNext, ending in `next`; they live in this object.")
        .def("__str__", [](const vkf::DeviceRequirements& r) { return r.str(); });
}

void bind_weights(nb::module_& m) {
    nb::class_<vkf::StoredTensor>(m, "StoredTensor", "One tensor of a layout: name, type, shape and place.")
        .def_ro("name", &vkf::StoredTensor::name)
        .def_prop_ro("dtype", [](const vkf::StoredTensor& t) { return name(t.dtype); })
        .def_prop_ro("shape", [](const vkf::StoredTensor& t) { return nb::tuple(nb::cast(t.shape)); },
                     nb::sig("def shape(self) -> tuple[int, ...]"))
        .def_ro("block", &vkf::StoredTensor::block)
        .def_ro("offset", &vkf::StoredTensor::offset)
        .def_ro("bytes", &vkf::StoredTensor::bytes)
        .def_prop_ro("type", [](const vkf::StoredTensor& t) { return name(t.type); },
                     "How the numbers lie in memory, where graphs see float32.")
        .def("__repr__", [](const vkf::StoredTensor& t) {
            return "<" + t.name + " " + nb::cast<std::string>(nb::str(nb::tuple(nb::cast(t.shape)))) + " " + name(t.type) + ">";
        });
    nb::class_<vkf::WeightLayout>(m, "WeightLayout", "Names, types, shapes and places of tensors in device memory.")
        .def_prop_ro("tensors", [](const vkf::WeightLayout& l) { return l.tensors(); })
        .def_prop_ro("blocks", [](const vkf::WeightLayout& l) { return l.blocks(); })
        .def_prop_ro("bytes", &vkf::WeightLayout::bytes)
        .def("find", [](const vkf::WeightLayout& l, const std::string& tensor) { return l.find(tensor); }, "name"_a,
             nb::rv_policy::copy, nb::sig("def find(self, name: str) -> StoredTensor | None"));
    m.def("make_weight_layout", [](nb::handle tensors, const vkf::Capabilities& device, const vkf::Graph* graph,
                                   const std::optional<Choice<vkf::WeightType>>& matrices, const nb::object& choose,
                                   const Choice<vkf::PackOn>& pack_on) {
        const Tensors given = tensors_of(tensors);
        const vkf::LoadOptions options = load_options(matrices, choose, pack_on, nb::none());
        return graph != nullptr ? vkf::make_weight_layout(*graph, given.list, device, options)
                                : vkf::make_weight_layout(given.list, device, options);
    }, "tensors"_a, "device"_a, "graph"_a = nb::none(), "matrices"_a = nb::none(), "choose"_a = nb::none(),
          "pack_on"_a = Choice<vkf::PackOn>{"by_device"},
          "Says where Device.load() will put these tensors, and as what.");
    nb::class_<vkf::Weights>(m, "Weights", "Trained parameters in device memory, shared by programs. Immutable once loaded.")
        .def(nb::init<>(), "None at all.")
        .def_prop_ro("layout", &vkf::Weights::layout, nb::rv_policy::copy)
        .def("find", [](const vkf::Weights& w, const std::string& tensor) { return w.find(tensor); }, "name"_a,
             nb::rv_policy::copy, nb::sig("def find(self, name: str) -> StoredTensor | None"))
        .def("names", &vkf::Weights::names)
        .def("bytes", [](const vkf::Weights& w, const std::optional<Choice<vkf::WeightType>>& type) {
            return type ? w.bytes(*type) : w.bytes();
        }, "type"_a = nb::none(), "Device memory held; of floating tensors kept as this type, where one is named.")
        .def("bytes_packed_on_device", &vkf::Weights::bytes_packed_on_device)
        .def("__repr__", [](const vkf::Weights& w) {
            return "<Weights: " + std::to_string(w.layout().tensors().size()) + " tensors, " + std::to_string(w.bytes()) + " bytes>";
        });
}

void bind_state(nb::module_& m) {
    nb::class_<State>(m, "State", "Tensors that outlive a run, by name. Programs that share one take turns.")
        .def_prop_ro("tensors", [](const State& s) { return tensors_dict(s.state.layout()); },
                     nb::sig("def tensors(self) -> dict[str, StoredTensor]"))
        .def_prop_ro("layout", [](const State& s) { return s.state.layout(); })
        .def("find", [](const State& s, const std::string& tensor) { return s.state.find(tensor); }, "name"_a,
             nb::rv_policy::copy, nb::sig("def find(self, name: str) -> StoredTensor | None"))
        .def("read", read_state, "name"_a, "dim"_a = 0, "length"_a = -1, nb::sig("def read(self, name: str, dim: int = 0, length: int = -1) -> numpy.ndarray"),
             "The elements of a state, or the first `length` of them along `dim`, as an array. bfloat16 is widened.")
        .def("write", write_state, "name"_a, "data"_a, "dim"_a = 0, "length"_a = -1,
             nb::sig("def write(self, name: str, data: object, dim: int = 0, length: int = -1) -> None"),
             "Writes a state, or its first `length` elements along `dim`; the rest stays as it is.")
        .def("__getitem__", [](const State& s, const std::string& tensor) { return read_state(s, tensor, 0, -1); }, "name"_a,
             nb::sig("def __getitem__(self, name: str) -> numpy.ndarray"))
        .def("__setitem__", [](State& s, const std::string& tensor, nb::handle data) { write_state(s, tensor, data, 0, -1); },
             "name"_a, "data"_a)
        .def("__contains__", [](const State& s, const std::string& tensor) { return s.state.find(tensor) != nullptr; }, "name"_a)
        .def("bytes", [](const State& s) { return s.state.bytes(); })
        .def("clear", [](State& s) { unlocked(*s.mutex, [&] { s.state.clear(); }); }, "Sets every byte to zero.")
        .def("__repr__", [](const State& s) {
            return "<State: " + std::to_string(s.state.layout().tensors().size()) + " tensors, " + std::to_string(s.state.bytes()) + " bytes>";
        });
    using Parts = std::map<std::string, std::pair<std::size_t, std::int64_t>>;
    m.def("save_state", [](const std::filesystem::path& path, const State& state, const Parts& parts) {
        std::map<std::string, vkf::StatePart> out;
        for (const auto& [key, part] : parts) out[key] = part_of(part.first, part.second);
        unlocked(*state.mutex, [&] { vkf::save_state(path, state.state, out); });
    }, "path"_a, "state"_a, "parts"_a = Parts(),
          "Writes every state to a safetensors file, bit for bit. parts: for some names (dim, length), of which only "
          "the first `length` elements along `dim` are written.");
    m.def("restore_state", [](const std::filesystem::path& path, State& state) {
        unlocked(*state.mutex, [&] { vkf::restore_state(path, state.state); });
    }, "path"_a, "state"_a, "Writes the contents of a file of save_state() back.");
}

void bind_shared_buffer(nb::module_& m) {
    nb::class_<vkf::SharedBuffer>(m, "SharedBuffer", "A storage buffer on memory that others see too.")
        .def_prop_ro("buffer", [](const vkf::SharedBuffer& b) { return reinterpret_cast<std::uintptr_t>(b.buffer()); },
                     "The VkBuffer.")
        .def_prop_ro("bytes", &vkf::SharedBuffer::bytes)
        .def("export_fd", &vkf::SharedBuffer::export_fd, "A new file descriptor of the memory, the caller's to close.");
}

}  // namespace

void bind_device(nb::module_& m) {
    bind_capabilities(m);
    bind_weights(m);
    bind_state(m);
    bind_shared_buffer(m);
    using D = vkf::Device;
    nb::class_<D> device(m, "Device",
                         "A Vulkan device: our own, or a host's, borrowed. Device() is the best there is, or what "
                         "VKFORMER_DEVICE names; Device(\"llvmpipe\") one by a part of its name or its index in "
                         "Device.list(). Several threads may use it; it lives as long as anything made from it.");
    const auto create = [](const std::string& select, bool validation, bool minimum_profile,
                           const std::filesystem::path& cache_folder, std::uint64_t staging_bytes,
                           std::optional<double> submit_budget, bool checked, const std::string& tuning) {
        const vkf::DeviceOptions options = device_options(select, validation, minimum_profile, cache_folder,
                                                          staging_bytes, submit_budget, checked, tuning);
        return unlocked([&] { return D::create(options); });
    };
    device.def(nb::new_(create), "select"_a = "", nb::kw_only(), DEVICE_OPTIONS)
        .def_static("create", create, "select"_a = "", nb::kw_only(), DEVICE_OPTIONS, "The same as Device().")
        .def_static("list", [] { return unlocked([] { return D::list(); }); }, "Every usable device, in the loader's order.")
        .def_static("borrow", borrow, nb::kw_only(), "instance"_a, "physical"_a, "device"_a, "queue_family"_a = 0,
                    "queue"_a = 0, "host_submits"_a = false, "lock"_a = nb::none(), "unlock"_a = nb::none(),
                    "created_with"_a = 0, "get_instance_proc_addr"_a = 0, "debug_utils"_a = false,
                    "pipeline_cache"_a = 0, "minimum_profile"_a = false, "checked"_a = false, "tuning"_a = "",
                    "Uses a host's device; handles and addresses are integers, 0 for none. created_with: the address "
                    "of the VkDeviceCreateInfo, of whose extensions and features alone is made use. lock and unlock "
                    "are called around each use of the queue.")
        .def_static("requirements", [](std::uint64_t instance, std::uint64_t physical, std::uint64_t get) {
            return D::requirements(handle_of<VkInstance>(instance), handle_of<VkPhysicalDevice>(physical),
                                   handle_of<vkf::GetInstanceProcAddr>(get));
        }, "instance"_a, "physical"_a, "get_instance_proc_addr"_a = 0,
                    "What a host that will lend this device should enable at vkCreateDevice.")
        .def_prop_ro("capabilities", &D::capabilities, nb::rv_policy::copy)
        .def_prop_ro("name", [](const D& d) { return d.capabilities().name; })
        .def("load", [](const D& d, nb::handle tensors, const vkf::Graph* graph, const std::optional<Choice<vkf::WeightType>>& matrices,
                        const nb::object& choose, const Choice<vkf::PackOn>& pack_on, const nb::object& progress) {
            return load(d, tensors, graph, load_options(matrices, choose, pack_on, progress));
        }, "tensors"_a, "graph"_a = nb::none(), nb::kw_only(), "matrices"_a = nb::none(), "choose"_a = nb::none(),
             "pack_on"_a = Choice<vkf::PackOn>{"by_device"}, "progress"_a = nb::none(),
             nb::sig("def load(self, tensors: object, graph: Graph | None = None, *, matrices: typing.Literal['f32', 'f16', 'bf16', 'int8', 'int4'] | None = None, choose: typing.Callable[[str, tuple[int, ...]], str | None] | None = None, pack_on: typing.Literal['by_device', 'host', 'device'] = 'by_device', progress: typing.Callable[[int, int], None] | None = None) -> Weights"),
             "Uploads tensors under their names: a dict of arrays, a safetensors file or its path. graph: weights that "
             "one launch of it reads together then lie behind each other. matrices: what matrices are kept as, None: "
             "as they come; choose(name, shape) says it for each. progress(done, all) counts bytes.")
        .def("make_state", [](const D& d, const std::vector<const vkf::Graph*>& graphs) {
            return State{unlocked([&] { return d.make_state(std::span<const vkf::Graph* const>(graphs)); })};
        }, "graphs"_a, "Zeroed memory for every state that the graphs name; programs compiled with it share it.")
        .def("compile", compile, "graph"_a, "weights"_a = nb::none(), nb::kw_only(), "name"_a = "program",
             "state"_a = nb::none(), "slots"_a = 1, "arithmetic"_a = Choice<vkf::Arithmetic>{"f32"}, "rewrite"_a = true,
             "profile"_a = false, "checked"_a = false,
             nb::sig("def compile(self, graph: Graph, weights: object = None, *, name: str = 'program', state: State | None = None, slots: int = 1, arithmetic: typing.Literal['f32', 'f16', 'int8'] = 'f32', rewrite: bool = True, profile: bool = False, checked: bool = False) -> Program"),
             "Chooses kernels, plans memory and builds pipelines. weights: Weights, what load() takes, or a "
             "WeightLayout, for Program.set_weights(). ValueError names a weight that is missing or has another shape.")
        .def("record_upload", [](const D& d, std::uint64_t commands, std::uint64_t buffer, std::uint64_t offset,
                                 std::uint64_t bytes, std::uint64_t mapped) {
            const vkf::Status status = d.record_upload(
                handle_of<VkCommandBuffer>(commands),
                {.buffer = handle_of<VkBuffer>(buffer), .offset = offset, .bytes = bytes, .mapped = handle_of<void*>(mapped)});
            if (!status) throw vkf::Error(status.message.data(), "record_upload", status.error_result());
        }, "commands"_a, "buffer"_a, "offset"_a, "bytes"_a, "mapped"_a,
             "Records what waits for upload into a host's command buffer, from its mapped staging buffer.")
        .def("pending_uploads", &D::pending_uploads, "Bytes that wait for record_upload().")
        .def("make_shared_buffer", &D::make_shared_buffer, "bytes"_a)
        .def("import_fd", &D::import_fd, "descriptor"_a, "bytes"_a, "Takes ownership of the descriptor unless it throws.")
        .def("import_host", [](const D& d, std::uint64_t address, std::uint64_t bytes) {
            return d.import_host({handle_of<std::byte*>(address), static_cast<std::size_t>(bytes)});
        }, "address"_a, "bytes"_a, "Lets the device see host memory, which must outlive the buffer; address and size are "
             "multiples of shared_host_alignment().")
        .def("shared_host_alignment", &D::shared_host_alignment)
        .def("messages", &D::messages, "Validation messages of warning or worse since the last call.")
        .def("save_pipeline_cache", &D::save_pipeline_cache)
        .def("__repr__", [](const D& d) {
            const vkf::Capabilities& c = d.capabilities();
            return "<Device " + c.name + ", " + name(c.type) + ", " + c.driver + ">";
        });
    m.def("tuning_file", &vkf::tuning_file, "device"_a, "The file in which save_tuning() keeps the choices for this device.");
    m.def("save_tuning", &vkf::save_tuning, "device"_a, "choices"_a,
          "Keeps choices, \"name=number\" with commas between, for every Device that is made of this device later.");
    nb::class_<vkf::Tunable>(m, "Tunable", "A number by which ops choose kernels.")
        .def_prop_ro("name", [](const vkf::Tunable& t) { return t.name; })
        .def_prop_ro("what", [](const vkf::Tunable& t) { return t.what; })
        .def("values", [](const vkf::Tunable& t, const vkf::Capabilities& c) { return t.values(c); }, "capabilities"_a,
             "The values that the device can take, ascending.");
    m.def("tunables", [] {
        std::vector<vkf::Tunable> out;
        for (const vkf::Tunable& t : vkf::tunables()) out.push_back(t);
        return out;
    }, "Numbers that are worth measuring on a device.");
    m.def("glsl_compiler", &vkf::glsl_compiler, "The compiler of GLSL that is used; empty: there is none.");
    m.def("compile_glsl", &vkf::compile_glsl, "source"_a, "name"_a, nb::call_guard<nb::gil_scoped_release>(),
          "Compiles a compute shader's text to SPIR-V words. ValueError has the compiler's text.");
    m.def("use_glsl_compiler", [](nb::object compiler) {
        if (compiler.is_none()) return vkf::use_glsl_compiler({});
        const std::shared_ptr<nb::object> shared(new nb::object(std::move(compiler)), [](nb::object* o) {
            const nb::gil_scoped_acquire lock;
            delete o;
        });
        vkf::use_glsl_compiler([shared](const std::string& source, const std::string& shader) {
            const nb::gil_scoped_acquire lock;
            return nb::cast<std::vector<std::uint32_t>>((*shared)(source, shader));
        });
    }, "compiler"_a.none(), nb::sig("def use_glsl_compiler(compiler: typing.Callable[[str, str], list[int]] | None) -> None"),
          "Sets a compiler of GLSL, (source, name) -> SPIR-V words, that is used from now on; None removes it.");
}

}  // namespace py
