// SPDX-License-Identifier: Apache-2.0
// An op as a program of ours, with its operands on the device.
#pragma once

#include "op_case.h"

struct OpProgram {
    vkf::Program program;  ///< inputs uploaded; output "y"; profiled
    OpData kept;           ///< the operands as it keeps them: in fewer bits where the case says so
};

OpProgram make_program(const vkf::Device& device, const OpCase& op, const OpData& data);
