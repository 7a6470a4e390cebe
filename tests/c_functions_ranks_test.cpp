// SPDX-License-Identifier: Apache-2.0
// C's functions of several ranks.
#include <doctest/doctest.h>

#include <algorithm>
#include <string>
#include <thread>

#include "c/vkformer_c.h"

TEST_CASE("c functions: ranks sum, gather, broadcast and agree, and are counted") {
    vkf_communicator* ranks[2] = {};
    REQUIRE(vkf_communicator_create_local(2, ranks) == VKF_OK);
    vkf_result results[2][6] = {};
    float sums[2][3] = {};
    const auto work = [&](int r) {
        const float mine[3] = {r == 0 ? 1.0f : 2.0f, 2.0f, 3.0f};
        std::copy(mine, mine + 3, sums[r]);
        results[r][0] = vkf_communicator_all_reduce(ranks[r], sums[r], 3);
        char all[3] = {r == 0 ? 'a' : '-', r == 1 ? 'b' : '-', r == 1 ? 'c' : '-'};
        const uint64_t bytes[2] = {1, 2};
        results[r][1] = vkf_communicator_all_gather(ranks[r], all, bytes);
        char told = r == 1 ? 'x' : '-';
        results[r][2] = vkf_communicator_broadcast(ranks[r], &told, 1, 1);
        results[r][3] = vkf_communicator_agree(ranks[r], "name", "same");
        char passed[3] = {'x', 'y', 'z'};
        results[r][4] = r == 0 ? vkf_communicator_send(ranks[r], passed, 3, 1, 0)
                               : vkf_communicator_receive(ranks[r], passed, 3, 0, 0.5);
        results[r][5] = vkf_communicator_meet(ranks[r], 60);
        if (std::string(all, 3) != "abc" || told != 'x') {
            results[r][1] = VKF_ERROR;
        }
    };
    std::thread other(work, 1);
    work(0);
    other.join();
    for (int r = 0; r < 2; ++r) {
        for (const vkf_result result : results[r]) {
            CHECK(result == VKF_OK);
        }
        CHECK(sums[r][0] == 3.0f);
        uint32_t rank = 9, count = 9;
        CHECK(vkf_communicator_rank(ranks[r], &rank, &count) == VKF_OK);
        CHECK(rank == static_cast<uint32_t>(r));
        CHECK(count == 2);
        vkf_traffic traffic = {sizeof(vkf_traffic), 0, 0, 0, 0, 0, 0, 0};
        CHECK(vkf_communicator_traffic(ranks[r], &traffic) == VKF_OK);
        CHECK(traffic.all_reduces == 1);
        CHECK(traffic.all_reduce_elements == 3);
        CHECK(traffic.sends == (r == 0 ? 1 : 0));
        CHECK(vkf_communicator_limit(ranks[r], 0.1) == VKF_OK);
    }
    vkf_communicator_destroy(ranks[1]);
    const auto told = [](const char* what) { return std::string(vkf_last_error()).find(what) != std::string::npos; };
    float x = 0;
    CHECK(vkf_communicator_send(ranks[0], &x, sizeof(x), 0xffffffffu, 0) != VKF_OK);
    CHECK(told("rank 2147483647: "));  // and not rank -1
    CHECK(vkf_communicator_broadcast(ranks[0], &x, sizeof(x), 0xffffffffu) != VKF_OK);
    CHECK(told("rank 2147483647: "));
    CHECK(vkf_communicator_all_reduce(ranks[0], &x, 1) != VKF_OK);
    CHECK(std::string(vkf_last_error()).find("rank 1: has ended") != std::string::npos);
    CHECK(vkf_communicator_all_reduce(nullptr, &x, 1) != VKF_OK);
    vkf_communicator_destroy(ranks[0]);
    CHECK(vkf_communicator_create_local(0, ranks) != VKF_OK);
}

TEST_CASE("c functions: layers that are shared out describe a rank's part") {
    vkf_graph* graph = nullptr;
    REQUIRE(vkf_graph_create(&graph) == VKF_OK);
    CHECK(vkf_graph_set_rank(graph, 2, 2, nullptr) != VKF_OK);
    const double no_speeds[2] = {1, 0}, speeds[2] = {1, 2};
    CHECK(vkf_graph_set_rank(graph, 1, 2, no_speeds) != VKF_OK);
    CHECK(vkf_graph_set_rank(graph, 1, 2, speeds) == VKF_OK);
    REQUIRE(vkf_graph_set_rank(graph, 1, 2, nullptr) == VKF_OK);
    vkf_value x, y, parts[2], part_of_w;
    vkf_dim dims[2];
    dims[0] = vkf_size(3);
    dims[1] = vkf_size(8);
    REQUIRE(vkf_graph_input(graph, "x", VKF_F32, 2, dims, &x) == VKF_OK);
    const vkf_column_parallel_linear_options column = {sizeof column, true, false, {0, 0}, VKF_RELU};
    REQUIRE(vkf_column_parallel_linear(x, "up", 6, &column, &y) == VKF_OK);
    const vkf_row_parallel_linear_options row = {sizeof row, true, true, {0, 0}};
    CHECK(vkf_row_parallel_linear(y, "down", 6, 8, &row, &y) == VKF_OK);
    CHECK(vkf_all_reduce(y, &y) == VKF_OK);
    const int64_t columns[2] = {8, 8};
    CHECK(vkf_all_gather(y, 2, columns, parts) == VKF_OK);
    CHECK(vkf_broadcast(y, 1, &y) == VKF_OK);
    CHECK(vkf_broadcast(y, UINT32_MAX, &y) != VKF_OK);
    dims[0] = vkf_size(2);
    const vkf_part part = {2, 2};
    CHECK(vkf_graph_weight_shard(graph, "w", 2, dims, 0, 4, 1, &part, &part_of_w) == VKF_OK);
    vkf_graph_destroy(graph);
}
