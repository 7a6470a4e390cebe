// SPDX-License-Identifier: Apache-2.0
// C's functions of programs, weights and states. Those of devices, of ops and layers, and of models
// are in c_functions_device_test.cpp, c_functions_ops_test.cpp and c_functions_models_test.cpp.
#include "tests/c_functions.h"

#include <algorithm>
#include <map>

#include "models/files/safetensors.h"
#include "runtime/graph/node.h"
#include "runtime/graph/packed.h"
#include "tests/device.h"
#include "tests/fixtures.h"
#include "tests/op_check.h"

using namespace vkf;
using namespace vkf::test;

TEST_SUITE_BEGIN("c functions");

TEST_CASE("c functions: inputs, outputs and states of 16 bits") {
    const DeviceOfC on;
    vkf_graph* graph = nullptr;
    OK(vkf_graph_create(&graph));
    const vkf_dim shape[] = {vkf_size(3)};
    vkf_value x{}, kept{}, written{}, wide{}, y{};
    OK(vkf_graph_input(graph, "x", VKF_F16, 1, shape, &x));
    OK(vkf_graph_state(graph, "kept", VKF_F16, 1, shape, &kept));
    OK(vkf_copy_into(kept, x, &written));
    OK(vkf_to(written, VKF_F32, &wide));
    OK(vkf_to(wide, VKF_BF16, &y));
    OK(vkf_graph_output("y", y));
    char text[64];
    OK(vkf_value_text(y, text, sizeof(text), nullptr));
    CHECK(contains(text, "y (3) BF16"));
    vkf_dtype dtype = VKF_F32;
    OK(vkf_value_dtype(y, &dtype));
    CHECK(dtype == VKF_BF16);
    vkf_state* state = nullptr;
    const vkf_graph* graphs[] = {graph};
    OK(vkf_state_create(on.device, 1, graphs, &state));
    vkf_compile_options options = sized<vkf_compile_options>();
    options.state = state;
    vkf_program* program = nullptr;
    OK(vkf_compile(on.device, graph, nullptr, &options, &program));
    const std::vector<std::uint16_t> halves{0x3c00, 0xc000, 0x7c00};  // 1, -2, infinity
    OK(vkf_program_upload_bits(program, "x", halves.data(), halves.size()));
    OK(vkf_program_run(program));
    std::vector<std::uint16_t> bits(3);
    std::uint64_t count = 0;
    OK(vkf_program_download_bits(program, "y", bits.data(), bits.size(), &count));
    CHECK(count == 3);
    CHECK(bits == std::vector<std::uint16_t>{0x3f80, 0xc000, 0x7f80});
    const vkf_state_part all{"kept", 0, -1};
    OK(vkf_state_read(state, &all, bits.data(), bits.size() * 2, &count));
    CHECK(count == 6);
    CHECK(bits == halves);
    const std::vector<float> numbers{0.5f, 3, -1};
    OK(vkf_program_upload(program, "x", numbers.data(), numbers.size()));
    OK(vkf_program_run(program));
    std::vector<float> back(3);
    OK(vkf_program_download(program, "y", back.data(), back.size(), &count));
    CHECK(back == numbers);
    CHECK(vkf_program_download_bits(program, "y", bits.data(), 2, &count) == VKF_ERROR);
    CHECK(contains(vkf_last_error(), "has 3 elements; there is room for 2"));
    CHECK(vkf_program_upload_bits(program, "x", halves.data(), 2) == VKF_ERROR);
    CHECK(contains(vkf_last_error(), "2 elements of 16 bits were given"));
    vkf_program_destroy(program);
    vkf_state_destroy(state);
    vkf_graph_destroy(graph);
}

