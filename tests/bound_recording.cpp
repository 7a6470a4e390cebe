// SPDX-License-Identifier: Apache-2.0
#include "tests/bound_recording.h"

#include <cstring>

namespace vkf::test {

BorrowedDevice through(const Host& host, const fake::Vulkan& vulkan) {
    BorrowedDevice handles = host.handles();
    handles.get_instance_proc_addr = vulkan.entry();
    return handles;
}

Program compile_small(const Device& device, const CompileOptions& options) {
    Graph g;
    SmallModel::describe(g, kMax);
    return device.compile(g, SmallModel::load(device), options);
}

Bound::Bound(Host& host, std::int64_t tokens)
    : x(host.make_buffer(kBytes + 64)), y(host.make_buffer(kBytes)), tokens(tokens) {
    const std::vector<float> data = SmallModel::input(tokens).floats();
    std::memcpy(x.mapped, data.data(), data.size() * sizeof(float));
    ranges = {{"x", x.buffer, 0, kBytes}, {"y", y.buffer, 0, kBytes}};
    sizes = {{"tokens", tokens}};
}

std::vector<float> Bound::result() const {
    std::vector<float> out(static_cast<std::size_t>(tokens * SmallModel::kWidth));
    std::memcpy(out.data(), y.mapped, out.size() * sizeof(float));
    return out;
}

std::string Bound::wrong() const {
    const std::vector<float> got = result();
    return difference(Tensor({tokens, SmallModel::kWidth}, {got.begin(), got.end()}), SmallModel::answer(tokens),
                      SmallModel::tolerance());
}

std::vector<float> whole(Host& host, Program& program, const Bound& bound) {
    VkCommandBuffer commands = host.begin();
    if (const Status status = program.record(commands, bound.recording()); !status) {
        throw Error(text(status));
    }
    host.submit(commands);
    host.wait_idle();
    return bound.result();
}

}  // namespace vkf::test
