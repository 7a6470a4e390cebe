// SPDX-License-Identifier: Apache-2.0
// Another library, doing the same op on the same device.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "op_case.h"

class PeerOp {
public:
    virtual ~PeerOp() = default;
    /// Computes once and waits for the device.
    virtual void run() = 0;
    virtual std::vector<float> result() = 0;
    /// The operands as it keeps them: linear's weight and attention's keys and values in fewer
    /// bits.
    virtual const OpData& kept() const = 0;
};

class Peer {
public:
    virtual ~Peer() = default;
    virtual std::string name() const = 0;
    /// Prepares an op with its operands on the device; it is kept as long as the peer. Null when
    /// the peer has no such op.
    virtual PeerOp* prepare(const OpCase& op, const OpData& data) = 0;
};

/// The peer this program was built with, on the device of this name, which is the loader's
/// `index`th. Throws std::runtime_error when there is none, or when it does not take the device.
std::unique_ptr<Peer> make_peer(const std::string& device, std::size_t index);
