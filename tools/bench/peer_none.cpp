// SPDX-License-Identifier: Apache-2.0
// Where ggml was not found.
#include <stdexcept>

#include "peer.h"

std::unique_ptr<Peer> make_peer(const std::string&, std::size_t) {
    throw std::runtime_error(
        "this program was built without a peer: CMake did not find ggml (Debian testing: libggml-dev)");
}
