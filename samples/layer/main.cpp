// SPDX-License-Identifier: Apache-2.0
#include <vkformer/vkformer.h>

#include <cstdio>

int main(int argc, char** argv) try {
    vkf::Graph g;                               // no GPU is touched; errors name op and sizes
    vkf::Dim tokens = g.symbol("tokens", 512);  // one program for every length up to 512
    vkf::Value x = g.input("x", {1, tokens, 64});
    vkf::Value h = vkf::rms_norm(x, g.weight("norm.weight", {64}));
    vkf::Rope rope{.layout = vkf::RopeLayout::interleaved};
    vkf::Value a = vkf::grouped_query_attention(h, {.name = "attn", .heads = 8, .kv_heads = 2, .rope = rope});
    g.output("y", x + a);

    vkf::Device gpu = vkf::Device::create();  // the best there is, or what VKFORMER_DEVICE names
    vkf::Weights w = gpu.load(g, vkf::Safetensors(argc > 1 ? argv[1] : SAMPLE_FOLDER "/layer.safetensors"));
    vkf::Program p = gpu.compile(g, w);  // kernels chosen, memory planned, pipelines built
    p.set("tokens", 7);
    p.upload("x", std::vector<float>(7 * 64, 0.5f));
    p.run();
    std::printf("%s: y[0] = %g\n%s", gpu.capabilities().name.c_str(), p.download("y")[0], p.explain().c_str());
} catch (const vkf::Error& e) {
    std::fprintf(stderr, "layer: %s\n", e.what());
    return 1;
}
