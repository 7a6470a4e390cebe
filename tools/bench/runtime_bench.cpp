// SPDX-License-Identifier: Apache-2.0
// What the runtime itself costs on the host.
#include <cstdio>
#include <stdexcept>

#include "benches.h"
#include "runtime/compile/plan.h"
#include "runtime/device/device.h"
#include "runtime/device/device_core.h"
#include "runtime/device/insides.h"

namespace {

constexpr int kNodes = 200;
constexpr std::int64_t kWidth = 64;

/// A chain, so that there is a barrier at every node.
vkf::Program compile_chain(const vkf::Device& device, int nodes) {
    vkf::Graph g;
    vkf::Value x = g.input("x", {kWidth});
    for (int i = 0; i < nodes; ++i) {
        x = vkf::scale(x, 1.0f);
    }
    g.output("y", x);
    vkf::Program program = device.compile(g);
    program.upload("x", std::vector<float>(kWidth, 2.0f));
    program.run();
    if (program.download("y") != std::vector<float>(kWidth, 2.0f)) {
        throw std::runtime_error("a chain of scale(x, 1) changed x");
    }
    return program;
}

/// The things that a host brings to Program::record: a command buffer, and a buffer for an input or
/// output.
class Host {
public:
    explicit Host(vkf::DeviceCore& core, VkDeviceSize bytes = kWidth * sizeof(float))
        : core_(core), vk_(core.api), bytes_(bytes), half_((bytes + kAlignment - 1) / kAlignment * kAlignment) {
        const VkCommandPoolCreateInfo pool_info{VK_STRUCTURE_TYPE_COMMAND_POOL_CREATE_INFO, nullptr,
                                                VK_COMMAND_POOL_CREATE_RESET_COMMAND_BUFFER_BIT, core.queue_family};
        vkf::check(vk_.vkCreateCommandPool(core.handle, &pool_info, nullptr, &pool_), "vkCreateCommandPool");
        const VkCommandBufferAllocateInfo info{VK_STRUCTURE_TYPE_COMMAND_BUFFER_ALLOCATE_INFO, nullptr, pool_,
                                               VK_COMMAND_BUFFER_LEVEL_PRIMARY, 1};
        vkf::check(vk_.vkAllocateCommandBuffers(core.handle, &info, &commands_), "vkAllocateCommandBuffers");
        const VkBufferCreateInfo buffer_info{VK_STRUCTURE_TYPE_BUFFER_CREATE_INFO,
                                             nullptr,
                                             0,
                                             2 * half_,
                                             VK_BUFFER_USAGE_STORAGE_BUFFER_BIT,
                                             VK_SHARING_MODE_EXCLUSIVE,
                                             0,
                                             nullptr};
        vkf::check(vk_.vkCreateBuffer(core.handle, &buffer_info, nullptr, &buffer_), "vkCreateBuffer");
        VkMemoryRequirements needs{};
        vk_.vkGetBufferMemoryRequirements(core.handle, buffer_, &needs);
        std::uint32_t type = 0;
        while ((needs.memoryTypeBits >> type & 1u) == 0) {
            ++type;
        }
        const VkMemoryAllocateInfo memory_info{VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_INFO, nullptr, needs.size, type};
        vkf::check(vk_.vkAllocateMemory(core.handle, &memory_info, nullptr, &memory_), "vkAllocateMemory");
        vkf::check(vk_.vkBindBufferMemory(core.handle, buffer_, memory_, 0), "vkBindBufferMemory");
    }
    ~Host() {
        vk_.vkDestroyBuffer(core_.handle, buffer_, nullptr);
        vk_.vkFreeMemory(core_.handle, memory_, nullptr);
        vk_.vkDestroyCommandPool(core_.handle, pool_, nullptr);
    }
    Host(const Host&) = delete;
    Host& operator=(const Host&) = delete;

