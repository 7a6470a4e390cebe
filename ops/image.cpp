// SPDX-License-Identifier: Apache-2.0
#include "shaders/image.h"
#include "image_fetch.spv.h"
#include "image_read_r32f.spv.h"
#include "image_read_rgba16f.spv.h"
#include "image_read_rgba32f.spv.h"
#include "image_read_rgba8.spv.h"
#include "image_write.spv.h"
#include "image_write_r32f.spv.h"
#include "image_write_rgba16f.spv.h"
#include "image_write_rgba32f.spv.h"
#include "image_write_rgba8.spv.h"
#include "ops/add_op.h"
#include "ops/checks.h"
#include "runtime/base/numbers.h"
#include "runtime/compile/lowering.h"

namespace vkf {

namespace {

using namespace shader;
using namespace support;

constexpr const char* kInput = "image_input";
constexpr const char* kOutput = "image_output";
constexpr std::uint32_t kLocalSize = 64;

// The shaders lie in the order of ImageFormat; the first is for sampled images of any format.
const Shader kRead[] = {{"image_fetch", spirv::kImageFetchSpirv},
                        {"image_read_rgba8", spirv::kImageReadRgba8Spirv},
                        {"image_read_rgba16f", spirv::kImageReadRgba16fSpirv},
                        {"image_read_r32f", spirv::kImageReadR32fSpirv},
                        {"image_read_rgba32f", spirv::kImageReadRgba32fSpirv}};
const Shader kWrite[] = {{"image_write", spirv::kImageWriteSpirv},
                         {"image_write_rgba8", spirv::kImageWriteRgba8Spirv},
                         {"image_write_rgba16f", spirv::kImageWriteRgba16fSpirv},
                         {"image_write_r32f", spirv::kImageWriteR32fSpirv},
                         {"image_write_rgba32f", spirv::kImageWriteRgba32fSpirv}};

struct ImageParams {
    ImageOptions options;
};

void prepare(const Operands& operands, Command& command) noexcept {
    const View& tensor = operands[kImageBindingTensor];
    ImagePush push{};
    push.height = tensor.dim(2);
    push.width = tensor.dim(1);
    push.channels = tensor.dim(0);
    for (std::size_t i = 0; i < 3; ++i) {
        push.stride[i] = tensor.step(2 - i);
    }
    push.offset = tensor.offset;
    command.push(push);
    const std::uint64_t texels = std::uint64_t{push.height} * push.width;
    command.groups(divide_up(texels, kLocalSize));
    command.cost(0, static_cast<double>(texels) * 2 * sizeof(float) * push.channels);
}

void lower_input(Lowering& l) {
    const ImageOptions& o = l.params<ImageParams>().options;
    const bool sampled = o.access == ImageAccess::sampled;
    const Shader& shader = kRead[sampled ? 0 : static_cast<std::size_t>(o.format)];
    l.dispatch({{&shader, {kLocalSize}, sampled ? "a sampled image" : "a storage image"}},
               {{l.input(0), Access::read}, {l.output(0), Access::write}}, prepare);
}

void lower_output(Lowering& l) {
    const ImageOptions& o = l.params<ImageParams>().options;
    if (o.format == ImageFormat::any && !l.device().storage_image_any_format) {
        throw Error(
            "the device writes images of known formats only (shaderStorageImageWriteWithoutFormat is not there, or was "
            "not enabled): name rgba8, rgba16f, r32f or rgba32f",
            l.node().label);
    }
    l.dispatch({{&kWrite[static_cast<std::size_t>(o.format)], {kLocalSize}, "a storage image"}},
               {{l.output(0), Access::write}, {l.input(0), Access::read}}, prepare);
}

constexpr OpType kImageInput{.name = kInput, .lower = lower_input, .can_read = can_read_any};
constexpr OpType kImageOutput{.name = kOutput, .lower = lower_output, .can_read = can_read_any};

}  // namespace

Value image_input(Graph& graph, const std::string& name, Dim height, Dim width, std::int64_t channels,
                  const ImageOptions& options) {
    require(channels >= 1 && channels <= 4, kInput,
            name + ": an image has 1 to 4 channels, not " + std::to_string(channels));
    require(options.access != ImageAccess::none, kInput, name + ": an image is sampled or a storage image");
    require(options.access == ImageAccess::sampled || options.format != ImageFormat::any, kInput,
            name + ": a storage image that is read needs its format");
    require(options.format <= ImageFormat::rgba32f, kInput, name + ": an unknown format");
    const Shape shape{std::move(height), std::move(width), channels};
    const Value image = graph.input(name, shape);
    graph.as_image(image, options.access);
    return add_op(kImageInput, {image}, ImageParams{options}, shape);
}

void image_output(const std::string& name, Value x, const ImageOptions& options) {
    require_dtype(kOutput, x, DType::f32);
    require(x.rank() == 3 && x.size(2).is_constant() && x.size(2).constant() >= 1 && x.size(2).constant() <= 4, kOutput,
            name + ": " + x.str() + " is not (height, width, channels) with 1 to 4 channels");
    require(options.format <= ImageFormat::rgba32f, kOutput, name + ": an unknown format");
    Graph& g = x.graph();
    const Value image = add_op(kImageOutput, {x}, ImageParams{options}, x.shape());
    g.output(name, image);
    g.as_image(image, ImageAccess::storage);
}

}  // namespace vkf
