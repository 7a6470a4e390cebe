// SPDX-License-Identifier: Apache-2.0
// Collectives: what all ranks do together. They are called by every rank in the same order.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "transport.h"

namespace vkf {

/// What went over a communicator so far. Bytes are those that this rank sent, but for the headers
/// by which ranks tell each other what they do: 24 bytes to each other rank before a collective,
/// and 24 before a message.
struct Traffic {
    std::uint64_t all_reduces = 0, all_gathers = 0, broadcasts = 0;
    std::uint64_t all_reduce_elements = 0;  ///< numbers that were reduced, of this rank
    std::uint64_t sends = 0;                ///< messages to one rank
    std::uint64_t bytes = 0;
};

/// The ranks of one program, as MPI and NCCL name it. Its functions throw Error as
/// Transport::exchange() does, and where ranks call different collectives.
class VKF_API Communicator {
public:
    explicit Communicator(std::unique_ptr<Transport> transport);
    ~Communicator();

    int rank() const noexcept { return transport_->rank(); }
    int ranks() const noexcept { return transport_->ranks(); }
    /// The longest wait for another rank, in seconds, of the collectives that follow. Throws Error
    /// for NaN and less than 0.
    void limit(double seconds);

    /// Sums x over the ranks, in their order: every rank gets the same bits, run after run.
    void all_reduce(std::span<float> x);
    /// Gives every rank the bytes of all, one behind the other in `all`, in which this rank's lie
    /// in their place already. `bytes` tells how many each rank has.
    void all_gather(std::span<std::byte> all, std::span<const std::uint64_t> bytes);
    /// Gives every rank what `from` has.
    void broadcast(std::span<std::byte> data, int from = 0);
    /// Gives `to` these bytes, which meanwhile receives as many from this rank. Waits up to `share`
    /// of the limit, above 0 and at most 1: less where the other may be waited for by others too,
    /// so that a rank that hangs is found first by one that waits for it alone. Throws Error for
    /// another share, and for what is not another rank: nothing has been exchanged then.
    void send(std::span<const std::byte> data, int to, double share = 1);
    void receive(std::span<std::byte> data, int from, double share = 1);
    /// Waits until all ranks are here, up to so many seconds, or the limit if that is more: what
    /// goes before, such as loading, takes some longer than others. Throws Error for NaN.
    void meet(double seconds);
    /// Throws Error naming the rank whose text is another than this one's; `what` says what it is.
    void agree(std::string_view what, std::string_view text);

    /// Does not wait for a collective that another thread is in.
    Traffic traffic() const;

private:
    struct Header;
    void exchange(const std::vector<Outgoing>& out, const std::vector<Incoming>& in);
    void exchange_within(double seconds, const std::vector<Outgoing>& out, const std::vector<Incoming>& in);
    void begin(std::uint32_t kind, std::uint64_t amount, int from = 0);
    void begin_within(double seconds, std::uint32_t kind, std::uint64_t amount, int from);
    template <class Change>
    void count(Change change);
    void check_peer(const char* what, int peer) const;
    void exchange_one(const std::vector<Outgoing>& out, const std::vector<Incoming>& in, double share);
    void reduce_at_once(std::span<float> x);
    void reduce_by_parts(std::span<float> x);

    std::unique_ptr<Transport> transport_;
    std::mutex mutex_;                  ///< one collective at a time
    mutable std::mutex traffic_mutex_;  ///< held for no exchange
    Traffic traffic_;
    std::uint64_t calls_ = 0;
    std::atomic<double> seconds_ = 10;  ///< the limit
    std::vector<float> received_;       ///< grows to the most that was reduced
    std::vector<std::byte> message_;    ///< and this one to the longest of send() and receive()
};

}  // namespace vkf
