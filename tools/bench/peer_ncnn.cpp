// SPDX-License-Identifier: Apache-2.0
#include "peer_ncnn.h"

#include <cstdio>
#include <exception>

#include "child.h"

bool has_ncnn() {
    try {
        run_child({}, "sh",
                  {"-c",
                   "python3 -c \"import importlib.util as u, sys; "
                   "sys.exit(not all(map(u.find_spec, ('ncnn', 'numpy'))))\" 2>/dev/null"});
        return true;
    } catch (const std::exception&) {
        return false;
    }
}

void run_beside_ncnn(const std::string& device, const std::string& filter, double seconds) {
    std::printf("\nbeside ncnn, which takes a while:\n");
    std::fflush(stdout);
    try {
        const ChildResult child = run_child({}, "python3",
                                            {VKFORMER_NCNN_PEERS, own_program().string(), "--device", device,
                                             "--filter", filter, "--seconds", std::to_string(seconds)});
        std::printf("%s", child.output.c_str());
    } catch (const std::exception& e) {
        std::printf("%s\n", e.what());
    }
}
