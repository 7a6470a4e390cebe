// SPDX-License-Identifier: Apache-2.0
// Several ranks: communicators, collectives, and layers that are shared out.
#include "layers/parallel.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "c/device.h"

namespace {

using namespace vkf;
using namespace vkf::c;

std::vector<Part> parts_of(uint32_t count, const vkf_part* parts) {
    std::vector<Part> out;
    for (std::uint32_t i = 0; i < count; ++i) {
        const vkf_part& p = (&need(parts, "parts"))[i];
        out.push_back({p.first, p.count});
    }
    return out;
}

/// A number of a rank, or of ranks: one that an int has no room for is the largest, which is none.
int rank_of(std::uint32_t number) {
    return static_cast<int>(std::min(number, static_cast<std::uint32_t>(std::numeric_limits<int>::max())));
}

template <class T>
std::span<T> span_of(T* data, std::uint64_t count, const char* what) {
    return {count == 0 ? data : &need(data, what), static_cast<std::size_t>(count)};
}

}  // namespace

vkf_result vkf_communicator_create_local(uint32_t ranks, vkf_communicator** communicators) {
    return guard(__func__, [&] {
        std::fill_n(&need(communicators, "communicators"), ranks, nullptr);
        std::vector<std::unique_ptr<vkf_communicator>> all;
        for (std::unique_ptr<Transport>& transport : local_transports(rank_of(ranks))) {
            all.push_back(std::make_unique<vkf_communicator>());
            all.back()->ranks = std::make_shared<Communicator>(std::move(transport));
        }
        for (std::size_t r = 0; r < all.size(); ++r) {
            communicators[r] = all[r].release();
        }
    });
}

void vkf_communicator_destroy(vkf_communicator* communicator) { delete communicator; }

vkf_result vkf_communicator_rank(const vkf_communicator* communicator, uint32_t* rank, uint32_t* ranks) {
    return guard(__func__, [&] {
        const Communicator& c = *need(communicator, "communicator").ranks;
        std::uint32_t& all = need(ranks, "ranks");
        need(rank, "rank") = static_cast<std::uint32_t>(c.rank());
        all = static_cast<std::uint32_t>(c.ranks());
    });
}

vkf_result vkf_communicator_limit(vkf_communicator* communicator, double seconds) {
    return guard(__func__, [&] { need(communicator, "communicator").ranks->limit(seconds); });
}

vkf_result vkf_communicator_all_reduce(vkf_communicator* communicator, float* x, uint64_t count) {
    return guard(__func__, [&] { need(communicator, "communicator").ranks->all_reduce(span_of(x, count, "x")); });
}

vkf_result vkf_communicator_all_gather(vkf_communicator* communicator, void* all, const uint64_t* bytes) {
    return guard(__func__, [&] {
        Communicator& c = *need(communicator, "communicator").ranks;
        const std::span<const std::uint64_t> of_ranks(&need(bytes, "bytes"), static_cast<std::size_t>(c.ranks()));
        std::uint64_t sum = 0;
        for (const std::uint64_t b : of_ranks) {
            sum += b;
        }
        c.all_gather(span_of(static_cast<std::byte*>(all), sum, "all"), of_ranks);
    });
}

vkf_result vkf_communicator_broadcast(vkf_communicator* communicator, void* data, uint64_t bytes, uint32_t from) {
    return guard(__func__, [&] {
        need(communicator, "communicator")
            .ranks->broadcast(span_of(static_cast<std::byte*>(data), bytes, "data"), rank_of(from));
    });
}

vkf_result vkf_communicator_send(vkf_communicator* communicator, const void* data, uint64_t bytes, uint32_t to,
                                 double share) {
    return guard(__func__, [&] {
        need(communicator, "communicator")
            .ranks->send(span_of(static_cast<const std::byte*>(data), bytes, "data"), rank_of(to),
                         or_default(share, 1.0));
    });
}

vkf_result vkf_communicator_receive(vkf_communicator* communicator, void* data, uint64_t bytes, uint32_t from,
                                    double share) {
    return guard(__func__, [&] {
        need(communicator, "communicator")
            .ranks->receive(span_of(static_cast<std::byte*>(data), bytes, "data"), rank_of(from),
                            or_default(share, 1.0));
    });
}