    /// Measures the time of Program::record alone.
    double record(vkf::Program& program) {
        const VkCommandBufferBeginInfo info{VK_STRUCTURE_TYPE_COMMAND_BUFFER_BEGIN_INFO, nullptr, 0, nullptr};
        vkf::check(vk_.vkBeginCommandBuffer(commands_, &info), "vkBeginCommandBuffer");
        const vkf::BufferRange ranges[] = {{"x", buffer_, 0, bytes_}, {"y", buffer_, half_, bytes_}};
        const auto start = Clock::now();
        const vkf::Status status = program.record(commands_, ranges, {});
        const double ms = milliseconds_since(start);
        vkf::check(vk_.vkEndCommandBuffer(commands_), "vkEndCommandBuffer");
        if (!status) {
            throw std::runtime_error(status.message.data());
        }
        return ms;
    }

private:
    static constexpr VkDeviceSize kAlignment = 4096;  // a multiple of every device's
    vkf::DeviceCore& core_;
    const vkf::DeviceTable& vk_;
    VkDeviceSize bytes_, half_;
    VkCommandPool pool_ = VK_NULL_HANDLE;
    VkCommandBuffer commands_ = VK_NULL_HANDLE;
    VkBuffer buffer_ = VK_NULL_HANDLE;
    VkDeviceMemory memory_ = VK_NULL_HANDLE;
};

Row record_200_nodes(Settings& settings) {
    vkf::Program program = compile_chain(settings.device, kNodes);
    program.allocate();
    Host host(vkf::Insides::core(settings.device));
    host.record(program);
    Row row;
    row.name = "record_200_nodes";
    row.variant = "Program::record on the host";
    row.ms = median(sample(row.name, 200, [&] { return host.record(program); }));
    row.target_ms = 0.2;
    return row;
}

/// torch.nn.TransformerEncoder of 12 layers with all their weights. What they are does not matter
/// here.
Row record_encoder_12_layers(Settings& settings) {
    constexpr std::int64_t kModel = 128, kTokens = 64;
    vkf::Graph g;
    const vkf::Value x = g.input("x", {1, kTokens, kModel});
    g.output("y", vkf::torch::transformer_encoder(x, {.nhead = 4, .dim_feedforward = 4 * kModel}, 12, "encoder"));
    std::vector<vkf::HostTensor> tensors;
    const std::vector<float> numbers(4 * kModel * kModel, 0.01f);
    for (const vkf::StorageInfo& s : g.storages()) {
        if (s.kind == vkf::StorageKind::weight) {
            vkf::HostTensor t{s.name, s.dtype, {}, {}};
            std::size_t count = 1;
            for (const vkf::Dim& d : s.shape) {
                t.shape.push_back(d.constant());
                count *= static_cast<std::size_t>(d.constant());
            }
            t.data = std::as_bytes(std::span(numbers).first(count));
            tensors.push_back(std::move(t));
        }
    }
    const vkf::Weights weights = settings.device.load(tensors);
    const vkf::Plan plan = vkf::make_plan(g, settings.device.capabilities(), weights.layout());
    vkf::Program program = settings.device.compile(g, weights);
    program.allocate();
    Host host(vkf::Insides::core(settings.device), kTokens * kModel * sizeof(float));
    host.record(program);
    Row row;
    row.name = "record_encoder_12_layers";
    row.variant = "Program::record on the host, " + std::to_string(plan.dispatches.size()) + " dispatches";
    row.ms = median(sample(row.name, 200, [&] { return host.record(program); }));
    row.target_ms = 0.1;
    return row;
}

/// The slope between a long and a short chain: what submitting and waiting cost falls out.
Row run_overhead_per_node(Settings& settings) {
    vkf::Program many = compile_chain(settings.device, kNodes);
    vkf::Program one = compile_chain(settings.device, 1);
    const auto run = [](vkf::Program& program) {
        const auto start = Clock::now();
        program.run();
        return milliseconds_since(start);
    };
    std::vector<double> single;
    const std::vector<double> chain = sample("run_overhead_per_node", 100, [&] {
        single.push_back(run(one));
        return run(many);
    });
    Row row;
    row.name = "run_overhead_per_node";
    row.ms = (median(chain) - median(single)) / (kNodes - 1);
    char text[96];
    std::snprintf(text, sizeof(text), "Program::run: %.3f ms with 1 node, %.3f ms with %d", median(single),
                  median(chain), kNodes);
    row.variant = text;
    return row;
}

}  // namespace

std::vector<Bench> runtime_benches() {
    return {{"record_200_nodes", record_200_nodes},
            {"record_encoder_12_layers", record_encoder_12_layers},
            {"run_overhead_per_node", run_overhead_per_node}};
}
