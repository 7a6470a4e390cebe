// SPDX-License-Identifier: Apache-2.0
#include "runtime/device/packer.h"

#include <algorithm>
#include <array>

#include "runtime/compile/pack_lanes.h"
#include "runtime/device/barrier.h"
#include "runtime/device/device_core.h"
#include "runtime/graph/packed.h"
#include "shaders/packed_rows.h"

namespace vkf {

namespace {

using namespace shader;

// The one op that the runtime has of its own.

struct PackWeightsParams {
    WeightType type;
    DType from;
    std::int64_t columns;
};

void prepare_weights(const Operands& operands, Command& command) noexcept {
    const auto& o = operands.params<PackWeightsParams>();
    const View& words = operands[kPackedRowsBindingTo];
    PackedRowsPush push{};
    push.rows = words.dim(1);
    push.columns = static_cast<uint>(o.columns);
    push.size[0] = push.size[1] = 1;
    push.numbers_stride[0] = push.columns;
    push.numbers_stride[3] = 1;
    push.words_stride[0] = words.step(1);
    push.numbers_offset = operands[kPackedRowsBindingFrom].offset;
    push.words_offset = words.offset;
    command.push(push);
    command.groups(pack_groups(operands.words[0], push.rows));
    const double numbers = static_cast<double>(push.rows) * push.columns;
    command.cost(numbers * 16,
                 4.0 * static_cast<double>(operands[kPackedRowsBindingFrom].elements() + words.elements()));
}

void lower_weights(Lowering& l) {
    const auto& o = l.params<PackWeightsParams>();
    const uint lanes = pack_lanes(l, o.columns);
    l.dispatch({{&kPackedRows,
                 {kPackGroup,
                  {{kPackedRowsSpecType, static_cast<uint>(o.type)},
                   {kPackedRowsSpecUnpack, 0},
                   {kPackedRowsSpecLanes, lanes},
                   {kPackedRowsSpecFrom, static_cast<uint>(kept_as(o.from))}}},
                 lanes > 1 ? "a row a group" : "a row an invocation"}},
               {{l.input(0), Access::read}, {l.output(0), Access::write}}, prepare_weights, {lanes});
}

constexpr OpType kPackWeights{"pack_weights", lower_weights};

/// Input "numbers": i32 words of `columns` numbers of `from` a row, row after row. Output "words":
/// up to `rows` rows packed as `to`. Symbols: "numbers", the words of the input, and "rows".
void describe_packing(Graph& graph, DType from, WeightType to, std::int64_t rows, std::int64_t columns) {
    const auto words = static_cast<std::int64_t>(packed_row_words(to, static_cast<std::uint64_t>(columns)));
    const std::int64_t numbers = (rows * columns * size_of(from) + 3) / 4;
    const Value x = graph.input("numbers", {graph.symbol("numbers", numbers)}, DType::i32);
    const OutputSpec packed{DType::i32, {graph.symbol("rows", rows), Dim(words)}};
    const auto params = std::make_shared<const PackWeightsParams>(PackWeightsParams{to, from, columns});
    graph.output("words", graph.add_node(kPackWeights, {x}, params, {packed}).front());
}

std::uint64_t columns_of(const HostTensor& t) { return static_cast<std::uint64_t>(t.shape[1]); }

std::uint64_t number_bytes(const HostTensor& t, std::uint64_t rows) { return rows * columns_of(t) * size_of(t.dtype); }

std::uint64_t word_bytes(const HostTensor& t, WeightType type, std::uint64_t rows) {
    return rows * packed_row_words(type, columns_of(t)) * sizeof(std::uint32_t);
}

/// Bytes of whole words.
std::uint64_t whole(std::uint64_t bytes) { return align_up(bytes, 4); }

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
