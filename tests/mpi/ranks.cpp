// SPDX-License-Identifier: Apache-2.0
// One rank of what tests/programs/ranks_test.cpp and two_hosts start with mpirun: does what its
// argument names, and prints "rank N: " and what came of it.
#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <exception>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include <mpi.h>
#include <vkformer/mpi.h>
#include <vkformer/vkformer.h>

#include "tests/rank_numbers.h"

namespace {

using Clock = std::chrono::steady_clock;

using vkf::test::numbers_of;

/// Sums of several sizes, each several times, bit for bit those of the ranks' order.
std::string sums(vkf::Communicator& c) {
    for (const std::size_t count : {0u, 1u, 7u, 16384u, 16385u, 1000003u}) {
        std::vector<float> want = numbers_of(0, count);
        for (int r = 1; r < c.ranks(); ++r) {
            const std::vector<float> more = numbers_of(r, count);
            std::transform(want.begin(), want.end(), more.begin(), want.begin(), std::plus<float>());
        }
        for (int again = 0; again < 5; ++again) {
            std::vector<float> x = numbers_of(c.rank(), count);
            c.all_reduce(x);
            if (count != 0 && std::memcmp(x.data(), want.data(), count * sizeof(float)) != 0) {
                return "other bits of " + std::to_string(count);
            }
        }
    }
    c.agree("name", "the same");
    std::vector<std::byte> told{std::byte(c.rank() + 1)};
    c.broadcast(told, c.ranks() - 1);
    return told.front() == std::byte(c.ranks()) ? "same bits" : "told something else";
}

/// How long `work` takes, in microseconds, all ranks at once.
template <class Work>
double time_of(vkf::Communicator& c, Work work) {
    c.agree("start", "");
    const Clock::time_point start = Clock::now();
    work();
    return std::chrono::duration<double, std::micro>(Clock::now() - start).count();
}

double median_of(std::vector<double> times) {
    std::nth_element(times.begin(), times.begin() + static_cast<std::ptrdiff_t>(times.size() / 2), times.end());
    return times[times.size() / 2];
}

/// An all-reduce of 4 MiB beside MPI's own, in turns, so that what else the machine does is beside
/// both.
std::string times(vkf::Communicator& c) {
    std::vector<float> x(1 << 20, 1.0f), y = x, sum(x.size());
    std::string out;
    for (int round = 0; round < 3; ++round) {
        std::vector<double> ours, theirs;
        for (int i = 0; i < 41; ++i) {
            ours.push_back(time_of(c, [&] { c.all_reduce(x); }));
            theirs.push_back(time_of(c, [&] {
                MPI_Allreduce(y.data(), sum.data(), static_cast<int>(y.size()), MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
            }));
        }
        char text[80];
        std::snprintf(text, sizeof(text), "%.0f us, MPI_Allreduce %.0f us: %.2f; ", median_of(ours), median_of(theirs),
                      median_of(ours) / median_of(theirs));
        out += text;
    }
    return out;
}

std::string run(const std::string& what, vkf::Communicator& c) {
    std::vector<float> x(1000, 1.0f);
    if (what == "sums") {
        return sums(c);
    } else if (what == "times") {
        return times(c);
    } else if (what == "ends") {
        if (c.rank() == c.ranks() - 1) {
            throw vkf::Error("out of memory");
        }
    } else if (what == "hangs") {
        c.limit(0.5);
        std::this_thread::sleep_for(std::chrono::milliseconds(c.rank() == c.ranks() - 1 ? 3000 : 0));
    } else if (what == "killed") {
        // the last rank dies at some moment, as if by kill -9
        if (c.rank() == c.ranks() - 1) {
            const auto moment = std::chrono::microseconds(Clock::now().time_since_epoch().count() / 1000 % 200000);
            std::thread([moment] {
                std::this_thread::sleep_for(moment);
                std::raise(SIGKILL);
            }).detach();
        }
        for (const auto end = Clock::now() + std::chrono::seconds(30); Clock::now() < end;) {
            c.all_reduce(x);
        }
    } else if (what == "works") {
        c.limit(2);
        std::printf("rank %d: works\n", c.rank());
        std::fflush(stdout);
        for (const auto end = Clock::now() + std::chrono::seconds(60); Clock::now() < end;) {
            c.all_reduce(x);
        }
    } else if (what == "differs") {
        x.resize(c.rank() == 0 ? 1000 : 1001);
    } else {
        throw vkf::Error("is none of sums, times, ends, hangs, killed, works, differs", what);
    }
    c.all_reduce(x);
    return "summed";
}

}  // namespace

int main(int argc, char** argv) {
    std::string name = "rank ?";
    int code = 0;
    std::string said;
    try {
        vkf::Communicator c(vkf::mpi_transport());
        name = "rank " + std::to_string(c.rank());
        said = run(argc > 1 ? argv[1] : "", c);
    } catch (const std::exception& e) {
        said = std::string("error: ") + e.what();
        code = 1;
    }
    std::printf("%s: %s\n", name.c_str(), said.c_str());
    std::fflush(stdout);
    return code;
}
