#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# fuzz.sh - run fuzz targets one after another, MINUTES each.
#
#   tools/fuzz.sh BUILD MINUTES TARGET...
#
# A target starts from fuzz/corpus/TARGET and keeps new inputs in
# BUILD/corpus/TARGET. Its output goes to BUILD/log/TARGET.log, without what the
# code under test prints; an input that breaks it stays as BUILD/TARGET-crash-*.
# The targets after it run all the same. The exit status is 1 if any target
# found something.
set -eu

build=$1
minutes=$2
shift 2
failed=
mkdir -p "$build/log"
for target in "$@"; do
    log=$build/log/$target.log
    mkdir -p "$build/corpus/$target"
    found=
    "$build/fuzz/fuzz_$target" -max_total_time=$((minutes * 60)) \
        -timeout=60 -rss_limit_mb=1024 -max_len=65536 -print_final_stats=1 \
        -close_fd_mask=3 \
        -artifact_prefix="$build/$target-" "$build/corpus/$target" \
        "fuzz/corpus/$target" >"$log" 2>&1 || found=yes
    runs=$(sed -n 's/^stat::number_of_executed_units: *//p' "$log")
    peak=$(sed -n 's/^stat::peak_rss_mb: *//p' "$log")
    if [ -n "$found" ]; then
        failed="$failed $target"
        tail -n 40 "$log"
        echo "$target: found an input that breaks it, see $log"
    else
        echo "$target: ${runs:-?} inputs, no finding, peak ${peak:-?} MB"
    fi
done
[ -z "$failed" ] || {
    echo "Broken:$failed" >&2
    exit 1
}
