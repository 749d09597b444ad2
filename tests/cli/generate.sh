#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# generate.sh - bauta generate: prompts from every source, settings, refusals,
# interrupts; on a small model that is trained here.
#
#   generate.sh BAUTA
# shellcheck source=tests/cli/common.sh
. "$(dirname "$0")/common.sh"

# Models: one that has memorized a text, and one of each other kind.
i=0
while [ $i -lt 30 ]; do
    echo "the mask hides the face, and the face is behind the mask"
    i=$((i + 1))
done >text
train run --preset gpt2-tiny --set n_layer=1 --set n_embd=32 --set n_head=2 \
    --context 48 --batch-size 4 --tokenizer chars --steps 200 \
    --learning-rate 1e-2 --warmup 5 --valid-share 0.1 text
train bpe --preset gpt2-tiny --set n_layer=1 --set n_embd=16 --set n_head=2 \
    --context 16 --batch-size 4 --tokenizer bpe:300 --steps 2 text
train seq --preset transformer-tiny --set d_model=16 --set encoder_layers=1 \
    --set decoder_layers=1 --tokenizer unigram:40 --source text --target text \
    --steps 1 --batch-tokens 200
train bert --preset bert-tiny --set hidden_size=16 --set num_hidden_layers=1 \
    --set num_attention_heads=2 --tokenizer wordpiece:60 --steps 1 --lines \
    --batch-size 2 text

# ---- the command line ------------------------------------------------------
runs 0 --help
says stdout "examples"
runs 0 -h
refused "the model's folder is missing"
refused "more than one prompt: 'a' and 'b'" run a b
refused "more than one of PROMPT, --file and --prompts" run a --file text
refused "more than one of PROMPT, --file and --prompts" run --file text \
    --prompts text
refused "there is no option '--xyzzy'" run --xyzzy
refused "did you mean '--temp'?" run --tmep 1
refused "did you mean '--top-k'?" run --topk 4
refused "did you mean '--max-tokens'?" run --max-token 4
refused "did you mean '--stop'?" run --stpo x
refused "did you mean '--json'?" run --jsno
refused "there is no option '-x'" run -x
refused "--json takes no value" run --json=yes
for option in --file --prompts -n --max-tokens --min-tokens --stop --temp \
    --top-k --top-p --min-p --seed --repeat-penalty --presence-penalty \
    --frequency-penalty --logit-bias --no-repeat-ngram --beams \
    --nbest --length-penalty --early-stopping --weights --sequences --cache-mb \
    --threads; do
    refused "$option needs a value" run x "$option"
done
for option in -n --min-tokens --top-k --seed --beams --threads --cache-mb; do
    refused "$option is 'many', not a whole number" run x "$option" many
    refused "$option is '-1', not a whole number" run x "$option" -1
    refused "$option is '1x', not a whole number" run x "$option=1x"
done
for option in --temp --top-p --min-p --repeat-penalty --presence-penalty \
    --frequency-penalty --length-penalty; do
    refused "$option is 'x', not a number" run x "$option" x
    refused "$option is 'nan', not a number" run x "$option" nan
    refused "$option is '', not a number" run x "$option" ""
done
refused "--temp is -1, not from 0 to" run x --temp -1
refused "--top-p is 1.5, not from 0 to 1" run x --top-p 1.5
refused "--min-p is -0.5, not from 0 to 1" run x --min-p -0.5
refused "--beams is '0', not a whole number from 1 to" run x --beams 0
refused "--beams is '1000000000', not a whole number from 1 to" run x --beams 1000000000
refused "--seed is '99999999999999999999', not" run x \
    --seed 99999999999999999999
refused "did you mean 'int8'?" run x --weights int
refused "not no, yes or never" run x --early-stopping maybe
refused "exclude each other" run x --greedy --temp 0.5
refused "exclude each other" run x --greedy --seed 1
refused "there are only 2 beams" run x --beams 2 --nbest 3
refused "ask for --json" run x --beams 2 --logprobs

# ---- folders and prompts ---------------------------------------------------
fails "nowhere" nowhere x
fails "text" text x
fails "the verb for it is 'bauta translate'" seq x
fails "the verb for it is 'bauta fill'" bert x
mkdir empty broken half
fails "empty" empty x
cp -r run/best/. broken
echo '{' >broken/config.json
fails "config.json" broken x
cp -r run/best/. half
rm half/model.safetensors
fails "model.safetensors" half x
cp run/best/model.safetensors half
rm half/tokenizer.json
fails "half" half x
cp run/best/tokenizer.json half
echo '{"temperature": "warm"}' >half/generation_config.json
fails "temperature" half x
echo 'x' >half/generation_config.json
fails "generation_config.json" half x
fails "nowhere: cannot open it: " run --file nowhere
fails "nowhere: cannot open it: " run --prompts nowhere
fails "cannot read it: " run --file .
mkdir old # a character vocabulary without end and unknown tokens
cat >old/tokenizer.json <<'END'
{"decoder": {"type": "Fuse"}, "model": {"type": "BPE", "merges": [],
 "vocab": {"a": 0, "b": 1}}}
