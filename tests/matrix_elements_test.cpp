// SPDX-License-Identifier: Apache-2.0
// Products on cooperative matrices whose sums are finished element by element
// (VK_NV_cooperative_matrix2, VK_EXT_cooperative_matrix_maintenance1): bit for bit those whose sums
// pass through shared memory.
#include <doctest/doctest.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "runtime/compile/spirv_instruction.h"
#include "tests/believed.h"
#include "tests/fake_vulkan.h"
#include "tests/fixtures.h"
#include "tests/host.h"
#include "tests/op_check.h"
#include "tests/reference.h"

namespace vkf::test {

namespace {

bool has_elements() {
    if (!device().capabilities().matrix_elements) {
        cannot_run("operations on the elements of matrices");
        return false;
    }
    return true;
}

struct ElementsCase {
    std::int64_t batch = 1, m = 1, n = 1, k = 1;
    bool transpose_b = true, bias = false, times = false, plus = false;
    Activation activation = Activation::none;
    float scale = 1;
};

struct ElementsResult {
    Tensor y;
    std::string explanation;
};

ElementsResult product(const ElementsCase& c, Arithmetic arithmetic) {
    Graph g;
    const Value x = g.input("x", {c.batch, c.m, c.k}), r = g.input("r", {c.batch, c.m, c.n});
    const Sizes shape = c.transpose_b ? Sizes{c.n, c.k} : Sizes{c.k, c.n};
    const Value w = g.weight("w", {shape[0], shape[1]});
    MatmulOptions o{.activation = c.activation, .scale = c.scale, .transpose_b = c.transpose_b};
    o.bias = c.bias ? g.input("bias", {c.n}) : Value();
    const Value y = matmul(x, w, o);
    g.output("y", c.times ? y * r : c.plus ? y + r : y);
    if (!c.times && !c.plus) {
        g.output("unused", r + r);
    }
    const WeightType type = arithmetic == Arithmetic::int8 ? WeightType::int8 : WeightType::f32;
    Program program = device().compile(g, load(random_tensor(shape, 2), type), {.arithmetic = arithmetic});
    upload(program, "x", random_tensor({c.batch, c.m, c.k}, 1));
    upload(program, "r", random_tensor({c.batch, c.m, c.n}, 3));
    if (c.bias) {
        upload(program, "bias", random_tensor({c.n}, 4));
    }
    program.run();
    return {download(program, "y"), program.explain()};
}

#if defined(VK_NV_cooperative_matrix2) && defined(VK_EXT_cooperative_matrix_maintenance1)
/// A driver's VK_NV_cooperative_matrix2 under the names of VK_EXT_cooperative_matrix_maintenance1,
/// which Mesa 26.2.6 does not offer: what passes between the two is renamed, both ways.
class Renamed {
public:
    explicit Renamed(fake::Vulkan& vulkan) {
        vulkan.vkEnumerateDeviceExtensionProperties.instead =
            [&vulkan](VkPhysicalDevice physical, const char* layer, std::uint32_t* count, VkExtensionProperties* all) {
                const VkResult result = vulkan.vkEnumerateDeviceExtensionProperties.real(physical, layer, count, all);
                for (std::uint32_t i = 0; all && i < *count; ++i) {
                    if (std::string_view(all[i].extensionName) == VK_NV_COOPERATIVE_MATRIX_2_EXTENSION_NAME) {
                        std::strcpy(all[i].extensionName, VK_EXT_COOPERATIVE_MATRIX_MAINTENANCE_1_EXTENSION_NAME);
                    }
                }
                return result;
            };
        vulkan.vkGetPhysicalDeviceFeatures2.instead = [&vulkan](VkPhysicalDevice physical,
                                                                VkPhysicalDeviceFeatures2* all) {
            const auto put_back = rename(all);
            vulkan.vkGetPhysicalDeviceFeatures2.real(physical, all);
            put_back();
        };
        vulkan.vkCreateDevice.instead = [&vulkan](VkPhysicalDevice physical, const VkDeviceCreateInfo* info,
                                                  const VkAllocationCallbacks* callbacks, VkDevice* device) {
            std::vector<const char*> names(info->ppEnabledExtensionNames,
                                           info->ppEnabledExtensionNames + info->enabledExtensionCount);
            for (const char*& name : names) {
                CHECK(std::string_view(name) != VK_NV_COOPERATIVE_MATRIX_2_EXTENSION_NAME);
                if (std::string_view(name) == VK_EXT_COOPERATIVE_MATRIX_MAINTENANCE_1_EXTENSION_NAME) {
                    name = VK_NV_COOPERATIVE_MATRIX_2_EXTENSION_NAME;
                }
            }
            VkDeviceCreateInfo theirs = *info;
            theirs.ppEnabledExtensionNames = names.data();
            const auto put_back = rename(&theirs);
            const VkResult result = vulkan.vkCreateDevice.real(physical, &theirs, callbacks, device);
            put_back();
            return result;
        };
        vulkan.vkCreateShaderModule.instead = [this, &vulkan](VkDevice device, const VkShaderModuleCreateInfo* info,
                                                              const VkAllocationCallbacks* callbacks,
                                                              VkShaderModule* module) {
            std::vector<std::uint32_t> theirs(info->pCode, info->pCode + info->codeSize / 4);
            modules_ += rename(theirs);
            VkShaderModuleCreateInfo changed = *info;
            changed.codeSize = theirs.size() * 4;
            changed.pCode = theirs.data();
            return vulkan.vkCreateShaderModule.real(device, &changed, callbacks, module);
        };
    }
    /// Modules that came with the new name.
    std::uint64_t modules() const { return modules_; }

private:
    using Ext = VkPhysicalDeviceCooperativeMatrixMaintenance1FeaturesEXT;
    using Nv = VkPhysicalDeviceCooperativeMatrix2FeaturesNV;

