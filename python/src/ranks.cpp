// SPDX-License-Identifier: Apache-2.0
// Several ranks: communicators, collectives, and layers that are shared out.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

#include "options.h"

namespace py {

namespace {

using V = vkf::Value;
using Act = Choice<vkf::Activation>;

std::span<const std::byte> bytes_of(const nb::bytes& data) {
    return std::as_bytes(std::span(data.c_str(), data.size()));
}

nb::bytes to_bytes(std::span<const std::byte> data) {
    return nb::bytes(reinterpret_cast<const char*>(data.data()), data.size());
}

std::vector<float> all_reduce(Ranks& ranks, nb::handle x) {
    const Array given = array_as(x, vkf::DType::f32, "x");
    const auto numbers = given.as<float>();
    std::vector<float> sum(numbers.begin(), numbers.end());
    unlocked([&] { ranks.communicator->all_reduce(sum); });
    return sum;
}

nb::list all_gather(Ranks& ranks, const nb::bytes& data) {
    vkf::Communicator& c = *ranks.communicator;
    const std::span<const std::byte> mine = bytes_of(data);
    const auto count = static_cast<std::size_t>(c.ranks()), own = static_cast<std::size_t>(c.rank());
    std::vector<std::uint64_t> sizes(count);
    sizes[own] = mine.size();
    std::vector<std::byte> all;
    unlocked([&] {
        const std::vector<std::uint64_t> one(count, sizeof(std::uint64_t));
        c.all_gather(std::as_writable_bytes(std::span(sizes)), one);
        std::uint64_t sum = 0, before = 0;
        for (std::size_t r = 0; r < count; ++r) {
            before = r == own ? sum : before;
            sum += sizes[r];
        }
        all.resize(static_cast<std::size_t>(sum));
        std::copy(mine.begin(), mine.end(), all.begin() + static_cast<std::ptrdiff_t>(before));
        c.all_gather(all, sizes);
    });
    nb::list out;
    std::size_t at = 0;
    for (const std::uint64_t size : sizes) {
        out.append(to_bytes(std::span(all).subspan(at, static_cast<std::size_t>(size))));
        at += static_cast<std::size_t>(size);
    }
    return out;
}

nb::bytes broadcast(Ranks& ranks, const nb::bytes& data, int from) {
    const std::span<const std::byte> given = bytes_of(data);
    std::vector<std::byte> all(given.begin(), given.end());
    unlocked([&] { ranks.communicator->broadcast(all, from); });
    return to_bytes(all);
}

void send(Ranks& ranks, const nb::bytes& data, int to, double share) {
    const std::span<const std::byte> given = bytes_of(data);
    unlocked([&] { ranks.communicator->send(given, to, share); });
}

nb::bytes receive(Ranks& ranks, std::size_t bytes, int from, double share) {
    std::vector<std::byte> all(bytes);
    unlocked([&] { ranks.communicator->receive(all, from, share); });
    return to_bytes(all);
}

}  // namespace

void bind_ranks(nb::module_& m) {
    nb::class_<vkf::Traffic>(m, "Traffic", "What went over a communicator so far; bytes are those that were sent.")
        .def_ro("all_reduces", &vkf::Traffic::all_reduces, "Calls of all_reduce().")
        .def_ro("all_gathers", &vkf::Traffic::all_gathers, "Calls of all_gather().")
        .def_ro("broadcasts", &vkf::Traffic::broadcasts, "Calls of broadcast().")
        .def_ro("all_reduce_elements", &vkf::Traffic::all_reduce_elements, "Numbers that were reduced, of this rank.")
        .def_ro("sends", &vkf::Traffic::sends, "Messages to one rank.")
        .def_ro("bytes", &vkf::Traffic::bytes, "Bytes that this rank sent.");
    nb::class_<Ranks>(m, "Communicator",
                      "The ranks of one program, as MPI and NCCL name it: local_communicators() makes them. All ranks "
                      "call the same collectives in the same order.")
        .def_prop_ro(
            "rank", [](const Ranks& r) { return r.communicator->rank(); }, "The number of this rank, from 0.")
        .def_prop_ro(
            "ranks", [](const Ranks& r) { return r.communicator->ranks(); }, "How many ranks there are.")
        .def(
            "limit", [](Ranks& r, double seconds) { r.communicator->limit(seconds); }, "seconds"_a,
            "The longest wait for another rank.")
        .def("all_reduce", all_reduce, "x"_a, nb::sig("def all_reduce(self, x: object) -> list[float]"),
             "The sum of x (float32, flat) over the ranks, in their order: the same bits on every rank.")
        .def("all_gather", all_gather, "data"_a, "The bytes of every rank.",
             nb::sig("def all_gather(self, data: bytes) -> list[bytes]"))
        .def("broadcast", broadcast, "data"_a, "from_"_a = 0,
             "The bytes that rank from_ has; those of the others are as many.")
        .def("send", send, "data"_a, "to"_a, "share"_a = 1.0,
             "Gives rank `to` these bytes, which it receives meanwhile; waits up to `share` of the limit.")
        .def("receive", receive, "bytes"_a, "from_"_a, "share"_a = 1.0, "So many bytes that rank from_ sends.")
        .def(
            "meet", [](Ranks& r, double seconds) { unlocked([&] { r.communicator->meet(seconds); }); }, "seconds"_a,
            "Waits until all ranks are here, up to so many seconds, or the limit if that is more.")
        .def(
            "agree",
            [](Ranks& r, const std::string& what, const std::string& text) {
                unlocked([&] { r.communicator->agree(what, text); });
            },
            "what"_a, "text"_a, "Raises naming the rank whose text is another; `what` says what it is.")
        .def(
            "traffic", [](const Ranks& r) { return r.communicator->traffic(); }, "What went over it so far.");
    m.def(
        "local_communicators",
        [](int ranks) {
            std::vector<Ranks> all;
            for (std::unique_ptr<vkf::Transport>& transport : vkf::local_transports(ranks)) {
                all.push_back({std::make_shared<vkf::Communicator>(std::move(transport))});
            }
            return all;
        },
        "ranks"_a, "Communicators of so many ranks in this process, one for a thread each.");
    m.def("all_reduce", &vkf::all_reduce, "x"_a, nb::keep_alive<0, 1>(),
          "The sum of x (...) over the ranks of a program. torch.distributed.all_reduce.");
    m.def("all_gather", &vkf::all_gather, "x"_a, "columns"_a,
          "What every rank has of (..., columns[rank]). torch.distributed.all_gather.");
    m.def("broadcast", &vkf::broadcast, "x"_a, "from_"_a = 0, nb::keep_alive<0, 1>(),
          "What rank from_ has as x (...), on every rank of a program. torch.distributed.broadcast.");
    m.def(
        "column_parallel_linear",
        [](V x, const std::string& layer, std::int64_t out, bool bias, const Act& activation, bool gather_output) {
            return vkf::column_parallel_linear(
                x, layer, out, {.bias = bias, .activation = activation, .gather_output = gather_output});
        },
        "x"_a, "name"_a, "out"_a, nb::kw_only(), "bias"_a = false, "activation"_a = Act{"none"},
        "gather_output"_a = false, nb::keep_alive<0, 1>(),
        "x W^T + b with the rows of W (out, in) shared out over the graph's ranks (Megatron-LM).");
    m.def(
        "row_parallel_linear",
        [](V x, const std::string& layer, std::int64_t in, std::int64_t out, bool bias, bool input_is_parallel) {
            return vkf::row_parallel_linear(x, layer, in, out, {.bias = bias, .input_is_parallel = input_is_parallel});
        },
        "x"_a, "name"_a, "in_"_a, "out"_a, nb::kw_only(), "bias"_a = false, "input_is_parallel"_a = false,
        nb::keep_alive<0, 1>(),
        "x W^T + b with the columns of W (out, in_) shared out; the products are summed over the ranks.");
    m.def("vocab_parallel_embedding", &vkf::vocab_parallel_embedding, "ids"_a, "name"_a, "vocabulary"_a, "width"_a,
          "scale"_a = 1.0f, nb::keep_alive<0, 1>(),
          "Rows of a table (vocabulary, width) by ids, its rows shared out over the ranks.");
}

}  // namespace py