END
fails "no tokens, and the tokenizer has none" run "" --tokenizer old
fails "no tokens" run "ÄÖÜ" --tokenizer old
says stderr 'the prompt: 3 characters are not in the vocabulary'
# A prompt that fills the context leaves no room.
long=$(head -c 600 text | tr '\n' ' ')
fails "the" run "$long"

# ---- output ----------------------------------------------------------------
runs 0 run "the mask hides" -n 10
says stdout " the face"
says stderr "settings: greedy, max-tokens 10"
says stderr "14 prompt tokens, 10 new tokens"
runs 0 run "the mask hides" -n 10 --quiet
[ ! -s stderr ] || fail "--quiet says something"
cp stdout alone
runs 0 run/best "the mask hides" -n 10 --quiet
cmp -s stdout alone || fail "a run is not its best model"
printf 'the mask hides\n' >in
for way in "run" "run --file -" "run --file in"; do
    # shellcheck disable=SC2086
    runs 0 $way -n 10 --quiet
    cmp -s stdout alone || fail "another prompt, another text: $way"
done
: >in
runs 0 run "the mask hides" -n 10 --quiet --echo
[ "$(cat stdout)" = "the mask hides$(cat alone)" ] || fail "--echo"
runs 0 run "the mask hides" --stop "face" --quiet
[ "$(cat stdout)" = " the " ] || fail "--stop is not where it ends"
runs 0 run "the mask hides" --stop "zzz" --stop "fa" --json
says stdout '"finish":"stop"'
# Bad words, from the command line and from the folder.
runs 0 run "the mask hides" -n 10 --bad-words face --quiet
grep -q face stdout && fail "a bad word comes"
says stdout " the fac"
runs 0 run "the mask hides" -n 10 --bad-words face --bad-words mask --beams 3 \
    --quiet
grep -q 'face\|mask' stdout && fail "a bad word comes with beams"
refused "--bad-words needs a value" run x --bad-words
fails "--bad-words: '' has no tokens" run x --bad-words ""
mkdir folder
cp -r run/best/. folder
echo '{"stop_strings": ["fac"]}' >folder/generation_config.json
runs 0 folder "the mask hides" --quiet
[ "$(cat stdout)" = " the " ] || fail "stop_strings do not end a text"
runs 0 folder "the mask hides" --stop "e" --quiet
[ "$(cat stdout)" = " th" ] || fail "--stop beside stop_strings"
runs 0 folder "the mask hides" --stop "zzz" --quiet
[ "$(cat stdout)" = " the " ] || fail "--stop in the place of stop_strings"
echo '{"stop_strings": []}' >folder/generation_config.json
runs 0 folder "the mask hides" -n 3 --quiet
echo '{"bad_words_ids": [[]]}' >folder/generation_config.json
fails "bad_words_ids is " folder x
runs 0 run "the mask hides" -n 4 --logprobs --quiet
[ "$(wc -l <stdout)" -eq 4 ] || fail "--logprobs are not a line a token"
runs 0 run "the mask hides" -n 0 --quiet # as many as fit into 256 positions
runs 0 run -n 3 --quiet -- "-- the"
runs 0 bpe "" -n 3 # begins with the token that begins texts
runs 0 bpe "the" -n 3 --ignore-eos --min-tokens 3 --json
says stdout '"new_tokens":3'

# Sampling: a seed is chosen and printed, and gives the same text again.
runs 0 run "the" -n 20 --temp 1.5
seed=$(sed -n 's/.*seed \([0-9]*\),.*/\1/p' stderr)
[ -n "$seed" ] || fail "no seed is printed"
cp stdout drawn
runs 0 run "the" -n 20 --temp 1.5 --seed "$seed" --quiet
cmp -s stdout drawn || fail "the same seed draws another text"
runs 0 run "the" -n 20 --temp 1.5 --seed "$seed" --quiet --threads 2
cmp -s stdout drawn || fail "two threads draw another text"
for how in "--top-k 5" "--top-p 0.9" "--min-p 0.1" "--sample" \
    "--repeat-penalty 1.2" "--presence-penalty 0.5 --beams 2" \
    "--frequency-penalty -0.5" "--logit-bias 5+1" "--no-repeat-ngram 3" "--cache-mb 64" \
    "--weights bfloat16" "--weights int8" "--temp 0"; do
    # shellcheck disable=SC2086
    runs 0 run "the" -n 5 $how