    /// Puts NVIDIA's struct in the place of the other in a chain; what it returns undoes that, and
    /// copies what was written.
    static std::function<void()> rename(void* chain) {
        constexpr VkStructureType kExt =
            VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_COOPERATIVE_MATRIX_MAINTENANCE_1_FEATURES_EXT;
        auto* before = static_cast<VkBaseOutStructure*>(chain);
        while (before->pNext && before->pNext->sType != kExt) {
            before = before->pNext;
        }
        if (!before->pNext) {
            return [] {};
        }
        auto* ext = reinterpret_cast<Ext*>(before->pNext);
        auto nv = std::make_shared<Nv>();
        nv->sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_COOPERATIVE_MATRIX_2_FEATURES_NV;
        nv->pNext = ext->pNext;
        nv->cooperativeMatrixReductions = ext->cooperativeMatrixReductions;
        nv->cooperativeMatrixConversions = ext->cooperativeMatrixConversions;
        nv->cooperativeMatrixPerElementOperations = ext->cooperativeMatrixPerElementOperations;
        before->pNext = reinterpret_cast<VkBaseOutStructure*>(nv.get());
        return [before, ext, nv] {
            ext->cooperativeMatrixReductions = nv->cooperativeMatrixReductions;
            ext->cooperativeMatrixConversions = nv->cooperativeMatrixConversions;
            ext->cooperativeMatrixPerElementOperations = nv->cooperativeMatrixPerElementOperations;
            before->pNext = reinterpret_cast<VkBaseOutStructure*>(ext);
        };
    }

    /// Gives a module its older names; true where it had the new ones.
    static bool rename(std::vector<std::uint32_t>& code) {
        const auto find = [&](const std::vector<std::uint32_t>& words) {
            return std::search(code.begin(), code.end(), words.begin(), words.end());
        };
        const std::vector<std::uint32_t> old_name = spv::extension_words("SPV_NV_cooperative_matrix2"),
                                         new_name = spv::extension_words("SPV_EXT_cooperative_matrix_maintenance1");
        CHECK(find(old_name) == code.end());
        auto at = find(new_name);
        if (at == code.end()) {
            return false;
        }
        at = code.erase(at, at + static_cast<std::ptrdiff_t>(new_name.size()));
        code.insert(at, old_name.begin(), old_name.end());
        const std::uint32_t capability = spv::head(spv::kOpCapability, 2);
        const auto conversions = find({capability, spv::kCapabilityCooperativeMatrixConversionsExt});
        if (conversions != code.end()) {
            conversions[1] = spv::kCapabilityCooperativeMatrixConversions;
        }
        return true;
    }