TEST_CASE("c functions: what fails leaves its outputs as they were") {
    const DeviceOfC on;
    const char* name = "before";
    CHECK(vkf_tunable(0, &name, nullptr) == VKF_ERROR);
    CHECK(std::string(name) == "before");
    vkf_graph* graph = nullptr;
    OK(vkf_graph_create(&graph));
    const vkf_dim shape[] = {vkf_size(3)};
    vkf_value x{}, y{};
    OK(vkf_graph_input(graph, "x", VKF_F32, 1, shape, &x));
    OK(vkf_mul(x, x, &y));
    OK(vkf_graph_output("y", y));
    vkf_program* program = nullptr;
    OK(vkf_compile(on.device, graph, nullptr, nullptr, &program));
    double flops = -5;
    CHECK(vkf_program_cost(program, 0, nullptr, &flops, nullptr) == VKF_ERROR);
    CHECK(flops == -5);
    const std::vector<float> numbers{1, 2, 3};
    OK(vkf_program_upload(program, "x", numbers.data(), numbers.size()));
    OK(vkf_program_run(program));
    std::uint64_t count = 99;
    CHECK(vkf_program_download(program, "y", nullptr, 3, &count) == VKF_ERROR);
    CHECK(count == 99);
    float few[2] = {-1, -1};
    CHECK(vkf_program_download(program, "y", few, 2, &count) == VKF_ERROR);
    CHECK(count == 3);  // so much room is needed
    CHECK(few[0] == -1);
    std::size_t needed = 99;
    CHECK(vkf_program_explain(program, nullptr, 3, &needed) == VKF_ERROR);
    CHECK(needed == 99);
    vkf_program_destroy(program);
    vkf_device_tensor* tensor = nullptr;
    const std::int64_t sizes[] = {3};
    OK(vkf_device_tensor_create(on.device, VKF_F32, 1, sizes, &tensor));
    count = 99;
    CHECK(vkf_device_tensor_read(tensor, nullptr, 12, &count) == VKF_ERROR);
    CHECK(count == 99);
    CHECK(vkf_device_tensor_read(tensor, nullptr, 0, &count) == VKF_ERROR);
    CHECK(count == 12);  // so much room is needed
    vkf_device_tensor_destroy(tensor);
    const std::size_t nodes = graph->nodes().size(), storages = graph->storages().size();
    CHECK(vkf_gradients(y, 1, &x, vkf_no_value(), nullptr) == VKF_ERROR);
    CHECK(contains(vkf_last_error(), "gradients is null"));
    const std::int64_t columns[] = {3};
    CHECK(vkf_all_gather(x, 1, columns, nullptr) == VKF_ERROR);
    CHECK(contains(vkf_last_error(), "parts is null"));
    vkf_value row{}, made{};
    const vkf_dim rows[] = {vkf_size(1), vkf_size(3), vkf_size(4)};
    OK(vkf_graph_input(graph, "rows", VKF_F32, 3, rows, &row));
    vkf_transformer_layer_options layer = sized<vkf_transformer_layer_options>();
    layer.nhead = 2;
    layer.dim_feedforward = -1;
    CHECK(vkf_transformer_encoder_layer(row, &layer, vkf_no_value(), vkf_no_value(), &made) == VKF_ERROR);
    CHECK(contains(vkf_last_error(), "dim_feedforward -1"));
    CHECK(graph->nodes().size() == nodes);
    CHECK(graph->storages().size() == storages + 1);  // the input alone
    vkf_value weight{};
    OK(vkf_graph_weight(graph, "w", VKF_F32, 1, shape, &weight));
    std::uint32_t all = 99;
    CHECK(vkf_trainable(graph, 0, nullptr, 10, nullptr, &all) == VKF_ERROR);
    CHECK(all == 99);
    vkf_value parameters[10];
    OK(vkf_trainable(graph, 0, nullptr, 10, parameters, &all));  // the weight is one still
    CHECK(all == 1);
    vkf_graph_destroy(graph);
    vkf_communicator* alone = nullptr;
    OK(vkf_communicator_create_local(1, &alone));
    std::uint32_t rank = 99;
    CHECK(vkf_communicator_rank(alone, &rank, nullptr) == VKF_ERROR);
    CHECK(rank == 99);
    vkf_communicator_destroy(alone);
    std::vector<vkf_communicator*> many(5000, reinterpret_cast<vkf_communicator*>(1));
    CHECK(vkf_communicator_create_local(5000, many.data()) == VKF_ERROR);
    CHECK(std::count(many.begin(), many.end(), nullptr) == 5000);  // as all that creates
}