done
says stderr "greedy"
for bias in x 5 +5 5+ 5+x 5+1x 5+inf -5+1 " 5+1" 5+nan; do
    fails "--logit-bias is '$bias', not a token id" run the --logit-bias "$bias"
done
fails "--logit-bias 100000+1: there are" run the --logit-bias 100000+1
fails "there are" run the --logit-bias 99999999999999999999+1
# The later of two counts; a large one decides, whatever is penalized less.
runs 0 run "the" -n 4 --greedy --json --quiet --logit-bias 5-1 \
    --logit-bias 7+500 --logit-bias 5+600
says stdout '"tokens":[5,5,5,5]'
runs 0 run "the" -n 4 --greedy --json --quiet --logit-bias 7+500 \
    --logit-bias 5+600 --frequency-penalty 80
says stdout '"tokens":[5,5,7,5]'
runs 0 run "the" -n 4 --greedy --json --quiet --logit-bias 7+900 \
    --logit-bias 5+950 --presence-penalty 100
says stdout '"tokens":[5,7,5,5]'
runs 0 run "the mask" -n 8 --beams 3 --nbest 2 --quiet
says stdout "--- 1 of 2, score -"
runs 0 run "the mask" -n 8 --beams 3 --length-penalty 0.5 --early-stopping \
    never --quiet

# Many prompts: in order, and batch-invariant.
printf 'the mask hides\nthe face\n\\nthe\n' >prompts
runs 0 run --prompts prompts -n 10 --quiet
[ "$(wc -l <stdout)" -eq 3 ] || fail "not a line a prompt"
[ "$(head -n 1 stdout)" = "$(cat alone)" ] || fail "a prompt is not alone"
runs 0 run --prompts prompts -n 10 --json --sequences 1
[ "$(wc -l <stdout)" -eq 3 ] || fail "not an object a prompt"
says stderr "3 prompts"
cp prompts in
runs 0 run --prompts - -n 10 --quiet
[ "$(head -n 1 stdout)" = "$(cat alone)" ] || fail "--prompts -"
: >in
# A bad prompt is reported, and the others are generated.
{ echo "the mask hides" && echo "$long" && echo "the"; } >prompts
runs 1 run --prompts prompts -n 10
says stderr "prompts: line 2: "
[ "$(wc -l <stdout)" -eq 3 ] || fail "a bad prompt takes others along"
runs 1 run --prompts prompts -n 10 --json
says stdout '"error":"'

# A model vocabulary that is larger than the tokenizer's is no problem.
train padded --preset gpt2-tiny --set n_layer=1 --set n_embd=16 \
    --set n_head=2 --set vocab_size=300 --context 32 --batch-size 2 \
    --tokenizer chars --steps 1 text
runs 0 padded "the mask" -n 20 --temp 2 --seed 1 --ignore-eos
runs 0 padded "the mask" -n 20 --beams 3 --json
runs 0 padded "the mask" -n 5 --temp 2 --seed 1 --logprobs

# ---- the context -----------------------------------------------------------
train llama --preset llama-tiny --set num_hidden_layers=1 --set hidden_size=16 \
    --set num_attention_heads=2 --set num_key_value_heads=2 \
    --set intermediate_size=16 --set max_position_embeddings=32 --context 32 \
    --batch-size 4 --tokenizer chars --steps 2 text
runs 0 run "the mask" -n 1000
says stderr "(context)"
says stderr "the model's context of 48 tokens is full"
[ "$(wc -c <stdout)" -eq 42 ] || fail "not as much as fits" # and a newline
runs 0 run "the mask" -n 1000 --json
says stdout '"finish":"context"'
says stderr "the model's context of 48 tokens is full"
printf 'the mask\nthe\n' >prompts
runs 0 run --prompts prompts -n 1000
says stderr "context of 48 tokens is full"
runs 0 run --prompts prompts -n 1000 --quiet
[ ! -s stderr ] || fail "--quiet and a note"
runs 0 run "the mask" -n 10
says stderr "(length)"
! grep -q note: stderr || fail "a note without need"
fails "--sliding-window needs a model with rotary positions; run has a table \
of 48 positions" run "the mask" --sliding-window 16 --quiet
refused "--sliding-window" run --sliding-window 0
runs 0 llama "the mask" -n 100 --ignore-eos
says stderr "note: the text is longer than the model's context of 32"
runs 0 llama "the mask" -n 100 --ignore-eos --sliding-window 32
says stderr "sliding-window 32"
says stderr "(length)"
! grep -q note: stderr || fail "a note without need"
runs 0 llama "the mask" -n 0 --ignore-eos
says stderr "use -n N for more, best with --sliding-window"

