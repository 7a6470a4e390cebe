// SPDX-License-Identifier: Apache-2.0
// Which kernels compute a matrix product, and how they are told of it.
#pragma once

#include "ops/matmul_params.h"
#include "runtime/compile/lowering.h"

namespace vkf {

/// Kernels from the one for fewest rows to the one for most, and the tile of each.
struct Choice {
    std::vector<Kernel> kernels;
    /// the words of prepare_product(): for each kernel its most rows, and the rows and columns of
    /// its tile
    std::vector<shader::uint> words;

    void add(const Shader& shader, Constants constants, shader::uint most_rows, shader::uint rows, shader::uint columns,
             std::string why, Arithmetic arithmetic = Arithmetic::f32) {
        kernels.push_back({&shader, std::move(constants), std::move(why)});
        kernels.back().arithmetic = arithmetic;
        words.insert(words.end(), {most_rows, rows, columns});
    }
};

inline constexpr shader::uint kAnyRows = ~0u;

/// The tile of matmul_shared on this device, in numbers; or of matmul_half, whose words of two
/// numbers take as much room.
struct SharedTile {
    Constants constants;
    shader::uint rows, depth;
    std::string note;  ///< text for explain()
};
/// A kernel's constants: those of `form`, AVec to AMasked, which all kernels share, and its own.
Constants with_rows(Constants form, shader::uint local_size, shader::uint rows);
SharedTile shared_tile(const Capabilities& device, const Constants& form);

/// Operands: those of shaders/matmul.h; words: Choice's.
void prepare_product(const Operands& operands, Command& command) noexcept;
/// Prepares a part of the sums that is added to those before: C is the residual, there is no bias.
void prepare_further_part(const Operands& operands, Command& command) noexcept;
/// Prepares a product where A has up to kMatvecMaxRows rows; else nothing is dispatched.
void prepare_few_rows(const Operands& operands, Command& command) noexcept;
/// Prepares a product where it has more, and A and B are rows of codes.
void prepare_codes(const Operands& operands, Command& command) noexcept;

// The functions below say whether VKFORMER_VARIANT asks for a kernel, for any number of rows and on
// processors too.
bool coopmat_is_forced(const Capabilities& device);
bool half_is_forced(const Capabilities& device);
bool dot_is_forced(const Capabilities& device);

// The functions no_...() below say what keeps a product from a kernel; empty: nothing. They throw
// where VKFORMER_VARIANT asks for what cannot be.

// --- a program for f16: matmul_coopmat.comp, else matmul_half.comp -------------------------------

std::string no_coopmat(const Capabilities& device, const MatmulParams& params);
std::string no_half(const Capabilities& device, const MatmulParams& params);
/// Adds kernels with cooperative matrices, of int8 where `codes`, behind those for fewer rows that
/// are there already. `form` as above.
void choose_coopmat(Choice& choice, const Capabilities& device, const Constants& form, std::int64_t most_rows,
                    bool codes = false);
/// Adds the kernel with f16 arithmetic, likewise.
void choose_half(Choice& choice, const Capabilities& device, const Constants& form);

// --- a program for int8: matmul_coopmat.comp's variant, else matmul_dot.comp ---------------------

std::string no_codes_coopmat(const Capabilities& device);
std::string no_dot(const Capabilities& device);
/// Says why a (..., K) and b are not multiplied as codes, whatever computes it.
std::string no_codes(const Lowering& l, ValueId a, ValueId b, std::int64_t most_rows);
/// Most dimensions that a may have where it is multiplied as codes.
inline constexpr std::size_t kMostCodesRank = 4;
/// Adds the kernel with integer dot products for such rows.
void choose_dot(Choice& choice, const Capabilities& device, const Constants& form);

}  // namespace vkf
