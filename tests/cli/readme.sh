#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# readme.sh - the commands and the C programs of the README, top to bottom.
#
#   readme.sh SOURCE BUILD CC MODELS
#   readme.sh SOURCE clone CC MODELS JOBS
#
# Commands are the lines that start with "$ ", and text in backquotes that starts
# with "bauta " or "build/bauta " and is more than a verb. They run in a temporary
# folder, one after another, with small stand-ins for the models and the texts
# that they name; training takes a few steps. A status other than 0 is a failure.
# MODELS holds a folder of each family, without tokenizers. With "clone" a clean
# clone is built first, as the README says.
set -eu
source=$1
build=$2
cc=$3
models=$4
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
if [ "$build" = clone ]; then
    # This may run inside a `make test`, whose settings must not affect the clone.
    unset CI CC BUILD SANITIZE WERROR MAKEFLAGS MFLAGS MAKELEVEL MAKEOVERRIDES
    git clone -q "$source" "$work/clone" || exit 77
    source=$work/clone
    build=$source/build
    # The kernels of GPUs take minutes, and another build has compiled them.
    cmake -S "$source" -B "$build" -DBAUTA_CUDA=OFF >/dev/null
    make -C "$source" JOBS="$5" >"$work/out" 2>&1 || {
        cat "$work/out"
        exit 1
    }
fi
bauta=$build/bauta
count=0
fail() {
    echo "$1"
    cat "$work/out"
    exit 1
}
run() { # COMMAND
    count=$((count + 1))
    (cd "$work/here" && sh -c "$1") >"$work/out" 2>&1 </dev/null ||
        fail "README: $1: status $?"
}

# ---- models and texts of the README --------------------------------------

mkdir -p "$work/bin" "$work/here/models"
cat >"$work/bin/bauta" <<WRAPPER
#!/bin/sh
case "\$1 \$*" in
"train "*--resume*) exec "$bauta" "\$@" --steps 4 ;;
"train "*) exec "$bauta" "\$@" --steps 3 ;;
*) exec "$bauta" "\$@" ;;
esac
WRAPPER
chmod +x "$work/bin/bauta"
PATH=$work/bin:$PATH
export PATH
cd "$work/here"
i=0
while [ $i -lt 400 ]; do
    echo "ROMEO: My lord, I am your servant $i, and I love you."
    i=$((i + 1))
done >input.txt
cp input.txt corpus.txt
head -n 5 input.txt >lines.txt
head -n 3 input.txt >test.en
printf 'Das ist ein Test.\nNoch ein Satz.\n' >reference.de
printf 'Das ist der Test.\nNoch ein Satz.\n' >translated.de

# build/bauta, and what `make demo` leaves, in small.
mkdir build
ln -s "$work/bin/bauta" build/bauta
"$bauta" demo --fast --out build/demo >"$work/out" 2>&1 || fail "bauta demo"

stand_in() { # NAME OPTION...: a model with a tokenizer, trained for a step
    name=$1
    shift
    "$bauta" train "$@" --steps 1 --no-audit --threads 1 --out "models/$name" \
        >"$work/out" 2>&1 || fail "a stand-in for models/$name"
}
grep -o 'models/[a-z0-9-]*' "$source/README.md" | sort -u >"$work/models"
while read -r model; do
    case ${model#models/} in
    gpt2) stand_in gpt2 --preset gpt2-tiny --tokenizer bpe:300 \
        --set n_layer=1 --set n_embd=16 --set n_head=2 --lines input.txt ;;
    bert) stand_in bert --preset bert-tiny --tokenizer wordpiece:300 \
        --set num_hidden_layers=1 --set hidden_size=16 \
        --set num_attention_heads=2 --set intermediate_size=16 \
        --lines input.txt ;;
    en-de) stand_in en-de --preset transformer-tiny --tokenizer unigram:200 \
        --set d_model=16 --set encoder_layers=1 --set decoder_layers=1 \
        --source input.txt --target input.txt ;;
    '') ;;
    *) cp -r "$models/${model#models/}" models/ ;;
    esac
done <"$work/models"

# ---- the commands --------------------------------------------------------

# A backslash continues a line; text blocks are output.
awk '/^```text$/ { text = 1 } /^```$/ { text = 0 }
     text { next }
     more { sub(/^ */, "") }
     !more && /^ *\$ / { sub(/^ *\$ /, ""); more = 1 }
     more { if (sub(/\\$/, "")) printf "%s", $0; else { print; more = 0 }
            next }
     { while (match($0, /`(build\/)?bauta [a-z]+ [^`]+`/)) {
           print substr($0, RSTART + 1, RLENGTH - 2)
           $0 = substr($0, RSTART + RLENGTH) } }' \
    "$source/README.md" >"$work/commands"
[ "$(wc -l <"$work/commands")" -ge 10 ] || fail "hardly any command was found"
while IFS= read -r command <&3; do
    case $command in
    *"bauta lab "* | *"bauta demo"*) continue ;; # minutes; tests of their own
    esac
    run "$command"
done 3<"$work/commands"

# What make is asked for.
grep -oE '(^    |`)make [a-z-]+' "$source/README.md" | sed 's/.*make //' |
    sort -u >"$work/targets"
while read -r target; do
    make -C "$source" -n "$target" >"$work/out" 2>&1 ||
        fail "README: make $target"
done <"$work/targets"

# ---- the C programs ------------------------------------------------------

awk -v to="$work/program" '/^```$/ { on = 0 } on { print >to n ".c" }
     /^```c$/ { n++; on = 1 }' "$source/README.md"
LD_LIBRARY_PATH=$build
export LD_LIBRARY_PATH
for program in "$work"/program*.c; do
    "$cc" -std=c17 -I "$source/include" "$program" -o "${program%.c}" \
        -L "$build" -lbauta -lm >"$work/out" 2>&1 || fail "README: $program"
    run "'${program%.c}' models/gpt2"
done
echo "$count commands and programs"
