// SPDX-License-Identifier: Apache-2.0
// A program as Python has it, its inputs and outputs, and the State that it works on.
#pragma once

#include "lock.h"
#include "nanobind.h"

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace py {

/// Work on a State is done by one thread at a time; programs that share one share the mutex too.
struct State {
    vkf::State state;
    std::shared_ptr<Mutex> mutex = std::make_shared<Mutex>();
};

/// An input or output as its program knows it.
struct Port {
    std::string name;
    vkf::Shape shape;
    vkf::DType dtype;
    std::vector<int> symbol;  ///< for each dimension the symbol that it is, -1: none
};

/// A program with what calling it by name needs. One thread at a time runs it.
struct Program {
    Program(vkf::Program made, const vkf::Device& device, const vkf::Graph& graph, std::shared_ptr<Mutex> lock);
    /// One that a model owns, which `owner` keeps.
    Program(vkf::Program& other, std::shared_ptr<Mutex> lock);

    Owned<vkf::Program> own;
    std::optional<vkf::Device> device;
    vkf::Program* program;
    std::shared_ptr<Mutex> mutex;
    std::uint32_t slots = 1;  ///< recordings in flight; a model's own programs have one
    std::vector<Port> inputs, outputs;
    std::vector<vkf::SymbolInfo> symbols;
    std::vector<std::string> symbol_names;
    /// what bind() gave, by input or output, and nobody took back; it changes behind the mutex
    std::map<std::string, vkf::DeviceTensor, std::less<>> bound;
    /// the outputs' shapes in the last run, where they have symbols; it changes behind the mutex
    std::vector<std::vector<std::int64_t>> ran;

    /// Keeps the outputs' shapes of a run that has begun.
    void keep_shapes();
    vkf::Program& get() const { return *program; }
    const Port* input(std::string_view name) const;
    const Port* output(std::string_view name) const;
};

/// Runs `work`, which changes the state, behind the last run that was submitted.
template <class F>
void changed(State& state, F work) {
    unlocked(*state.mutex, [&] {
        // a run that did not run is told once
        wait(*state.mutex, std::exchange(state.mutex->last_run, {}));
        work();
    });
}

/// A shape with the names of the program's symbols.
std::string text_of(const Program& p, const vkf::Shape& shape);
/// Uploads what belongs to an input, as its type.
void upload(Program& program, const std::string& name, nb::handle array);
nb::object download(Program& program, const std::string& name);
/// Where a call leaves its outputs: in arrays of the host's, or in tensors on the device.
enum class Results : std::uint8_t { arrays, tensors };
/// Sets symbols from the arrays' shapes and uploads, runs and downloads. Tensors are read where
/// they lie.
nb::dict call(Program& program, const nb::kwargs& arguments, Results results);
/// The same with the inputs in their order, and without names.
std::vector<nb::object> run(Program& program, const nb::list& arrays, Results results);

}  // namespace py
