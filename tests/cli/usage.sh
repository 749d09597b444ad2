#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# usage.sh - the command line of a new user: help of a verb, option names of
# other programs, typos, error messages without internal names, and a manual
# page for each verb.
#
#   usage.sh BAUTA SOURCE
# shellcheck source=tests/cli/common.sh
. "$(dirname "$0")/common.sh"
source=$2
verb= # the arguments begin with it

# `runs` and the other helpers, for any verb.
runs() {
    want=$1
    shift
    got=0
    cases=$((cases + 1))
    "$bauta" "$@" <in >stdout 2>stderr || got=$?
    [ "$got" = "$want" ] || fail "bauta $*: status $got, not $want"
}
same() { # the last result is this one's, too
    mv stdout before
    runs 0 "$@"
    cmp -s before stdout || fail "bauta $* prints something else"
}

# ---- help --------------------------------------------------------------------
verbs=$("$bauta" --help |
    awk '/^$/ { on = 0 } on { print $1 } /^verbs$/ { on = 1 }')
for verb in $verbs; do
    runs 0 help "$verb"
    same "$verb" --help
    same "$verb" -h
    says stdout "usage: bauta $verb"
    says stdout "examples"
    [ -e "$source/docs/man/bauta-$verb.1" ] || fail "$verb has no manual page"
done
for page in "$source"/docs/man/bauta-*.1; do
    name=$(basename "$page" .1)
    echo "$verbs" | grep -qx "${name#bauta-}" || fail "$name has no verb"
done
refused "there is no verb 'generat'; did you mean 'generate'?" help generat
refused "there is no verb 'chat'" help chat
runs 0 help
same --help
runs 0 --version
same version

# ---- a model -----------------------------------------------------------------
yes "the mask hides the face, and the face is behind the mask" | head -n 40 >text
small="--set n_layer=1 --set n_embd=16 --set n_head=2 --context 16 --threads 1"
# shellcheck disable=SC2086
runs 0 train text --preset gpt2-tiny $small --tokenizer chars --batch-size 2 \
    --steps 2 --out run
yes "the mask" | head -n 40 >source
# shellcheck disable=SC2086
runs 0 train --preset transformer-tiny --set d_model=16 --set encoder_layers=1 \
    --set decoder_layers=1 --set max_position_embeddings=16 --context 16 \
    --tokenizer unigram:20 --source source --target source --batch-size 2 \
    --steps 2 --threads 1 --out pairs

# ---- option names of other programs ------------------------------------------
runs 0 generate run "the mask" --quiet --temp 0.7 --top-p 0.9 --seed 3 \
    --max-tokens 5
same generate -m run -p "the mask" --quiet --temperature 0.7 --top_p 0.9 \
    --seed 3 -n5
same generate --prompt="the mask" --quiet --seed=3 --temperature=.7 -n 5 run \
    --top_p=0.9
same generate -p "the mask" --model run --quiet --seed 3 --temp 0.7 \
    --top-p 0.9 --max-new-tokens 5
same generate -mrun "-pthe mask" --quiet --seed 3 --temp 0.7 --top_p 0.9 \
    --max_new_tokens=5
runs 0 generate run "the mask" --quiet --beams 2 --nbest 2 -n 3 \
    --repeat-penalty 1.5
same generate run "the mask" --quiet --num-beams 2 --num_return_sequences 2 \
    -n3 --repetition_penalty 1.5
runs 0 inspect run
same inspect -m run
for first in "--learning-rate 0.01 --steps 1 --warmup 0 --out" \
    "--lr 0.01 --max-steps 1 --warmup_steps 0 -o" \
    "--learning_rate=0.01 --max_steps=1 --warmup-steps=0 --output-dir"; do
    rm -rf again
    # shellcheck disable=SC2086
    runs 0 train text --preset gpt2-tiny $small --tokenizer chars \
        --batch-size 2 $first again
    says again/options.json '"learning-rate": 0.01,'
    says again/options.json '"warmup-steps": 0,'
