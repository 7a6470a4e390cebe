// SPDX-License-Identifier: Apache-2.0
// scaled_dot_product_attention() of programs for f16, against the twin of operands rounded to f16.
#pragma once

#include <string>

#include "runtime/compile/capabilities.h"
#include "tests/attention_check.h"

namespace vkf::test {

/// the text of explain() where f16 is taken
inline constexpr const char* kTakenInF16 = "f16 arithmetic, matrices of ";

/// Has a processor, for Believed, take attention_coopmat, where tiles are small and compile soon.
void as_forced(Capabilities& c);

/// Inputs and options as the twin's; the scale is never 0.
AttentionOptions fused_options(OpCheck& check, const Qkv& x, const reference::AttentionOptions& o);

/// Computes attention by attention_coopmat. Any other kernel is an error.
Attended run_f16(const Qkv& x, const reference::AttentionOptions& o = {}, bool lse = true);
/// Says how y differs from the twin's; empty: it does not.
std::string mismatch_f16(const Tensor& y, const Qkv& x, const reference::AttentionOptions& o);
/// Says how the device's results differ from the twin's; empty: they do not. Where there are
/// operations on the elements of matrices it is computed without them too.
std::string mismatch_f16(const Qkv& x, const reference::AttentionOptions& o = {}, bool lse = true);

}  // namespace vkf::test
