#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# gpu-ranks.sh - ranks that train on one GPU: the files of a run are those of a
# single rank, to the bit.
#
#   tools/gpu-ranks.sh pack FILE.tar.xz [BUILD]
#       Build bauta with MPI and NCCL in BUILD (build-ranks), and pack it with
#       this script, every library that it needs, and Open MPI. What is left
#       out is of the machine with the GPU: glibc 2.36 or later, NVIDIA's
#       driver, and libnccl.so.2, which is also in PyTorch's packages.
#   FOLDER/gpu-ranks.sh
#       Run it all, in the folder gpu-ranks that was unpacked.
#
# A small GPT-2 takes 20 steps in bfloat16 and in float32, with dropout,
# clipping, accumulation, a moving average and 4 lanes: on one rank; on 2 and 4
# ranks of --ranks; on 2 over TCP; on 2 over MPI; on 2 over NCCL; and on 4, then
# 1, then 2 ranks. All share one GPU. For NCCL, which refuses that, each rank
# says by NCCL_HOSTID that it is another host. Prints a line for each, and a
# last one; the status is 0 if all are equal.
#
# BAUTA_DEVICE=cpu runs it without a GPU, in float32 and without NCCL.
set -eu

# ---- pack -------------------------------------------------------------------

# The libraries that a program needs; not those of every system, nor NCCL.
everywhere='c|m|dl|rt|pthread|resolv|gcc_s|stdc\+\+'
needs() { # FILE...
    ldd "$@" 2>/dev/null | sed -n 's/.* => \(\/[^ ]*\) .*/\1/p' | sort -u |
        grep -Ev "/lib($everywhere|nccl)\.so" || :
}

# Open MPI's components, without those for networks that are not there, for
# files and for OpenSHMEM.
components() { # FOLDER
    for part in "$1"/mca_*.so; do
        ldd "$part" |
            grep -Eq 'lib(fabric|ucp|ibverbs|psm|oshmem|nl-|.*ompio)' ||
            echo "$part"
    done
}

