#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Builds the GPU kernels, their checks and their benches without CMake, and runs
# them: tools/gpu-run.sh [build] [check] [watch] [error] [bench] [peers], by
# default check and bench. Needs nvcc, cmocka's header and a Hopper GPU; error
# and peers need PyTorch, watch needs compute-sanitizer. With RUN=1 nothing is
# built, with KEEP=1 kernels that are compiled already are not compiled again.
set -eu
cd "$(dirname "$0")/.."
build=${BUILD:-build}/gpu
cuda=${CUDA_HOME:-/usr/local/cuda}

# One source, C or CUDA; KERNEL_FLAGS are for the kernels.
compile() {
    case $1 in
    *.cu)
        [ "${KEEP:-0}" = 1 ] && [ -f "$2" ] && return
        # shellcheck disable=SC2086 # several flags, or none
        "$cuda/bin/nvcc" -O3 -std=c++17 -lineinfo -Isrc -Iinclude $KERNEL_FLAGS \
            -gencode arch=compute_90a,code=sm_90a -c "$1" -o "$2"
        return
        ;;
    *_avx2.c) isa="-mavx2 -mfma" ;;
    *_avx512.c) isa="-mavx512f -mavx512bw -mavx512dq -mavx512vl -mfma" ;;
    *) isa= ;;
    esac
    # shellcheck disable=SC2086 # several flags, or none
    gcc -std=gnu17 -O2 $isa -fopenmp -ffp-contract=off -Isrc -Iinclude -Itests \
        -isystem "$cuda/include" -c "$1" -o "$2"
}

if [ "${1:-}" = --compile ]; then
    compile "$2" "$3"
    exit
fi

# make FOLDER FLAGS PROGRAM...: everything at once, kernels first, for they
# take longest.
make() {
    to=$1
    flags=$2
    shift 2
    mkdir -p "$to"
    {
        for source in src/backend/cuda/attention_*.cu src/base/*.c \
            src/mask/*.c src/backend/cpu/*.c src/backend/cpu/kernels/*.c \
            src/backend/cpu/kernels/x86/*.c src/runtime/*.c \
            src/autograd/tape.c src/backend/cuda/bias.c \
            src/backend/cuda/decode.c \
            src/backend/cuda/device.c src/backend/cuda/gpu.c \
            src/backend/cuda/plan.c src/backend/cuda/rows.c; do
            echo "$source $to/part_$(echo "$source" | tr / _).o"
        done
        for program in "$@"; do
            echo "$program.c $to/$(basename "$program").o"
        done
    } | KERNEL_FLAGS="$flags" xargs -P "$(nproc)" -n 2 tools/gpu-run.sh --compile
    for program in "$@"; do
        echo "$to/$(basename "$program")"
    done | xargs -P "$(nproc)" -I '{}' sh -c \
        "$cuda/bin/nvcc -o {} {}.o $to/part_*.o -Xcompiler -fopenmp -lm"
}

[ "${RUN:-0}" = 1 ] ||
    make "$build" "" tests/cuda/check_cuda tests/cuda/check_cuda_backward \
        tests/cuda/check_cuda_decode tests/cuda/check_cuda_f32 \
        tests/cuda/check_cuda_same tests/cuda/check_device \
        tests/cuda/dump_cuda bench/attention_gpu bench/decode_gpu

# Bad accesses, and races in shared memory. The tool does not know that one lane
# acts for its warp, so races are looked for in a build in which every lane
# does.
watch() {
    for program in check_cuda check_cuda_backward check_cuda_decode \
        check_cuda_f32 check_cuda_same; do
        compute-sanitizer --error-exitcode 1 "$build/$program" --quick
    done
    # Out-of-memory errors are expected here.
    compute-sanitizer --error-exitcode 1 --report-api-errors no \
        "$build/check_device"
    [ "${RUN:-0}" = 1 ] ||
        make "$build/lanes" -DBT_EVERY_LANE tests/cuda/check_cuda \
            tests/cuda/check_cuda_backward
    race="compute-sanitizer --tool racecheck --error-exitcode 1"
    $race "$build/lanes/check_cuda" --quick
    for head in 64 96 128 192 256; do
        $race "$build/lanes/check_cuda_backward" --race "$head"
    done
}

[ $# -gt 0 ] || set -- check bench
for what in "$@"; do
    case $what in
    build) ;;
    check)
        "$build/check_cuda"
        "$build/check_cuda_backward"
        "$build/check_cuda_decode"
        "$build/check_cuda_f32"
        "$build/check_cuda_same"
        "$build/check_device"
        ;;
    watch)
        watch
        ;;
    error)
        mkdir -p "$build/dump"
        "$build/dump_cuda" "$build/dump" >"$build/dump/cases.json"
        python3 tools/check-attention-gpu.py "$build/dump/cases.json"
        ;;
    bench)
        "$build/attention_gpu"
        "$build/decode_gpu"
        ;;
    peers)
        python3 bench/attention_gpu.py
        python3 bench/decode_gpu.py
        ;;
    *)
        echo "gpu-run.sh: what is $what?" >&2
        exit 2
        ;;
    esac
done
