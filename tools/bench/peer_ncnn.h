// SPDX-License-Identifier: Apache-2.0
// ncnn beside the bench, by ncnn_peers.py, where Python has it.
#pragma once

#include <string>

/// True where python3 has the packages ncnn and numpy.
bool has_ncnn();

/// Runs the rows that ncnn has a layer for once more, in turns with it, and prints both; or why
/// not.
void run_beside_ncnn(const std::string& device, const std::string& filter, double seconds);
