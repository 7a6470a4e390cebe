// SPDX-License-Identifier: Apache-2.0
// What an op is to the runtime: a name, and functions that it is asked by. The runtime knows no op by name.
#pragma once

#include <string>

namespace vkf {

struct Capabilities;
struct NodeInfo;
class Lowering;

struct OpType {
    const char* name;
    void (*lower)(Lowering&);
    /// For ops to which there are alternatives (Graph::prefer): empty when the device should run the node, else why not.
    std::string (*declined)(const Capabilities& device, const NodeInfo& node) = nullptr;
};

}  // namespace vkf
