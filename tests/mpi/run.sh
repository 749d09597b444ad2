#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# run.sh - ranks of MPI, on this machine alone: a program that compares them
# with a single rank, and bauta train. Skipped where MPI cannot start processes.
#
#   run.sh MPIEXEC COUNT PROGRAM BAUTA
#
# BAUTA is the program with the transport of MPI linked in.
set -eu
mpiexec=$1
count=$2
program=$3
bauta=$4
# As root, more ranks than cores, and no network.
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 \
    OMPI_MCA_rmaps_base_oversubscribe=1 OMPI_MCA_btl=self,vader \
    OMPI_MCA_mpi_yield_when_idle=1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
# Open MPI has a folder for all runs of a user, which fails now and then if one
# run begins while another one ends.
export TMPDIR="$work"
if ! "$mpiexec" -n "$count" true; then
    echo "$mpiexec cannot start $count processes here"
    exit 77
fi
"$mpiexec" -n "$count" "$program"

cd "$work"
fail() {
    echo "$1"
    cat output
    exit 1
}
train() { # FILE LAUNCHER...
    text=$1
    shift
    rm -rf run
    "$@" "$bauta" train --preset gpt2-tiny --set n_layer=1 --set n_embd=8 \
        --set n_head=1 --context 8 --batch-size 8 --threads 1 --no-audit \
        --tokenizer chars --lines --dropout 0.1 --lanes 4 --steps 8 \
        --warmup-steps 2 --save-every 4 --valid-share 0.2 --eval-every 4 \
        --out run "$text" >output 2>&1 </dev/null
}
i=0
while [ $i -lt 40 ]; do
    echo "line $i of a text, with the number $((i * 7919 % 1000))"
    i=$((i + 1))
done >text

train text env || fail "bauta train fails alone"
mv run one
train text "$mpiexec" -n "$count" || fail "bauta train fails under $mpiexec"
for file in model.safetensors optimizer.safetensors trainer.json; do
    cmp "one/last/$file" "run/last/$file" || fail "another $file"
done
[ "$(grep -c '^step 8/8 ' output)" = 1 ] || fail "not one rank speaks"
if train missing "$mpiexec" -n "$count"; then
    fail "a missing file is no failure"
fi
grep -q "rank [0-9]* on .*: missing: cannot open" output || fail "no reason"
