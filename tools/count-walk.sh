#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Counts the files of src/ in which code runs and the deepest stack, for a
# training step and for generated tokens: docs/architecture.md has the figures.
#
#   tools/count-walk.sh [SOURCE [BUILD]]   the counts and the deepest stacks
#   LIST=1 tools/count-walk.sh ...         every file with its functions, too
#
# SOURCE is a tree of bauta, by default this one, and BUILD a build folder of
# its own. Functions are neither inlined nor replaced by jumps, so that each
# has a frame. The model is a GPT-2 of two layers with a tokenizer of bytes, on
# one thread; valgrind 3.19 offers the program AVX2 and no AVX-512. Needs
# valgrind.
set -eu
source=${1:-$(dirname "$0")/..}
source=$(cd "$source" && pwd)
build=${2:-$source/build-walk}
JOBS=${JOBS:-$(nproc 2>/dev/null || echo 2)}

cmake -S "$source" -B "$build" -DCMAKE_BUILD_TYPE=Walk -DBAUTA_CUDA=OFF \
    -DBAUTA_TESTS=OFF \
    -DCMAKE_C_FLAGS="-g -O1 -fno-inline -fno-optimize-sibling-calls" >/dev/null
cmake --build "$build" --parallel "$JOBS" --target bauta_program >/dev/null
bauta=$(cd "$build" && pwd)/bauta

dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
cd "$dir"
head -c 4000 "$source/LICENSE" >text

train() { # RUN COMMAND...
    run=$1
    shift
    "$@" train --preset gpt2-tiny --set n_layer=2 --tokenizer bytes \
        --threads 1 --steps 2 --batch-size 4 --context 64 --no-audit \
        --out "$run" text
}

watch() { # FUNCTION: collect only inside of it
    echo valgrind --tool=callgrind --separate-callers=48 \
        --toggle-collect="$1" --callgrind-out-file="$1"
}

# Names are written once, as "(number) name", and then as "(number)".
count() { # FUNCTION
    awk -v entry="$1" -v all="${LIST:-0}" '
    function name_of(kind, text,  id) {
        id = text
        sub(/\).*/, ")", id)
        if (text != id)
            names[kind id] = substr(text, length(id) + 2)
        return names[kind id]
    }
    /^(fl|fi|fe)=/ { file = name_of("file", substr($0, 4)); next }
    /^(cfl|cfi)=/ { name_of("file", substr($0, 5)); next }
    /^fn=/ { stack = name_of("fn", substr($0, 4)); next }
    /^cfn=/ { name_of("fn", substr($0, 5)); next }
    /^calls=/ { getline; next } # the cost of a call is not of this file
    /^[0-9+*-]/ && file ~ /\/src\// {
        path = file
        sub(/.*\/src\//, "", path)
        frames = split(stack, frame, "\047")
        if (!((path, frame[1]) in seen))
            functions[path] = functions[path] " " frame[1]
        seen[path, frame[1]] = 1
        for (i = 1; i <= frames; i++)
            if (frame[i] == entry && i > deepest) {
                deepest = i
                way = ""
                for (j = i; j > 0; j--)
                    way = way " " frame[j]
            }
    }
    END {
        for (path in functions) {
            files++
            headers += path ~ /\.h$/
            if (all)
                print path ":" functions[path] | "sort"
        }
        close("sort")
        print entry ": " files - headers " sources and " headers \
            " headers, " deepest " frames:" way
    }' "$1"
}

train model "$bauta" >/dev/null 2>&1
# shellcheck disable=SC2046 # several words
train watched $(watch bauta_trainer_step) "$bauta" >/dev/null 2>&1
# shellcheck disable=SC2046
echo "You may" | $(watch bauta_generator_step) "$bauta" generate model -n 8 \
    --greedy --threads 1 >/dev/null 2>&1
count bauta_trainer_step
count bauta_generator_step
