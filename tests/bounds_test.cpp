// SPDX-License-Identifier: Apache-2.0
// Ops keep to their tensors. Every input and output of a recording lies between fences in a buffer
// of the host's, and its descriptors reach to the end of the buffer, so that no driver cuts off
// what a kernel does beyond: fences and inputs must stay as they were, every element of an output
// must be written, and what lies in the fences must not show in the results.
#include <doctest/doctest.h>

#include <bit>
#include <cstring>
#include <functional>
#include <map>
#include <optional>
#include <set>

#include "ops/ops.h"
#include "runtime/compile/plan.h"
#include "runtime/device/device.h"
#include "runtime/device/program.h"
#include "tests/device.h"
#include "tests/fake_vulkan.h"
#include "tests/host.h"
#include "tests/op_check.h"

namespace vkf::test {

namespace {

constexpr std::uint64_t kFence = 4096;  // bytes; a multiple of every alignment there is

using Words = std::vector<std::uint32_t>;
using Build = std::function<std::vector<Value>(Graph&)>;
using SymbolSizes = std::map<std::string, std::int64_t>;

/// Floats in [-1, 1), integers 0 and 1: indices that every table has.
Words some_data(std::uint64_t count, DType dtype, std::uint32_t seed) {
    Words out(count);
    std::uint32_t state = seed;
    for (std::uint32_t& word : out) {
        state = state * 1664525 + 1013904223;  // Numerical Recipes' generator
        word = dtype == DType::i32 ? state >> 31
                                   : std::bit_cast<std::uint32_t>(static_cast<float>(state >> 8) * 0x1p-23f - 1.0f);
    }
    return out;
}

class Fenced {
public:
    Fenced() {
        BorrowedDevice handles = host_.handles();
        handles.get_instance_proc_addr = vulkan_.entry();
        device_.emplace(Device::borrow(handles));
        vulkan_.vkUpdateDescriptorSets.instead = [this](VkDevice device, std::uint32_t count,
                                                        const VkWriteDescriptorSet* writes, std::uint32_t copies,
                                                        const VkCopyDescriptorSet* copied) {
            std::vector<VkWriteDescriptorSet> wide(writes, writes + count);
            std::vector<VkDescriptorBufferInfo> buffers(count);
            for (std::uint32_t i = 0; i < count; ++i) {
                buffers[i] = *writes[i].pBufferInfo;
                if (fenced_.contains(buffers[i].buffer)) {
                    buffers[i].offset += shift;
                    buffers[i].range = VK_WHOLE_SIZE;
                }
                wide[i].pBufferInfo = &buffers[i];
            }
            vulkan_.vkUpdateDescriptorSets.real(device, count, wide.data(), copies, copied);
        };
    }

    /// Says what is wrong with the recording of this graph, on the device and on it as a small GPU;
    /// empty: nothing.
    std::string trespass(const Build& build, const SymbolSizes& sizes = {}) {
        std::string found = trespass_of(build, sizes);
        if (found.empty()) {
            const AsSmallGpu small_gpu(*device_);
            found = trespass_of(build, sizes);
            found = found.empty() ? found : "as on a small GPU: " + found;
        }
        return found;
    }

    /// Every fenced buffer is taken for one that begins so many bytes later.
    std::uint64_t shift = 0;

    /// Closes the device, and gives what validation said.
    std::string close() {
        device_.reset();
        std::string said;
        for (const std::string& message : host_.messages()) {
            said += message + '\n';
        }
        return said;
    }

private:
    struct Tensor {
        std::string name;
        bool output = false;
        Words data;  ///< at the sizes of the run
        Host::Buffer buffer;
        std::uint64_t most_bytes = 0;
    };

