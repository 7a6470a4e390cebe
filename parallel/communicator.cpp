// SPDX-License-Identifier: Apache-2.0
// A sum of few numbers is made by every rank, out of all ranks' numbers: one exchange. Of more
// numbers each rank sums a part, and gives the sums to all: two exchanges, of less in all
// (Rabenseifner 2004). Both add in the order of the ranks, so an element's bits do not depend on
// which of the two it was.
#include "parallel/communicator.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "parallel/rank_errors.h"
#include "runtime/base/error.h"

namespace vkf {

namespace {

/// Up to so many numbers the time is that of the exchanges, not that of the bytes.
constexpr std::size_t kAtOnce = 16384;

/// A message each way for every rank but this one: rank r gets sent(r), and what it sends goes
/// where room(r) is.
template <class Sent, class Room>
std::pair<std::vector<Outgoing>, std::vector<Incoming>> messages(const Transport& transport, Sent sent, Room room) {
    std::pair<std::vector<Outgoing>, std::vector<Incoming>> both;
    for (int r = 0; r < transport.ranks(); ++r) {
        if (r != transport.rank()) {
            both.first.push_back({r, std::as_bytes(std::span(sent(r)))});
            both.second.push_back({r, std::as_writable_bytes(std::span(room(r)))});
        }
    }
    return both;
}

/// Where the part of `size` elements that rank i sums begins.
std::size_t part_begin(std::size_t size, int i, int ranks) {
    return size * static_cast<std::size_t>(i) / static_cast<std::size_t>(ranks);
}

/// The collectives, as ranks tell each other of them.
constexpr std::uint32_t kAllReduce = 1, kAllGather = 2, kBroadcast = 3, kAgree = 4, kMessage = 5, kMeet = 6;

/// Adds the numbers of all ranks up in their order, in x, which holds this rank's; `of` gives those
/// of another. Sums of few at a time stay in the processor's first cache.
template <class Of>
void sum_in_order(std::span<float> x, int rank, int ranks, Of of) {
    std::array<float, 1024> sums;
    for (std::size_t at = 0; at < x.size(); at += sums.size()) {
        const std::span<float> own = x.subspan(at, std::min(sums.size(), x.size() - at));
        const auto numbers = [&](int r) -> const float* { return r == rank ? own.data() : of(r).data() + at; };
        std::copy_n(numbers(0), own.size(), sums.begin());
        for (int r = 1; r < ranks; ++r) {
            const float* more = numbers(r);
            for (std::size_t i = 0; i < own.size(); ++i) {
                sums[i] += more[i];
            }
        }
        std::copy_n(sums.begin(), own.size(), own.begin());
    }
}

}  // namespace

/// What ranks tell each other before a collective: those that do not do the same are found at once.
struct Communicator::Header {
    std::uint32_t kind;
    std::uint32_t from = 0;  ///< whose bytes a broadcast gives
    std::uint64_t call, amount;

