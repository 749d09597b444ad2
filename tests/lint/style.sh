#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# style.sh - the style rules that can be checked automatically.
#
#   style.sh SOURCE lines|format|shell
set -eu
cd "$1"
failed=0

skip() {
    echo "$1"
    exit 77
}
files() {
    git ls-files -co --exclude-standard -- "$@"
}
if ! command -v git >/dev/null || ! git rev-parse >/dev/null 2>&1; then
    skip "this is no git checkout"
fi

case $2 in
lines)
    for file in $(files '*.c' '*.h' '*.cu' '*.py' '*.sh' '*CMakeLists.txt' \
        Makefile .ci/run); do
        head -n 2 "$file" | grep -q 'SPDX-License-Identifier: Apache-2.0' || {
            echo "$file: the SPDX line is missing"
            failed=1
        }
    done
    for file in $(files '*.md'); do
        for link in $(tr ')' '\n' <"$file" |
            sed -n 's/.*](\([^:#]*\)\(#.*\)\{0,1\}$/\1/p'); do
            [ -e "$(dirname "$file")/$link" ] || {
                echo "$file: there is no $link"
                failed=1
            }
        done
    done
    if files '*.c' '*.h' '*.cu' '*.md' '*.sh' '*.txt' |
        xargs grep -nE '[[:blank:]]+$'; then
        echo "these lines end in white space"
        failed=1
    fi
    # JSON, SVG and the like are written by printf in the program, which is
    # right as long as nothing sets the locale.
    if files 'src/*.c' 'cli/*.c' 'server/*.c' 'lab/*.c' |
        xargs grep -nE '(set|use)locale'; then
        echo "a decimal comma could get into what is written"
        failed=1
    fi
    # Faults for tests are injected by the linker, see tests/fault_injection.h.
    if files 'src/*' 'include/*' 'cli/*' 'server/*' 'lab/*' |
        xargs grep -niE 'plant|fault_inject|__(wrap|real)_'; then
        echo "bugs that a test turns on belong in tests/fault_injection.c"
        failed=1
    fi
    # What a step of decoding queues must be known to its record, see
    # src/backend/cuda/launch.h. These have kernels of training.
    if files 'src/backend/cuda/*' | grep -vE \
        '/(launch\.h|attention_(bias|delta|f32)\.cu|backward_fused_launch\.h|ops_(cross_entropy|dropout|embedding|norm|optimizer|sum)\.cu)$' |
        xargs grep -nE '<<<|cudaLaunchKernelEx\('; then
        echo "kernels start by launch_kernel()"
        failed=1
    fi
    # Which layers have a window is decided in one place. Others may read the
    # config and show it, and the audit's expectations are independent.
    if files 'src/*.c' 'src/*.h' |
        grep -vE '^src/model/(layer_mask\.c|model_config\.h|describe\.c)$' |
        grep -vE '^src/(model/families/|audit/oracle\.)' |
        xargs grep -nE 'window_first_layer|config(\.|->)window'; then
        echo "these lines must call bt_layer_window() or bt_layer_mask()"
        failed=1
    fi
    if files '*.c' '*.h' '*.cu' | xargs grep -nE '^.{81}'; then
        echo "these lines are longer than 80 characters"
        failed=1
    fi
    ;;
format)
    clang-format --version 2>/dev/null | grep -q 'version 14\.' ||
        skip "there is no clang-format 14; other versions format otherwise"
    # One process for many files: it takes longer to start than to read one.
    report=$(files '*.c' '*.h' '*.cu' |
        xargs clang-format --dry-run -Werror 2>&1) || failed=1
    [ $failed = 0 ] || printf '%s\n' "$report" |
        sed -n "s/^\([^ :]*\):[0-9].* error: .*/\1: 'make format' would change it/p" |
        sort -u
    ;;
shell)
    command -v shellcheck >/dev/null || skip "there is no shellcheck"
    files '*.sh' .ci/run | xargs shellcheck || failed=1
    ;;
esac
exit $failed