done

# ---- typos -------------------------------------------------------------------
slip() { # WANT WORD...
    want=$1
    shift
    refused "did you mean '$want'?" "$@"
}
slip --temp generate run x -temp 0.5
slip --top-k generate run x --topk 5
slip --learning-rate train text --lerning-rate 1
slip --similarity embed run x --similarty
slip --beams translate pairs x --beam 3
slip --text audit run --txt text
slip --kind tokenizer train text --knd bpe
slip --stride perplexity run text --strid 4
slip --masks inspect run --mask 3
refused "there is no option '-x'" generate run -x
refused "-n is 'five', not a whole number" generate run x -nfive
refused "--model is given twice: 'a' and 'b'" generate --model a --model b x
refused "--max_new_tokens needs a value" generate run x --max_new_tokens
refused "--num-beams is '0', not a whole number from 1" generate run x \
    --num-beams 0

# ---- messages ----------------------------------------------------------------
# plain MESSAGE ARGUMENT...: it fails with this message, without internal names.
plain() {
    message=$1
    shift
    runs 1 "$@"
    says stderr "$message"
    ! sed 's/options\.json//' stderr |
        grep -qE '(request|options)\.[a-z]|_rate|hidden_|(^|: )rate is' ||
        fail "a name from inside"
}
plain "2 beams and sampling are not supported together" generate run the --beams 2 --sample
plain "the source has " translate pairs \
    "$(tr "\n" " " <source)"
# The same for settings of the folder.
cp -RL run/last settings
rm settings/trainer.json
spoiled() { # MESSAGE JSON
    printf '%s\n' "$2" >settings/generation_config.json
    plain "$1" generate settings the
}
spoiled "the repetition penalty is -1" '{"repetition_penalty": -1.0}'
spoiled "the length penalty is 1000" '{"length_penalty": 1000.0}'
spoiled "the number of beams is 0" '{"num_beams": 0}'
spoiled "4 beams and sampling" '{"num_beams": 4, "do_sample": true}'
for change in "--learning-rate 0.5" "--mlm-probability 0.5" "--weight-decay 0.5"; do
    # shellcheck disable=SC2086
    plain "${change% *} of a run cannot change: it was " train --resume run \
        --steps 3 $change
done
broken() { # MESSAGE OPTION...
    message=$1
    shift
    rm -rf new
    # shellcheck disable=SC2086
    plain "$message" train text --preset gpt2-tiny $small --tokenizer chars \
        --steps 1 --out new "$@"
}
broken "the learning rate is 1 and its minimum 2" --learning-rate 1 \
    --min-learning-rate 2
broken "label smoothing is 2" --label-smoothing 2
broken "the fraction of masked tokens is 2" --mask-rate 2
broken "weight_decay is -1" --weight-decay -1
broken "must not be 0" --accumulate 0

# ---- files of another kind ---------------------------------------------------
mkdir other
printf 'GGUF\003\000\000\000' >other/model.gguf
plain "other: is not a model folder: it has no config.json, but model.gguf; GGUF" \
    generate other x
plain "other/model.gguf: is a GGUF file, which is for llama.cpp" \
    generate other/model.gguf x
plain "is a GGUF file" inspect -m other/model.gguf
plain "is a GGUF file" train text --from other/model.gguf --out new
plain "is a GGUF file" tokenize other/model.gguf x
cp -RL run/last pointer
rm pointer/trainer.json # a model folder, and no checkpoint
printf 'version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 9\n' \
    >pointer/model.safetensors
plain "pointer/model.safetensors: is a Git LFS pointer" generate pointer x
gzip -c pointer/tokenizer.json >t.gz
mv t.gz pointer/tokenizer.json
plain "tokenizer.json: is compressed with gzip: unpack it first" \
    tokenize pointer x
plain "nowhere: there is no such folder" generate nowhere x
echo "$cases cases"
