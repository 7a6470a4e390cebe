// SPDX-License-Identifier: Apache-2.0
// The model's answers against those PyTorch gave.
#pragma once

#include "options.h"

/// Every answer of expected.json, token by token, and its text. Returns the exit status.
int check(const Options& options);