if command -v python3 >/dev/null; then
    runs 0 run "the mask hides" -n 6 --json --temp 0.7 --seed 3
    python3 - stdout <<'END' || fail "bauta generate --json"
import json, sys
got = json.load(open(sys.argv[1]))
assert got["prompt"] == "the mask hides" and got["seed"] == 3
assert len(got["tokens"]) == len(got["logprobs"]) == got["new_tokens"] == 6
assert got["finish"] == "length" and got["prompt_tokens"] == 14
assert len(got["text"]) == 6 and got["seconds"] > 0
END
    # Position 30 is NaN: prompts that reach it fail, and no others.
    mkdir nan
    cp -r run/best/. nan
    rm nan/trainer.json # which has digests
    python3 - nan/model.safetensors <<'END' || fail "no model with NaN"
import json, struct, sys
data = bytearray(open(sys.argv[1], "rb").read())
size = struct.unpack_from("<Q", data)[0]
wpe = next(value for key, value in json.loads(data[8:8 + size]).items()
           if key.endswith("wpe.weight"))
width = 4 * wpe["shape"][1]
at = 8 + size + wpe["data_offsets"][0] + 30 * width
data[at:at + width] = struct.pack("<f", float("nan")) * (width // 4)
open(sys.argv[1], "wb").write(data)
END
    printf 'the mask hides\nthe face is behind the mask\nthe\n' >prompts
    for how in "" "--temp 0.8 --seed 5" "--beams 3"; do
        # shellcheck disable=SC2086
        runs 0 run --prompts prompts -n 10 --quiet $how
        sed 2s/.*// stdout >want
        # shellcheck disable=SC2086
        runs 1 nan --prompts prompts -n 10 --quiet $how
        says stderr "prompts: line 2: the logits after token 31 are not finite"
        cmp -s stdout want || fail "a prompt with NaN changes others"
    done
    runs 1 nan --prompts prompts -n 10 --json
    says stdout '"error":"the logits after token 31 are not finite: '
    runs 1 nan "the face is behind the mask" -n 10
    says stderr "the logits after token 31 are not finite"
    says stdout "the" # the text before the error
    printf 'the \377mask' >in
    fails "standard input: line 1 is not UTF-8 (byte 5 of it)" run -n 2 --json
    : >in
fi

# ---- closed pipes and interrupts -------------------------------------------
if [ -c /dev/full ]; then
    for how in the "the --json" "--prompts prompts"; do
        status=0
        # shellcheck disable=SC2086
        "$bauta" generate run $how -n 5 </dev/null >/dev/full 2>stderr || status=$?
        [ "$status" = 1 ] || fail "a full disk: status $status"
        says stderr "cannot write the result"
        cases=$((cases + 1))
    done
fi
# A closed pipe: the program ends by SIGPIPE without a message, even if the
# signal was ignored by the parent process.
for ignored in "" "trap '' PIPE"; do
    rm -f closed
    {
        until [ -e closed ]; do :; done
        status=0
        (
            eval "$ignored"
            exec "$bauta" generate run "the" -n 20 --quiet 2>stderr
        ) || status=$?
        echo "$status" >status
    } | {
        exec <&-
        : >closed
    }
    grep -qx 141 status || fail "a closed pipe: status $(cat status)"
    [ ! -s stderr ] || fail "a closed pipe is no reason to speak"
    cases=$((cases + 1))
done

# An interrupt ends the text, and then the program; the text so far and the
# statistics are printed.
train endless --preset llama-tiny --set num_hidden_layers=1 \
    --set hidden_size=32 --tokenizer bytes \
    --context 16 --batch-size 2 --steps 1 text
for how in "" "--beams 2"; do
    rm -f stdout stderr
    # shellcheck disable=SC2086
    "$bauta" generate endless "the" -n 10000000 $how >stdout 2>stderr &
    child=$!
    i=0
    while [ ! -s stderr ] || { [ -z "$how" ] && [ ! -s stdout ]; }; do
        i=$((i + 1))
        [ $i -lt 600 ] || fail "nothing is said"
        sleep 0.1
    done
    kill -INT "$child"
    status=0
    wait "$child" || status=$?
    child=
    [ "$status" = 130 ] || fail "an interrupt: status $status"
    [ -n "$how" ] || says stderr "(interrupted)"
    cases=$((cases + 1))
done

# Interactive use at a terminal.
if command -v script >/dev/null && script --version 2>/dev/null |
    grep -q util-linux; then
    printf '/help\nthe mask hides\nthe face\n/quit\n' |
        script -qec "'$bauta' generate run -n 10" /dev/null >stdout 2>stderr ||
        fail "a conversation"
    says stdout "Ctrl-D"
    says stdout " the face"
    cases=$((cases + 1))
fi
echo "$cases cases"
