#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# soak.sh - run the random tests with one seed after another; then long runs on
# many ranks, of which 200 lose one; the server with 200 recorded requests under
# 256 other streams; and the program with every allocation and every file call
# failing once, and with a kill before every file call.
#
#   tools/soak.sh BUILD MINUTES [JOBS]
#
# The first seed is BAUTA_SEED, or the time. Stops at the first failure and
# says which seed repeats it. Before the first, hostile files are read at the
# size that SECURITY.md allows, and recorded digests are compared with all
# numbers of threads on every instruction set. MINUTES are for the seeds; the
# faults take as long as they take, about half an hour on two cores.
set -eu

build=$1
end=$(($(date +%s) + $2 * 60))
jobs=${3:-1}
seed=${BAUTA_SEED:-$(date +%s)}
first=$seed
log=$build/soak.log
export BAUTA_CASES="${BAUTA_CASES:-1000000}" # of the sampler, in each round

if ! BAUTA_LIMITS=whole BAUTA_DIGESTS=whole ctest --test-dir "$build" \
    --tests-regex '^test_(limits|bit_digests)$' --parallel "$jobs" \
    --output-on-failure --no-tests=error >"$log" 2>&1; then
    cat "$log"
    echo "Failed; BAUTA_LIMITS=whole BAUTA_DIGESTS=whole repeats it." >&2
    exit 1
fi
while :; do
    if ! BAUTA_SEED=$seed ctest --test-dir "$build" --label-regex random \
        --parallel "$jobs" --output-on-failure --no-tests=error \
        >"$log" 2>&1; then
        cat "$log"
        echo "Failed; BAUTA_SEED=$seed make test repeats it." >&2
        exit 1
    fi
    seed=$((seed + 1))
    [ "$(date +%s)" -lt "$end" ] || break
done
echo "$((seed - first)) seeds from $first passed."

if ! { BAUTA_RANKS=whole "$build/tests/test_ranks" &&
    BAUTA_KILLS=200 "$(dirname "$0")/../tests/cli/ranks.sh" "$build/bauta"; } \
    >"$log" 2>&1; then
    cat "$log"
    echo "Failed: ranks." >&2
    exit 1
fi
echo "Ranks passed: 200 steps, 200 kills."

sh "$(dirname "$0")/../tests/cli/serve_clients.sh" "$(cd "$build" && pwd)/bauta" whole

faults=$build/tests/cli/program_faults
if [ -x "$faults" ]; then
    "$faults" --list | BAUTA_FAULTS=all xargs -n 1 -P "$jobs" "$faults"
    echo "All faults passed."
fi