    std::string trespass_of(const Build& build, const SymbolSizes& sizes) {
        Graph graph;
        std::size_t outputs = 0;
        for (const Value& y : build(graph)) {
            graph.output("y" + std::to_string(outputs++), y);
        }
        Program program = device_->compile(graph);
        program.allocate();
        for (const auto& [symbol, value] : sizes) {
            program.set(symbol, value);
        }
        std::vector<Tensor> tensors;
        for (StorageId id = 0; id < plan_of(program).storages.size(); ++id) {
            const StorageInfo& info = plan_of(program).storages[id];
            if (info.kind != StorageKind::input && info.kind != StorageKind::output) {
                continue;
            }
            std::uint64_t count = 1;
            for (const std::int64_t size : program.shape(info.name)) {
                count *= static_cast<std::uint64_t>(size);
            }
            Tensor t;
            t.name = info.name;
            t.output = info.kind == StorageKind::output;
            t.data = t.output ? Words(count) : some_data(count, info.dtype, id + 1);
            t.most_bytes = plan_of(program).storage_bytes[id];
            t.buffer = host_.make_buffer(2 * kFence + t.most_bytes);
            fenced_.insert(t.buffer.buffer);
            tensors.push_back(std::move(t));
        }
        std::string found = run(program, tensors, sizes, 0x7fa0feedu);  // a NaN
        const std::vector<Tensor> first = tensors;
        found += run(program, tensors, sizes, 0x4b3c614eu);  // a large number, and a large index
        for (std::size_t i = 0; i < tensors.size(); ++i) {
            if (tensors[i].data != first[i].data) {
                found += tensors[i].name + " depends on what lies outside the tensors; ";
            }
            fenced_.erase(tensors[i].buffer.buffer);
            host_.destroy(tensors[i].buffer);
        }
        return found;
    }

    std::string run(Program& program, std::vector<Tensor>& tensors, const SymbolSizes& sizes, std::uint32_t fence) {
        std::vector<BufferRange> ranges;
        for (const Tensor& t : tensors) {
            Words all((2 * kFence + t.most_bytes) / 4, fence);
            if (!t.output) {
                std::copy(t.data.begin(), t.data.end(), all.begin() + kFence / 4);
            }
            std::memcpy(t.buffer.mapped, all.data(), all.size() * 4);
            ranges.push_back({t.name, t.buffer.buffer, kFence, t.most_bytes});
        }
        std::vector<SizeSetting> settings;
        for (const auto& [symbol, value] : sizes) {
            settings.push_back({symbol, value});
        }
        VkCommandBuffer commands = host_.begin();
        const Status status = program.record(commands, ranges, settings);
        host_.submit(commands);
        host_.wait_idle();
        if (!status) {
            return status.message.data();
        }
        std::string found;
        for (Tensor& t : tensors) {
            Words all((2 * kFence + t.most_bytes) / 4);
            std::memcpy(all.data(), t.buffer.mapped, all.size() * 4);
            const std::size_t from = kFence / 4;
            const std::size_t to = from + t.data.size();
            for (std::size_t i = 0; i < all.size(); ++i) {
                const bool outside = i < from || i >= to;
                if (outside ? all[i] != fence : t.output ? all[i] == fence : all[i] != t.data[i - from]) {
                    found += t.name +
                             (outside    ? ": written outside, at element "
                              : t.output ? ": not written, element "
                                         : ": an input was changed, element ") +
                             std::to_string(static_cast<std::int64_t>(i) - static_cast<std::int64_t>(from)) + " of " +
                             std::to_string(t.data.size()) + "; ";
                    break;
                }
            }
            if (t.output) {
                t.data.assign(all.begin() + static_cast<std::ptrdiff_t>(from),
                              all.begin() + static_cast<std::ptrdiff_t>(to));
            }
        }
        return found;
    }