TEST_CASE("c functions: a program compiled as it is written") {
    const DeviceOfC on;
    vkf_graph* graph = nullptr;
    OK(vkf_graph_create(&graph));
    graph->output("y", gelu(linear(graph->input("x", {2, 16}), graph->input("w", {24, 16}))));
    vkf_compile_options options = sized<vkf_compile_options>();
    for (const auto& [rewrite, dispatches] : {std::pair(VKF_DEFAULT, "1 dispatches"), std::pair(VKF_ON, "1 dispatches"),
                                              std::pair(VKF_OFF, "2 dispatches")}) {
        options.rewrite = static_cast<vkf_switch>(rewrite);
        vkf_program* program = nullptr;
        OK(vkf_compile(on.device, graph, nullptr, &options, &program));
        std::vector<char> said(10000);
        OK(vkf_program_explain(program, said.data(), said.size(), nullptr));
        CHECK(contains(said.data(), dispatches));
        vkf_program_destroy(program);
    }
    vkf_graph_destroy(graph);
}

TEST_CASE("c functions: what a program computes with, and why not with fewer bits") {
    const DeviceOfC on;
    vkf_graph* graph = nullptr;
    OK(vkf_graph_create(&graph));
    const Value x = graph->input("x", {8, 64});
    for (const char* name : {"a", "b", "c"}) {  // none is kept as int8
        graph->output(name, linear(x, graph->input(std::string("weights of ") + name, {64, 64})));
    }
    vkf_compile_options options = sized<vkf_compile_options>();
    options.arithmetic = VKF_ARITHMETIC_INT8;
    vkf_program* program = nullptr;
    OK(vkf_compile(on.device, graph, nullptr, &options, &program));
    vkf_arithmetic_use use = sized<vkf_arithmetic_use>();
    OK(vkf_program_arithmetic(program, &use));
    CHECK(use.asked == VKF_ARITHMETIC_INT8);
    CHECK(use.used == VKF_ARITHMETIC_F32);
    REQUIRE(use.in_fp32 == 1);
    vkf_fp32_reason reason = sized<vkf_fp32_reason>();
    OK(vkf_program_fp32_reason(program, 0, &reason));
    CHECK(reason.dispatches == 3);
    std::vector<char> said(10000);
    OK(vkf_program_explain(program, said.data(), said.size(), nullptr));
    CHECK(contains(said.data(), std::string("; fp32, though int8 was asked for: ") + reason.reason + "\n"));
    CHECK(vkf_program_fp32_reason(program, 1, &reason) == VKF_ERROR);
    CHECK(contains(vkf_last_error(), "reason 1 of 1"));
    vkf_program_destroy(program);
    vkf_graph_destroy(graph);
}

