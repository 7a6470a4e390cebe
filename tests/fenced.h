// SPDX-License-Identifier: Apache-2.0
// Programs whose tensors lie between fences, each of them: inputs, outputs, weights, constants,
// states, and what ops keep for themselves. Every buffer is larger than the library asked for, and
// descriptors reach to its end, so that no driver cuts off what a kernel does beyond. After a run
// the fences must stay as they were, and so must inputs and weights; every element of an output
// must be written; and what lies in the fences must not show in outputs and states.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/compile/plan.h"
#include "runtime/device/device.h"
#include "runtime/device/program.h"
#include "tests/fake_vulkan.h"
#include "tests/host.h"

namespace vkf::test {

class Fenced {
public:
    /// Bytes of a fence: a multiple of every alignment there is.
    static constexpr std::uint64_t kFence = 4096;

    using Words = std::vector<std::uint32_t>;
    /// Describes a graph; returns its outputs.
    using Build = std::function<std::vector<Value>(Graph&)>;
    using SymbolSizes = std::map<std::string, std::int64_t>;
    /// Changes the data of an input or a state of that name.
    using Change = std::function<void(const std::string& name, DType dtype, Words& words)>;

    struct Options {
        SymbolSizes sizes = {};
        /// Each is a recording and a run of its own; none: one with the data as they are, numbers
        /// in [-1, 1), and integers 0 and 1.
        std::vector<Change> changes = {};
        WeightType weights = WeightType::f32;  ///< what matrices are kept as
        bool small_gpu = true;                 ///< once more on the device as AsSmallGpu
        std::string variants = {};             ///< Capabilities::variants
        Arithmetic arithmetic = Arithmetic::f32;
        /// Says what is wrong with a run, given inputs, outputs and states after it; empty:
        /// nothing.
        std::function<std::string(const std::map<std::string, Words>& all)> judge = {};
    };

    /// The device is borrowed; `whole`: with all that it can do. Not validated: descriptors overlap
    /// here, where those of the library do not.
    explicit Fenced(bool whole = false);
    ~Fenced();
    Fenced(const Fenced&) = delete;
    Fenced& operator=(const Fenced&) = delete;

    /// Says what is wrong with recordings and runs of this graph; empty: nothing. States lie behind
    /// each other, in the order in which the graph names them: one whose name begins with "guard"
    /// is a fence, too.
    std::string trespass(const Build& build, const Options& options);
    std::string trespass(const Build& build, const SymbolSizes& sizes = {}) {
        return trespass(build, Options{.sizes = sizes});
    }

    const Device& device() const { return *device_; }
    /// Recordings and runs so far.
    std::uint64_t runs() const { return runs_; }

    /// Every input and output of a recording is taken for one that begins so many bytes later.
    std::uint64_t shift = 0;

private:
    /// A buffer of the library's: what was asked for lies behind a fence, and before one.
    struct Owned {
        std::uint64_t bytes = 0;
        VkDeviceMemory memory = VK_NULL_HANDLE;
        std::byte* base = nullptr;
    };
    /// A part of mapped memory that nobody may write.
    struct Zone {
        std::string name;
        std::byte* at = nullptr;
        std::uint64_t bytes = 0;
    };
    struct Tensor {
        std::string name;
        bool output = false;
        DType dtype = DType::f32;
        Words data;  ///< at the sizes of the run
        Host::Buffer buffer;
        std::uint64_t most_bytes = 0;
    };
    struct Case;

    void put_fences();
    std::string trespass_of(const Build& build, const Options& options);
    std::string look_at(Case& c, const Options& options, const Change& change);
    /// Each leaves outputs and states in the case, and says what is wrong.
    std::string record(Case& c, const Options& options, std::uint32_t fence);
    std::string run(Case& c, std::uint32_t fence);
    /// What of the library's own memory is a fence.
    std::vector<Zone> zones_of(const Case& c) const;
    /// Says which fences were written to; empty: none was.
    static std::string written_outside(const std::vector<Zone>& zones, std::uint32_t fence);

    std::optional<Host> host_;
    fake::Vulkan vulkan_;
    std::optional<Device> device_;
    std::set<VkBuffer> bound_;  ///< a host's buffers of a recording
    std::map<VkBuffer, Owned> owned_;
    std::uint64_t runs_ = 0;
};

}  // namespace vkf::test
