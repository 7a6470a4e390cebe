// SPDX-License-Identifier: Apache-2.0
#include "runtime/packer.h"

#include <algorithm>
#include <array>

#include "runtime/barrier.h"
#include "runtime/device_core.h"

namespace vkf {

namespace {

std::uint64_t columns_of(const HostTensor& t) { return static_cast<std::uint64_t>(t.shape[1]); }

std::uint64_t number_bytes(const HostTensor& t, std::uint64_t rows) { return rows * columns_of(t) * size_of(t.dtype); }

std::uint64_t word_bytes(const HostTensor& t, WeightType type, std::uint64_t rows) {
    return rows * packed_row_words(type, columns_of(t)) * sizeof(std::uint32_t);
}

/// Bytes of whole words.
std::uint64_t whole(std::uint64_t bytes) { return (bytes + 3) / 4 * 4; }

}  // namespace

std::uint64_t Packer::rows_at_once(const HostTensor& tensor, WeightType type) const {
    const std::uint64_t most = std::min(core_->options.staging_bytes, core_->capabilities.storage_range);
    const std::uint64_t row = std::max(number_bytes(tensor, 1), word_bytes(tensor, type, 1));
    return std::clamp<std::uint64_t>(most / row, 1, static_cast<std::uint64_t>(tensor.shape[0]));
}

Program& Packer::program(const HostTensor& tensor, WeightType type) {
    const std::uint64_t rows = rows_at_once(tensor, type);
    const Key key{tensor.dtype, type, rows, columns_of(tensor)};
    const auto found = programs_.find(key);
    if (found != programs_.end()) {
        return found->second;
    }
    Graph graph;
    describe_packing(graph, tensor.dtype, type, static_cast<std::int64_t>(rows), tensor.shape[1]);
    CompileOptions options;
    options.name = "packing as " + std::string(name_of(type));
    Program& program = programs_.emplace(key, device_.compile(graph, {}, options)).first->second;
    program.allocate();
    return program;
}

void Packer::pack(const HostTensor& tensor, WeightType type, std::int64_t first, std::uint64_t rows,
                  const Block& target, std::uint64_t offset) {
    Program& packing = program(tensor, type);
    const std::uint64_t most = rows_at_once(tensor, type);
    const auto grow = [&](Block& block, std::uint64_t bytes, const char* purpose) {
        if (!block || block.bytes() < bytes) {
            block = {};
            block = Block(core_, bytes, MemoryUse::device, purpose);
        }
    };
    grow(numbers_, whole(number_bytes(tensor, most)), "numbers to pack");
    grow(words_, word_bytes(tensor, type, most), "packed words");
    const std::uint64_t bytes = number_bytes(tensor, rows);
    uploader_.write(numbers_, 0, tensor.data.subspan(number_bytes(tensor, static_cast<std::uint64_t>(first)), bytes));

    const std::array buffers{BufferRange{.name = "numbers", .buffer = numbers_.buffer(), .bytes = numbers_.bytes()},
                             BufferRange{.name = "words", .buffer = words_.buffer(), .bytes = words_.bytes()}};
    const std::array sizes{SizeSetting{"numbers", static_cast<std::int64_t>(whole(bytes) / 4)},
                           SizeSetting{"rows", static_cast<std::int64_t>(rows)}};
    const VkCommandBuffer commands = uploader_.commands();
    if (const Status status = packing.record(commands, {.buffers = buffers, .sizes = sizes}); !status) {
        throw Error(status.message.data(), "weight " + tensor.name, status.error_result());
    }
    const DeviceTable& vk = core_->api;
    barrier(vk, commands, kCompute, VK_ACCESS_SHADER_WRITE_BIT, kTransfer, VK_ACCESS_TRANSFER_READ_BIT);
    const VkBufferCopy region{0, offset, word_bytes(tensor, type, rows)};
    vk.vkCmdCopyBuffer(commands, words_.buffer(), target.buffer(), 1, &region);
    uploader_.finish();
    packing.finished(0);
}

}  // namespace vkf