    Host host_;
    fake::Vulkan vulkan_;
    std::optional<Device> device_;
    std::set<VkBuffer> fenced_;
};

}  // namespace

TEST_SUITE_BEGIN("bounds");

TEST_CASE("bounds: the fences see") {
    Fenced fenced;
    const auto copy = [](Graph& g) { return std::vector{contiguous(g.input("x", {3, 50}))}; };
    CHECK(fenced.trespass(copy) == "");
    fenced.shift = 256;
    const std::string found = fenced.trespass(copy);
    CHECK(contains(found, "y0: not written, element 0 of 150"));
    CHECK(contains(found, "y0 depends on what lies outside the tensors"));
    CHECK(fenced.close() == "");
}

TEST_CASE("bounds: row ops at every width") {
    Fenced fenced;
    struct Sizes {
        std::int64_t rows, width;
    };
    for (const Sizes s : {Sizes{1, 1},
                          {3, 3},
                          {17, 4},
                          {5, 5},
                          {33, 8},
                          {2, 31},
                          {16, 64},
                          {7, 257},
                          {130, 260},
                          {515, 1023},
                          {512, 1024}}) {
        CAPTURE(s.rows);
        CAPTURE(s.width);
        const auto with = [&](auto op) {
            return fenced.trespass([&](Graph& g) {
                const auto vector = [&](const char* name) { return g.input(name, {s.width}); };
                return std::vector{op(g.input("x", {s.rows, s.width}), vector)};
            });
        };
        CHECK(with([](Value x, auto) { return contiguous(x); }) == "");
        CHECK(with([](Value x, auto) { return softmax(x); }) == "");
        CHECK(with([](Value x, auto vector) { return layer_norm(x, vector("weight"), vector("bias")); }) == "");
        CHECK(with([](Value x, auto vector) { return rms_norm(x, vector("weight")); }) == "");
        CHECK(with([](Value x, auto) { return argmax(x); }) == "");
        CHECK(with([](Value x, auto vector) { return gelu(x + vector("bias")); }) == "");
    }
    CHECK(fenced.close() == "");
}

TEST_CASE("bounds: rows of fewer elements than there may be") {
    Fenced fenced;
    for (const std::int64_t rows : {0, 1, 9, 40}) {
        CAPTURE(rows);
        const auto with = [&](auto op) {
            return fenced.trespass(
                [&](Graph& g) {
                    const Dim n = g.symbol("rows", 40);
                    return std::vector{op(g.input("x", {n, 24}), g.input("square", {n, n}))};
                },
                {{"rows", rows}});
        };
        CHECK(with([](Value x, Value) { return layer_norm(x, {}, {}); }) == "");
        CHECK(with([](Value, Value square) { return softmax(square, {.mask = {.causal = Causal::top_left}}); }) == "");
        CHECK(with([](Value x, Value square) { return matmul(square, x); }) == "");
        CHECK(with([](Value x, Value square) { return matmul(x, x, {.transpose_b = true}) + square; }) == "");
    }
    CHECK(fenced.close() == "");
}

TEST_CASE("bounds: scores with masks, biases and all that softmax() takes") {
    Fenced fenced;
    for (const std::int64_t keys : {7, 20, 300}) {
        CAPTURE(keys);
        const auto with = [&](auto op) {
            return fenced.trespass([&](Graph& g) {
                SoftmaxOptions o{.scale = 0.5f, .softcap = 3.0f};
                o.mask = {.keys = g.input("mask", {2, 1, 1, keys}, DType::i32),
                          .bias = g.input("bias", {5, keys}),
                          .alibi_slopes = g.input("slopes", {3}),
                          .causal = Causal::bottom_right,
                          .window = 4};
                return op(g.input("x", {2, 3, 5, keys}), o);
            });
        };
        CHECK(with([](Value x, const SoftmaxOptions& o) {
                  return std::vector{softmax(x, o), log_sum_exp(x, o)};
              }) == "");
        CHECK(with([](Value x, const SoftmaxOptions& o) { return std::vector{hard_max(x, o)}; }) == "");
    }
    CHECK(fenced.close() == "");
}

TEST_CASE("bounds: products") {
    Fenced fenced;
    struct Sizes {
        std::int64_t rows, inner, columns;
    };
    for (const Sizes s : {Sizes{1, 1, 1},
                          {1, 64, 64},
                          {3, 5, 7},
                          {4, 8, 12},
                          {5, 36, 33},
                          {65, 17, 70},
                          {129, 4, 68},
                          {200, 64, 132},
                          {512, 512, 512}}) {
        CAPTURE(s.rows);
        CAPTURE(s.inner);
        CAPTURE(s.columns);
        CHECK(fenced.trespass([&](Graph& g) {
            return std::vector{matmul(g.input("a", {s.rows, s.inner}), g.input("b", {s.inner, s.columns}))};
        }) == "");
        CHECK(fenced.trespass([&](Graph& g) {
            return std::vector{linear(g.input("x", {s.rows, s.inner}), g.input("weight", {s.columns, s.inner}),
                                      g.input("bias", {s.columns}), Activation::gelu)};
        }) == "");
        if (s.rows < 500) {
            CHECK(fenced.trespass([&](Graph& g) {
                const Value y = matmul(g.input("a", {2, 3, s.rows, s.inner}), g.input("b", {2, 1, s.inner, s.columns}),
                                       {.masked_weights = true, .heads_last = true});
                return std::vector{merge_heads(y)};
            }) == "");
        }
    }
    CHECK(fenced.close() == "");
}

TEST_CASE("bounds: positions, gathering, copying and training's forward ops") {
    Fenced fenced;
    const auto sees = [&](auto build) {
        return fenced.trespass([&](Graph& g) { return std::vector<Value>(build(g)); });
    };
    for (const std::int64_t width : {6, 16, 128}) {
        CAPTURE(width);
        for (const RopeLayout layout : {RopeLayout::interleaved, RopeLayout::half}) {
            const Rope options{.layout = layout, .rotary_dim = width / 4 * 2, .max_positions = 9};
            CHECK(sees([&](Graph& g) { return std::vector{rope(g.input("x", {3, 9, width}), options)}; }) == "");
            CHECK(sees([&](Graph& g) {
                      return std::vector{rope_at(g.input("x", {3, 9, width}), g.input("at", {9}, DType::i32), options)};
                  }) == "");
        }
        CHECK(sees([&](Graph& g) {
                  return std::vector{embedding(g.input("ids", {3, 5}, DType::i32), g.input("table", {2, width}), 2.0f)};
              }) == "");
        CHECK(sees([&](Graph& g) { return std::vector{repeat_kv(g.input("x", {2, 3, 2, width}), 3)}; }) == "");
        CHECK(sees([&](Graph& g) {
                  return std::vector{concat({g.input("a", {3, width}), g.input("b", {3, 5})}, 1)};
              }) == "");
        CHECK(sees([&](Graph& g) {
                  return std::vector{contiguous(transpose(g.input("x", {2, 7, width}), 1, 2))};
              }) == "");
        CHECK(sees([&](Graph& g) {
                  return std::vector{gated(g.input("gate", {5, width}), g.input("up", {5, width}), Activation::silu)};
              }) == "");
        CHECK(sees([&](Graph& g) { return std::vector{dropout(g.input("x", {5, width}), 0.5f, 3)}; }) == "");
        CHECK(sees([&](Graph& g) {
                  return std::vector{cross_entropy(g.input("logits", {5, width}), g.input("labels", {5}, DType::i32))};
              }) == "");
        CHECK(sees([&](Graph& g) {
                  const auto vector = [&](const char* name) { return g.input(name, {width}); };
                  const BatchNormResult r = batch_norm_train(g.input("x", {5, width}), vector("weight"), vector("bias"),
                                                             vector("mean"), vector("var"));
                  return std::vector{r.y, r.running_mean, r.running_var};
              }) == "");
    }
    CHECK(fenced.close() == "");
}

TEST_SUITE_END();

}  // namespace vkf::test
