// SPDX-License-Identifier: Apache-2.0
// Ranks that are threads of one process: a sender's bytes are copied by their receiver.
#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <mutex>
#include <string>
#include <utility>

#include "parallel/rank_errors.h"
#include "parallel/transport.h"
#include "runtime/base/error.h"

namespace vkf {

namespace {

using Clock = std::chrono::steady_clock;

/// A message on its way from one rank to another.
struct Message {
    enum class At { nowhere, waiting, being_copied } at = At::nowhere;
    std::span<const std::byte> bytes;
};

struct Meeting {
    explicit Meeting(int count)
        : ranks(static_cast<std::size_t>(count)), messages(ranks * ranks), ended(ranks, false), blamed(ranks) {}

    Message& message(std::size_t from, std::size_t to) { return messages[from * ranks + to]; }

    std::size_t ranks;
    std::mutex mutex;
    std::condition_variable changed;
    std::vector<Message> messages;
    int copying = 0;  ///< ranks that copy what was sent to them
    std::vector<bool> ended;
    std::vector<std::size_t> blamed;  ///< for whom each ended: itself, or one that it waited for
};

class LocalTransport final : public Transport {
public:
    LocalTransport(std::shared_ptr<Meeting> meeting, std::size_t rank) : meeting_(std::move(meeting)), rank_(rank) {}
    ~LocalTransport() override { end(); }

    int rank() const noexcept override { return static_cast<int>(rank_); }
    int ranks() const noexcept override { return static_cast<int>(meeting_->ranks); }
    void limit(double seconds) noexcept override { seconds_ = std::clamp(seconds, 0.0, kMostSeconds); }

    void exchange(std::span<const Outgoing> out, std::span<const Incoming> in) override {
        try {
            send_and_receive(out, in);
        } catch (...) {
            end();
            throw;
        }
    }

private:
    using Lock = std::unique_lock<std::mutex>;

    /// Takes back what nobody has received, and is no rank any more.
    void end() noexcept {
        Lock lock(meeting_->mutex);
        for (std::size_t to = 0; to < meeting_->ranks; ++to) {
            Message& message = meeting_->message(rank_, to);
            meeting_->changed.wait(lock, [&] { return message.at != Message::At::being_copied; });
            message = {};
        }
        if (!meeting_->ended[rank_]) {
            meeting_->blamed[rank_] = blamed_;
        }
        meeting_->ended[rank_] = true;
        meeting_->changed.notify_all();
    }

    std::size_t other(int rank) const {
        const auto i = static_cast<std::size_t>(rank);
        if (rank < 0 || i >= meeting_->ranks || i == rank_) {
            throw Error("is not another rank of " + std::to_string(meeting_->ranks), name_of_rank(rank));
        }
        return i;
    }

    /// Waits at most `left`, which becomes less by that. What passes while ranks copy is not
    /// counted: long messages take longer, and others may wait for who copies.
    template <class Ready>
    void wait(Lock& lock, Clock::duration& left, std::size_t peer, Ready ready) {
        while (!ready() && !meeting_->ended[peer] && (meeting_->copying > 0 || left.count() > 0)) {
            if (meeting_->copying > 0) {
                meeting_->changed.wait(lock);
            } else {
                const Clock::time_point begun = Clock::now();
                meeting_->changed.wait_for(lock, left);
                left -= Clock::now() - begun;
            }
        }
        if (ready()) {
            return;
        }
        const bool in_time = meeting_->ended[peer];
        blamed_ = in_time ? meeting_->blamed[peer] : peer;
        if (!in_time) {
            throw_late(rank_, peer, seconds_);
        }
        throw_ended(rank_, peer, blamed_);
    }

    void send_and_receive(std::span<const Outgoing> out, std::span<const Incoming> in) {
        auto left = std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds_));
        Lock lock(meeting_->mutex);
        if (meeting_->ended[rank_]) {
            throw Error("has ended: an earlier exchange failed", name_of_rank(rank_));
        }
        for (const Outgoing& o : out) {
            meeting_->message(rank_, other(o.to)) = {Message::At::waiting, o.bytes};
        }
        meeting_->changed.notify_all();
        for (const Incoming& i : in) {
            const std::size_t from = other(i.from);
            Message& message = meeting_->message(from, rank_);
            wait(lock, left, from, [&] { return message.at == Message::At::waiting; });
            const std::span<const std::byte> bytes = message.bytes;
            if (bytes.size() != i.bytes.size()) {
                blamed_ = from;
                throw Error("sent " + std::to_string(bytes.size()) + " bytes, " + name_of_rank(rank_) + " expects " +
                                std::to_string(i.bytes.size()),
                            name_of_rank(from));
            }
            message.at = Message::At::being_copied;
            ++meeting_->copying;
            meeting_->changed.notify_all();
            lock.unlock();
            std::copy(bytes.begin(), bytes.end(), i.bytes.begin());
            lock.lock();
            message = {};
            --meeting_->copying;
            meeting_->changed.notify_all();
        }
        for (const Outgoing& o : out) {
            const std::size_t to = other(o.to);
            const Message& message = meeting_->message(rank_, to);
            wait(lock, left, to, [&] { return message.at == Message::At::nowhere; });
        }
    }

    std::shared_ptr<Meeting> meeting_;
    std::size_t rank_, blamed_ = rank_;
    double seconds_ = kLimitSeconds;
};

}  // namespace

Transport::~Transport() = default;

std::vector<std::unique_ptr<Transport>> local_transports(int ranks) {
    constexpr int kMost = 4096;  // each has a mailbox of every other
    if (ranks < 1) {
        throw Error(std::to_string(ranks) + " ranks; there must be one at least", "local_transports");
    }
    if (ranks > kMost) {
        throw Error(std::to_string(ranks) + " ranks are more than " + std::to_string(kMost), "local_transports");
    }
    const auto meeting = std::make_shared<Meeting>(ranks);
    std::vector<std::unique_ptr<Transport>> all;
    for (std::size_t rank = 0; rank < meeting->ranks; ++rank) {
        all.push_back(std::make_unique<LocalTransport>(meeting, rank));
    }
    return all;
}

}  // namespace vkf
