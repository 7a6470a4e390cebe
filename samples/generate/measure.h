// SPDX-License-Identifier: Apache-2.0
// How fast a device multiplies, and how fast ranks speak with each other.
#pragma once

#include <vkformer/vkformer.h>

#include <cstdint>

struct DeviceSpeed {
    double step;   ///< seconds a number of a matrix of fp32, multiplied with one token
    double chunk;  ///< with the tokens of a chunk
};
/// Times products of one token and of a chunk, or as much as 64 of its tokens stand for, with a
/// matrix of 8 Mi numbers.
DeviceSpeed measure_device(const vkf::Device& device, std::int64_t chunk);

struct LinkSpeed {
    double latency;  ///< seconds of an empty message
    double rate;     ///< bytes a second of messages of 1 MiB
};
/// Sends messages to and fro between each rank and the next; gives the worst, the same on all.
LinkSpeed measure_link(vkf::Communicator& ranks);
