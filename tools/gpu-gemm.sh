#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Builds the GPU's products, their checks and their bench without CMake, and
# runs them: tools/gpu-gemm.sh [check] [watch] [few] [bench WHAT...], by default
# check and bench. Needs nvcc, cmocka's header, cuBLASLt and a Hopper GPU. With KEEP=1
# kernels that are compiled already are not compiled again.
set -eu
cd "$(dirname "$0")/.."
build=${BUILD:-build}/gemm
cuda=${CUDA_HOME:-/usr/local/cuda}
mkdir -p "$build"

compile() {
    to=$build/$(basename "${1%.*}").o
    case $1 in
    *.cu)
        [ "${KEEP:-0}" = 1 ] && [ -f "$to" ] && return
        fusing=
        case $1 in */ops_*) fusing=-fmad=false ;; esac
        # shellcheck disable=SC2086 # a flag, or none
        "$cuda/bin/nvcc" -O3 -std=c++17 -lineinfo $fusing -Isrc -Iinclude \
            -gencode arch=compute_90a,code=sm_90a -c "$1" -o "$to"
        ;;
    *)
        gcc -std=gnu17 -O2 -ffp-contract=off -Isrc -Iinclude -Itests \
            -isystem "$cuda/include" -c "$1" -o "$to"
        ;;
    esac
}

if [ "${1:-}" = --compile ]; then
    compile "$2"
    exit
fi

parts="src/backend/cuda/gemm.c src/backend/cuda/device.c
    src/backend/cuda/launch.c src/backend/cuda/step_graph.c
    src/base/error.c src/base/memory.c src/base/philox.c"
kernels="$(echo src/backend/cuda/gemm_*.cu) src/backend/cuda/step_copy.cu
    src/backend/cuda/ops_act.cu src/backend/cuda/ops_norm.cu
    src/backend/cuda/ops_sum.cu"
for source in $kernels $parts tests/cuda/check_cuda_gemm.c \
    bench/gemm_gpu.c bench/gemm_few_gpu.c; do
    echo "$source"
done | xargs -P "$(nproc)" -n 1 tools/gpu-gemm.sh --compile
objects=
for source in $kernels $parts; do
    objects="$objects $build/$(basename "${source%.*}").o"
done
# shellcheck disable=SC2086 # several objects
{
    "$cuda/bin/nvcc" -o "$build/check_cuda_gemm" "$build/check_cuda_gemm.o" \
        $objects -lm
    "$cuda/bin/nvcc" -o "$build/gemm_gpu" "$build/gemm_gpu.o" $objects \
        -lcublasLt -lm
    "$cuda/bin/nvcc" -o "$build/gemm_few_gpu" "$build/gemm_few_gpu.o" \
        $objects -lm
}

[ $# -gt 0 ] || set -- check bench
while [ $# -gt 0 ]; do
    what=$1
    shift
    case $what in
    build) ;;
    check)
        "$build/check_cuda_gemm"
        ;;
    watch)
        compute-sanitizer --error-exitcode 1 "$build/check_cuda_gemm" --quick
        ;;
    few)
        "$build/gemm_few_gpu"
        ;;
    bench)
        "$build/gemm_gpu" "$@"
        break
        ;;
    *)
        echo "gpu-gemm.sh: what is $what?" >&2
        exit 2
        ;;
    esac
done
