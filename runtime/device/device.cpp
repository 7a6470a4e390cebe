// SPDX-License-Identifier: Apache-2.0
#include "runtime/device/device.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <cstdlib>
#include <exception>
#include <optional>
#include <utility>

#include "runtime/base/cache_folder.h"
#include "runtime/base/text.h"
#include "runtime/compile/asked_for.h"
#include "runtime/device/cache_frame.h"
#include "runtime/device/deferred.h"
#include "runtime/device/device_core.h"
#include "runtime/device/enumerate.h"
#include "runtime/device/failure.h"
#include "runtime/device/insides.h"
#include "runtime/device/instance.h"
#include "runtime/device/keep_enabled.h"
#include "runtime/device/left_out_store.h"
#include "runtime/device/memory.h"
#include "runtime/device/query_capabilities.h"
#include "runtime/device/submit_budget.h"
#include "runtime/device/tensor_store.h"
#include "runtime/device/tuning_store.h"
#include "runtime/graph/sixteen.h"

namespace vkf {

namespace {

constexpr double kGpuWaitSeconds = 600, kProcessorWaitSeconds = 3600;

struct Candidate {
    VkPhysicalDevice physical = VK_NULL_HANDLE;
    Capabilities capabilities;
    std::uint32_t queue_family = kAnyFamily;
};

struct Candidates {
    std::vector<Candidate> usable;
    std::vector<std::string> broken;     ///< what went wrong with those that could not be asked
    std::exception_ptr error = nullptr;  ///< the first of these
};

/// A driver that cannot be asked for what it can do does not hide the other devices.
Candidates candidates(const InstanceCore& instance) {
    const auto list =
        enumerate<VkPhysicalDevice>("vkEnumeratePhysicalDevices", [&](std::uint32_t* count, VkPhysicalDevice* devices) {
            return instance.api.vkEnumeratePhysicalDevices(instance.handle, count, devices);
        });
    Candidates out;
    for (VkPhysicalDevice physical : list) {
        Candidate c;
        c.physical = physical;
        try {
            if (auto caps = query_capabilities(instance.api, physical, c.queue_family, instance.api_version)) {
                c.capabilities = std::move(*caps);
                out.usable.push_back(std::move(c));
            }
        } catch (const Error& e) {
            out.broken.emplace_back(e.what());
            out.error = out.error ? out.error : std::current_exception();
        }
    }
    if (out.usable.empty() && out.error) {
        std::rethrow_exception(out.error);
    }
    return out;
}

std::string lower(std::string text) {
    std::transform(text.begin(), text.end(), text.begin(),
                   [](unsigned char ch) { return static_cast<char>(std::tolower(ch)); });
    return text;
}

std::string environment(const char* name) {
    const char* value = std::getenv(name);
    return value ? value : "";
}

/// What a variable switches on with 1 and off with 0; nothing where it is not set.
std::optional<bool> switched(const char* name) {
    const std::string value = environment(name);
    if (!value.empty() && value != "0" && value != "1") {
        throw Error("is \"" + value + "\"; there are \"0\" and \"1\"", name);
    }
    return value.empty() ? std::nullopt : std::optional(value == "1");
}

int preference(DeviceType type) {
    switch (type) {
        case DeviceType::discrete: return 0;
        case DeviceType::integrated: return 1;
        case DeviceType::virtual_gpu: return 2;
        case DeviceType::cpu: return 3;
        case DeviceType::other: return 4;
    }
    return 5;
}

bool is_number(const std::string& text) {
    return std::all_of(text.begin(), text.end(), [](unsigned char ch) { return std::isdigit(ch); });
}

/// True where the name has the text in it; a number as a whole, so that 2 is not part of 2080.
bool has_part(const std::string& name, const std::string& part) {
    const auto counts = [](char ch) { return std::isdigit(static_cast<unsigned char>(ch)) || ch == '.'; };
    for (std::size_t at = name.find(part); at != std::string::npos; at = name.find(part, at + 1)) {
        const std::size_t end = at + part.size();
        if (!is_number(part) || !((at > 0 && counts(name[at - 1])) || (end < name.size() && counts(name[end])))) {
            return true;
        }
    }
    return false;
}

const Candidate& choose(const Candidates& all, const std::string& select) {
    const std::vector<Candidate>& list = all.usable;
    if (list.empty()) {
        throw Error("no usable Vulkan device: none offers Vulkan 1.1 and a compute queue");
    }
    if (select.empty()) {
        return *std::min_element(list.begin(), list.end(), [](const Candidate& a, const Candidate& b) {
            return preference(a.capabilities.type) < preference(b.capabilities.type);
        });
    }
    if (is_number(select) && select.size() < 9) {
        const auto index = static_cast<std::size_t>(std::stoul(select));
        if (index < list.size()) {
            return list[index];
        }
    }
    // Digits that are no index may be a model's number. One model's name may be part of another's.
    for (const bool whole : {true, false}) {
        for (const Candidate& c : list) {
            const std::string name = lower(c.capabilities.name);
            if (whole ? name == lower(select) : has_part(name, lower(select))) {
                return c;
            }
        }
    }
    std::string known;
    for (std::size_t i = 0; i < list.size(); ++i) {
        known += (i ? ", " : "") + std::to_string(i) + " " + list[i].capabilities.name;
    }
    for (const std::string& why : all.broken) {
        known += "; one cannot be asked: " + why;
    }
    throw Error("no device \"" + select + "\"; there are: " + known);
}

void require_number(const std::optional<double>& option, const char* name) {
    if (option && std::isnan(*option)) {
        throw Error(std::string(name) + " is not a number", "DeviceOptions");
    }
    if (option && *option < 0) {
        throw Error(std::string(name) + " = " + exact(*option) + " is below 0", "DeviceOptions");
    }
}

/// Finishes owned and borrowed devices alike, once the handles are set.
std::shared_ptr<DeviceCore> finish(std::shared_ptr<DeviceCore> core, const DeviceOptions& options) {
    require_number(options.wait_seconds, "wait_seconds");
    require_number(options.submit_budget, "submit_budget");
    core->options = options;
    core->options.staging_bytes = std::max<std::uint64_t>(options.staging_bytes, 4);
    core->options.checked = switched("VKFORMER_CHECKED").value_or(false) || options.checked;
    core->canary = options.canary || core->options.checked;
    core->set_wait_limit(
        options.wait_seconds.value_or(core->capabilities.cpu() ? kProcessorWaitSeconds : kGpuWaitSeconds));
    core->learns_budget = !options.submit_budget && !core->capabilities.cpu();
    core->submit_budget = options.submit_budget.value_or(core->learns_budget ? kFirstSubmitBudget : 0);
    core->capabilities.variants = environment("VKFORMER_VARIANT");
    const std::string profile = environment("VKFORMER_PROFILE");
    if (!profile.empty() && lower(profile) != "minimum") {
        throw Error("is \"" + profile + "\"; there is \"minimum\" alone", "VKFORMER_PROFILE");
    }
    if (options.minimum_profile || !profile.empty()) {
        core->capabilities.clamp_to_minimum();
        core->profile_by_variable = !options.minimum_profile;
    }
    core->instance->api.vkGetPhysicalDeviceMemoryProperties(core->physical, &core->memory);
    core->tells_budgets = has_extension(core->instance->api, core->physical, VK_EXT_MEMORY_BUDGET_EXTENSION_NAME);
    if (options.cache_folder.empty()) {
        core->options.cache_folder = cache_folder();
    }
    const std::filesystem::path& folder = core->options.cache_folder;
    find_tuning(core->capabilities, options, folder);
    const auto ids = properties_of<VkPhysicalDeviceIDProperties>(core->instance->api, core->physical,
                                                                 VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_ID_PROPERTIES);
    std::copy(std::begin(ids.deviceUUID), std::end(ids.deviceUUID), core->uuid.begin());
    find_left_out(core->capabilities, options, folder, core->uuid);
    check_asked_for(core->capabilities);
    std::filesystem::path file;
    if (switched("VKFORMER_PIPELINE_CACHE").value_or(true)) {
        file = folder.empty() ? folder : folder / cache_file_name(core->capabilities);
    }
    core->pipelines = std::make_unique<PipelineStore>(*core, file);
    return core;
}

void refuse_options_of_create(const DeviceOptions& options) {
    const char* member = !options.select.empty()          ? "select"
                         : options.validation             ? "validation"
                         : options.get_instance_proc_addr ? "get_instance_proc_addr"
                                                          : nullptr;
    if (member) {
        throw Error("DeviceOptions::" + std::string(member) + " is for Device::create() alone", "Device::borrow");
    }
}

/// Says why query_capabilities() makes nothing of a host's device.
std::string why_unusable(const InstanceTable& api, const BorrowedDevice& host) {
    VkPhysicalDeviceProperties2 properties{};
    properties.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_PROPERTIES_2;
    api.vkGetPhysicalDeviceProperties2(host.physical, &properties);
    if (properties.properties.apiVersion < VK_API_VERSION_1_1) {
        return "the host's device offers no Vulkan 1.1";
    }
    std::uint32_t families = 0;
    api.vkGetPhysicalDeviceQueueFamilyProperties(host.physical, &families, nullptr);
    const std::string family = "queue family " + std::to_string(host.queue_family);
    return host.queue_family < families
               ? family + " of the host's device has no compute"
               : "there is no " + family + "; of these the host's device has " + std::to_string(families);
}

}  // namespace

std::vector<Capabilities> Device::list(GetInstanceProcAddr get, std::vector<std::string>* broken) {
    const auto instance = make_instance(get, false);
    Candidates all = candidates(*instance);
    std::vector<Capabilities> out;
    for (Candidate& c : all.usable) {
        out.push_back(std::move(c.capabilities));
    }
    if (broken) {
        *broken = std::move(all.broken);
    }
    return out;
}

Device Device::create(const DeviceOptions& options) {
    auto core = std::make_shared<DeviceCore>();
    const bool by_variable = switched("VKFORMER_VALIDATION").value_or(false);
    core->instance = make_instance(options.get_instance_proc_addr, by_variable || options.validation);
    core->instance->log.tells = by_variable;
    const Candidates list = candidates(*core->instance);
    const std::string select = options.select.empty() ? environment("VKFORMER_DEVICE") : options.select;
    const Candidate& chosen = choose(list, select);
    core->physical = chosen.physical;
    core->capabilities = chosen.capabilities;
    core->queue_family = chosen.queue_family;

    const float priority = 1.0f;
    const VkDeviceQueueCreateInfo queue{
        VK_STRUCTURE_TYPE_DEVICE_QUEUE_CREATE_INFO, nullptr, 0, chosen.queue_family, 1, &priority};
    DeviceRequirements wanted(core->capabilities);
    const std::vector<const char*> extensions = wanted.extensions();
    VkDeviceCreateInfo info{};
    info.sType = VK_STRUCTURE_TYPE_DEVICE_CREATE_INFO;
    info.pNext = wanted.features();
    info.queueCreateInfoCount = 1;
    info.pQueueCreateInfos = &queue;
    info.enabledExtensionCount = static_cast<std::uint32_t>(extensions.size());
    info.ppEnabledExtensionNames = extensions.data();
    VkDevice device = VK_NULL_HANDLE;
    const VkResult result = core->instance->api.vkCreateDevice(chosen.physical, &info, nullptr, &device);
    if (result != VK_SUCCESS) {
        throw Error("vkCreateDevice gave " + result_name(result), chosen.capabilities.name, result);
    }
    try {
        core->api = load_device_table(core->instance->api, device);
    } catch (...) {
        const auto destroy =
            reinterpret_cast<PFN_vkDestroyDevice>(core->instance->api.vkGetDeviceProcAddr(device, "vkDestroyDevice"));
        if (destroy) {
            destroy(device, nullptr);
        }
        throw;
    }
    core->handle = device;
    core->owned = true;
    core->api.vkGetDeviceQueue(device, chosen.queue_family, 0, &core->queue);
    return Device(finish(std::move(core), options));
}

Device Device::borrow(const BorrowedDevice& host, const DeviceOptions& options) {
    if (!host.instance || !host.physical || !host.device) {
        throw Error("a borrowed device needs the host's instance, physical device and device", "Device::borrow");
    }
    refuse_options_of_create(options);
    auto core = std::make_shared<DeviceCore>();
    core->instance = std::make_shared<InstanceCore>();
    const PFN_vkGetInstanceProcAddr get = entry_point(host.get_instance_proc_addr);
    core->instance->handle = host.instance;
    core->instance->api = load_instance_table(get, host.instance);
    core->physical = host.physical;
    core->handle = host.device;
    core->api = load_device_table(core->instance->api, host.device);
    core->queue_family = host.queue_family;
    std::optional<Capabilities> capabilities;
    if (host.queue_family != kAnyFamily) {  // which would have one chosen
        capabilities =
            query_capabilities(core->instance->api, host.physical, core->queue_family, core->instance->api_version);
    }
    if (!capabilities) {
        throw Error(why_unusable(core->instance->api, host), "Device::borrow");
    }
    core->capabilities = std::move(*capabilities);
    keep_enabled(core->capabilities, host.created_with);
    core->host = host;
    core->host.created_with = nullptr;  // only good during this call
    if (bool(host.memory.allocate) != bool(host.memory.release)) {
        throw Error("memory hooks need both functions", "Device::borrow");
    }
    if (bool(host.lock) != bool(host.unlock)) {
        throw Error("the queue's lock and unlock go together", "Device::borrow");
    }
    core->instance->debug_utils = host.debug_utils;
    core->instance->labels = host.debug_utils && survives_labels(get);
    if (host.host_submits) {
        core->deferred = std::make_unique<Deferred>(host.keep_uploads);
        return Device(finish(std::move(core), options));
    }
    core->queue = host.queue;
    if (!core->queue) {
        core->api.vkGetDeviceQueue(host.device, host.queue_family, 0, &core->queue);
    }
    return Device(finish(std::move(core), options));
}

DeviceRequirements Device::requirements(VkInstance instance, VkPhysicalDevice physical, GetInstanceProcAddr get) {
    if (!instance || !physical) {
        throw Error("the host's instance and physical device are needed", "Device::requirements");
    }
    std::uint32_t family = kAnyFamily;
    const auto supported = query_capabilities(load_instance_table(entry_point(get), instance), physical, family,
                                              InstanceCore().api_version);
    if (!supported) {
        throw Error("the device offers no Vulkan 1.1, or no queue with compute", "Device::requirements");
    }
    return DeviceRequirements(*supported);
}

Status Device::record_upload(VkCommandBuffer commands, const StagingRange& staging) const noexcept {
    if (!core_->deferred) {
        return {};
    }
    if (!commands) {
        return misuse("%s", "record_upload: no command buffer was given");
    }
    if (Status lost = core_->alive(); !lost) {
        return lost;
    }
    return core_->deferred->record(core_->api, commands, staging);
}

std::uint64_t Device::recorded_uploads() const noexcept { return core_->deferred ? core_->deferred->recorded() : 0; }

void Device::uploads_finished(std::uint64_t recorded) const noexcept {
    if (core_->deferred && !core_->given_up) {
        core_->deferred->finished(recorded);
    }
}

Status Device::uploads_dropped() const noexcept {
    if (!core_->deferred) {
        return {};
    }
    return core_->given_up ? core_->alive() : core_->deferred->dropped();
}

std::uint64_t Device::pending_uploads() const noexcept { return core_->deferred ? core_->deferred->bytes() : 0; }

// here, because this file knows both
Device DeviceTensor::device() const { return Insides::make<Device>(store().core); }

void Device::give_up_all() noexcept { ++Sticky::era; }

DeviceMemory Device::memory_use() const {
    core_->check_alive();
    DeviceMemory out{core_->allocated, core_->outside, 0, 0, 0};
    const std::vector<HeapBudget> budgets = heap_budgets(*core_);
    for (std::uint32_t i = 0; i < core_->memory.memoryHeapCount; ++i) {
        const VkMemoryHeap& heap = core_->memory.memoryHeaps[i];
        if ((heap.flags & VK_MEMORY_HEAP_DEVICE_LOCAL_BIT) != 0 && heap.size > out.heap) {
            out.heap = heap.size;
            out.budget = budgets[i].budget;
            out.used = budgets[i].used;
        }
    }
    return out;
}

const Capabilities& Device::capabilities() const noexcept { return core_->capabilities; }

std::vector<std::string> Device::messages() const {
    if (core_->given_up.of_an_earlier_era()) {
        return {};
    }
    return core_->instance->log.take();
}

std::vector<LeftOut> Device::left_out() const { return core_->left_out(); }

bool Device::save_pipeline_cache() const {
    try {
        return !core_->given_up.of_an_earlier_era() && core_->pipelines->save();
    } catch (const Error&) {
        return false;
    }
}

DeviceTensor Device::make_tensor(std::vector<std::int64_t> shape, DType dtype) const {
    core_->check_alive();
    if (core_->deferred) {
        throw Error("the host submits for this device (BorrowedDevice::host_submits): its own buffers are bound",
                    "Device::make_tensor");
    }
    if (!is_floating(dtype) && dtype != DType::i32) {
        throw Error("is " + std::string(name_of(dtype)) + "; there are F32, F16, BF16 and I32", "a tensor");
    }
    const std::uint64_t bytes = tensor_bytes(shape, dtype);
    WeightLayout layout({{.name = "tensor", .dtype = dtype, .shape = shape, .bytes = bytes}},
                        core_->capabilities.storage_alignment, core_->capabilities.max_allocation, "tensor");
    return {std::make_shared<TensorStore>(core_, std::move(layout), "a tensor of " + shape_text(shape)), dtype,
            std::move(shape), bytes};
}

State Device::make_state(std::initializer_list<const Graph*> graphs) const {
    return make_state(std::span(graphs.begin(), graphs.size()));
}

State Device::make_state(std::span<const Graph* const> graphs) const {
    std::vector<StorageInfo> storages;
    for (const Graph* g : graphs) {
        storages.insert(storages.end(), g->storages().begin(), g->storages().end());
    }
    return Insides::make<State>(make_state_store(core_, storages));
}

}  // namespace vkf
