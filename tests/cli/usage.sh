#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# usage.sh - the command line of a new user: help of a verb, option names of
# other programs, typos, devices, error messages without internal names, and a
# manual page for each verb.
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
refused "there is no verb 'converse'" help converse
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

# ---- devices -----------------------------------------------------------------
yes "the mask hides the face" | head -n 40 >lines
runs 0 train lines --preset bert-tiny --set num_hidden_layers=1 \
    --set hidden_size=16 --set num_attention_heads=2 \
    --set intermediate_size=16 --context 16 --tokenizer wordpiece:60 --lines \
    --batch-size 2 --steps 1 --threads 1 --out bert
# with_model COMMAND WORD...: the command with each verb that runs a model; the
# words come last.
with_model() {
    command=$1
    shift
    $command generate run "the mask" --quiet --greedy -n 5 "$@"
    $command translate pairs "the mask" --quiet --json -n 5 "$@"
    $command fill bert "the [MASK] hides" "$@"
    $command embed bert "the mask" "the face" "$@"
    $command perplexity run text "$@"
    $command score --perplexity run text --json "$@"
    $command look run "the mask" --json "$@"
    # shellcheck disable=SC2086
    $command train text --preset gpt2-tiny $small --tokenizer chars \
        --batch-size 2 --steps 2 --dry-run "$@"
    $command audit run --tokens 12 "$@"
}
cpu() { # ARGUMENT...: --device cpu is the default; times differ
    runs 0 "$@"
    sed '/^  \(memory\|tokens per second\|time\) /d; s/, in .* s$//' stdout >before
    runs 0 "$@" --device cpu --dtype float32
    sed '/^  \(memory\|tokens per second\|time\) /d; s/, in .* s$//' stdout >after
    cmp -s before after || fail "bauta $* --device cpu prints something else"
}
with_model cpu
nonsense() {
    refused "--device is 'nonsense', not cpu, cuda or cuda:N" "$@" \
        --device nonsense
    refused "--device is 'cuda:', not cpu, cuda or cuda:N" "$@" --device=cuda:
    refused "--device needs a value" "$@" --device
    refused "--dtype is 'int7', not float32 or bfloat16" "$@" --dtype int7
    refused "--dtype bfloat16 needs a GPU (--device cuda)" "$@" --dtype bfloat16
}
with_model nonsense
# Without a GPU the message names the option; with one the verbs run there.
gpu() {
    for where in cuda cuda:0; do
        runs "$without_gpu" "$@" --device $where
        [ "$without_gpu" = 0 ] || says stderr "--device $where: "
    done
    runs "$without_gpu" "$@" --device cuda --dtype bfloat16
}
without_gpu=1
! "$bauta" generate run x -n 1 --device cuda >stdout 2>stderr || without_gpu=0
with_model gpu
[ "$without_gpu" = 1 ] || fails "weights are packed on the CPU only" \
    generate run x --device cuda --weights int8
refused "--compare-modes compares gradients on the CPU only" train text \
    --preset gpt2-tiny --tokenizer chars --compare-modes --device cuda

# A run stores its device and its type, and --resume uses them again.
runs 0 train --resume run --steps 4 --threads 1
for options in "" "--device cpu --dtype float32"; do
    rm -rf first
    # shellcheck disable=SC2086
    runs 0 train text --preset gpt2-tiny $small --tokenizer chars \
        --batch-size 2 --steps 2 --out first $options
    grep -q '"device": "cpu"' first/options.json ||
        fail "a run does not store its device"
    grep -q '"dtype": "float32"' first/options.json ||
        fail "a run does not store its type"
    # shellcheck disable=SC2086
    runs 0 train --resume first --steps 4 --threads 1 $options
    ! grep -q "bit-identical\|does not say" stderr || fail "a needless notice"
    cmp -s first/last/model.safetensors run/last/model.safetensors ||
        fail "train $options: other weights"
done
refused "--device is 'gpu', not" train --resume first --steps 5 --device gpu
refused "--dtype bfloat16 needs a GPU" train --resume first --steps 5 \
    --dtype bfloat16
runs "$without_gpu" train --resume first --steps 5 --device cuda
[ "$without_gpu" = 0 ] || says stderr "--device cuda: "
runs 0 train --resume first --steps 6 --threads 1
[ "$(readlink first/last)" = step-00000006 ] || fail "not resumed"
# Where the device is not there, --resume says so; the CPU must be asked for.
noted() { # EDIT: of the notes of a copy of the run, under a new seal
    rm -rf noted
    cp -R run noted
    sed -i "$1" noted/last/trainer.json
    runs 1 train --resume noted --from-step 4
    seal=$(sed -n 's/.*but its contents have \([0-9a-f]*\).*/\1/p' stderr)
    sed -i "s/\"seal\": \".*\"/\"seal\": \"$seal\"/" noted/last/trainer.json
}
noted 's/"device": "cpu"/"device": "cuda:4095"/
    s/"dtype": "float32"/"dtype": "bfloat16"/'
runs 1 train --resume noted --steps 6 --threads 1
says stderr "--device cuda:4095: "
says stderr "'--device cpu' continues"
runs 1 train --resume noted --steps 6 --threads 1 --ranks 2
[ "$(grep -c "'--device cpu' continues" stderr)" = 1 ] ||
    fail "not said by one rank"
refused "--dtype bfloat16 needs a GPU" train --resume noted --steps 6 \
    --device cpu --dtype bfloat16
runs 0 train --resume noted --steps 6 --threads 1 --device cpu
says stderr "trained on a GPU in bfloat16; on the CPU in float32"
grep -q '"device": "cpu"' noted/last/trainer.json ||
    fail "the device of the resumed run is not saved"
cp noted/last/model.safetensors moved
# A run without a device is an older one.
noted '/"device":/d
    /"dtype":/d'
runs 0 train --resume noted --steps 6 --threads 1
says stderr "does not say what it was trained on; resuming on the CPU"
cmp -s noted/last/model.safetensors moved || fail "other weights"
runs 0 train --resume noted --steps 7 --threads 1
! grep -q "does not say" stderr || fail "the device was not saved then"
# A file of options may have them; the command line has precedence.
printf '{"device": "tpu"}\n' >device.json
# shellcheck disable=SC2086
refused "--device is 'tpu', not cpu" train text --config device.json \
    --preset gpt2-tiny $small --tokenizer chars --steps 1 --out new
# shellcheck disable=SC2086
runs 0 train text --config device.json --preset gpt2-tiny $small \
    --tokenizer chars --steps 1 --out new --device cpu
rm -rf new
printf '{"device": "cuda", "dtype": "bfloat16"}\n' >device.json
# shellcheck disable=SC2086
runs 0 train text --config device.json --preset gpt2-tiny $small \
    --tokenizer chars --steps 1 --out new --device cpu
grep -q '"dtype": "float32"' new/options.json || fail "another type"
rm -rf new

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
