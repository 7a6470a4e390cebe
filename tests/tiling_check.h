// SPDX-License-Identifier: Apache-2.0
// Plans for devices that are not there, and a count of what their kernels compute.
#pragma once

#include <cstring>
#include <string>
#include <vector>

#include "ops/ops.h"
#include "runtime/compile/plan.h"
#include "shaders/common/types.h"

namespace vkf::test {

/// Counts how often each output of a result was computed.
class Cover {
public:
    Cover(std::size_t rows, std::size_t columns) : rows_(rows), columns_(columns), times_(rows * columns, 0) {}

    /// Outputs outside are not stored by kernels, and not counted.
    void add(std::uint64_t row, std::uint64_t column) {
        if (row < rows_ && column < columns_) {
            ++times_[row * columns_ + column];
        }
    }
    void block(std::uint64_t row, std::uint64_t column, std::uint64_t rows, std::uint64_t columns) {
        for (std::uint64_t i = 0; i < rows * columns; ++i) {
            add(row + i / columns, column + i % columns);
        }
    }
    /// Names the first output that was not computed once; empty: there is none.
    std::string mismatch() const {
        for (std::size_t i = 0; i < times_.size(); ++i) {
            if (times_[i] != 1) {
                return "row " + std::to_string(i / columns_) + ", column " + std::to_string(i % columns_) + ": " +
                       std::to_string(times_[i]) + " times";
            }
        }
        return {};
    }

private:
    std::size_t rows_, columns_;
    std::vector<int> times_;
};

/// A dispatch as it would be recorded, its sizes being constants.
struct Prepared {
    const Kernel* kernel = nullptr;
    Command command;

    template <class Push>
    Push push() {
        Push p;
        const auto bytes = command.push_bytes();
        if (bytes.size() != sizeof(Push)) {
            throw Error("other push constants than the test knows", name());
        }
        std::memcpy(&p, bytes.data(), sizeof(Push));
        return p;
    }
    /// Gives a constant of the kernel; 0 where it was not given.
    shader::uint constant(shader::uint id) const {
        const std::vector<std::uint32_t>& values = kernel->constants.values();
        return id < values.size() ? values[id] : 0;
    }
    shader::uint local_size() const { return kernel->constants.values()[0]; }
    std::string name() const { return kernel->shader->name; }
    shader::uint groups() const { return static_cast<shader::uint>(command.groups()); }
};

Prepared prepare(const Plan& plan, const Dispatch& d);

/// One output's node, lowered for the device.
Plan plan_of(Graph& g, const Value& y, const Capabilities& device, Arithmetic arithmetic = Arithmetic::f32);

/// Devices whose subgroups have a size from 1 to 128: processors and GPUs, those that say so and
/// those that do not.
std::vector<Capabilities> devices();

}  // namespace vkf::test
