// SPDX-License-Identifier: Apache-2.0
// Which kernels compute a matrix product, and how they are told of it.
#pragma once

#include <functional>

#include "ops/matmul_params.h"
#include "ops/shared_tile.h"
#include "runtime/compile/lowering.h"

namespace vkf {

inline constexpr shader::uint kAnyRows = ~0u;

/// The rows of C that a kernel serves at most, and what one of its groups computes.
struct Tile {
    shader::uint most_rows, rows, columns;
};

/// Kernels from the one for fewest rows to the one for most, and the tile of each.
struct Choice {
    std::vector<Kernel> kernels;
    std::vector<Tile> tiles;           ///< of each kernel
    std::vector<shader::uint> before;  ///< words of the prepare function's own

    void add(const Shader& shader, Constants constants, shader::uint most_rows, shader::uint rows, shader::uint columns,
             std::string why, Arithmetic arithmetic = Arithmetic::f32) {
        kernels.push_back({&shader, std::move(constants), std::move(why)});
        kernels.back().arithmetic = arithmetic;
        tiles.push_back({most_rows, rows, columns});
    }
    /// Leaves the first kernel alone, for so many rows; `why` stands in front of its own.
    void keep_first(shader::uint most_rows, const std::string& why) {
        kernels.erase(kernels.begin() + 1, kernels.end());
        kernels.front().why.insert(0, why);
        tiles.resize(1);
        tiles.front().most_rows = most_rows;
    }
    /// The words of a dispatch: those `before`, then the tiles as TileWords reads them.
    std::vector<shader::uint> words() const;
};

/// The tiles of a dispatch's kernels, three words each.
class TileWords {
public:
    explicit TileWords(std::span<const shader::uint> words) noexcept : words_(words) {}

