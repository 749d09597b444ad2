#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# test-gpu.sh - everything that needs a GPU to run, one line for each program:
#
#   tools/test-gpu.sh FOLDER [--quick] [--watch] [NAME...]
#
# FOLDER has the programs (build/src/backend/cuda; a copy of it on another
# machine will do). --quick runs the short forms, --watch runs these under
# compute-sanitizer as well. NAMEs select programs. The output of each program
# is in FOLDER/NAME.log; the end of those that fail is shown.
set -u
folder=$1
shift
quick=
watch=0
names=
for word in "$@"; do
    case $word in
    --quick) quick=--quick ;;
    --watch) watch=1 ;;
    *) names="$names $word" ;;
    esac
done
all="check_cuda check_cuda_backward check_cuda_decode check_cuda_same
    check_cuda_f32 check_cuda_gemm check_cuda_ops check_device
    check_cuda_backend check_backend_table check_cuda_models
    check_cuda_batches check_device_faults"
failed=0
passed=0

# run NAME LABEL COMMAND...
run() {
    name=$1
    label=$2
    shift 2
    begin=$(date +%s)
    if timeout 600 "$@" >"$folder/$name.log" 2>&1; then
        passed=$((passed + 1))
        state=passed
    else
        failed=$((failed + 1))
        state="FAILED ($?)"
    fi
    printf '%-22s %-10s %-12s %4d s  %s\n' "$name" "$label" "$state" \
        $(($(date +%s) - begin)) "$(tail -n 1 "$folder/$name.log")"
    [ "$state" = passed ] || tail -n 20 "$folder/$name.log"
}

for name in ${names:-$all}; do
    if [ ! -x "$folder/$name" ]; then
        echo "test-gpu.sh: there is no $folder/$name" >&2
        failed=$((failed + 1))
        continue
    fi
    short=$quick
    case $name in
    check_backend_table | check_device_faults) short= ;;
    check_cuda_batches) short=${quick:+--batches 10} ;;
    esac
    # shellcheck disable=SC2086 # several words, or none
    run "$name" "" "$folder/$name" $short
    case $name in
    check_backend_table | check_cuda_models | check_cuda_batches | \
        check_device_faults) continue ;;
    esac
    [ $watch = 1 ] || continue
    run "$name" memcheck compute-sanitizer --error-exitcode 1 \
        "$folder/$name" --quick
done
echo "$passed passed, $failed failed"
[ $failed = 0 ]
