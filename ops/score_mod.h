// SPDX-License-Identifier: Apache-2.0
// Score mods: a few lines of GLSL that change attention's scores, compiled at run time into the
// kernels that meet them (FlexAttention's score_mod; Dong et al. 2024).
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "../runtime/graph/graph.h"

namespace vkf {

struct Shader;

/// A handle, cheap to copy; empty: scores stay as they are. Device::compile() needs a GLSL compiler
/// for it, see runtime/compile/glsl.h.
class VKF_API ScoreMod {
public:
    ScoreMod() = default;

    /// `text` is GLSL 4.50 that defines `float score_mod(float score, uint batch, uint head, uint
    /// query, uint key)`. The function is given the score after scale, softcap and bias and before
    /// the mask, and returns the new score. `query` and `key` count from 0 within their sequence,
    /// as unsigned numbers: a distance is int(query) - int(key). A result of -inf masks the key; a
    /// NaN that is not masked stays NaN. The text may define functions and constants of its own,
    /// with names that begin with mod_ (what lies outside functions must be const: a variable there
    /// would keep its value for other scores), and may use
    ///     parameter(i)           number i of `parameters` (finite, at most 16), fixed when the mod
    ///                            is compiled; an i outside that is computed is taken to
    ///                            the nearest number, a constant one is an error
    ///     negative_infinity(), safe_exp(x), safe_tanh(x), safe_erf(x), is_nan(x), is_finite(x)
    /// which are exact where a device's built-in functions may not be. The text may use neither
    /// buffers, uniform blocks nor `shared`, nor types that need a feature, as `double` does.
    ///
    /// A device keeps what it compiled of a text and its parameters for as long as it lives, some
    /// 0.5 MB: numbers that are new in every call belong into a bias.
    ///
    /// Nothing is compiled here. Device::compile() throws vkf::Error with the compiler's text, in
    /// which `score_mod:3` is line 3 of `text`.
    static ScoreMod glsl(std::string text, std::vector<float> parameters = {});

    explicit operator bool() const noexcept { return state_ != nullptr; }

    /// Makes, for ops, the compute shader `source` (the text of a shader with a line `//! source`)
    /// with this mod in it and with `defines` ("NAME" or "NAME=VALUE") beside SCORE_MOD. It is
    /// compiled once and shared while anybody holds it: the same text gives the same shader, even
    /// to another ScoreMod. `name` is the shader's name.
    std::shared_ptr<const Shader> shader(const std::string& name, std::string_view source,
                                         const std::vector<std::string>& defines = {}) const;

private:
    struct State;
    std::shared_ptr<State> state_;
};

}  // namespace vkf
