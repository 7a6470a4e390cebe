// SPDX-License-Identifier: Apache-2.0
#include "parallel/mpi/mpi_transport.h"

#include <mpi.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <deque>
#include <exception>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "parallel/rank_errors.h"
#include "runtime/base/error.h"

namespace vkf {

namespace {

using Clock = std::chrono::steady_clock;

constexpr int kData = 1, kEnded = 2;
/// Longer messages go in parts, each of which has the time of the limit.
constexpr std::size_t kPart = std::size_t{1} << 24;
/// MPI moves bytes while it is asked how far they are. So long a wait asks without a pause: where a
/// machine has other work too, a core that is given away comes back after milliseconds, which is
/// longer than most exchanges take. From then on the wait leaves the core to others for moments,
/// and from kSpin on it sleeps in between.
constexpr std::chrono::microseconds kKeep{1000}, kSpin{2000}, kSleep{50};

void check_mpi(int code, const char* function) {
    if (code == MPI_SUCCESS) {
        return;
    }
    std::array<char, MPI_MAX_ERROR_STRING> text{};
    int length = 0;
    MPI_Error_string(code, text.data(), &length);
    throw Error("gave " + std::string(text.data(), static_cast<std::size_t>(length)), function);
}

/// MPI as this process uses it.
class Session {
public:
    static Session& of_process() {
        static Session session;
        return session;
    }

    void fail() noexcept { failed_ = true; }
    /// All processes; errors of what is made of it are returned, and do not end the process.
    MPI_Comm world() const noexcept { return world_; }
    /// Keeps a number that is on its way as long as MPI can be asked for it.
    const int& keep(int number) { return kept_.emplace_back(number); }

    /// MPI is called by one thread at a time, whichever transport it is.
    std::recursive_mutex mutex;

private:
    Session() {
        int done = 0;
        check_mpi(MPI_Initialized(&done), "MPI_Initialized");
        int provided = MPI_THREAD_SINGLE;
        if (done == 0) {
            check_mpi(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_SERIALIZED, &provided), "MPI_Init_thread");
            owned_ = true;
        } else {
            check_mpi(MPI_Query_thread(&provided), "MPI_Query_thread");
        }
        if (provided < MPI_THREAD_SERIALIZED) {
            throw Error("allows calls of one thread alone; MPI_THREAD_SERIALIZED is needed", "MPI_Init_thread");
        }
        check_mpi(MPI_Comm_dup(MPI_COMM_WORLD, &world_), "MPI_Comm_dup");
        check_mpi(MPI_Comm_set_errhandler(world_, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
    }
    ~Session() {
        int done = 0;
        MPI_Finalized(&done);
        if (!owned_ || done != 0) {
            return;
        }
        if (failed_) {
            MPI_Abort(MPI_COMM_WORLD, 1);
        }
        MPI_Finalize();
    }

    bool owned_ = false, failed_ = false;
    MPI_Comm world_ = MPI_COMM_NULL;
    std::deque<int> kept_;
};

/// A part of a message that is on its way.
struct Pending {
    int peer = 0;
    std::size_t bytes = 0;
    bool incoming = false;
};

class MpiTransport final : public Transport {
public:
    MpiTransport() : session_(Session::of_process()) {
        const std::scoped_lock lock(session_.mutex);
        check_mpi(MPI_Comm_dup(session_.world(), &comm_), "MPI_Comm_dup");
        MPI_Comm_rank(comm_, &rank_);
        MPI_Comm_size(comm_, &ranks_);
        blamed_ = rank_;
    }
    ~MpiTransport() override { end(); }

    int rank() const noexcept override { return rank_; }
    int ranks() const noexcept override { return ranks_; }
    void limit(double seconds) noexcept override { seconds_ = std::clamp(seconds, 0.0, kMostSeconds); }

    void exchange(std::span<const Outgoing> out, std::span<const Incoming> in) override {
        if (ended_) {
            throw Error("has ended: an earlier exchange failed", name_of_rank(rank_));
        }
        try {
            start(out, in);
            finish();
        } catch (const std::exception& e) {
            session_.fail();
            give_up(e.what());
            end();
            throw;
        }
    }

private:
    void check_peer(int peer) const {
        if (peer < 0 || peer >= ranks_ || peer == rank_) {
            throw Error("is not another rank of " + std::to_string(ranks_), name_of_rank(peer));
        }
    }

    /// Calls `each(offset, bytes)` for the parts of a message, of which there is one at least.
    template <class Each>
    static void in_parts(std::size_t size, Each each) {
        std::size_t at = 0;
        do {
            const std::size_t bytes = std::min(size - at, kPart);
            each(at, bytes);
            at += bytes;
        } while (at < size);
    }

    void start(std::span<const Outgoing> out, std::span<const Incoming> in) {
        const std::scoped_lock lock(session_.mutex);
        pending_.clear();
        requests_.clear();
        std::size_t parts = 0;
        for (const Incoming& i : in) {
            in_parts(i.bytes.size(), [&](std::size_t, std::size_t) { ++parts; });
        }
        for (const Outgoing& o : out) {
            in_parts(o.bytes.size(), [&](std::size_t, std::size_t) { ++parts; });
        }
        pending_.reserve(parts);  // what MPI fills must have its place
        requests_.reserve(parts);
        for (const Incoming& i : in) {
            check_peer(i.from);
            in_parts(i.bytes.size(), [&](std::size_t at, std::size_t bytes) {
                pending_.push_back({i.from, bytes, true});
                requests_.push_back(MPI_REQUEST_NULL);
                check_mpi(MPI_Irecv(i.bytes.data() + at, static_cast<int>(bytes), MPI_BYTE, i.from, kData, comm_,
                                    &requests_.back()),
                          "MPI_Irecv");
            });
        }
        for (const Outgoing& o : out) {
            check_peer(o.to);
            in_parts(o.bytes.size(), [&](std::size_t at, std::size_t bytes) {
                pending_.push_back({o.to, bytes, false});
                requests_.push_back(MPI_REQUEST_NULL);
                check_mpi(MPI_Isend(o.bytes.data() + at, static_cast<int>(bytes), MPI_BYTE, o.to, kData, comm_,
                                    &requests_.back()),
                          "MPI_Isend");
            });
        }
    }

