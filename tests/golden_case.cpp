// SPDX-License-Identifier: Apache-2.0
#include "tests/golden_case.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <utility>

#include "layers/sharing.h"
#include "ops/gradients.h"
#include "ops/ops.h"
#include "tests/op_check.h"

namespace vkf::test {

namespace {

template <class T>
std::vector<T> elements_of(const HostTensor& t, DType dtype) {
    if (t.dtype != dtype) {
        throw Error("is " + std::string(name_of(t.dtype)), t.name);
    }
    std::vector<T> out(t.data.size() / sizeof(T));
    if (!out.empty()) {
        std::memcpy(out.data(), t.data.data(), t.data.size());
    }
    return out;
}

/// Gradients and what follows from them.
bool is_gradient(const std::string& output) { return output.starts_with("grad.") || output == "loss_after_step"; }

}  // namespace

GoldenCase::GoldenCase(const std::string& path) : file_(path) {
    const auto& meta = file_.metadata();
    const auto text = [&](const char* key) {
        const auto at = meta.find(key);
        if (at == meta.end()) {
            throw Error(std::string("has no \"") + key + "\" in its metadata", path);
        }
        return at->second;
    };
    name_ = text("case");
    system_ = text("system");
    config_ = nlohmann::json::parse(text("config"));
}

void GoldenCase::share_out(const Rank& rank, std::shared_ptr<Communicator> communicator) {
    rank_ = rank;
    communicator_ = std::move(communicator);
    for (const HostTensor& t : file_.tensors()) {
        if (t.name == "in.dy") {
            used_tensors_.insert(t.name);
        }
    }
}

void GoldenCase::has_heads(const std::string& name, std::size_t dim, const HeadSizes& sizes, bool kv) {
    if (rank_.ranks > 1) {
        const HeadShare own = share_of_heads(sizes, rank_);
        Shard part = kv ? rows_of_heads(own.kv, 1, 0, sizes.kv_heads) : Shard{0, sizes.heads, {own.query}};
        part.dim = dim;
        has_part(name, part);
    }
}

std::int64_t GoldenCase::kv_heads(const HeadSizes& sizes) const {
    return rank_.ranks == 1 ? sizes.kv_heads : share_of_heads(sizes, rank_).sizes.kv_heads;
}

const nlohmann::json& GoldenCase::config(const std::string& key) {
    used_keys_.insert(key);
    static const nlohmann::json kNull;
    return config_.contains(key) ? config_[key] : kNull;
}

bool GoldenCase::flag(const std::string& key) { return config(key).is_boolean() && config(key).get<bool>(); }
std::int64_t GoldenCase::integer(const std::string& key) { return config(key).get<std::int64_t>(); }
std::string GoldenCase::text(const std::string& key) { return config(key).get<std::string>(); }

double GoldenCase::number(const std::string& key) {
    const nlohmann::json& v = config(key);
    return v.is_string() && v == "-inf" ? -std::numeric_limits<double>::infinity() : v.get<double>();
}

double GoldenCase::number_or(const std::string& key, double otherwise) {
    return config(key).is_null() ? otherwise : number(key);
}

HostTensor GoldenCase::tensor(const std::string& name) {
    used_tensors_.insert(name);
    const auto part = parts_.find(name);
    return part == parts_.end() ? file_.at(name) : part_of(file_.at(name), part->second);
}

HostTensor GoldenCase::part_of(const HostTensor& whole, const Shard& part) {
    return cut(whole, part, owned_.emplace_back());
}

Shape GoldenCase::shape(const std::string& name) const {
    const HostTensor& t = file_.at(name);
    return Shape(t.shape.begin(), t.shape.end());
}

Value GoldenCase::input(Graph& graph, const std::string& name) {
    const HostTensor t = tensor("in." + name);
    return graph.input(name, Shape(t.shape.begin(), t.shape.end()), t.dtype);
}

std::vector<float> GoldenCase::floats(const std::string& name) { return elements_of<float>(tensor(name), DType::f32); }
std::vector<std::int32_t> GoldenCase::integers(const std::string& name) {
    return elements_of<std::int32_t>(tensor(name), DType::i32);
}

void GoldenCase::output(Graph& graph, const std::string& name, Value value) {
    outputs_[name] = value;
    const bool of_gradients = has_input("dy") || file_.find("out.loss") != nullptr;
    if (of_gradients && file_.find("out." + name) == nullptr) {
        return;
    }
    const StorageInfo& storage = graph.storages()[graph.values()[value.id()].storage];
    const bool direct = storage.kind == StorageKind::intermediate && is_contiguous(value) &&
                        elements(value.shape()) == elements(storage.shape);
    graph.output(name, direct ? value : contiguous(value));
}

Weights GoldenCase::weights(const Device& device, const Graph& graph) {
    std::vector<HostTensor> params;
    for (const HostTensor& t : file_.tensors()) {
        if (!t.name.starts_with("param.")) {
            continue;
        }
        const std::string name = t.name.substr(6) + ending_;
        params.push_back(t);
        for (const StorageInfo& s : graph.storages()) {
            if (s.kind == StorageKind::weight && s.name == name && s.shard) {
                params.back() = part_of(t, *s.shard);
            }
        }
        params.back().name = name;
    }
    return device.load(params);
}

State GoldenCase::parameters(const Device& device, const Graph& graph) {
    State state = device.make_state({&graph});
    for (const HostTensor& t : file_.tensors()) {
        if (t.name.starts_with("param.")) {
            used_tensors_.insert(t.name);
            state.write(t.name.substr(6), t.data);
        }
    }
    return state;
}

void GoldenCase::use_params(const Graph& graph) {
    for (const StorageInfo& s : graph.storages()) {
        if (s.kind == StorageKind::weight) {
            used_tensors_.insert("param." + s.name.substr(0, s.name.size() - ending_.size()));
        }
    }
}

void GoldenCase::add_gradients(Graph& graph) {
    if (rank_.ranks > 1) {
        return;  // there are none: gradients() refuses
    }
    // Results of the older cases are called after what they are gradients of.
    static const std::map<std::string, std::string> kNames{{"dquery", "in.query"},      {"dkey", "in.key"},
                                                           {"dvalue", "in.value"},      {"dx", "in.x"},
                                                           {"dweight", "param.weight"}, {"dbias", "param.bias"}};
    std::vector<std::string> names;
    std::vector<Value> of;
    for (const HostTensor& t : file_.tensors()) {
        if (!t.name.starts_with("out.")) {
            continue;
        }
        const std::string name = t.name.substr(4);
        const auto known = kNames.find(name);
        if (known == kNames.end() && !name.starts_with("grad.")) {
            continue;
        }
        std::string source = known != kNames.end() ? known->second : name.substr(5);
        if (!source.starts_with("in.") && !source.starts_with("param.")) {
            source = "param." + source;
        }
        const bool weight = source.starts_with("param.");
        const std::string bare = source.substr(source.find('.') + 1) + (weight ? ending_ : "");
        for (ValueId id = 0; id < graph.values().size(); ++id) {
            const StorageInfo& s = graph.storages()[graph.values()[id].storage];
            if (s.name == bare && s.kind == (weight ? StorageKind::weight : StorageKind::input)) {
                names.push_back(name);
                of.emplace_back(graph, id);  // the first value of a storage is the whole of it
                break;
            }
        }
    }
    if (of.empty()) {
        return;
    }
    const bool loss = outputs_.contains("loss");
    const std::vector<Value> found =
        loss ? gradients(outputs_["loss"], of) : gradients(outputs_.at("y"), of, input(graph, "dy"));
    for (std::size_t i = 0; i < names.size(); ++i) {
        graph.output(names[i], contiguous(found[i]));
    }
}

void GoldenCase::run(const Device& device, Graph& graph, const std::map<std::string, std::string>& renamed) {
    add_gradients(graph);
    Program program = device.compile(graph, weights(device, graph), {.name = name_, .communicator = communicator_});
    use_params(graph);
    for (const StorageInfo& s : graph.storages()) {
        if (s.kind == StorageKind::input) {
            if (s.dtype == DType::i32) {
                program.upload(s.name, integers("in." + s.name));
            } else {
                program.upload(s.name, floats("in." + s.name));
            }
        }
    }
    program.run();
    require_quiet(program);
    for (const StorageInfo& s : graph.storages()) {
        if (s.kind == StorageKind::output) {
            const auto other = renamed.find(s.name);
            result(other == renamed.end() ? s.name : other->second, program.shape(s.name), program.download(s.name));
        }
    }
}

void GoldenCase::result(const std::string& name, std::vector<std::int64_t> shape, std::vector<float> data) {
    results_[name] = {std::move(shape), std::move(data)};
}

GoldenCase::Verdict GoldenCase::compare() {
    Verdict verdict;
    const auto fail = [&](const std::string& what) {
        verdict.good = false;
        verdict.detail += (verdict.detail.empty() ? "" : "; ") + what;
    };
    const auto& meta = file_.metadata();
    const nlohmann::json own =
        meta.contains("tolerances") ? nlohmann::json::parse(meta.at("tolerances")) : nlohmann::json::object();
    bool compared = false;
    for (const HostTensor& whole : file_.tensors()) {
        if (!whole.name.starts_with("out.")) {
            if (!used_tensors_.contains(whole.name)) {
                fail("unknown tensor " + whole.name);
            }
            continue;
        }
        const HostTensor t = tensor(whole.name);
        const std::string name = t.name.substr(4);
        const auto got = results_.find(name);
        if (got == results_.end()) {
            if (is_gradient(name)) {
                verdict.not_yet.push_back(name);
            } else {
                fail("no result " + name);
            }
            continue;
        }
        compared = true;
        const std::vector<float> want = elements_of<float>(t, DType::f32);
        if (got->second.shape != t.shape || got->second.data.size() != want.size()) {
            fail(name + " has another shape");
            continue;
        }
        const double atol = own.contains(name) ? own[name][0].get<double>() : std::stod(meta.at("atol"));
        const double rtol = own.contains(name) ? own[name][1].get<double>() : std::stod(meta.at("rtol"));
        std::size_t wrong = 0;
        for (std::size_t i = 0; i < want.size(); ++i) {
            const double g = got->second.data[i];
            const double w = want[i];
            double error = std::abs(g - w) / (atol + rtol * std::abs(w));
            if (!std::isfinite(w) || !std::isfinite(g)) {
                const bool same = std::isnan(w) ? std::isnan(g) : g == w;
                error = same ? 0 : std::numeric_limits<double>::infinity();
            }
            verdict.worst = std::max(verdict.worst, error);
            wrong += !(error <= 1.0) ? 1 : 0;
        }
        if (wrong != 0) {
            fail(std::to_string(wrong) + " of " + std::to_string(want.size()) + " elements of " + name +
                 " are outside the tolerance");
        }
    }
    if (!compared) {
        fail("no outputs to compare");
    }
    for (const auto& [key, value] : config_.items()) {
        if (!used_keys_.contains(key)) {
            fail("unknown config key " + key);
        }
    }
    return verdict;
}

}  // namespace vkf::test
