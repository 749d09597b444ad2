#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Builds the GPU kernels, their check and their bench without CMake, and runs
# them: tools/gpu-run.sh [build] [check] [bench] [peers], by default check and bench.
# Needs nvcc and a Hopper GPU; peers needs PyTorch.
set -e
cd "$(dirname "$0")/.."
build=${BUILD:-build}/gpu
cuda=${CUDA_HOME:-/usr/local/cuda}
mkdir -p "$build"

cflags="-std=gnu17 -O2 -fopenmp -ffp-contract=off -Isrc -Iinclude -Itests -isystem $cuda/include"
objects=
for source in src/base/*.c src/mask/*.c src/kernels/cuda/*.c; do
    object=$build/$(echo "$source" | tr / _).o
    gcc $cflags -c "$source" -o "$object" &
    objects="$objects $object"
done
"$cuda/bin/nvcc" -O3 -std=c++17 -lineinfo $NVCCFLAGS -Isrc -Iinclude \
    -gencode arch=compute_90a,code=sm_90a \
    -c src/kernels/cuda/attention_forward.cu -o "$build/attention_forward.o"
wait
for program in tests/check/check_cuda bench/attention_gpu; do
    gcc $cflags -c $program.c -o "$build/main.o"
    "$cuda/bin/nvcc" -o "$build/$(basename $program)" "$build/main.o" $objects \
        "$build/attention_forward.o" -Xcompiler -fopenmp -lm
done

for what in ${@:-check bench}; do
    case $what in
    check) "$build/check_cuda" ;;
    bench) "$build/attention_gpu" ;;
    peers) python3 bench/attention_gpu.py ;;
    build) ;;
    *) echo "gpu-run.sh: what is $what?" >&2; exit 2 ;;
    esac
done
