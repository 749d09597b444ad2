#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# text_input.sh - all verbs accept the same text: UTF-8 without NUL, plain or
# compressed with gzip, from a file or from standard input.
#
#   text_input.sh PROGRAM
set -eu
bauta=$1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
: >stdout
: >stderr

fail() {
    echo "$1"
    echo "stdout:"
    cat stdout
    echo "stderr:"
    cat stderr
    exit 1
}
quietly() {
    "$@" >stdout 2>stderr || fail "$*"
}

# Three small models, one of each kind.
printf 'the face\nthe mask\nthe [MASK] lady\n' >text
printf 'the face\tdas gesicht\nthe mask\tdie maske\n' >pairs
small="--set n_layer=1 --set n_embd=16 --set n_head=2 --context 64"
# shellcheck disable=SC2086
quietly "$bauta" train text --preset gpt2-tiny $small --tokenizer chars \
    --steps 1 --threads 1 --no-audit --out gpt
quietly "$bauta" train text --preset bert-tiny --set num_hidden_layers=1 \
    --set hidden_size=16 --set num_attention_heads=2 \
    --set intermediate_size=16 --context 16 --tokenizer wordpiece:60 --lines \
    --steps 1 --threads 1 --no-audit --out bert
quietly "$bauta" train --pairs pairs --preset transformer-tiny --set d_model=16 \
    --set encoder_layers=1 --set decoder_layers=1 \
    --set encoder_attention_heads=2 --set decoder_attention_heads=2 \
    --set encoder_ffn_dim=16 --set decoder_ffn_dim=16 --context 16 \
    --tokenizer unigram:60 --steps 1 --threads 1 --no-audit --out marian

# Run a verb by its name here on a file, or on standard input for "-".
run() { # VERB FILE
    # shellcheck disable=SC2086
    case $1 in
    train)
        rm -rf r
        "$bauta" train "$2" --preset gpt2-tiny $small --tokenizer bytes \
            --steps 1 --threads 1 --no-audit --out r
        ;;
    train_lines)
        rm -rf r
        "$bauta" train "$2" --lines --preset gpt2-tiny $small --tokenizer bpe:270 \
            --steps 1 --threads 1 --no-audit --out r
        ;;
    generate) "$bauta" generate gpt --file "$2" -n 1 --quiet ;;
    prompts) "$bauta" generate gpt --prompts "$2" -n 1 --quiet ;;
    translate) "$bauta" translate marian --file "$2" -n 2 --quiet ;;
    fill) "$bauta" fill bert --file "$2" --top 1 ;;
    embed) "$bauta" embed bert --file "$2" ;;
    score) "$bauta" score --ref "$2" gaps ;;
    perplexity) "$bauta" score --perplexity gpt "$2" ;;
    tokenize) "$bauta" tokenize bert --file "$2" ;;
    whole) "$bauta" tokenize bert --whole --file "$2" ;;
    tokenizer) "$bauta" tokenizer train --out tok "$2" ;;
    tokenizer_chars) "$bauta" tokenizer train --kind chars --lines --out tok "$2" ;;
    audit) "$bauta" audit gpt --text "$2" --threads 1 ;;
    look) sed "" "$2" | "$bauta" look gpt - ;; # it takes no files
    esac
}
verbs="train train_lines generate prompts translate fill embed score perplexity
    tokenize whole tokenizer tokenizer_chars audit look"

sum() { # what a verb wrote, without times
    if [ "$1" = tokenizer ] || [ "$1" = tokenizer_chars ]; then
        cat tok/tokenizer.json
    elif [ "$1" = train ] || [ "$1" = train_lines ]; then
        cat r/last/model.safetensors
    else
        sed 's/"seconds":[^,}]*//; s/ in [0-9.]* s$//' stdout
    fi | cksum
}

