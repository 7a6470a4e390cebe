// SPDX-License-Identifier: Apache-2.0
// Collectives over ranks that are threads: sums, their bits, and ranks that differ, end or hang.
#include "parallel/communicator.h"

#include <doctest/doctest.h>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tests/faulty_transport.h"
#include "tests/rank_numbers.h"
#include "tests/ranks.h"

using namespace vkf;
using namespace vkf::test;

namespace {

double seconds_of(const std::function<void()>& work) {
    const auto before = std::chrono::steady_clock::now();
    work();
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - before).count();
}

}  // namespace

TEST_SUITE("communicator") {
    TEST_CASE("communicator: sums are taken in the order of the ranks, whatever their size, run after run") {
        for (const int ranks : {1, 2, 3, 5}) {
            for (const std::size_t count : {0u, 1u, 7u, 16384u, 16385u, 50001u}) {
                CAPTURE(ranks);
                CAPTURE(count);
                std::vector<float> want = numbers_of(0, count);
                for (int r = 1; r < ranks; ++r) {
                    const std::vector<float> more = numbers_of(r, count);
                    for (std::size_t i = 0; i < count; ++i) {
                        want[i] += more[i];
                    }
                }
                const auto errors = on_ranks(ranks, [&](const std::shared_ptr<Communicator>& c) {
                    for (int again = 0; again < 3; ++again) {
                        std::vector<float> x = numbers_of(c->rank(), count);
                        c->all_reduce(x);
                        if (count != 0 && std::memcmp(x.data(), want.data(), count * sizeof(float)) != 0) {
                            throw Error("other bits");
                        }
                    }
                    if (c->traffic().all_reduces != 3 || c->traffic().all_reduce_elements != 3 * count) {
                        throw Error("other counts");
                    }
                });
                CHECK(joined(errors) == "");
            }
        }
    }

    TEST_CASE("communicator: what is gathered has each rank's bytes in its place, and a broadcast one rank's") {
        const auto errors = on_ranks(3, [](const std::shared_ptr<Communicator>& c) {
            const std::vector<std::uint64_t> bytes{2, 0, 3};
            std::vector<std::byte> all(5);
            if (c->rank() == 0) {
                all[0] = all[1] = std::byte{1};
            } else if (c->rank() == 2) {
                all[2] = all[3] = all[4] = std::byte{3};
            }
            c->all_gather(all, bytes);
            const std::vector<std::byte> want{std::byte{1}, std::byte{1}, std::byte{3}, std::byte{3}, std::byte{3}};
            std::vector<std::byte> told{std::byte(c->rank())};
            c->broadcast(told, 2);
            if (all != want || told.front() != std::byte{2}) {
                throw Error("other bytes");
            }
            c->agree("name", "the same");
        });
        CHECK(joined(errors) == "");
    }

    TEST_CASE("communicator: ranks that do not do the same are named") {
        std::vector<std::string> errors = on_ranks(2, [](const std::shared_ptr<Communicator>& c) {
            std::vector<float> x(c->rank() == 0 ? 4 : 5);
            c->all_reduce(x);
        });
        CHECK(errors[0] == "rank 1: does all_reduce of 5 as call 0, rank 0 does all_reduce of 4 as call 0");
        errors = on_ranks(2, [](const std::shared_ptr<Communicator>& c) {
            std::vector<float> x(4);
            c->rank() == 0 ? c->all_reduce(x) : c->broadcast(std::as_writable_bytes(std::span(x)));
        });
        CHECK(errors[1] == "rank 0: does all_reduce of 4 as call 0, rank 1 does broadcast of 16 of rank 0 as call 0");
        errors = on_ranks(2, [](const std::shared_ptr<Communicator>& c) {
            std::vector<std::byte> told(3);
            c->broadcast(told, c->rank());
        });
        CHECK(errors[0] ==
              "rank 1: does broadcast of 3 of rank 1 as call 0, rank 0 does broadcast of 3 of rank 0 as call 0");
        errors = on_ranks(
            2, [](const std::shared_ptr<Communicator>& c) { c->agree("model", c->rank() == 0 ? "llama" : "gemma"); });
        CHECK(errors[0] == "rank 1: has another model than rank 0");
        CHECK(errors[1] == "rank 0: has another model than rank 1");
    }

    TEST_CASE("communicator: a rank that ends is told of at once, and one that hangs within the limit") {
        std::vector<std::string> errors;
        const double ended = seconds_of([&] {
            errors = on_ranks(3, [](const std::shared_ptr<Communicator>& c) {
                if (c->rank() == 2) {
                    throw Error("out of memory");
                }
                std::vector<float> x(100000);
                c->all_reduce(x);
            });
        });
        CHECK(errors[2] == "out of memory");
        for (const std::size_t r : {0u, 1u}) {
            CHECK(errors[r].find("has ended") != std::string::npos);
        }
        CHECK(ended < 5);
        const double hung = seconds_of([&] {
            errors = on_ranks(2, [](const std::shared_ptr<Communicator>& c) {
                c->limit(0.2);
                if (c->rank() == 1) {
                    std::this_thread::sleep_for(std::chrono::milliseconds(600));
                    return;
                }
                std::vector<float> x(4);
                c->all_reduce(x);
            });
        });
        CHECK(errors[0].find("rank 1: did not answer rank 0 within 0.2") != std::string::npos);
        CHECK(hung < 5);
        std::atomic<bool> given_up = false;
        errors = on_ranks(2, [&](const std::shared_ptr<Communicator>& c) {
            std::vector<float> x(4);
            if (c->rank() == 1) {  // comes too late
                while (!given_up) {
                    std::this_thread::sleep_for(std::chrono::milliseconds(5));
                }
                c->all_reduce(x);
                return;
            }
            c->limit(0.1);
            try {
                c->all_reduce(x);
            } catch (const Error&) {
                given_up = true;
                throw;
            }
            given_up = true;
        });
        CHECK(errors[0].find("rank 1: did not answer rank 0 within 0.1") != std::string::npos);
        CHECK(errors[1] == "rank 0: has ended, for rank 1 did not answer in time, or sent another size");
    }

    TEST_CASE("communicator: the limit is of an exchange, however many ranks are waited for") {
        std::vector<std::unique_ptr<Transport>> transports = local_transports(6);
        std::vector<std::thread> late;
        std::string said;
        for (int r = 1; r < 6; ++r) {
            late.emplace_back([r, transport = std::move(transports[static_cast<std::size_t>(r)])] {
                std::this_thread::sleep_for(std::chrono::milliseconds(300 * r));
                const std::byte sent[1] = {};
                try {
                    const Outgoing out{0, sent};
                    transport->exchange({&out, 1}, {});
                } catch (const Error&) {  // rank 0 has ended by then
                }
            });
        }
        transports[0]->limit(0.5);
        std::byte came[5];
        std::vector<Incoming> in;
        for (int r = 1; r < 6; ++r) {
            in.push_back({r, {came + r - 1, 1}});
        }
        try {
            transports[0]->exchange({}, in);
        } catch (const Error& error) {
            said = error.what();
        }
        for (std::thread& t : late) {
            t.join();
        }
        CHECK(said.find("did not answer rank 0 within 0.5") != std::string::npos);
    }

    TEST_CASE("communicator: whichever exchange goes wrong, all ranks end, and name the one that it is due to") {
        double limit = 60;
        const auto life = [&limit](const std::shared_ptr<Communicator>& c) {
            c->limit(limit);
            c->agree("name", "the same");
            std::vector<float> few(5, 1.0f), many(20000, 2.0f);
            c->all_reduce(few);
            c->all_reduce(many);
            const std::vector<std::uint64_t> bytes{3, 4, 5};
            std::vector<std::byte> all(12);
            c->all_gather(all, bytes);
            c->broadcast(all, 1);
            if (few[0] != 3.0f || many.back() != 6.0f) {
                throw Error("other sums");
            }
        };
        int exchanges = 0;
        CHECK(joined(on_ranks(faulty_transports(3, 1, Fault::fails, -1, &exchanges), life)) == "");
        REQUIRE(exchanges > 8);
        for (const Fault fault : {Fault::fails, Fault::cut, Fault::slow, Fault::hangs}) {
            limit = fault == Fault::hangs ? 0.5 : 60;
            for (int at = 0; at < exchanges; at += fault == Fault::hangs ? 4 : 1) {
                CAPTURE(static_cast<int>(fault));
                CAPTURE(at);
                int count = 0;
                const auto errors = on_ranks(faulty_transports(3, 1, fault, at, &count), life);
                if (fault == Fault::slow) {
                    CHECK(joined(errors) == "");
                    continue;
                }
                CHECK(count == at + 1);
                CHECK(errors[1] != "");
                for (const std::size_t other : {0u, 2u}) {
                    CHECK_MESSAGE(errors[other].starts_with("rank 1: "), errors[other]);
                }
            }
        }
    }

    TEST_CASE("communicator: what cannot be is refused") {
        CHECK_THROWS_WITH_AS(local_transports(0), "local_transports: 0 ranks; there must be one at least", Error);
        CHECK_THROWS_WITH_AS(Communicator(nullptr), "Communicator: needs a transport", Error);
        const auto errors = on_ranks(1, [](const std::shared_ptr<Communicator>& c) {
            std::vector<std::byte> bytes(3);
            CHECK_THROWS_WITH_AS(c->broadcast(bytes, 1), "broadcast: rank 1: is none of 1 ranks", Error);
            const std::vector<std::uint64_t> two{1, 2};
            CHECK_THROWS_WITH_AS(c->all_gather(bytes, two), "all_gather: 2 parts do not make up 3 bytes of 1 ranks",
                                 Error);
        });
        CHECK(joined(errors) == "");
    }
}
