// SPDX-License-Identifier: Apache-2.0
#include "runtime/compile/plan_collectives.h"

#include <doctest/doctest.h>

using namespace vkf;

namespace {

/// A plan's work, where dispatch i touches these storages in step i, and some are collectives.
struct SmallWork {
    std::vector<PlannedWork> entries;
    std::vector<PlannedDispatch> dispatches;
    std::size_t storages;

    SmallWork(std::size_t count, const std::vector<std::vector<StorageId>>& touched,
              const std::vector<std::uint32_t>& collectives)
        : storages(count) {
        for (std::uint32_t i = 0; i < touched.size(); ++i) {
            PlannedDispatch d;
            d.step = i;
            for (const StorageId s : touched[i]) {
                d.windows.push_back({s, 0, 0});
            }
            dispatches.push_back(d);
            entries.push_back({WorkKind::dispatch, i});
        }
        for (const std::uint32_t i : collectives) {
            dispatches[i].dispatch.collective = Collective::all_reduce;
            entries[i].kind = WorkKind::collective;
        }
    }
    OrderedWork ordered() { return {entries, dispatches, storages, static_cast<std::uint32_t>(dispatches.size())}; }
};

}  // namespace

TEST_CASE("plan of collectives: each is over before what it exchanges is touched, or the next begins") {
    // 1 sums storage 0 into 1, 4 storage 2 into 3, 7 storage 4 in its place, which nothing reads
    SmallWork work(6, {{0}, {0, 1}, {2}, {5}, {2, 3}, {5}, {1, 3}, {4}, {5}}, {1, 4, 7});
    find_ends_of_collectives(work.ordered());
    CHECK(work.dispatches[1].over_before == 4);  // the next collective; 2 and 3 run meanwhile
    CHECK(work.dispatches[4].over_before == 6);  // 6 reads storage 3; 5 runs meanwhile
    CHECK(work.dispatches[7].over_before == 9);  // the end
    CHECK(last_steps_of_exchange(work.ordered()) == std::vector<std::uint32_t>{4, 4, 6, 6, 9, 0});
    CHECK(exchanged_storages(work.ordered()) == std::vector<bool>{true, true, true, true, true, false});
}

TEST_CASE("plan of collectives: they come with what makes them ready, and nothing moves without them") {
    // 0 makes a; 1 makes b of it; 2 copies a for 3, which exchanges the copy; 4 uses what came
    const std::vector<StorageUse> given{{{}, {0}}, {{0}, {1}}, {{0}, {2}}, {{2}, {3, 9}}, {{1, 3}, {4}}};
    std::vector<Dispatch> lowered(given.size());
    for (std::uint32_t i = 0; i < lowered.size(); ++i) {
        lowered[i].node = i;
    }
    const auto nodes = [&] {
        std::vector<NodeId> out;
        for (const Dispatch& d : lowered) {
            out.push_back(d.node);
        }
        return out;
    };
    std::vector<StorageUse> uses = given;
    put_collectives_early(lowered, uses);
    CHECK(nodes() == std::vector<NodeId>{0, 1, 2, 3, 4});
    lowered[3].collective = Collective::all_reduce;
    put_collectives_early(lowered, uses);
    CHECK(nodes() == std::vector<NodeId>{0, 2, 3, 1, 4});
    CHECK(uses[1].writes == std::vector<std::uint32_t>{2});
}
