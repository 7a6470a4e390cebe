// SPDX-License-Identifier: Apache-2.0
// A shader, and a shader with its specialization constants.
// For op authors: <vkformer/advanced/kernel.h>. It may change between versions.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "../base/export.h"
#include "../graph/dtype.h"
#include "spirv_code.h"

namespace vkf {

/// Specialization constants, each set by the name that the shader's header gives its id; id 0 is
/// the local size. One that is not set is 0 where a later id is set, else the shader's default.
class VKF_API Constants {
public:
    using Named = std::pair<std::uint32_t, std::uint32_t>;  ///< id, value

    /// Gives every constant the shader's default, the local size too.
    Constants() = default;
    Constants(std::uint32_t local_size, std::initializer_list<Named> named = {});

    void set(std::uint32_t id, std::uint32_t value);
    void set_local_size(std::uint32_t size) { set(0, size); }

    /// The values, by id.
    const std::vector<std::uint32_t>& values() const noexcept { return values_; }
    bool operator==(const Constants&) const = default;

private:
    std::vector<std::uint32_t> values_;
};

/// One SPIR-V module: embedded in the library, or compiled at run time.
struct Shader {
    const char* name;
    SpirvCode code;  ///< its entry point is called main
    /// The constant that makes this shader of a module that several share; Constants do not set it.
    std::optional<Constants::Named> constant = {};
};

/// What is asked of the driver about the loops of a module.
enum class Loops : std::uint8_t {
    as_written,
    /// Those that ask for nothing are not unrolled. lavapipe takes two to three times as long to
    /// compile attention_shared unrolled, and runs it no faster.
    kept,
    /// None is unrolled. SwiftShader unrolls those that ask for it, and takes up to twenty times as
    /// long to compile attention_rows then.
    all_kept
};

/// A module with its specialization constants.
struct Kernel {
    const Shader* shader = nullptr;
    Constants constants;
    std::string why;  ///< text for explain(): what decided for this variant
    /// Keeps a shader that was compiled at run time alive, for as long as a pipeline made of it can
    /// be found by its address.
    std::shared_ptr<const Shader> owner = {};
    /// The name of the library's shader that a source of the caller's went into; null: none did.
    const char* made_of = nullptr;
    /// The number of buffers that it binds, where its constants leave fewer than the shader
    /// declares: the buffers behind these are never touched. 0: all. Lowering::dispatch sets it.
    std::uint32_t bindings = 0;
    /// Size that its subgroups must have, all of them full (Capabilities::matrix_subgroup_size); 0:
    /// whatever the device takes.
    std::uint32_t subgroup_size = 0;
    Loops loops = Loops::as_written;          ///< what is asked about its loops
    Arithmetic arithmetic = Arithmetic::f32;  ///< arithmetic that it multiplies in
    /// The reason why the kernel multiplies in fp32, where the program was compiled for fewer bits.
    std::string why_fp32 = {};

    bool operator==(const Kernel& other) const {
        return shader == other.shader && constants == other.constants && subgroup_size == other.subgroup_size &&
               loops == other.loops;
    }
};

}  // namespace vkf