TEST_CASE("c functions: a program compiled before its weights are there") {
    const DeviceOfC on;
    vkf_graph* graph = nullptr;
    OK(vkf_graph_create(&graph));
    graph->output("y", linear(graph->input("x", {2, 16}), graph->weight("w", {24, 16})));
    const std::int64_t shape[] = {24, 16};
    const std::vector<float> numbers = random_tensor({24, 16}, 3).floats();
    vkf_tensor tensor{};
    tensor.name = "w";
    tensor.shape = shape;
    tensor.rank = 2;
    tensor.dtype = VKF_F32;
    vkf_load_options load = sized<vkf_load_options>();
    load.matrices = VKF_WEIGHT_INT8;
    vkf_weight_layout* layout = nullptr;
    OK(vkf_weight_layout_create(on.device, 1, &tensor, &load, &layout));
    vkf_program* program = nullptr;
    OK(vkf_compile_layout(on.device, graph, layout, nullptr, &program));
    CHECK(vkf_program_allocate(program, nullptr) == VKF_ERROR);
    CHECK(contains(vkf_last_error(), "has no weights yet; it names 1, w among them"));
    tensor.data = numbers.data();
    tensor.bytes = numbers.size() * sizeof(float);
    vkf_weights* weights = nullptr;
    OK(vkf_weights_load(on.device, 1, &tensor, nullptr, &weights));
    CHECK(vkf_program_set_weights(program, weights) == VKF_ERROR);
    CHECK(contains(vkf_last_error(), "kept as f32, the program was compiled for (24, 16) F32 kept as int8"));
    vkf_weights_destroy(weights);
    vkf_tensor other = tensor;
    other.name = "v";
    CHECK(vkf_weights_load_planned(on.device, 1, &other, layout, nullptr, &weights) == VKF_ERROR);
    CHECK(contains(vkf_last_error(), "v"));
    OK(vkf_weights_load_planned(on.device, 1, &tensor, layout, nullptr, &weights));
    std::uint64_t planned = 0, held = 0;
    OK(vkf_weight_layout_bytes(layout, &planned));
    OK(vkf_weights_bytes(weights, &held));
    CHECK(planned == held);
    vkf_weight_layout_destroy(layout);
    OK(vkf_program_set_weights(program, weights));
    vkf_program* same = nullptr;
    OK(vkf_compile(on.device, graph, weights, nullptr, &same));
    const std::vector<float> x = random_tensor({2, 16}, 4).floats();
    std::vector<float> y(48), want(48);
    for (const auto& [p, out] : {std::pair(program, &y), std::pair(same, &want)}) {
        OK(vkf_program_upload(p, "x", x.data(), x.size()));
        OK(vkf_program_run(p));
        OK(vkf_program_download(p, "y", out->data(), out->size(), nullptr));
        vkf_program_destroy(p);
    }
    CHECK(y == want);
    vkf_weights_destroy(weights);

    // packed by whom it may be, and packed already
    std::vector<std::uint32_t> words(24 * packed_row_words(WeightType::int8, 16));
    pack_rows({"w", DType::f32, {24, 16}, std::as_bytes(std::span(numbers))}, WeightType::int8, 0, words);
    vkf_tensor packed = tensor;
    packed.data = words.data();
    packed.bytes = words.size() * sizeof(std::uint32_t);
    packed.type = VKF_WEIGHT_INT8;
    vkf_load_options as_it_is = sized<vkf_load_options>();
    vkf_load_options by_host = load, by_device = load;
    by_host.pack_on = VKF_PACK_ON_HOST;
    by_device.pack_on = VKF_PACK_ON_DEVICE;
    for (const auto& [given, how] :
         {std::pair(&tensor, &by_host), std::pair(&tensor, &by_device), std::pair(&packed, &as_it_is)}) {
        OK(vkf_weights_load(on.device, 1, given, how, &weights));
        OK(vkf_compile(on.device, graph, weights, nullptr, &same));
        OK(vkf_program_upload(same, "x", x.data(), x.size()));
        OK(vkf_program_run(same));
        OK(vkf_program_download(same, "y", y.data(), y.size(), nullptr));
        CHECK(y == want);
        vkf_program_destroy(same);
        vkf_weights_destroy(weights);
    }
    by_host.pack_on = 9;
    CHECK(vkf_weights_load(on.device, 1, &tensor, &by_host, &weights) == VKF_ERROR);
    CHECK(contains(vkf_last_error(), "place to pack"));
    vkf_graph_destroy(graph);

    const std::string file = source("samples/dates") + "/model.safetensors";
    OK(vkf_weights_load_file(on.device, file.c_str(), &load, &weights));
    OK(vkf_weight_layout_create_file(on.device, file.c_str(), &load, &layout));
    OK(vkf_weight_layout_bytes(layout, &planned));
    OK(vkf_weights_bytes(weights, &held));
    CHECK(planned == held);
    const auto tensors_of = [](const auto* handle, auto* function) {
        std::uint32_t tensors = 0;
        OK(function(handle, nullptr, &tensors));
        std::vector<vkf_stored_tensor> out(tensors, sized<vkf_stored_tensor>());
        OK(function(handle, out.data(), &tensors));
        return out;
    };
    const std::vector<vkf_stored_tensor> lie = tensors_of(weights, vkf_weights_tensors),
                                         will_lie = tensors_of(layout, vkf_weight_layout_tensors);
    const Weights same_file = device().load(Safetensors(file), {.matrices = WeightType::int8});
    const std::vector<StoredTensor>& want_lie = same_file.layout().tensors();
    REQUIRE(lie.size() == want_lie.size());
    REQUIRE(will_lie.size() == want_lie.size());
    for (const auto* list : {&lie, &will_lie}) {
        for (std::size_t i = 0; i < want_lie.size(); ++i) {
            const vkf_stored_tensor& t = (*list)[i];
            CHECK(t.name == want_lie[i].name);
            CHECK(std::vector<std::int64_t>(t.shape, t.shape + t.rank) == want_lie[i].shape);
            CHECK(t.dtype == VKF_F32);
            CHECK(t.type == (want_lie[i].type == WeightType::int8 ? VKF_WEIGHT_INT8 : VKF_WEIGHT_F32));
            CHECK(t.block == want_lie[i].block);
            CHECK(t.offset == want_lie[i].offset);
            CHECK(t.bytes == want_lie[i].bytes);
        }
    }
    std::vector<vkf_stored_tensor> unset(2, sized<vkf_stored_tensor>());
    unset[1].struct_size = 0;
    std::uint32_t two = 2;
    CHECK(vkf_weights_tensors(weights, unset.data(), &two) == VKF_ERROR);
    CHECK(two == 2);
    CHECK(unset[0].name == nullptr);  // a call that fails writes nothing
    vkf_weight_layout_destroy(layout);
    vkf_weights_destroy(weights);
}

