// SPDX-License-Identifier: Apache-2.0
// Which kernels compute a matrix product, and how they are told of it.
#pragma once

#include "ops/matmul_params.h"

namespace vkf {

/// Kernels from the one for fewest rows to the one for most, and the tile of each.
struct Choice {
    std::vector<Kernel> kernels;
    std::vector<shader::uint>
        words;  ///< for encode_product(): of each kernel the most rows, and the rows and columns of its tile

    void add(const Shader& shader, std::vector<shader::uint> constants, shader::uint most_rows, shader::uint rows,
             shader::uint columns, std::string why) {
        kernels.push_back({&shader, std::move(constants), std::move(why)});
        words.insert(words.end(), {most_rows, rows, columns});
    }
};

inline constexpr shader::uint kAnyRows = ~0u;

/// Operands: those of shaders/matmul.h; words: Choice's.
void encode_product(const Operands& operands, Command& command) noexcept;
/// The same where A has up to kMatvecMaxRows rows; else nothing is dispatched.
void encode_few_rows(const Operands& operands, Command& command) noexcept;
/// The same where it has more, and A and B are rows of codes (matmul_dot).
void encode_codes(const Operands& operands, Command& command) noexcept;

// --- a program for f16: matmul_coopmat.comp ---------------------------------------------------------------------------------

/// What keeps a product from cooperative matrices; empty: nothing. Throws where VKFORMER_VARIANT asks for what cannot be.
std::string no_coopmat(const Capabilities& device, const MatmulParams& params);
/// VKFORMER_VARIANT asks for them for any number of rows, on processors too.
bool coopmat_is_forced(const Capabilities& device);
/// Kernels with cooperative matrices, behind those for fewer rows that are there already. `form`: constants from AVec to AMasked.
void choose_coopmat(Choice& choice, const Capabilities& device, const std::vector<shader::uint>& form,
                    std::int64_t most_rows);

// --- a program for int8: matmul_dot.comp --------------------------------------------------------------------------------------

/// What keeps a product of a (..., K) and b from integer dot products; empty: nothing. Throws where VKFORMER_VARIANT asks for what
/// cannot be.
std::string no_dot(const Lowering& l, ValueId a, ValueId b, std::int64_t most_rows);
/// Dimensions that a may have.
inline constexpr std::size_t kMostCodesRank = 4;
/// a (..., K) as rows of codes, where it has more than kMatvecMaxRows rows: made once for all the products of a.
ValueId codes_of(Lowering& l, ValueId a);
/// The kernel for such rows. `form`: constants from AVec to AMasked.
void choose_dot(Choice& choice, const Capabilities& device, const std::vector<shader::uint>& form);

}  // namespace vkf