    std::atomic<std::uint64_t> modules_ = 0;
};

/// A product and an attention, both in f16, and how they were computed.
std::pair<Tensor, std::string> product_and_attention(const Device& on) {
    const Capabilities before = on.capabilities();
    as_gpu(Insides::core(on).capabilities);
    Graph g;
    const Value x = g.input("x", {65, 40}), w = g.input("w", {63, 40}), q = g.input("q", {1, 2, 40, 64});
    g.output("y", matmul(x, w, {.transpose_b = true}));
    g.output("z", contiguous(scaled_dot_product_attention(q, q, q, {}).y));
    Program program = on.compile(g, {}, kF16);
    upload(program, "x", random_tensor({65, 40}, 1));
    upload(program, "w", random_tensor({63, 40}, 2));
    upload(program, "q", random_tensor({1, 2, 40, 64}, 3));
    program.run();
    Tensor all = download(program, "y");
    const Tensor z = download(program, "z");
    all.data.insert(all.data.end(), z.data.begin(), z.data.end());
    all.shape = {static_cast<std::int64_t>(all.data.size())};
    std::pair<Tensor, std::string> out{std::move(all), program.explain()};
    Insides::core(on).capabilities = before;
    return out;
}
#endif

}  // namespace

TEST_SUITE("matrix elements") {
    TEST_CASE("matrix elements: the bits of sums that pass through shared memory, every tile and epilogue") {
        if (!has_elements()) {
            return;
        }
        const ElementsCase cases[] = {
            {.m = 5, .n = 1, .k = 1},
            {.m = 33, .n = 129, .k = 33, .transpose_b = false},
            {.m = 40, .n = 64, .k = 64, .bias = true, .activation = Activation::gelu},
            {.m = 65, .n = 63, .k = 40, .bias = true, .plus = true, .activation = Activation::relu, .scale = 0.5f},
            {.batch = 3, .m = 20, .n = 36, .k = 48, .times = true, .activation = Activation::silu},
            {.batch = 2, .m = 9, .n = 70, .k = 17, .transpose_b = false, .plus = true},
            {.m = 600, .n = 130, .k = 68, .bias = true, .times = true},
        };
        for (const Arithmetic arithmetic : {Arithmetic::f16, Arithmetic::int8}) {
            CAPTURE(static_cast<int>(arithmetic));
            const bool codes = arithmetic == Arithmetic::int8;
            if (codes && !device().capabilities().cooperative_matrix_int8) {
                continue;
            }
            const std::string kernel = codes ? "matmul_coopmat_int8" : "matmul_coopmat",
                              direct_kernel = kernel + "_elements";
            for (const ElementsCase& c : cases) {
                if (codes && (!c.transpose_b || c.k < 16)) {
                    continue;  // in fp32
                }
                CAPTURE(c.m);
                CAPTURE(c.n);
                const Believed gpu(as_gpu);
                const ElementsResult direct = product(c, arithmetic);
                CHECK(contains(direct.explanation, direct_kernel + "<"));
                CHECK(contains(direct.explanation, "element by element"));
                for (const bool left_out : {false, true}) {
                    CAPTURE(left_out);
                    const Believed without([&](Capabilities& d) {
                        d.matrix_elements = left_out;
                        if (left_out) {
                            d.left_out.push_back({direct_kernel, "so"});
                        }
                    });
                    const ElementsResult staged = product(c, arithmetic);
                    CHECK(contains(staged.explanation, kernel + "<"));
                    CHECK_FALSE(contains(staged.explanation, "element by element"));
                    CHECK(same_bits(direct.y, staged.y));
                }
            }
        }
    }

    TEST_CASE("matrix elements: sums in parts, which add to what is there, go through shared memory") {
        if (!has_elements()) {
            return;
        }
        const ElementsCase c{.m = 31, .n = 128, .k = 512, .transpose_b = false};
        const Believed gpu([](Capabilities& d) {
            as_gpu(d);
            d.storage_range = 65536;
        });
        const ElementsResult parts = product(c, Arithmetic::f16);
        CHECK(contains(parts.explanation, "parts of the sums, for want of larger bindings"));
        CHECK(contains(parts.explanation, "matmul_coopmat<"));
        CHECK_FALSE(contains(parts.explanation, "element by element"));
        {
            const Believed without([](Capabilities& d) { d.matrix_elements = false; });
            CHECK(same_bits(parts.y, product(c, Arithmetic::f16).y));
        }
        const Believed none([](Capabilities& d) { d.left_out = {{"matmul_coopmat", "so"}}; });
        const std::string said = product(c, Arithmetic::f16).explanation;
        CHECK_MESSAGE((!contains(said, "matmul_coopmat<") && !contains(said, "element by element")), said);
    }

    TEST_CASE("matrix elements: weights of attention stay in matrices, but for heads too wide") {
        if (!has_elements()) {
            return;
        }
        const Believed gpu(as_gpu);
        const auto explained = [](std::int64_t head_dim, const AttentionOptions& options, std::int64_t queries = 40) {
            Graph g;
            const auto input = [&](const char* name) { return g.input(name, {1, 2, queries, head_dim}); };
            g.output("y", contiguous(scaled_dot_product_attention(input("q"), input("k"), input("v"), options).y));
            return device().compile(g, {}, kF16).explain();
        };
        const std::string taken = "weights stay in them";
        CHECK(contains(explained(64, {}), taken));
        AttentionOptions causal;
        causal.mask.causal = Causal::bottom_right;
        CHECK(contains(explained(36, causal), taken));
        CHECK_FALSE(contains(explained(576, {}), taken));
        CHECK_FALSE(contains(explained(64, {}), "rounded once"));
        CHECK(contains(explained(64, {}, 513), "keys and values rounded once"));
        for (const char* kernel : {"attention_coopmat_elements", "attention_coopmat_elements_full"}) {
            const Believed left_out([&](Capabilities& d) { d.left_out = {{kernel, "so"}}; });
            CHECK_FALSE(contains(explained(64, {}), taken));
            const std::string how = explained(64, {});
            CHECK((contains(how, "attention_coopmat<") || contains(how, "attention_coopmat_full<")));
        }
        const Believed without([](Capabilities& d) { d.matrix_elements = false; });
        CHECK_FALSE(contains(explained(64, {}), taken));
    }

    TEST_CASE("matrix elements: stay where the kernels that pass through shared memory are left out") {
        if (!has_elements()) {
            return;
        }
        const Believed gpu([](Capabilities& c) {
            as_gpu(c);
            c.left_out = {{"matmul_coopmat", "so"}, {"matmul_coopmat_int8", "so"}, {"attention_coopmat", "so"}};
        });
        CHECK(contains(product({.m = 33, .n = 129, .k = 33}, Arithmetic::f16).explanation, "matmul_coopmat_elements<"));
        Graph g;
        const auto input = [&](const char* name) { return g.input(name, {1, 2, 40, 64}); };
        g.output("y", contiguous(scaled_dot_product_attention(input("q"), input("k"), input("v"), {}).y));
        CHECK(contains(device().compile(g, {}, kF16).explain(), "weights stay in them"));
        CHECK(contains(device().compile(g, {}, kF16).explain(), "attention_coopmat_elements"));
    }

#if defined(VK_NV_cooperative_matrix2) && defined(VK_EXT_cooperative_matrix_maintenance1)
    TEST_CASE("matrix elements: the same under the names of VK_EXT_cooperative_matrix_maintenance1") {
        if (!has_elements() || device().capabilities().matrix_elements_ext) {
            return;
        }
        const auto [want, explained] = product_and_attention(device());
        CHECK(contains(explained, "matmul_coopmat_elements<"));
        fake::Vulkan vulkan;
        Renamed renamed(vulkan);
        Device other = Device::create({.get_instance_proc_addr = vulkan.entry()});
        CHECK(other.capabilities().matrix_elements);
        CHECK(other.capabilities().matrix_elements_ext);
        {
            const auto [found, how] = product_and_attention(other);
            CHECK(same_bits(found, want));
            CHECK(contains(how, "matmul_coopmat_elements<"));
            CHECK(contains(how, "weights stay in them"));
        }
        CHECK(renamed.modules() == 2);
        CHECK(last_words(std::move(other)) == "");
    }
#endif

    TEST_CASE("matrix elements: not of a host's device, whose instance may be made for an older Vulkan") {
        Host host(true);
        CHECK_FALSE(Device::borrow(host.handles()).capabilities().matrix_elements);
        const std::string wanted = Device::requirements(host.handles().instance, host.handles().physical).str();
        CHECK_FALSE(contains(wanted, "VK_NV_cooperative_matrix2"));
        CHECK_FALSE(contains(wanted, "VK_EXT_cooperative_matrix_maintenance1"));
    }
}

}  // namespace vkf::test