pack() { # FILE BUILD
    case $1 in /*) file=$1 ;; *) file=$PWD/$1 ;; esac
    cd "$(dirname "$0")/.."
    build=$2
    cmake -S . -B "$build" -DBAUTA_MPI=ON -DBAUTA_NCCL=ON -DBAUTA_CAIRO=OFF \
        -DBAUTA_SERVER=OFF >/dev/null
    cmake --build "$build" --parallel "${JOBS:-2}" --target bauta_program \
        ranks_nccl
    work=$(mktemp -d)
    trap 'rm -rf "$work"' EXIT
    to=$work/gpu-ranks
    mkdir -p "$to/bin" "$to/lib" "$to/openmpi/components" \
        "$to/openmpi/share" "$to/openmpi/etc" "$to/openmpi/pmix"
    cp tools/gpu-ranks.sh "$to/"
    cp "$build/bauta" "$build/tests/ranks_nccl" "$to/bin/"
    # shellcheck disable=SC2046 # no names with spaces
    if command -v ompi_info >/dev/null; then
        path() { ompi_info --parsable --path "$1" | sed "s/^path:$1://"; }
        cp "$(readlink -f "$(command -v mpirun)")" "$to/bin/mpirun"
        cp $(components "$(path pkglibdir)") "$to/openmpi/components/"
        cp -R "$(path pkgdatadir)/." "$to/openmpi/share/"
        pmix=$(needs "$to"/openmpi/components/mca_pmix_*.so | grep libpmix)
        pmix=$(dirname "$(readlink -f "$pmix")")/pmix
        [ ! -d "$pmix" ] || cp "$pmix"/*.so "$to/openmpi/pmix/"
    fi
    # shellcheck disable=SC2046
    cp -L $(needs "$build/bauta" "$build/tests/ranks_nccl" "$to"/bin/* \
        "$to"/openmpi/components/* "$to"/openmpi/pmix/*) "$to/lib/"
    strip "$to"/bin/* "$to"/lib/*
    tar -C "$work" -I "xz -4" -cf "$file" gpu-ranks
    ls -l "$file"
}

usage() {
    echo "gpu-ranks.sh: $1" >&2
    exit 2
}
if [ "${1-}" = pack ]; then
    [ $# -ge 2 ] || usage "pack FILE.tar.xz [BUILD]"
    pack "$2" "${3:-build-ranks}"
    exit
fi

# ---- run --------------------------------------------------------------------

here=$(cd "$(dirname "$0")" && pwd)
device=${BAUTA_DEVICE:-cuda}
bauta=$here/bin/bauta
[ -x "$bauta" ] || usage "unpack what '$0 pack' made, and run it there"
nccl=$(python3 - <<'PYTHON' 2>/dev/null || :
import os, sys
for folder in sys.path:
    lib = os.path.join(folder, "nvidia", "nccl", "lib")
    if os.path.exists(os.path.join(lib, "libnccl.so.2")):
        print(lib)
        break
PYTHON
)
LD_LIBRARY_PATH=$here/lib${nccl:+:$nccl}${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
export LD_LIBRARY_PATH
export OPAL_PREFIX="$here/openmpi" OPAL_PKGLIBDIR="$here/openmpi/components" \
    OPAL_PKGDATADIR="$here/openmpi/share" OPAL_SYSCONFDIR="$here/openmpi/etc" \
    PMIX_PKGLIBDIR="$here/openmpi/pmix" \
    OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 \
    OMPI_MCA_rmaps_base_oversubscribe=1 OMPI_MCA_btl=self,vader \
    OMPI_MCA_btl_vader_single_copy_mechanism=none OMPI_MCA_plm=isolated \
    OMPI_MCA_mpi_yield_when_idle=1
export NCCL_SOCKET_IFNAME=lo NCCL_IB_DISABLE=1 NCCL_MNNVL_ENABLE=0 \
    NCCL_NVLS_ENABLE=0
unset RANK WORLD_SIZE LOCAL_RANK MASTER_ADDR MASTER_PORT NCCL_HOSTID \
    SLURM_PROCID SLURM_STEP_NUM_TASKS OMPI_COMM_WORLD_SIZE PMI_SIZE
mpirun=$here/bin/mpirun
[ -x "$mpirun" ] || mpirun=$(command -v mpirun || :)

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
awk 'BEGIN { for (i = 0; i < 3000; i++)
    print "line " i " of a text, with the numbers " i * 7919 % 1000 " and " \
        i * i % 997 }' >text
port=29611
equal=0 differ=0 left=0
now() { date +%s.%N; }

# One line, and the end of what a failed run has printed.
result() { # equal|DIFFERS|FAILED|left NAME
    case $1 in
    equal) equal=$((equal + 1)) ;;
    left) left=$((left + 1)) ;;
    *) differ=$((differ + 1)) ;;
    esac
    printf '%-8s %-9s %s' "$1" "${dtype-}" "$2"
    awk "BEGIN { printf \", %.1f s\\n\", $(now) - $began }"
    [ "$1" != FAILED ] || tail -n 5 output* | sed 's/^/    /'
}

train() { # ARGUMENT...: a new run
    timeout -k 5 60 "$@" train --device "$device" --dtype "$dtype" \
        --preset gpt2-tiny --set n_layer=3 --set "n_embd=$width" \
        --set n_head=4 --context 64 --batch-size 16 --tokenizer chars \
        --lines --no-audit --steps 20 --warmup-steps 4 --save-every 5 --keep 9 --eval-every 10 \
        --valid-share 0.1 --dropout 0.1 --ema-decay 0.9 --max-grad-norm 0.5 \
        --gradient-accumulation-steps 2 --lanes 4 --out run \
        ${ranks:+--ranks $ranks} text
}

# Two processes that are started one by one.
pair() {
    pids=
    failed=0
    port=$((port + 1))
    for rank in 0 1; do
        train env RANK=$rank WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 \
            MASTER_PORT=$port ${host:+NCCL_HOSTID=$host$rank} "$bauta" \
            >"output$rank" 2>&1 </dev/null &
        pids="$pids $!"
    done
    for pid in $pids; do
        wait "$pid" || failed=1
    done
    return $failed
}
over_tcp() {
    host=
    pair
}

# Whether the run has the bits of the first one, which is kept in `one`.
same() {
    for file in model.safetensors optimizer.safetensors trainer.json; do
        for step in 05 10 15 20; do
            cmp "one/step-000000$step/$file" "run/step-000000$step/$file" ||
                return 1
        done
    done
    cmp one/average/model.safetensors run/average/model.safetensors || return 1
    for run in one run; do
        sed 's/,"seconds":[^}]*//' "$run/metrics.jsonl" >"metrics-$run"
    done
    cmp metrics-one metrics-run
}

