// SPDX-License-Identifier: Apache-2.0
// Several ranks in one process: a thread each.
#pragma once

#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "parallel/communicator.h"
#include "runtime/base/error.h"

namespace vkf::test {

/// Calls `work` once for each rank, each in a thread of its own; gives what each threw, "" where it
/// came to its end.
inline std::vector<std::string> on_ranks(std::vector<std::unique_ptr<Transport>> transports,
                                         const std::function<void(const std::shared_ptr<Communicator>&)>& work) {
    std::vector<std::string> errors(transports.size());
    std::vector<std::thread> threads;
    for (std::size_t r = 0; r < transports.size(); ++r) {
        threads.emplace_back([&errors, &work, r, transport = std::move(transports[r])]() mutable {
            try {
                work(std::make_shared<Communicator>(std::move(transport)));
            } catch (const std::exception& e) {
                errors[r] = e.what();
            } catch (...) {  // a REQUIRE throws what must not leave a thread
                errors[r] = "a check failed";
            }
        });
    }
    for (std::thread& t : threads) {
        t.join();
    }
    return errors;
}

inline std::vector<std::string> on_ranks(int ranks,
                                         const std::function<void(const std::shared_ptr<Communicator>&)>& work) {
    return on_ranks(local_transports(ranks), work);
}

/// The errors of all, in one line; empty where there is none.
inline std::string joined(const std::vector<std::string>& errors) {
    std::string all;
    for (const std::string& e : errors) {
        all += e.empty() ? "" : (all.empty() ? "" : " | ") + e;
    }
    return all;
}

}  // namespace vkf::test
