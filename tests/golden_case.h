// SPDX-License-Identifier: Apache-2.0
// One golden case: what the file says, what of it was used, and how an answer compares.
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "layers/head_sizes.h"
#include "models/files/safetensors.h"
#include "parallel/communicator.h"
#include "runtime/device/device.h"
#include "runtime/device/program.h"
#include "runtime/device/state.h"
#include "runtime/graph/shard.h"

namespace vkf::test {

/// An exception for systems and outputs that are known but not computed yet: counted apart, not
/// passed.
struct NotYet {
    std::string what;
};

class GoldenCase {
public:
    explicit GoldenCase(const std::string& path);

    /// Comes first: graphs are those of one of several ranks. Gradients are not computed then.
    void share_out(const Rank& rank, std::shared_ptr<Communicator> communicator);
    const Rank& rank() const { return rank_; }
    const std::shared_ptr<Communicator>& communicator() const { return communicator_; }
    /// An input "in.NAME" or a result "out.NAME" is this part of the file's tensor.
    void has_part(const std::string& name, const Shard& part) { parts_[name] = part; }
    /// The same, of heads in dimension `dim`; nothing where there is one rank.
    void has_heads(const std::string& name, std::size_t dim, const HeadSizes& sizes, bool kv);
    /// The key and value heads of this rank.
    std::int64_t kv_heads(const HeadSizes& sizes) const;

    const std::string& name() const { return name_; }
    const std::string& system() const { return system_; }

    // the configuration; each key asked for counts as known
    const nlohmann::json& config(const std::string& key);
    bool flag(const std::string& key);  ///< false when absent or null
    std::int64_t integer(const std::string& key);
    double number(const std::string& key);                       ///< "-inf" is minus infinity
    double number_or(const std::string& key, double otherwise);  ///< when absent or null
    std::string text(const std::string& key);

    // tensors; each asked for counts as known
    bool has_input(const std::string& name) const { return file_.find("in." + name) != nullptr; }
    bool has_param(const std::string& name) const { return file_.find("param." + name) != nullptr; }
    Shape shape(const std::string& name) const;  ///< of "in.x" or "param.w", the whole of it
    /// A graph of the rank of share_out().
    void begin(Graph& graph) const { graph.set_rank(rank_); }
    /// An input of the graph with the file's shape and type.
    Value input(Graph& graph, const std::string& name);
    /// An empty Value when the file has none.
    Value input_if(Graph& graph, const std::string& name) { return has_input(name) ? input(graph, name) : Value(); }
    std::vector<float> floats(const std::string& name);
    std::vector<std::int32_t> integers(const std::string& name);

    /// Gives a result a name; views are copied. A file of gradients names the results it wants.
    void output(Graph& graph, const std::string& name, Value value);
    /// Compiles, uploads every input() of the graph, runs, and keeps the named outputs for
    /// compare(). `renamed`: outputs of the graph that the file knows by another name.
    void run(const Device& device, Graph& graph, const std::map<std::string, std::string>& renamed = {});
    /// Parameters of the file lack this ending of the graph's weights: "wq" is "wq.weight".
    void params_lack(const std::string& ending) { ending_ = ending; }
    /// Counts the graph's weights as known.
    void use_params(const Graph& graph);
    /// A State of the graph that holds the file's parameters, names without "param.".
    State parameters(const Device& device, const Graph& graph);
    /// A result computed by other means.
    void result(const std::string& name, std::vector<std::int64_t> shape, std::vector<float> data);
    /// Uploads the file's parameters, names without "param.", or the parts that the graph has.
    Weights weights(const Device& device, const Graph& graph);

    struct Verdict {
        bool good = true;
        double worst = 0;    ///< error over tolerance
        std::string detail;  ///< what is wrong
        std::vector<std::string> not_yet;
    };
    /// Compares every out.* of the file, and complains of keys and tensors nobody asked for.
    Verdict compare();

private:
    struct Result {
        std::vector<std::int64_t> shape;
        std::vector<float> data;
    };
    HostTensor tensor(const std::string& name);
    /// A part of a tensor of the file.
    HostTensor part_of(const HostTensor& whole, const Shard& part);
    /// Adds the gradients that the file has, of the output "y", or of "loss", as outputs.
    void add_gradients(Graph& graph);

    Safetensors file_;
    std::string name_, system_, ending_;
    nlohmann::json config_;
    std::set<std::string> used_keys_, used_tensors_;
    std::map<std::string, Result> results_;
    std::map<std::string, Value> outputs_;  ///< of the graph, as they were before they were copied
    Rank rank_;
    std::shared_ptr<Communicator> communicator_;
    std::map<std::string, Shard> parts_;
    std::deque<std::vector<float>> owned_;  ///< parts that do not lie in the file as they are
};

/// Computes the case with the system of its name. Throws vkf::Error for unknown systems.
void run_golden_case(const Device& device, GoldenCase& c);
/// Likewise with a system of another name.
void run_golden_system(const Device& device, GoldenCase& c, const std::string& system);

}  // namespace vkf::test
