# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash disable=SC2034
# Shared by tools/gpu-report and tools/test --gpu-compilers: the program that runs others on GPUs'
# compilers, and a build for it. Sourced behind setup.sh.

compilers=${VKFORMER_GPU_COMPILERS:-$root/../shared/tools/gpu-compilers}
reference=${VKFORMER_REFERENCE_ROOT:-$root/../shared/tools/reference-root}
gpu_build=$build/gpu-compilers

# Ends with 2 where that program is not there.
need_compilers() {
    [ ! -x "$compilers" ] || return 0
    echo "$(basename "$0"): there is no program that runs others on GPUs' compilers at $compilers." \
        "VKFORMER_GPU_COMPILERS names one elsewhere" >&2
    exit 2
}

# build_for_gpus TARGET...: in a newer Debian where there is one, for its shader compiler.
build_for_gpus() {
    local arguments=(-DCMAKE_BUILD_TYPE=Release -DVKFORMER_BUILD_TESTS=ON -DVKFORMER_BUILD_SAMPLES=OFF
        -DVKFORMER_BUILD_PYTHON=OFF -DVKFORMER_BUILD_BENCH=ON)
    cd "$root"
    if [ -x "$reference" ]; then
        with_progress "Configuring $gpu_build" "$reference" cmake -S "$root" -B "$gpu_build" -G Ninja "${arguments[@]}"
        with_progress "Building $gpu_build" "$reference" cmake --build "$gpu_build" --target "$@"
    else
        say "No newer Debian to build in: kernels with cooperative matrices are left out where this shader compiler lacks them"
        need_packages "${build_packages[@]}" libbenchmark-dev
        configure "$gpu_build" "${arguments[@]}"
        compile "$gpu_build" "$@"
    fi
}
