// SPDX-License-Identifier: Apache-2.0
// What keeping weights, or keys and values, in fewer bits costs in accuracy.
#pragma once

#include "options.h"

/// Prints, for every type of weights and of caches, the perplexity of the texts of options.texts, a
/// line each, and how often the likeliest token is the one that fp32 gives. Of a line with a tab
/// what comes behind it is judged, as the answer to what comes before.
int accuracy(const Options& options);