printf 'the [MASK]\nthe mask [MASK]\n' >gaps
cp gaps plain
printf 'the [MASK]\r\nthe mask [MASK]\r\n' >crlf
printf 'the [MASK]\nthe \377mask\n' >bad
printf 'the [MASK]\nthe m\000sk\n' >nul
printf '\377\376t\000h\000e\000' >utf16
printf '\050\265\057\375xxxx' >zstd
gzip=
if command -v gzip >/dev/null && gzip -c gaps >gz && "$bauta" tokenize bert \
    --file gz >stdout 2>stderr; then
    gzip=yes
    { printf 'the [MASK]\n' | gzip -c; printf 'the mask [MASK]\n' | gzip -c; } >two
    head -c 30 gz >short
fi

cases=0
for verb in $verbs; do
    run "$verb" plain >stdout 2>stderr </dev/null || fail "$verb"
    want=$(sum "$verb")
    # Standard input, a pipe, and gzip give the same text.
    for file in - pipe ${gzip:+gz two}; do
        cases=$((cases + 1))
        case $file in
        -) run "$verb" - <plain ;;
        pipe) sed '' plain | run "$verb" - ;;
        *) run "$verb" "$file" </dev/null ;;
        esac >stdout 2>stderr || fail "$verb $file"
        [ "$(sum "$verb")" = "$want" ] || fail "$verb $file: another result"
    done
    # Files that are no text are an error.
    for file in bad nul utf16 zstd ${gzip:+short}; do
        cases=$((cases + 1))
        case $file in
        bad) says="line 2 is not UTF-8 (byte 5 of it)" ;;
        nul) says="line 2 holds NUL (byte 6 of it)" ;;
        utf16) says="is UTF-16" ;;
        zstd) says="is compressed with zstd" ;;
        short) says="the gzip data end too early" ;;
        esac
        status=0
        run "$verb" "$file" >stdout 2>stderr </dev/null || status=$?
        [ "$status" = 1 ] || fail "$verb $file: status $status, not 1"
        grep -qF "$says" stderr || fail "$verb $file: '$says' is not said"
        if [ "$verb" != look ]; then
            grep -qF "$file: " stderr || fail "$verb $file: no name"
        fi
    done
done

# A line may end with CR LF or LF wherever lines are texts.
for verb in prompts translate fill embed score tokenize; do
    run "$verb" plain >stdout 2>stderr || fail "$verb"
    want=$(sum "$verb")
    run "$verb" crlf >stdout 2>stderr || fail "$verb crlf"
    [ "$(sum "$verb")" = "$want" ] || fail "$verb crlf: another result"
done

# The same rule applies to texts of the command line.
word=$(printf 'the \377')
for command in "embed bert" "fill bert" "translate marian" "generate gpt" \
    "look gpt" "tokenize bert"; do
    # shellcheck disable=SC2086
    ! "$bauta" $command "$word" >stdout 2>stderr || fail "$command takes bytes"
    grep -qF "is not UTF-8 (byte 5 of it)" stderr || fail "$command: $word"
    # shellcheck disable=SC2086
    "$bauta" $command - <plain >stdout 2>stderr || fail "$command -"
    [ -s stdout ] || fail "$command -: nothing"
done

# Bad lines are skipped on request, and a run from standard input resumes when
# the text is given again.
train_on() { # FILE OPTION...
    # shellcheck disable=SC2086
    "$bauta" train "$@" --preset gpt2-tiny $small --threads 1 --no-audit \
        --out r >stdout 2>stderr
}
rm -rf r
train_on bad --skip-bad --lines --tokenizer bpe:260 --steps 1 ||
    fail "--skip-bad"
grep -q "skipped 1 invalid line" stderr || fail "--skip-bad says nothing"
rm -rf r
sed '' plain | train_on - --tokenizer chars --steps 1 || fail "train -"
"$bauta" train --resume r --no-audit --steps 2 <plain >stdout 2>stderr || fail "--resume"
! "$bauta" train --resume r --no-audit --steps 3 <text >stdout 2>stderr ||
    fail "--resume takes another text"
grep -q "corpus" stderr || fail "which is not said"
rm -rf r
! train_on - - --tokenizer bytes --steps 1 <plain || fail "twice the same input"
echo "$cases cases"
