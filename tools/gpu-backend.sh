#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Builds the GPU's backend with all its kernels and its check without CMake, and
# runs it: tools/gpu-backend.sh [build] [check] [table] [watch], by default
# check. table is tests/test_backend.c with the GPU among the backends, which
# needs cmocka's library; the others need its header. watch needs
# compute-sanitizer. With KEEP=1 kernels that are compiled already are not
# compiled again, with RUN=1 nothing is built; JOBS limits compilers at once.
set -eu
cd "$(dirname "$0")/.."
build=${BUILD:-build}/backend
cuda=${CUDA_HOME:-/usr/local/cuda}

object() {
    echo "$build/$(echo "$1" | tr / _).o"
}

compile() {
    to=$(object "$1")
    case $1 in
    *.cu)
        [ "${KEEP:-0}" = 1 ] && [ -f "$to" ] && return
        # As in cmake/cuda.cmake: only what the source fuses is fused.
        case $1 in
        */ops_*) fusing=-fmad=false ;;
        *) fusing= ;;
        esac
        # shellcheck disable=SC2086 # one flag, or none
        "$cuda/bin/nvcc" -O3 -std=c++17 $fusing -Isrc -Iinclude \
            -gencode arch=compute_90a,code=sm_90a -c "$1" -o "$to"
        return
        ;;
    *_avx2.c) isa="-mavx2 -mfma" ;;
    *_avx512.c) isa="-mavx512f -mavx512bw -mavx512dq -mavx512vl -mfma" ;;
    *) isa= ;;
    esac
    # shellcheck disable=SC2086 # several flags, or none
    gcc -std=gnu17 -O2 $isa -fopenmp -ffp-contract=off -DBT_TEST_CUDA -Isrc \
        -Iinclude -Itests -Itests/cuda -isystem "$cuda/include" -c "$1" -o "$to"
}

if [ "${1:-}" = --compile ]; then
    compile "$2"
    exit
fi

# program NAME LIBRARIES SOURCE...: links it from objects.
program() {
    to=$build/$1
    libraries=$2
    shift 2
    objects=
    for source in "$@" $parts; do
        objects="$objects $(object "$source")"
    done
    # shellcheck disable=SC2086 # several of them
    "$cuda/bin/nvcc" -o "$to" $objects -Xcompiler -fopenmp $libraries -lpthread \
        -lm
}

make() {
    mkdir -p "$build"
    # Kernels first: they take longest.
    parts="$(echo src/backend/cuda/*.cu src/backend/cuda/*.c src/backend/*.c \
        src/backend/cpu/*.c src/backend/cpu/kernels/*.c \
        src/backend/cpu/kernels/x86/*.c src/base/*.c src/mask/*.c \
        src/tensor/*.c)"
    sources="$parts tests/cuda/check_cuda_backend.c"
    if [ "$table" = 1 ]; then
        sources="$sources tests/test_backend.c tests/reference_backend.c
            tests/attention_oracle.c"
    fi
    # shellcheck disable=SC2086 # several files
    printf '%s\n' $sources |
        xargs -P "${JOBS:-$(nproc)}" -n 1 tools/gpu-backend.sh --compile
    program check_cuda_backend "" tests/cuda/check_cuda_backend.c
    if [ "$table" = 1 ]; then
        # Beside the program, for a machine that has no cmocka.
        cp "$(gcc -print-file-name=libcmocka.so.0)" "$build"
        program test_backend "-lcmocka -Xlinker -rpath,\$ORIGIN" \
            tests/test_backend.c tests/reference_backend.c \
            tests/attention_oracle.c
    fi
}

[ $# -gt 0 ] || set -- check
table=0
for what in "$@"; do
    [ "$what" = table ] && table=1
done
[ "${RUN:-0}" = 1 ] || make
for what in "$@"; do
    case $what in
    build) ;;
    check)
        "$build/check_cuda_backend"
        ;;
    table)
        "$build/test_backend"
        ;;
    watch)
        compute-sanitizer --error-exitcode 1 "$build/check_cuda_backend" --quick
        ;;
    *)
        echo "gpu-backend.sh: what is $what?" >&2
        exit 2
        ;;
    esac
done