compare() { # NAME: of a run that has ended well
    if same >output 2>&1; then
        result equal "$1"
    else
        result DIFFERS "$1"
        sed 's/^/    /' output
    fi
}

one_way() { # NAME COMMAND...
    name=$1
    shift
    rm -rf run output*
    began=$(now)
    if "$@" >output 2>&1 </dev/null; then
        compare "$name"
    else
        result FAILED "$name"
    fi
}

resume() { # RANKS: on the device of the run
    timeout -k 5 60 "$bauta" train --resume run --ranks "$1"
}

# 4 ranks to step 5, 1 to step 10, 2 to the end.
move() {
    ranks=4
    train "$bauta" &&
        rm -rf run/step-00000010 run/step-00000015 run/step-00000020 &&
        resume 1 &&
        rm -rf run/step-00000015 run/step-00000020 &&
        resume 2
}

over_nccl() {
    export NCCL_DEBUG=INFO NCCL_DEBUG_FILE="$work/nccl.%p"
    host=rank
    ended=0
    pair || ended=1
    unset NCCL_DEBUG NCCL_DEBUG_FILE
    if ! cat nccl.* | grep -q 'nranks 2 .*Init COMPLETE'; then
        echo "NCCL has not connected 2 ranks"
        grep -h WARN nccl.* | tail -n 4
        ended=1
    fi
    rm -f nccl.*
    return $ended
}

start=$(now)
if [ "$device" = cpu ]; then
    dtypes=float32
    width=32
else
    width=256
    dtypes="bfloat16 float32"
    nvidia-smi --query-gpu=name,driver_version --format=csv,noheader || :
    dtype=
    if [ -n "$nccl" ]; then
        echo "libnccl.so.2 is in $nccl"
    fi
    began=$(now)
    if "$here/bin/ranks_nccl" >output 2>&1 && ! grep -qi skipped output; then
        result equal "one rank of NCCL"
    else
        result FAILED "one rank of NCCL"
    fi
fi
for dtype in $dtypes; do
    ranks=
    rm -rf one run output*
    began=$(now)
    if ! train "$bauta" >output 2>&1 </dev/null; then
        result FAILED "one rank"
        continue
    fi
    cp -R run one
    compare "one rank"
    one_way "one rank again" train "$bauta"
    for ranks in 2 4; do
        one_way "$ranks ranks, --ranks" train "$bauta"
    done
    ranks=
    one_way "2 ranks over TCP" over_tcp
    if [ -n "$mpirun" ]; then
        one_way "2 ranks over MPI" train "$mpirun" -n 2 "$bauta"
    else
        result left "2 ranks over MPI: there is no mpirun"
    fi
    if [ "$device" = cpu ]; then
        result left "2 ranks over NCCL: needs a GPU"
    else
        one_way "2 ranks over NCCL" over_nccl
    fi
    one_way "4, 1 and 2 ranks" move
    ranks=
done
awk "BEGIN { printf \"%d equal, %d not, %d left out, %.0f s\\n\", $equal, \
    $differ, $left, $(now) - $start }"
[ "$differ" = 0 ]
