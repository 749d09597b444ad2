#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# gpu-run.sh - the GPU's benches, and the checks that test-gpu.sh leaves out:
#
#   tools/gpu-run.sh WHAT...
#
#   attention  the forward and the backward pass, and decoding
#   products   products beside cuBLASLt, and those of few rows
#   ops        the other operations
#   models     training and generation of GPT-2 124M and a Llama of 1B
#   peers      attention and decoding of other libraries; needs PyTorch
#   error      attention's errors beside PyTorch's
#   race       races in shared memory, by compute-sanitizer
#   pack FILE.tar.xz
#              all programs with the libraries that they need, for a machine
#              that has neither CMake nor the libraries; there, unpack and run
#              tools/test-gpu.sh and this script as usual
#
# The programs are those of BUILD (build), where `make test-gpu` and
# `cmake --build build --target gpu_benches` build them. race has programs of
# its own, in build-race: the tool does not know that one lane acts for its
# warp, so every lane does there.
set -eu
cd "$(dirname "$0")/.."
build=${BUILD:-build}
programs=$build/src/backend/cuda
LD_LIBRARY_PATH=$PWD/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
export LD_LIBRARY_PATH

build_programs() { # FOLDER TARGET... [-- OPTION...]
    command -v cmake >/dev/null || return 0
    [ -f CMakeLists.txt ] || return 0
    folder=$1
    shift
    targets=
    while [ $# -gt 0 ] && [ "$1" != -- ]; do
        targets="$targets $1"
        shift
    done
    [ $# -eq 0 ] || shift
    cmake -S . -B "$folder" "$@" >/dev/null
    # shellcheck disable=SC2086 # several targets
    cmake --build "$folder" --parallel "${JOBS:-$(nproc)}" --target $targets
}

race() {
    build_programs build-race check_cuda check_cuda_backward \
        check_cuda_decode -- \
        -DBAUTA_NVCC_FLAGS=-DBT_EVERY_LANE
    tool="compute-sanitizer --tool racecheck --error-exitcode 1"
    for head in 64 96 128 192 256; do
        for name in check_cuda check_cuda_backward check_cuda_decode; do
            $tool "build-race/src/backend/cuda/$name" --race $head
        done
    done
    $tool "$programs/check_cuda_ops" --quick
}

# glibc, the C++ library and the driver are everywhere, and cuBLAS where CUDA
# is.
needs() { # FILE...
    ldd "$@" | sed -n 's/.* => \(\/[^ ]*\) .*/\1/p' | sort -u |
        grep -Ev '/lib(c|m|dl|rt|pthread|gcc_s|stdc\+\+|cublas.*)\.so' || :
}

pack() { # FILE
    build_programs "$build" gpu_checks gpu_benches bauta_program
    work=$(mktemp -d)
    trap 'rm -rf "$work"' EXIT
    mkdir -p "$work/gpu/lib" "$work/gpu/build/src/backend/cuda"
    find "$programs" -maxdepth 1 -type f -perm -100 \
        -exec cp {} "$work/gpu/build/src/backend/cuda/" \;
    cp "$build/bauta" "$work/gpu/build/"
    # shellcheck disable=SC2046 # no names with spaces
    cp -L $(needs "$build/bauta" "$work"/gpu/build/src/backend/cuda/*) \
        "$work/gpu/lib/"
    find "$work/gpu" -type f -exec strip {} +
    cp -R tools bench examples "$work/gpu/"
    mkdir -p "$work/gpu/tests/data"
    cp -R tests/data/models "$work/gpu/tests/data/"
    # The programs share most of their kernels: a dictionary that spans them.
    tar -C "$work" -I "xz --lzma2=preset=3,dict=512MiB" -cf "$1" gpu
    ls -l "$1"
}

while [ $# -gt 0 ]; do
    what=$1
    shift
    case $what in
    attention) "$programs/attention_gpu" && "$programs/decode_gpu" ;;
    products) "$programs/gemm_gpu" && "$programs/gemm_few_gpu" ;;
    ops) "$programs/ops_gpu" ;;
    models)
        "$programs/model_gpu" --model gpt2
        "$programs/model_gpu" --model llama1b
        ;;
    peers) python3 bench/attention_gpu.py && python3 bench/decode_gpu.py ;;
    error)
        mkdir -p "$build/dump"
        "$programs/dump_cuda" "$build/dump" >"$build/dump/cases.json"
        python3 tools/check-attention-gpu.py "$build/dump/cases.json"
        ;;
    race) race ;;
    pack)
        pack "$1"
        shift
        ;;
    *)
        echo "gpu-run.sh: what is $what? 'head -30 $0' tells" >&2
        exit 2
        ;;
    esac
done