    /// The number of the kernel that serves so many rows.
    std::size_t kernel_for(std::uint64_t rows) const noexcept;
    Tile operator[](std::size_t kernel) const noexcept {
        return {words_[3 * kernel], words_[3 * kernel + 1], words_[3 * kernel + 2]};
    }

private:
    std::span<const shader::uint> words_;
};

/// A product's tensors; `bias` and `other` are any of them where there is none.
struct Product {
    ValueId a, b, bias, other, c;
};

/// How a product's tensors are read and written: a kMatmulA... and a kMatmulB... of
/// shaders/matmul.h, and whether C goes by vec4.
struct ProductForm {
    shader::uint a_load, b_load;
    bool c_vec;
};
ProductForm form_of(const Lowering& l, const Product& product, const MatmulParams& params);

/// The way in which a product is computed under a program's arithmetic.
struct ReducedArithmetic {
    /// the numbers that are multiplied, where they are not fp32
    bool halves = false, codes = false;
    bool coopmat = false;    ///< on cooperative matrices
    bool elements = false;   ///< whose sums are finished element by element
    std::string why_fp32;    ///< though less was asked for
    std::string no_coopmat;  ///< why not on them, where it is not fp32
};
/// `in_parts`: where C holds the sums of the parts before, and gets those of this one too.
ReducedArithmetic reduced_arithmetic(const Lowering& l, const Product& product, const MatmulParams& params,
                                     std::int64_t most_rows, bool in_parts);

/// The part of a product that a window on b's columns, or on the sums, gives.
struct ProductPart {
    Product product;
    ProductForm form;
    std::int64_t most_rows;
    bool large;    ///< b has so many elements that kernels of their own for few rows pay
    bool one_row;  ///< tiles of one row, for a long sum of masked weights
};
/// The kernels for it. `note` is text for explain().
Choice choose(const Lowering& l, const ProductPart& part, const ReducedArithmetic& reduced, const MatmulParams& params,
              const std::string& note);

/// Rows of a tile for many rows, with 8 lanes. With a third more, a kernel takes a fifth longer to
/// compile and 6 to 9 % less time to run.
inline constexpr shader::uint kManyTileRows = 24, kManyTileRowsBackward = 32;

/// The tile of matmul_shared, matmul_half or matmul_dot, in words along k.
struct SharedTile {
    Constants constants;
    shader::uint rows, depth;
    std::string note;       ///< text for explain()
    bool any_rows = false;  ///< its rows were tuned, or asked for, and are those of every product
    /// columns of a tile of 128 rows, and text about them
    shader::uint columns_of_tall = support::kSharedColumns;
    std::string note_of_tall = {};
};
/// A kernel's constants: those of `form`, AVec to AMasked, which all kernels share, and its own.
Constants with_rows(Constants form, shader::uint local_size, shader::uint rows);
SharedTile shared_tile(const Capabilities& device, const Constants& form);
/// A tile so many words deep, as capabilities have it: what was tuned is tuned for other kernels.
SharedTile shared_tile_of(const Capabilities& device, const Constants& form, shader::uint depth);
/// True where products in fp32 of many rows have tiles in shared memory on GPUs; else `matmul`
/// stands in for matmul_shared.
bool stages_tiles(const Capabilities& device);
/// Adds a kernel of such tiles for any number of rows. Where there may be more than 256 rows
/// (`most_rows`), tiles of 64 rows are for up to 256, and tiles of 128 by as many invocations for
/// more. `what` comes before the tiles in explain(); `numbers` along k are in a word of the tile.
void add_shared_tiles(Choice& choice, const Shader& shader, const Capabilities& device, const SharedTile& tile,
                      std::int64_t most_rows, const std::string& what, shader::uint numbers,
                      Arithmetic arithmetic = Arithmetic::f32);

/// Operands: those of shaders/matmul.h; words: Choice's.
void prepare_product(const Operands& operands, Command& command) noexcept;
/// Prepares a part of the sums that is added to those before: C is the residual, there is no bias.
void prepare_further_part(const Operands& operands, Command& command) noexcept;
/// Products in a part of the sums, where both operands are read down rows that lie far apart.
inline constexpr shader::uint kSumPart = 256;
/// The parts in which a processor takes the sums of a product, 1 where it does not divide them.
/// Where both operands are read down rows that lie a page or more apart, the lines that a tile
/// reads fall into few sets of a cache, and the next tile finds none of them again. As many rows as
/// a part has stay. `most` gives the largest size or stride.
std::int64_t parts_of_sums(const ValueInfo& a, const ValueInfo& b, const MatmulParams& params,
                           const std::function<std::int64_t(const Dim&)>& most);
/// True where a product that reads a factor laid out as `moved` in place of `view` takes its sums
/// in as many parts, whatever the other factor is. `k` and `other` are the factor's dimensions.
bool sums_alike(const ValueInfo& view, const ValueInfo& moved, std::size_t k, std::size_t other);
/// Prepares such a part. Its number comes before the words of prepare_product(); all but part 0 are
/// added to what C holds, and are empty where k ends before them.
void prepare_sum_part(const Operands& operands, Command& command) noexcept;
/// Prepares a product where A has up to kMatvecMaxRows rows; else nothing is dispatched.
void prepare_few_rows(const Operands& operands, Command& command) noexcept;
/// Prepares a product where it has more, and A and B are rows of codes.
void prepare_codes(const Operands& operands, Command& command) noexcept;
/// Most rows of a product whose A is rounded to f16 as it is multiplied. With more, where it can
/// be, A is rounded once.
inline constexpr shader::uint kMostUnpackedRows = 512;
/// Prepares a product where A has up to so many rows; else nothing is dispatched.
void prepare_unpacked(const Operands& operands, Command& command) noexcept;
/// Prepares a product where it has more, and A is rows of halves.
void prepare_halves(const Operands& operands, Command& command) noexcept;

// The functions below say whether VKFORMER_VARIANT asks for a kernel, for any number of rows and on
// processors too.
bool coopmat_is_forced(const Capabilities& device);
bool half_is_forced(const Capabilities& device);
bool dot_is_forced(const Capabilities& device);

// The functions no_...() below say what keeps a product from a kernel; empty: nothing. They throw
// where VKFORMER_VARIANT asks for what cannot be.

// --- a program for f16: matmul_coopmat.comp, else matmul_half.comp -------------------------------

/// True where sums on matrices are finished element by element. An operation on a matrix's elements
/// may be called more than once for each (SPV_NV_cooperative_matrix2): none adds to what C holds.
bool by_elements(const Capabilities& device, bool codes, bool in_parts);
std::string no_coopmat(const Capabilities& device, const MatmulParams& params, bool elements);
std::string no_half(const Capabilities& device, const MatmulParams& params);
/// Adds kernels with cooperative matrices, of int8 where `reduced` says codes, behind those for
/// fewer rows that are there already. `form` as above.
void choose_coopmat(Choice& choice, const Capabilities& device, const Constants& form, std::int64_t most_rows,
                    const ReducedArithmetic& reduced);
/// Adds the kernel with f16 arithmetic, likewise.
void choose_half(Choice& choice, const Capabilities& device, const Constants& form);

// --- a program for int8: matmul_coopmat.comp's variant, else matmul_dot.comp ---------------------

std::string no_codes_coopmat(const Capabilities& device, bool elements);
std::string no_dot(const Capabilities& device);
/// Says why a (..., K) and b are not multiplied as codes, whatever computes it.
std::string no_codes(const Lowering& l, ValueId a, ValueId b, std::int64_t most_rows);
/// Most dimensions that a may have where it is multiplied as codes.
inline constexpr std::size_t kMostCodesRank = 4;
/// Adds the kernel with integer dot products for such rows.
void choose_dot(Choice& choice, const Capabilities& device, const Constants& form, std::int64_t most_rows);

}  // namespace vkf