    void finish() {
        heard_ = Clock::now();
        const auto limit = std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds_));
        while (!all_done()) {
            const Clock::duration waited = Clock::now() - heard_;
            if (waited > kSpin) {
                look_for_ended();
                std::this_thread::sleep_for(kSleep);
            } else if (waited > kKeep) {
                std::this_thread::yield();
            }
            if (waited > limit) {
                blamed_ = first_unfinished();
                throw_late(rank_, blamed_, seconds_);
            }
        }
    }

    /// Notes when a part has arrived, from where the limit counts again.
    bool all_done() {
        const std::scoped_lock lock(session_.mutex);
        bool all = true;
        for (std::size_t i = 0; i < requests_.size(); ++i) {
            if (requests_[i] == MPI_REQUEST_NULL) {
                continue;
            }
            int done = 0;
            MPI_Status status;
            const int code = MPI_Test(&requests_[i], &done, &status);
            const Pending& p = pending_[i];
            int count = 0;
            if (code == MPI_SUCCESS && done != 0 && p.incoming) {
                check_mpi(MPI_Get_count(&status, MPI_BYTE, &count), "MPI_Get_count");
            }
            int kind = MPI_SUCCESS;
            if (code != MPI_SUCCESS) {
                MPI_Error_class(code, &kind);
            }
            const bool longer = kind == MPI_ERR_TRUNCATE;
            if (longer || (done != 0 && p.incoming && static_cast<std::size_t>(count) != p.bytes)) {
                throw Error("sent " + (longer ? std::string("more") : std::to_string(count)) + " bytes, " +
                                name_of_rank(rank_) + " expects " + std::to_string(p.bytes),
                            name_of_rank(p.peer));
            }
            check_mpi(code, "MPI_Test");
            heard_ = done != 0 ? Clock::now() : heard_;
            all = all && done != 0;
        }
        return all;
    }

    int first_unfinished() const {
        for (std::size_t i = 0; i < requests_.size(); ++i) {
            if (requests_[i] != MPI_REQUEST_NULL) {
                return pending_[i].peer;
            }
        }
        return rank_;
    }

    /// What a rank sent before it ended has arrived before that is told.
    void look_for_ended() {
        const std::scoped_lock lock(session_.mutex);
        for (std::size_t i = 0; i < requests_.size(); ++i) {
            if (requests_[i] == MPI_REQUEST_NULL) {
                continue;
            }
            int ended = 0;
            check_mpi(MPI_Iprobe(pending_[i].peer, kEnded, comm_, &ended, MPI_STATUS_IGNORE), "MPI_Iprobe");
            if (ended == 0 || all_done() || requests_[i] == MPI_REQUEST_NULL) {
                continue;
            }
            const int peer = pending_[i].peer;
            check_mpi(MPI_Recv(&blamed_, 1, MPI_INT, peer, kEnded, comm_, MPI_STATUS_IGNORE), "MPI_Recv");
            throw_ended(rank_, peer, blamed_);
        }
    }

    /// Takes back what has not arrived. Where MPI is about to move bytes whose other end may never
    /// answer, their memory cannot be given back, so the processes end, and say why.
    void give_up(const char* why) noexcept {
        const Clock::time_point end = Clock::now() + std::chrono::seconds(1);
        for (MPI_Request& request : requests_) {
            if (request == MPI_REQUEST_NULL) {
                continue;
            }
            const auto locked = [this](auto call) {
                const std::scoped_lock lock(session_.mutex);
                return call();
            };
            locked([&] { return MPI_Cancel(&request); });
            for (int done = 0;
                 locked([&] { return MPI_Test(&request, &done, MPI_STATUS_IGNORE); }) == MPI_SUCCESS && done == 0;) {
                if (Clock::now() > end) {
                    std::fprintf(stderr, "%s\n", why);
                    MPI_Abort(comm_, 1);
                }
                std::this_thread::sleep_for(kSleep);
            }
        }
    }

    /// Tells the others that nothing more comes.
    void end() noexcept {
        const std::scoped_lock lock(session_.mutex);
        int finalized = 0;
        MPI_Finalized(&finalized);
        if (ended_ || finalized != 0) {
            return;
        }
        ended_ = true;
        const int& blamed = session_.keep(blamed_);
        for (int r = 0; r < ranks_; ++r) {
            if (MPI_Request request = MPI_REQUEST_NULL;
                r != rank_ && MPI_Isend(&blamed, 1, MPI_INT, r, kEnded, comm_, &request) == MPI_SUCCESS) {
                MPI_Request_free(&request);
            }
        }
    }

    Session& session_;
    MPI_Comm comm_ = MPI_COMM_NULL;
    int rank_ = 0, ranks_ = 1;
    Clock::time_point heard_;  ///< when something arrived last
    int blamed_ = 0;           ///< for whom this rank ends: itself, or one that it waited for
    bool ended_ = false;
    double seconds_ = kLimitSeconds;
    std::vector<Pending> pending_;
    std::vector<MPI_Request> requests_;
};

}  // namespace

std::unique_ptr<Transport> mpi_transport() { return std::make_unique<MpiTransport>(); }

}  // namespace vkf