TEST_CASE("c functions: tickets, states in files, safetensors") {
    const DeviceOfC on;
    vkf_graph* graph = nullptr;
    OK(vkf_graph_create(&graph));
    const vkf_dim shape[] = {vkf_size(2), vkf_size(3)};
    vkf_value x{}, kept{}, written{};
    OK(vkf_graph_input(graph, "x", VKF_F32, 2, shape, &x));
    OK(vkf_graph_state(graph, "kept", VKF_F32, 2, shape, &kept));
    OK(vkf_copy_into(kept, x, &written));
    vkf_state* state = nullptr;
    const vkf_graph* graphs[] = {graph};
    OK(vkf_state_create(on.device, 1, graphs, &state));
    vkf_compile_options options = sized<vkf_compile_options>();
    options.state = state;
    vkf_program* program = nullptr;
    OK(vkf_compile(on.device, graph, nullptr, &options, &program));
    const std::vector<float> numbers{1, 2, 3, 4, 5, 6};
    OK(vkf_program_upload(program, "x", numbers.data(), numbers.size()));
    vkf_ticket* ticket = nullptr;
    OK(vkf_program_submit(program, &ticket));
    bool done = false;
    OK(vkf_ticket_wait(ticket, ~std::uint64_t{0}, &done));
    CHECK(done);
    VkSemaphore semaphore{};
    std::uint64_t value = 0;
    OK(vkf_ticket_semaphore(ticket, &semaphore, &value));
    CHECK(value == 1);
    vkf_capabilities can = sized<vkf_capabilities>();
    OK(vkf_device_capabilities(on.device, &can));
    CHECK((semaphore != VkSemaphore{}) == can.timeline_semaphore);
    vkf_ticket_destroy(ticket);

    const auto read = [&](std::int64_t length) {
        const vkf_state_part part{"kept", 0, length};
        std::vector<float> out(6);
        std::uint64_t bytes = 0;
        OK(vkf_state_read(state, &part, out.data(), out.size() * sizeof(float), &bytes));
        out.resize(bytes / sizeof(float));
        return out;
    };
    CHECK(read(-1) == numbers);
    CHECK(read(1) == std::vector<float>{1, 2, 3});
    const TemporaryFolder folder;
    const std::string path = (folder.path() / "state.safetensors").string();
    OK(vkf_state_save(state, path.c_str(), 0, nullptr));
    const vkf_state_part first{"kept", 0, 1};
    const std::vector<float> others{7, 8, 9};
    OK(vkf_state_write(state, &first, others.data(), others.size() * sizeof(float)));
    CHECK(read(-1) == std::vector<float>{7, 8, 9, 4, 5, 6});
    OK(vkf_state_restore(state, path.c_str()));
    CHECK(read(-1) == numbers);
    const vkf_state_part same[] = {{"kept", 0, 2}, {"kept", 0, 1}};
    CHECK(vkf_state_save(state, path.c_str(), 2, same) == VKF_ERROR);
    CHECK(contains(vkf_last_error(), "kept: is given twice"));
    OK(vkf_state_restore(state, path.c_str()));  // the file is as it was
    CHECK(vkf_state_restore(state, "nowhere.safetensors") == VKF_ERROR);
    CHECK(contains(vkf_last_error(), "nowhere.safetensors"));

    const std::string tensors = (folder.path() / "tensors.safetensors").string();
    const std::int64_t sizes[] = {2, 3};
    const vkf_tensor tensor{"t", numbers.data(), numbers.size() * sizeof(float), sizes, 2, VKF_F32, VKF_WEIGHT_AS_GIVEN,
                            0};
    const vkf_metadata entries[] = {{"format", "pt"}, {"made", "here"}};
    OK(vkf_save_safetensors(tensors.c_str(), 1, &tensor, 2, entries));
    const Safetensors file(tensors);
    CHECK(file.at("t").shape == std::vector<std::int64_t>{2, 3});
    CHECK(file.metadata() == std::map<std::string, std::string>{{"format", "pt"}, {"made", "here"}});
    const vkf_metadata twice[] = {{"format", "pt"}, {"format", "np"}};
    CHECK(vkf_save_safetensors(tensors.c_str(), 1, &tensor, 2, twice) == VKF_ERROR);
    CHECK(contains(vkf_last_error(), "\"format\" twice"));
    CHECK(vkf_save_safetensors(tensors.c_str(), 1, &tensor, 1, nullptr) == VKF_ERROR);

    std::uint64_t bytes = 0;
    OK(vkf_state_bytes(state, &bytes));
    CHECK(bytes >= 24);
    vkf_stored_tensor stored = sized<vkf_stored_tensor>();
    std::uint32_t states = 1;
    OK(vkf_state_tensors(state, &stored, &states));
    CHECK(states == 1);
    CHECK(stored.name == std::string("kept"));
    CHECK(stored.bytes == 24);
    CHECK(std::vector<std::int64_t>(stored.shape, stored.shape + stored.rank) == std::vector<std::int64_t>{2, 3});
    vkf_program_destroy(program);
    vkf_state_destroy(state);
    vkf_graph_destroy(graph);
}

