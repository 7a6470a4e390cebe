// SPDX-License-Identifier: Apache-2.0
#include "tests/op_check.h"

#include <algorithm>
#include <bit>
#include <map>
#include <stdexcept>

#include "ops/ops.h"
#include "runtime/device/insides.h"
#include "runtime/device/program_core.h"
#include "tests/allocations.h"
#include "tests/device.h"

namespace vkf::test {

Value OpCheck::input(const std::string& name, const Tensor& data, DType dtype) {
    return input(name, data, Shape(data.shape.begin(), data.shape.end()), dtype);
}

Value OpCheck::input(const std::string& name, const Tensor& data, const Shape& declared, DType dtype) {
    inputs_.push_back({name, data, dtype});
    return graph.input(name, declared, dtype);
}

std::string OpCheck::output(Value y) {
    std::string& name = outputs_[y.id()];
    if (name.empty()) {
        name = "output " + std::to_string(outputs_.size());
        const ValueInfo& info = graph.values()[y.id()];
        const StorageInfo& storage = graph.storages()[info.storage];
        const bool whole = is_contiguous(y) && info.offset == Dim(0) && elements(info.shape) == elements(storage.shape);
        graph.output(name, whole && storage.kind == StorageKind::intermediate ? y : contiguous(y));
    }
    return name;
}

Tensor OpCheck::run_output(const std::string& name, DType dtype) {
    Program program = device().compile(graph, {}, {.arithmetic = arithmetic, .rewrite = rewrite});
    for (const auto& [symbol, value] : sizes_) {
        program.set(symbol, value);
    }
    for (const Input& i : inputs_) {
        upload(program, i.name, i.data, i.dtype);
    }
    program.run();
    return download(program, name, dtype);
}

Tensor OpCheck::run(Value y) {
    const DType dtype = y.dtype();
    return run_output(output(y), dtype);
}

std::string OpCheck::difference(Value y, const Tensor& want, const Tolerance& tolerance) {
    std::string found = test::difference(run(y), want, tolerance);
    if (found.empty()) {
        const AsSmallGpu small_gpu;
        found = test::difference(run(y), want, tolerance);
        found = found.empty() ? found : "as on a small GPU: " + found;
    }
    return found;
}

void upload(Program& program, std::string_view input, const Tensor& data, DType dtype) {
    if (dtype == DType::i32) {
        program.upload(input, data.integers());
    } else {
        program.upload(input, data.floats());
    }
}

void require_quiet(const Program& program) {
    const ProgramCore& core = Insides::core(program);
    const allocations::Counter counter;
    core.cost(core.sizes);  // which prepares every dispatch, as recording does
    if (counter.count() != 0) {
        throw std::logic_error("preparing a dispatch allocated memory");
    }
}

Tensor download(Program& program, std::string_view output, DType dtype) {
    require_quiet(program);
    Tensor out;
    out.shape = program.shape(output);
    if (dtype == DType::i32) {
        const std::vector<std::int32_t> data = program.download_i32(output);
        out.data.assign(data.begin(), data.end());
    } else {
        const std::vector<float> data = program.download(output);
        out.data.assign(data.begin(), data.end());
    }
    return out;
}

Weights load(const Tensor& w, WeightType type) {
    const std::vector<float> floats = w.floats();
    const HostTensor tensor{"w", DType::f32, w.shape, std::as_bytes(std::span(floats))};
    return device().load({&tensor, 1}, {.matrices = type});
}

Weights random_weights(std::initializer_list<const Graph*> graphs, const std::vector<std::string>& without) {
    std::map<std::string, std::pair<Sizes, std::vector<float>>> all;
    for (const Graph* g : graphs) {
        for (const StorageInfo& s : g->storages()) {
            if (s.kind == StorageKind::weight && std::find(without.begin(), without.end(), s.name) == without.end()) {
                Sizes shape;
                for (const Dim& d : s.shape) {
                    shape.push_back(d.constant());
                }
                all[s.name] = {shape, random_tensor(shape, static_cast<std::uint32_t>(all.size() + 1), 0.3).floats()};
            }
        }
    }
    std::vector<HostTensor> tensors;
    for (const auto& [name, t] : all) {
        tensors.push_back({name, DType::f32, t.first, std::as_bytes(std::span(t.second))});
    }
    return device().load(tensors);
}

Tensor run_in_chunks(Program& program, const Tensor& x, const std::vector<std::int64_t>& chunks) {
    Tensor y(x.shape);
    std::int64_t at = 0;
    for (const std::int64_t count : chunks) {
        program.set("tokens", count);
        program.set("start", at);
        upload(program, "x", slice(x, 1, at, count));
        program.run();
        const Tensor part = download(program, "y");
        for_each_index(part.shape, [&](const Sizes& i) { y.at({i[0], i[1] + at, i[2]}) = part.at(i); });
        at += count;
    }
    return y;
}

bool same_bits(const Tensor& a, const Tensor& b) {
    bool same = a.shape == b.shape && a.data.size() == b.data.size();
    for (std::size_t i = 0; same && i < a.data.size(); ++i) {
        same = std::bit_cast<std::uint32_t>(static_cast<float>(a.data[i])) ==
               std::bit_cast<std::uint32_t>(static_cast<float>(b.data[i]));
    }
    return same;
}

}  // namespace vkf::test
