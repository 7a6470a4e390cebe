// SPDX-License-Identifier: Apache-2.0
// The contract of threads: a Device may be used by all, Weights are shared, a Program belongs to
// one at a time.
#include <doctest/doctest.h>

#include <thread>

#include "ops/ops.h"
#include "tests/device.h"
#include "tests/fixtures.h"
#include "tests/op_check.h"

namespace vkf::test {

namespace {

/// Runs f(0) .. f(count-1), each on a thread of its own, and returns what they threw and what they
/// found wrong.
template <class F>
std::string in_parallel(int count, F f) {
    std::vector<std::string> said(static_cast<std::size_t>(count));
    {
        std::vector<std::jthread> threads;
        for (int i = 0; i < count; ++i) {
            threads.emplace_back([&, i] {
                std::string found;
                const std::string thrown = message_of([&] { found = f(i); });
                said[static_cast<std::size_t>(i)] = found + thrown;
            });
        }
    }
    std::string all;
    for (const std::string& s : said) {
        all += s.empty() ? "" : s + "\n";
    }
    return all;
}

std::string run_some(Program& program, int seed) {
    std::string wrong;
    for (const std::int64_t tokens : {30, 1, 17}) {
        program.set("tokens", tokens + seed);
        wrong += SmallModel::check(program, tokens + seed);
    }
    return wrong;
}

}  // namespace

TEST_SUITE("threads") {
    TEST_CASE("threads: a program each on two devices") {
        // two drivers' where there are two
        const std::size_t count = Device::list().size();
        std::vector<Device> devices;
        for (std::size_t i = 0; i < 2; ++i) {
            devices.push_back(Device::create({.select = std::to_string(i % count)}));
        }
        CHECK(in_parallel(2, [&](int i) {
                  const Device& device = devices[static_cast<std::size_t>(i)];
                  Graph g;
                  SmallModel::describe(g, 64);
                  Program program = device.compile(g, SmallModel::load(device));
                  return run_some(program, i);
              }) == "");
        for (Device& device : devices) {
            CHECK(last_words(std::move(device)) == "");
        }
    }

    TEST_CASE("threads: four compile, load and run on one device") {
        Device device = Device::create();
        CHECK(in_parallel(4, [&](int i) {
                  Graph g;  // a graph belongs to its thread
                  const Value x = g.input("x", {4 + i, 12});
                  g.output("y", layer_norm(softmax(relu(scale(x, static_cast<float>(i + 1)))), {}, {}));
                  Program first = device.compile(g);
                  first.upload("x", std::vector<float>(static_cast<std::size_t>(12 * (4 + i)), 1.0f));
                  first.run();
                  Graph same;
                  SmallModel::describe(same, 64);
                  Program second = device.compile(same, SmallModel::load(device));
                  std::string wrong = run_some(second, i);
                  for (const float y : first.download("y")) {
                      wrong += y == 0.0f ? "" : "a row of equals is not normalised to 0";
                  }
                  return wrong;
              }) == "");
        CHECK(last_words(std::move(device)) == "");
    }

    TEST_CASE("threads: programs share weights") {
        Device device = Device::create();
        {
            const Weights weights = SmallModel::load(device);
            CHECK(in_parallel(3, [&](int i) {
                      Graph g;
                      SmallModel::describe(g, 64);
                      Program program = device.compile(g, weights);
                      return run_some(program, i);
                  }) == "");
        }
        CHECK(last_words(std::move(device)) == "");
    }

    TEST_CASE("threads: devices come and go side by side, the last user of one destroys it") {
        CHECK(in_parallel(2, [&](int i) {
                  Graph g;
                  SmallModel::describe(g, 64);
                  std::optional<Program> program;
                  {
                      const Device device = Device::create();
                      program = device.compile(g, SmallModel::load(device));
                  }
                  return run_some(*program, i);
              }) == "");
    }

    TEST_CASE("threads: messages and pipelines may be asked for while others work") {
        Device device = Device::create();
        CHECK(in_parallel(2, [&](int i) {
                  std::string wrong;
                  if (i == 0) {
                      for (int n = 0; n < 50; ++n) {
                          for (const std::string& message : device.messages()) {
                              wrong += message;
                          }
                          device.save_pipeline_cache();
                          wrong += pipelines_of(device) > 1000 ? "more pipelines than there can be" : "";
                      }
                  } else {
                      Graph g;
                      SmallModel::describe(g, 64);
                      Program program = device.compile(g, SmallModel::load(device));
                      wrong = run_some(program, 0);
                  }
                  return wrong;
              }) == "");
        CHECK(last_words(std::move(device)) == "");
    }
}

}  // namespace vkf::test