    bool operator==(const Header&) const = default;
};

Communicator::Communicator(std::unique_ptr<Transport> transport) : transport_(std::move(transport)) {
    if (!transport_) {
        throw Error("needs a transport", "Communicator");
    }
}

Communicator::~Communicator() = default;

void Communicator::limit(double seconds) {
    if (!(seconds >= 0)) {
        throw Error(std::to_string(seconds) + " s cannot be waited for", "Communicator");
    }
    seconds_ = seconds;
}

template <class Change>
void Communicator::count(Change change) {
    const std::scoped_lock lock(traffic_mutex_);
    change(traffic_);
}

void Communicator::exchange(const std::vector<Outgoing>& out, const std::vector<Incoming>& in) {
    exchange_within(seconds_, out, in);
    count([&](Traffic& t) {
        for (const Outgoing& o : out) {
            t.bytes += o.bytes.size();
        }
    });
}

void Communicator::exchange_within(double seconds, const std::vector<Outgoing>& out, const std::vector<Incoming>& in) {
    transport_->limit(seconds);
    transport_->exchange(out, in);
}

void Communicator::begin(std::uint32_t kind, std::uint64_t amount, int from) {
    begin_within(seconds_, kind, amount, from);
}

void Communicator::begin_within(double seconds, std::uint32_t kind, std::uint64_t amount, int from) {
    const Header mine{kind, static_cast<std::uint32_t>(from), calls_++, amount};
    std::vector<Header> theirs(static_cast<std::size_t>(ranks()));
    const auto [out, in] = messages(
        *transport_, [&](int) { return std::span(&mine, 1); },
        [&](int r) { return std::span(&theirs[static_cast<std::size_t>(r)], 1); });
    exchange_within(seconds, out, in);
    const auto text = [](const Header& h) {
        constexpr std::array<const char*, 7> names{"nothing", "all_reduce", "all_gather", "broadcast",
                                                   "agree",   "send",       "meet"};
        const auto k = static_cast<std::size_t>(h.kind);
        return std::string(k < names.size() ? names[k] : "something unknown") + " of " + std::to_string(h.amount) +
               (h.kind == kBroadcast ? " of rank " + std::to_string(h.from) : std::string()) + " as call " +
               std::to_string(h.call);
    };
    for (const Incoming& i : in) {
        const Header& other = theirs[static_cast<std::size_t>(i.from)];
        if (other != mine) {
            throw Error("does " + text(other) + ", " + name_of_rank(rank()) + " does " + text(mine),
                        name_of_rank(i.from));
        }
    }
}

void Communicator::all_reduce(std::span<float> x) {
    const std::scoped_lock lock(mutex_);
    count([&](Traffic& t) {
        ++t.all_reduces;
        t.all_reduce_elements += x.size();
    });
    if (ranks() == 1) {
        return;
    }
    begin(kAllReduce, x.size());
    x.size() <= kAtOnce ? reduce_at_once(x) : reduce_by_parts(x);
}

void Communicator::reduce_at_once(std::span<float> x) {
    const auto count = static_cast<std::size_t>(ranks());
    received_.resize(std::max(received_.size(), x.size() * count));
    const auto of = [&](int r) {
        return std::span(received_).subspan(static_cast<std::size_t>(r) * x.size(), x.size());
    };
    const auto [out, in] = messages(
        *transport_, [&](int) { return x; }, of);
    exchange(out, in);
    sum_in_order(x, rank(), ranks(), of);
}

void Communicator::reduce_by_parts(std::span<float> x) {
    const auto part = [&](int r) {
        const std::size_t first = part_begin(x.size(), r, ranks());
        return x.subspan(first, part_begin(x.size(), r + 1, ranks()) - first);
    };
    const std::span<float> own = part(rank());
    received_.resize(std::max(received_.size(), own.size() * static_cast<std::size_t>(ranks())));
    const auto of = [&](int r) {
        return std::span(received_).subspan(static_cast<std::size_t>(r) * own.size(), own.size());
    };
    auto [out, in] = messages(*transport_, part, of);
    exchange(out, in);
    sum_in_order(own, rank(), ranks(), of);
    for (Outgoing& o : out) {
        o.bytes = std::as_bytes(own);
    }
    for (Incoming& i : in) {
        i.bytes = std::as_writable_bytes(part(i.from));
    }
    exchange(out, in);
}

void Communicator::all_gather(std::span<std::byte> all, std::span<const std::uint64_t> bytes) {
    const std::scoped_lock lock(mutex_);
    std::vector<std::span<std::byte>> parts;
    std::uint64_t at = 0;
    for (const std::uint64_t b : bytes) {
        if (b > all.size() - at) {
            break;  // too few parts, then
        }
        parts.push_back(all.subspan(at, b));
        at += b;
    }
    if (parts.size() != static_cast<std::size_t>(ranks()) || at != all.size()) {
        throw Error(std::to_string(bytes.size()) + " parts do not make up " + std::to_string(all.size()) +
                        " bytes of " + std::to_string(ranks()) + " ranks",
                    "all_gather");
    }
    count([](Traffic& t) { ++t.all_gathers; });
    if (ranks() == 1) {
        return;
    }
    begin(kAllGather, all.size());
    const auto [out, in] = messages(
        *transport_, [&](int) { return parts[static_cast<std::size_t>(rank())]; },
        [&](int r) { return parts[static_cast<std::size_t>(r)]; });
    exchange(out, in);
}

void Communicator::broadcast(std::span<std::byte> data, int from) {
    const std::scoped_lock lock(mutex_);
    if (from < 0 || from >= ranks()) {
        throw Error("is none of " + std::to_string(ranks()) + " ranks", "broadcast: " + name_of_rank(from));
    }
    count([](Traffic& t) { ++t.broadcasts; });
    if (ranks() == 1) {
        return;
    }
    begin(kBroadcast, data.size(), from);
    std::vector<Outgoing> out;
    for (int r = 0; rank() == from && r < ranks(); ++r) {
        if (r != from) {
            out.push_back({r, data});
        }
    }
    exchange(out, rank() == from ? std::vector<Incoming>() : std::vector<Incoming>{{from, data}});
}

void Communicator::meet(double seconds) {
    const std::scoped_lock lock(mutex_);
    if (std::isnan(seconds)) {
        throw Error("NaN seconds cannot be waited for", "Communicator");
    }
    begin_within(std::max(seconds, seconds_.load()), kMeet, 0, 0);
}

void Communicator::agree(std::string_view what, std::string_view text) {
    const std::scoped_lock lock(mutex_);
    if (ranks() == 1) {
        return;
    }
    // Texts of any length: first a header of fixed size, with the length and a sum of the text.
    std::uint64_t sum = 14695981039346656037u;  // FNV-1a
    for (const char c : text) {
        sum = (sum ^ static_cast<unsigned char>(c)) * 1099511628211u;
    }
    const std::array<std::uint64_t, 2> mine{text.size(), sum};
    std::vector<std::array<std::uint64_t, 2>> theirs(static_cast<std::size_t>(ranks()));
    begin(kAgree, 0);
    const auto [out, in] = messages(
        *transport_, [&](int) { return std::span(mine); },
        [&](int r) { return std::span(theirs[static_cast<std::size_t>(r)]); });
    exchange(out, in);
    for (const Incoming& i : in) {
        if (theirs[static_cast<std::size_t>(i.from)] != mine) {
            throw Error("has another " + std::string(what) + " than " + name_of_rank(rank()), name_of_rank(i.from));
        }
    }
}

void Communicator::exchange_one(const std::vector<Outgoing>& out, const std::vector<Incoming>& in, double share) {
    if (!(share > 0 && share <= 1)) {
        throw Error(std::to_string(share) + " of the limit cannot be waited for", "Communicator");
    }
    exchange_within(seconds_ * share, out, in);
}

void Communicator::check_peer(const char* what, int peer) const {
    if (peer < 0 || peer >= ranks() || peer == rank()) {
        throw Error("is not another rank of " + std::to_string(ranks()), std::string(what) + ": " + name_of_rank(peer));
    }
}

void Communicator::send(std::span<const std::byte> data, int to, double share) {
    const std::scoped_lock lock(mutex_);
    check_peer("send", to);
    const Header header{kMessage, 0, 0, data.size()};
    message_.resize(sizeof(header) + data.size());
    const auto* bytes = std::as_bytes(std::span(&header, 1)).data();
    std::copy(data.begin(), data.end(), std::copy(bytes, bytes + sizeof(header), message_.begin()));
    exchange_one({{to, message_}}, {}, share);
    count([&](Traffic& t) {
        ++t.sends;
        t.bytes += data.size();
    });
}

void Communicator::receive(std::span<std::byte> data, int from, double share) {
    const std::scoped_lock lock(mutex_);
    check_peer("receive", from);
    Header header{};
    message_.resize(sizeof(header) + data.size());
    exchange_one({}, {{from, message_}}, share);
    const auto behind = message_.begin() + sizeof(header);
    std::copy(message_.begin(), behind, std::as_writable_bytes(std::span(&header, 1)).begin());
    if (header.kind != kMessage || header.amount != data.size()) {
        throw Error("sent something else than the " + std::to_string(data.size()) + " bytes that " +
                        name_of_rank(rank()) + " receives",
                    name_of_rank(from));
    }
    std::copy(behind, message_.end(), data.begin());
}

Traffic Communicator::traffic() const {
    const std::scoped_lock lock(traffic_mutex_);
    return traffic_;
}

}  // namespace vkf