TEST_CASE("c functions: tensors that stay on the device") {
    const DeviceOfC on;
    vkf_graph* graph = nullptr;
    OK(vkf_graph_create(&graph));
    const vkf_dim shape[] = {vkf_size(2), vkf_size(3)};
    vkf_value x{}, y{};
    OK(vkf_graph_input(graph, "x", VKF_F32, 2, shape, &x));
    OK(vkf_scale(x, 2, &y));
    OK(vkf_graph_output("y", y));
    vkf_program* program = nullptr;
    OK(vkf_compile(on.device, graph, nullptr, nullptr, &program));
    const std::int64_t flat[] = {6}, sizes[] = {2, 3};
    vkf_device_tensor *line = nullptr, *from = nullptr, *to = nullptr;
    OK(vkf_device_tensor_create(on.device, VKF_F32, 1, flat, &line));
    OK(vkf_device_tensor_reshape(line, 2, sizes, &from));
    OK(vkf_device_tensor_create(on.device, VKF_F32, 2, sizes, &to));
    const std::vector<float> numbers{1, 2, 3, 4, 5, 6};
    OK(vkf_device_tensor_write(line, numbers.data(), numbers.size() * sizeof(float)));
    vkf_device_tensor_destroy(line);
    OK(vkf_program_bind(program, "x", from));
    OK(vkf_program_bind(program, "y", to));
    OK(vkf_program_run(program));
    OK(vkf_program_bind(program, "x", to));
    CHECK(vkf_program_run(program) == VKF_ERROR);
    CHECK(contains(vkf_last_error(), "output y: is bound to the same memory as x"));
    OK(vkf_program_bind(program, "x", nullptr));
    CHECK(vkf_program_run(program) == VKF_ERROR);
    CHECK(contains(vkf_last_error(), "never uploaded"));
    std::vector<float> back(6);
    std::uint64_t count = 0;
    OK(vkf_device_tensor_read(to, back.data(), back.size() * sizeof(float), &count));
    CHECK(count == 24);
    CHECK(back == std::vector<float>{2, 4, 6, 8, 10, 12});
    CHECK(vkf_device_tensor_read(to, back.data(), 4, &count) == VKF_ERROR);
    CHECK(contains(vkf_last_error(), "has 24 bytes; there is room for 4"));
    vkf_dtype dtype = VKF_I32;
    std::int64_t got[2] = {};
    std::uint32_t rank = 0;
    std::uint64_t bytes = 0;
    OK(vkf_device_tensor_get(to, &dtype, got, 2, &rank, &bytes));
    CHECK(dtype == VKF_F32);
    CHECK(rank == 2);
    CHECK(got[1] == 3);
    CHECK(bytes == 24);
    CHECK(vkf_device_tensor_get(to, nullptr, got, 1, nullptr, nullptr) == VKF_ERROR);
    OK(vkf_device_tensor_get(to, nullptr, nullptr, 0, nullptr, nullptr));
    CHECK(vkf_device_tensor_create(on.device, VKF_F32, 1, nullptr, &line) == VKF_ERROR);
    CHECK(line == nullptr);
    vkf_device_tensor_destroy(from);
    vkf_device_tensor_destroy(to);
    vkf_device_tensor_destroy(nullptr);
    vkf_program_destroy(program);
    vkf_graph_destroy(graph);
}

TEST_CASE("c functions: a compiler of the host's") {
    const auto refuses = [](void* user, const char*, const char* name, vkf_module* module) {
        *static_cast<std::string*>(user) = name;
        vkf_module_error(module, "no such thing today");
    };
    std::string asked;
    OK(vkf_use_glsl_compiler(refuses, &asked, false));
    std::uint64_t count = 0;
    CHECK(vkf_compile_glsl("void main() {}", "mine", nullptr, 0, &count) == VKF_ERROR);
    CHECK(contains(vkf_last_error(), "no such thing today"));
    CHECK(asked == "mine");
    const auto gives = [](void*, const char*, const char*, vkf_module* module) {
        const std::uint32_t words[] = {1, 2, 3};
        vkf_module_words(module, words, 3);
    };
    OK(vkf_use_glsl_compiler(gives, nullptr, true));
    std::uint32_t words[4] = {};
    OK(vkf_compile_glsl("void main() {}", "mine", words, 4, &count));
    CHECK(count == 3);
    CHECK(words[2] == 3);
    OK(vkf_use_glsl_compiler(nullptr, nullptr, false));
}

TEST_SUITE_END();