vkf_result vkf_communicator_meet(vkf_communicator* communicator, double seconds) {
    return guard(__func__, [&] { need(communicator, "communicator").ranks->meet(seconds); });
}

vkf_result vkf_communicator_agree(vkf_communicator* communicator, const char* what, const char* text) {
    return guard(__func__, [&] {
        need(communicator, "communicator").ranks->agree(c::text(what, "what"), c::text(text, "text"));
    });
}

vkf_result vkf_communicator_traffic(const vkf_communicator* communicator, vkf_traffic* traffic) {
    return guard(__func__, [&] {
        const Traffic t = need(communicator, "communicator").ranks->traffic();
        fill(need(traffic, "traffic"),
             {0, 0, t.all_reduces, t.all_gathers, t.broadcasts, t.all_reduce_elements, t.bytes, t.sends});
    });
}

vkf_result vkf_graph_set_rank(vkf_graph* graph, uint32_t rank, uint32_t ranks, const double* speeds) {
    return guard(__func__, [&] {
        Rank r{rank_of(rank), rank_of(ranks)};
        check_rank(r);  // before so many speeds are read
        r.speeds.assign(speeds, speeds ? speeds + ranks : speeds);
        need(graph, "graph").set_rank(r);
    });
}

vkf_result vkf_graph_weight_shard(vkf_graph* graph, const char* name, uint32_t rank, const vkf_dim* shape, uint32_t dim,
                                  int64_t whole, uint32_t part_count, const vkf_part* parts, vkf_value* value) {
    return give_value(__func__, value, [&] {
        Graph& g = need(graph, "graph");
        return g.weight(text(name, "name"), shape_of(rank, shape, g), Shard{dim, whole, parts_of(part_count, parts)});
    });
}

vkf_result vkf_all_reduce(vkf_value x, vkf_value* y) {
    return give_value(__func__, y, [&] { return all_reduce(value_of(x, "x")); });
}

vkf_result vkf_all_gather(vkf_value x, uint32_t ranks, const int64_t* columns, vkf_value* parts) {
    return guard(__func__, [&] {
        const std::span<const std::int64_t> of_ranks = span_of(columns, ranks, "columns");
        // before anything is described
        vkf_value* to = ranks != 0 ? &need(parts, "parts") : nullptr;
        for (const Value& part : all_gather(value_of(x, "x"), {of_ranks.begin(), of_ranks.end()})) {
            *to++ = to_c(part);
        }
    });
}

vkf_result vkf_broadcast(vkf_value x, uint32_t from, vkf_value* y) {
    return give_value(__func__, y, [&] {
        if (from > static_cast<std::uint32_t>(std::numeric_limits<int>::max())) {
            throw Error("there is no rank " + std::to_string(from), "broadcast");
        }
        return broadcast(value_of(x, "x"), static_cast<int>(from));
    });
}

vkf_result vkf_column_parallel_linear(vkf_value x, const char* name, int64_t out,
                                      const vkf_column_parallel_linear_options* options, vkf_value* y) {
    return give_value(__func__, y, [&] {
        const vkf_column_parallel_linear_options o = read(options);
        return column_parallel_linear(value_of(x, "x"), text(name, "name"), out,
                                      {o.bias, activation_of(o.activation), o.gather_output});
    });
}

vkf_result vkf_row_parallel_linear(vkf_value x, const char* name, int64_t in, int64_t out,
                                   const vkf_row_parallel_linear_options* options, vkf_value* y) {
    return give_value(__func__, y, [&] {
        const vkf_row_parallel_linear_options o = read(options);
        return row_parallel_linear(value_of(x, "x"), text(name, "name"), in, out, {o.bias, o.input_is_parallel});
    });
}

vkf_result vkf_vocab_parallel_embedding(vkf_value ids, const char* name, int64_t vocabulary, int64_t width, float scale,
                                        vkf_value* y) {
    return give_value(__func__, y, [&] {
        return vocab_parallel_embedding(value_of(ids, "ids"), text(name, "name"), vocabulary, width,
                                        or_default(scale, 1.0f));
    });
}
