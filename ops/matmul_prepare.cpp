// SPDX-License-Identifier: Apache-2.0
// Matrix products at record time: push constants and group counts for the sizes of a run.
#include <algorithm>

#include "ops/matmul_choice.h"
#include "ops/matmul_split.h"
#include "runtime/base/numbers.h"

namespace vkf {

namespace {

using namespace shader;

uint batch_stride(const View& v, std::size_t i) { return v.size[i] == 1 ? 0 : v.stride[i]; }

/// What sums become.
void describe_end(MatmulPush& push, const Operands& operands, const MatmulParams& params) noexcept {
    const View& bias = operands[kMatmulBindingBias];
    push.has_bias = params.bias ? 1 : 0;
    push.bias_stride = params.bias ? bias.step(0) : 0;
    push.bias_offset = bias.offset;
    push.other_offset = operands[params.other_beside_bias() ? kMatmulBindingOther : kMatmulBindingBias].offset;
    push.alpha = params.scale;
}

MatmulPush describe(const Operands& operands, const MatmulParams& params) noexcept {
    const View& a = operands[kMatmulBindingA];
    const View& b = operands[kMatmulBindingB];
    const View& c = operands[kMatmulBindingC];
    const MatmulParams::Axes axes = params.b_axes();
    MatmulPush push{};
    push.m = c.dim(1);
    push.n = c.dim(0);
    push.k = a.dim(0);
    push.batch1 = c.size[1];
    push.batch2 = c.size[2];
    for (std::size_t i = 0; i < 3; ++i) {
        push.a_batch[i] = batch_stride(a, i);
        push.b_batch[i] = batch_stride(b, i);
        push.c_batch[i] = batch_stride(c, i);
    }
    push.a_row = a.step(1);
    push.a_k = a.step(0);
    push.a_offset = a.offset;
    push.b_k = b.step(axes.k);
    push.b_column = b.step(axes.n);
    push.b_offset = b.offset;
    push.c_row = c.step(1);
    push.c_column = c.step(0);
    push.c_offset = c.offset;
    describe_end(push, operands, params);
    return push;
}

MatmulPush describe(const Operands& operands) noexcept { return describe(operands, operands.params<MatmulParams>()); }

/// Describes a product that is added to what C holds.
MatmulPush describe_further(const Operands& operands) noexcept {
    MatmulParams params = operands.params<MatmulParams>();
    params.bias = false;
    params.other = kMatmulOtherResidual;
    return describe(operands, params);
}

/// Turns batches that share b and follow each other in a and c into further rows: (B, T, K) x W is
/// one product of B*T rows.
std::uint64_t fold_batches(MatmulPush& push, std::uint64_t batch0) noexcept {
    std::uint64_t sizes[3] = {batch0, push.batch1, push.batch2};
    for (int inner = 2; inner >= 0; --inner) {
        const bool follows =
            sizes[inner] == 1 || (push.b_batch[inner] == 0 && push.a_batch[inner] == push.m * push.a_row &&
                                  push.c_batch[inner] == push.m * push.c_row);
        if (!follows) {
            break;
        }
        push.m *= static_cast<uint>(sizes[inner]);
        sizes[inner] = 1;
    }
    push.batch1 = static_cast<uint>(sizes[1]);
    push.batch2 = static_cast<uint>(sizes[2]);
    return sizes[0] * sizes[1] * sizes[2];
}

/// The whole of a preparation, once `push` describes the product, or a `part` of its sums.
void prepare(MatmulPush push, const Operands& operands, TileWords tiles, Command& command, double part = 1) noexcept {
    const View& c = operands[kMatmulBindingC];
    const double outputs = static_cast<double>(c.elements());
    const double inputs = static_cast<double>(operands[kMatmulBindingA].elements()) +
                          static_cast<double>(operands[kMatmulBindingB].elements());
    command.cost(2.0 * outputs * push.k, 4.0 * (outputs + part * inputs));
    if (c.elements() == 0) {
        command.push(push);
        command.groups(0);
        return;
    }
    const std::uint64_t batches = fold_batches(push, c.size[0]);
    const std::size_t kernel = tiles.kernel_for(push.m);
    command.kernel(static_cast<uint>(kernel));
    command.push(push);
    command.groups(batches * divide_up(push.m, tiles[kernel].rows) * divide_up(push.n, tiles[kernel].columns));
}

bool few_rows(const View& c) noexcept { return c.rows() <= kMatvecMaxRows; }
bool many_rows(const View& c) noexcept { return c.rows() > kMostUnpackedRows; }

void skip(MatmulPush push, Command& command) noexcept {
    command.push(push);
    command.groups(0);
}

}  // namespace

void prepare_product(const Operands& operands, Command& command) noexcept {
    prepare(describe(operands), operands, TileWords(operands.words), command);
}

void prepare_further_part(const Operands& operands, Command& command) noexcept {
    prepare(describe_further(operands), operands, TileWords(operands.words), command);
}

void prepare_sum_part(const Operands& operands, Command& command) noexcept {
    const uint number = operands.words[0];
    MatmulPush push = number == 0 ? describe(operands) : describe_further(operands);
    const uint all = push.k;
    const std::uint64_t first = std::uint64_t{number} * kSumPart;
    if (number > 0 && first >= all) {
        skip(push, command);
        return;
    }
    push.k = static_cast<uint>(std::min<std::uint64_t>(all - first, kSumPart));
    push.a_offset += static_cast<uint>(first) * push.a_k;
    push.b_offset += static_cast<uint>(first) * push.b_k;
    prepare(push, operands, TileWords(operands.words.subspan(1)), command,
            all > 0 ? static_cast<double>(push.k) / all : 1);
}

void prepare_whole_sums(const Operands& operands, Command& command) noexcept {
    const SplitSums split(operands.words);
    split.parts_of(operands[kMatmulBindingC]) > 1 ? skip(describe(operands), command)
                                                  : prepare(describe(operands), operands, split.tiles, command);
}

void prepare_part_sums(const Operands& operands, Command& command) noexcept {
    const SplitSums split(operands.words);
    const View& a = operands[kMatmulBindingA];
    const View& b = operands[kMatmulBindingB];
    const View& c = operands[kMatmulBindingC + 1];
    const MatmulParams::Axes axes = operands.params<MatmulParams>().b_axes();
    const uint parts = split.parts_of(c);
    MatmulPush push{};
    push.m = static_cast<uint>(c.rows());
    push.n = c.dim(0);
    push.k = split.k / parts;
    push.batch1 = 1;
    push.batch2 = 1;
    push.a_row = split.k;  // a is dense; a view's stride may be another where a size is 1
    push.a_k = 1;
    push.a_offset = a.offset;
    push.a_batch[0] = push.k;
    push.b_k = b.step(axes.k);
    push.b_column = b.step(axes.n);
    push.b_offset = b.offset;
    push.b_batch[0] = push.k / split.numbers * push.b_k;
    push.b_k = split.numbers > 1 ? split.k : push.b_k;
    push.c_row = push.n;
    push.c_column = 1;
    push.c_offset = operands[kMatmulBindingC].offset;
    push.c_batch[0] = push.m * push.n;
    push.alpha = 1;
    if (parts == 1) {
        skip(push, command);
        return;
    }
    const double outputs = static_cast<double>(c.elements());
    command.cost(2.0 * outputs * split.k,
                 4.0 * (outputs * parts + static_cast<double>(a.elements()) + static_cast<double>(b.elements())));
    command.kernel(static_cast<uint>(split.tiles.kernel_for(push.m)));
    command.push(push);
    command.groups(split.groups_of(push.m, push.n) * parts);
}

void prepare_merged_sums(const Operands& operands, Command& command) noexcept {
    const SplitSums split(operands.words);
    const View& sums = operands[kMatmulBindingA];
    const View& c = operands[kMatmulBindingC];
    const uint parts = split.parts_of(c);
    MatmulPush push{};
    push.m = static_cast<uint>(c.rows());
    push.n = c.dim(0);
    push.k = parts;
    push.a_offset = sums.offset;
    push.a_batch[0] = push.m * push.n;
    push.c_row = push.n;
    push.c_column = 1;
    push.c_offset = c.offset;
    describe_end(push, operands, operands.params<MatmulParams>());
    if (parts == 1) {
        skip(push, command);
        return;
    }
    const double outputs = static_cast<double>(c.elements());
    command.cost(outputs * parts, 4.0 * outputs * (parts + 1));
    command.push(push);
    command.groups(divide_up(std::uint64_t{push.m} * push.n, kMergeLanes));
}

void prepare_few_rows(const Operands& operands, Command& command) noexcept {
    few_rows(operands[kMatmulBindingC]) ? prepare_product(operands, command) : skip(describe(operands), command);
}

// what divides its sums has few enough rows not to be rounded before
static_assert(kMostSplitRows <= kMostUnpackedRows);

void prepare_unpacked(const Operands& operands, Command& command) noexcept {
    many_rows(operands[kMatmulBindingC]) ? skip(describe(operands), command) : prepare_product(operands, command);
}

void prepare_unpacked_whole_sums(const Operands& operands, Command& command) noexcept {
    many_rows(operands[kMatmulBindingC]) ? skip(describe(operands), command) : prepare_whole_sums(operands, command);
}

void prepare_halves(const Operands& operands, Command& command) noexcept {
    MatmulPush push = describe(operands);
    push.k *= 2;  // from words to the numbers in them
    many_rows(operands[kMatmulBindingC]) ? prepare(push, operands, TileWords(operands.words), command)
                                         : skip(push, command);
}

void prepare_codes(const Operands& operands, Command& command) noexcept {
    MatmulPush push = describe(operands);
    push.k = (push.k - kPackedInt8ScaleWords) * 4;  // from words of codes and scales to codes
    few_rows(operands[kMatmulBindingC]) ? skip(push, command)
                                        : prepare(push, operands, TileWords(operands.words), command);
}

}  // namespace vkf
