// SPDX-License-Identifier: Apache-2.0
// A graph on the device against a twin on the host:
//
//     OpCheck check;
//     const Tensor x = random_tensor({3, 5});
//     const Value y = softmax(check.input("x", x));
//     CHECK(check.difference(y, reference::softmax(x)) == "");
#pragma once

#include <initializer_list>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/device/device.h"
#include "runtime/device/program.h"
#include "tests/errors.h"
#include "tests/tensor.h"

namespace vkf::test {

inline const CompileOptions kF16{.arithmetic = Arithmetic::f16};

class OpCheck {
public:
    /// A graph input and what will be uploaded to it.
    Value input(const std::string& name, const Tensor& data, DType dtype = DType::f32);
    /// Makes an input of a declared shape, where symbols stand for sizes of `data`.
    Value input(const std::string& name, const Tensor& data, const Shape& declared, DType dtype = DType::f32);
    Value indices(const std::string& name, const Tensor& data) { return input(name, data, DType::i32); }
    /// A symbol's value in the runs.
    void set(const std::string& symbol, std::int64_t value) { sizes_[symbol] = value; }

    /// The value as the device computes it.
    Tensor run(Value y);
    /// test::difference() of the value as computed on the device, and of that as computed on it as
    /// AsSmallGpu.
    std::string difference(Value y, const Tensor& want, const Tolerance& tolerance = {});

    Graph graph;
    Arithmetic arithmetic = Arithmetic::f32;
    bool rewrite = true;  ///< see CompileOptions

private:
    struct Input {
        std::string name;
        Tensor data;
        DType dtype;
    };
    std::string output(Value y);
    Tensor run_output(const std::string& name, DType dtype);

    std::vector<Input> inputs_;
    std::map<std::string, std::int64_t> sizes_;
    std::map<ValueId, std::string> outputs_;
};

/// Uploads to a program that a test compiles itself.
void upload(Program& program, std::string_view input, const Tensor& data, DType dtype = DType::f32);
/// Throws where a dispatch of the program, at its sizes now, allocates memory while it is prepared,
/// which recording does. download() asks it.
void require_quiet(const Program& program);
Tensor download(Program& program, std::string_view output, DType dtype = DType::f32);
/// The weight "w" of such a program, kept as `type`.
Weights load(const Tensor& w, WeightType type);

/// Random weights for everything that the graphs name, except `without`.
Weights random_weights(std::initializer_list<const Graph*> graphs, const std::vector<std::string>& without = {});

/// A program with a cache, inputs "x" (B, tokens, E) and symbols "tokens" and "start", run over x
/// in chunks; its "y" put together.
Tensor run_in_chunks(Program& program, const Tensor& x, const std::vector<std::int64_t>& chunks);

/// True when every element has the same bits, as float.
bool same_bits(const Tensor& a, const Tensor& b);

inline bool contains(std::string_view text, std::string_view part) { return text.find(part) != std::string_view::npos; }

/// True where explain() tells of a product of f16 on cooperative matrices.
inline bool on_coopmat(std::string_view explanation) {
    return contains(explanation, "matmul_coopmat<") || contains(explanation, "matmul_coopmat_elements<");
}

}  // namespace vkf::test
