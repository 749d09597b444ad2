#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Builds the GPU's operations other than products and attention, their checks
# and their bench without CMake, and runs them: tools/gpu-ops.sh [build] [check]
# [watch] [bench WHAT...], by default check and bench. Needs nvcc, cmocka's
# header and a Hopper GPU; watch needs compute-sanitizer. With KEEP=1 what is
# compiled already is not compiled again, with RUN=1 nothing is built.
set -eu
cd "$(dirname "$0")/.."
build=${BUILD:-build}/ops
cuda=${CUDA_HOME:-/usr/local/cuda}
mkdir -p "$build"

object() {
    echo "$build/$(echo "${1%.*}" | tr / _).o"
}

compile() {
    to=$(object "$1")
    [ "${KEEP:-0}" = 1 ] && [ -f "$to" ] && return
    case $1 in
    *.cu)
        "$cuda/bin/nvcc" -O3 -std=c++17 -lineinfo -fmad=false -Isrc -Iinclude \
            -gencode arch=compute_90a,code=sm_90a -c "$1" -o "$to"
        return
        ;;
    *_avx2.c) isa="-mavx2 -mfma" ;;
    *_avx512.c) isa="-mavx512f -mavx512bw -mavx512dq -mavx512vl -mfma" ;;
    *) isa= ;;
    esac
    # shellcheck disable=SC2086 # several flags, or none
    gcc -std=gnu17 -O2 $isa -pthread -ffp-contract=off -Isrc -Iinclude -Itests \
        -isystem "$cuda/include" -c "$1" -o "$to"
}

if [ "${1:-}" = --compile ]; then
    compile "$2"
    exit
fi

build() {
    parts="$(echo src/backend/cuda/ops_*.cu) src/backend/cuda/ops_pieces.c
        src/backend/cuda/device.c src/base/error.c src/base/philox.c
        src/tensor/dtype.c src/backend/cpu/row_stats.c
        $(echo src/backend/cpu/kernels/*.c src/backend/cpu/kernels/x86/*.c)
        src/decode/sampler.c src/decode/topk.c src/decode/logits_processors.c"
    programs="tests/cuda/check_cuda_ops.c bench/ops_gpu.c"
    # shellcheck disable=SC2086 # several files
    printf '%s\n' $parts $programs |
        xargs -P "$(nproc)" -n 1 tools/gpu-ops.sh --compile
    objects=
    for source in $parts; do
        objects="$objects $(object "$source")"
    done
    for source in $programs; do
        # shellcheck disable=SC2086 # several objects
        "$cuda/bin/nvcc" -o "$build/$(basename "${source%.c}")" \
            "$(object "$source")" $objects -Xcompiler -pthread -lm
    done
}

[ "${RUN:-0}" = 1 ] || build
[ $# -gt 0 ] || set -- check bench
while [ $# -gt 0 ]; do
    what=$1
    shift
    case $what in
    build) ;;
    check)
        "$build/check_cuda_ops"
        ;;
    watch)
        compute-sanitizer --error-exitcode 1 "$build/check_cuda_ops" --quick
        compute-sanitizer --tool racecheck --error-exitcode 1 \
            "$build/check_cuda_ops" --quick
        ;;
    bench)
        "$build/ops_gpu" "$@"
        break
        ;;
    *)
        echo "gpu-ops.sh: what is $what?" >&2
        exit 2
        ;;
    esac
done
