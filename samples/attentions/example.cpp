// SPDX-License-Identifier: Apache-2.0
#include "example.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <random>
#include <span>

namespace {

std::size_t product(const std::vector<std::int64_t>& shape) {
    std::size_t count = 1;
    for (const std::int64_t size : shape) {
        count *= static_cast<std::size_t>(size);
    }
    return count;
}

bool fixed(const Shape& shape) {
    return std::all_of(shape.begin(), shape.end(), [](const Dim& d) { return d.is_constant(); });
}

const Floats& kept(Tensors& all, const Given& given, const std::string& name, std::size_t count) {
    const auto found = given.floats.find(name);
    return all[name] = found != given.floats.end() ? found->second : numbers(name, count);
}

}  // namespace

Floats numbers(const std::string& name, std::size_t count) {
    std::uint32_t seed = 2166136261u;  // FNV-1a
    for (const char c : name) {
        seed = (seed ^ static_cast<unsigned char>(c)) * 16777619u;
    }
    std::mt19937 random(seed);
    Floats out(count);
    for (float& x : out) {
        x = static_cast<float>(random() >> 8) * 0x1p-23f - 1.0f;
    }
    return out;
}

void give(const std::string& name, Value value) { value.graph().output(name, contiguous(value)); }

Floats columns(const Floats& rows, std::size_t width, std::size_t first, std::size_t count) {
    Floats out;
    for (std::size_t row = 0; row + width <= rows.size(); row += width) {
        const auto from = rows.begin() + static_cast<std::ptrdiff_t>(row + first);
        out.insert(out.end(), from, from + static_cast<std::ptrdiff_t>(count));
    }
    return out;
}

void Examples::family(const std::string& title) { std::printf("\n%s\n", title.c_str()); }

Program Examples::compile(const Graph& graph, const Given& given, const CompileOptions& options) {
    Tensors memory;  // what the tensors below point at
    std::vector<HostTensor> weights;
    for (const StorageInfo& s : graph.storages()) {
        if (s.kind == StorageKind::weight) {
            HostTensor weight{s.name, s.dtype, {}, {}};
            for (const Dim& d : s.shape) {
                weight.shape.push_back(d.constant());
            }
            weight.data = std::as_bytes(std::span(kept(memory, given, s.name, product(weight.shape))));
            weights.push_back(weight);
        }
    }
    Program p = device_.compile(graph, device_.load(weights), options);
    for (const StorageInfo& s : graph.storages()) {
        if (s.kind == StorageKind::input && s.dtype == DType::i32 && given.integers.count(s.name) != 0) {
            p.upload(s.name, given.integers.at(s.name));
        } else if (s.kind == StorageKind::input && s.dtype == DType::f32 && fixed(s.shape)) {
            p.upload(s.name, kept(memory, given, s.name, product(p.shape(s.name))));
        }
    }
    return p;
}

Tensors Examples::run(const Graph& graph, const Given& given) {
    Program p = compile(graph, given);
    p.run();
    Tensors out;
    for (const StorageInfo& s : graph.storages()) {
        if (s.kind == StorageKind::output && s.dtype == DType::f32) {
            out[s.name] = p.download(s.name);
        }
    }
    return out;
}

void Examples::close(const std::string& claim, const Floats& got, const Floats& want) {
    compare(claim, got, want, 1e-5f, 1e-4f);
}

void Examples::same(const std::string& claim, const Floats& got, const Floats& want) {
    compare(claim, got, want, 0.0f, 0.0f);
}

void Examples::compare(const std::string& claim, const Floats& got, const Floats& want, float absolute,
                       float relative) {
    bool good = got.size() == want.size() && !got.empty();
    float largest = 0;
    for (std::size_t i = 0; good && i < got.size(); ++i) {
        if (got[i] != want[i]) {  // equal infinities have no difference
            const float difference = std::abs(got[i] - want[i]);
            largest = std::max(largest, difference);
            good = difference <= absolute + relative * std::abs(want[i]);  // and not NaN
        }
    }
    ++claims_;
    failures_ += good ? 0 : 1;
    std::printf("  %-84s", claim.c_str());
    if (!good) {
        std::printf(" DOES NOT HOLD (%zu numbers, %zu wanted)\n", got.size(), want.size());
        return;
    }
    for (std::size_t i = 0; i < std::min<std::size_t>(got.size(), 3); ++i) {
        std::printf(" %7.4f", got[i]);
    }
    std::printf(" .. largest difference %.2g\n", largest);
}

void Examples::holds(const std::string& claim, bool good) {
    ++claims_;
    failures_ += good ? 0 : 1;
    std::printf("  %-84s %s\n", claim.c_str(), good ? "holds" : "DOES NOT HOLD");
}
