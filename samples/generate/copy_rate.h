// SPDX-License-Identifier: Apache-2.0
// How fast the device moves memory: what a decoding step, which reads every weight once, can be
// compared with.
#pragma once

#include <vkformer/vkformer.h>

/// Bytes a second, read and written, of copying 64 MiB (less where the device has little memory),
/// the best of several times.
double copy_rate(const vkf::Device& device);
