// SPDX-License-Identifier: Apache-2.0
// A transport on which one exchange goes wrong.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "parallel/transport.h"
#include "runtime/base/error.h"

namespace vkf::test {

enum class Fault {
    fails,  ///< the exchange throws, and nothing is sent
    cut,    ///< half of each message is sent
    slow,   ///< the exchange comes late, within the limit
    hangs,  ///< the exchange comes after the limit of the others
};

/// Passes everything on, and does `fault` at exchange number `at`; counts the exchanges.
class FaultyTransport final : public Transport {
public:
    FaultyTransport(std::unique_ptr<Transport> inner, Fault fault, int at, int* count)
        : inner_(std::move(inner)), fault_(fault), at_(at), count_(count) {}

    int rank() const noexcept override { return inner_->rank(); }
    int ranks() const noexcept override { return inner_->ranks(); }
    void limit(double seconds) noexcept override {
        seconds_ = seconds;
        inner_->limit(seconds);
    }
    void exchange(std::span<const Outgoing> out, std::span<const Incoming> in) override {
        if ((*count_)++ != at_) {
            inner_->exchange(out, in);
            return;
        }
        std::vector<Outgoing> less(out.begin(), out.end());
        switch (fault_) {
            case Fault::fails: throw Error("the cable is cut");
            case Fault::cut:
                for (Outgoing& o : less) {
                    o.bytes = o.bytes.first(o.bytes.size() / 2);
                }
                break;
            case Fault::slow: std::this_thread::sleep_for(std::chrono::milliseconds(30)); break;
            case Fault::hangs: std::this_thread::sleep_for(std::chrono::duration<double>(seconds_ * 2)); break;
        }
        inner_->exchange(less, in);
    }

private:
    std::unique_ptr<Transport> inner_;
    Fault fault_;
    int at_;
    int* count_;
    double seconds_ = 10;
};

/// Transports of which rank `faulty` does `fault` at its exchange number `at`; -1: never.
inline std::vector<std::unique_ptr<Transport>> faulty_transports(int ranks, int faulty, Fault fault, int at,
                                                                 int* count) {
    std::vector<std::unique_ptr<Transport>> all = local_transports(ranks);
    std::unique_ptr<Transport>& one = all[static_cast<std::size_t>(faulty)];
    one = std::make_unique<FaultyTransport>(std::move(one), fault, at, count);
    return all;
}

}  // namespace vkf::test
