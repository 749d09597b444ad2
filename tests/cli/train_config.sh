#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# train_config.sh - bauta train --config: repeats a run bit by bit from the
# options.json that it wrote, with or without changes; and malformed files.
#
#   train_config.sh BAUTA
# shellcheck source=tests/cli/common.sh
. "$(dirname "$0")/common.sh"
verb=train

yes "the mask hides the face, and the face is behind the mask" | head -n 60 >text
yes "a face has no mask" | head -n 60 >other
yes "a mask" | head -n 60 >source
yes "eine maske" | head -n 60 >target
has() { # RUN LINE: of its options
    says "$1/options.json" "$2"
}
lacks() { # RUN KEY: it is null
    says "$1/options.json" "\"$2\": null"
}
equal() { # RUN RUN: options and weights
    cmp -s "$1/options.json" "$2/options.json" || {
        diff "$1/options.json" "$2/options.json" || :
        fail "$1 and $2 differ in their options"
    }
    cmp -s "$1/last/model.safetensors" "$2/last/model.safetensors" ||
        fail "$1 and $2 differ in their weights"
}

# ---- repeating a run ---------------------------------------------------------
# From another folder: all paths are absolute.
train a --preset gpt2-tiny --set n_layer=1 --set n_embd=16 --set n_head=2 \
    --tokenizer chars --context 16 --batch-size 2 --steps 6 --lr 0.0123 \
    --warmup 2 --dropout 0.1 --label-smoothing 0.05 --lines --seed 7 \
    --valid-share 0.2 --eval-every 3 text other
mkdir elsewhere
(cd elsewhere && "$bauta" train --config ../a/options.json --threads 1 \
    --out ../b) >stdout 2>stderr || fail "a run is not repeated"
equal a b
# Option names of version 0.1 are still read.
sed 's/"warmup-steps"/"warmup"/; s/"max-grad-norm"/"clip"/
    s/"mlm-probability"/"mask-rate"/' a/options.json >old.json
cmp -s a/options.json old.json && fail "no option was renamed"
train old --config old.json
equal a old
train pairs --preset transformer-tiny --set d_model=16 --set encoder_layers=1 \
    --set decoder_layers=1 --tokenizer unigram:24 --source source \
    --target target --batch-tokens 60 --steps 3 --average 2 --save-every 1 \
    --schedule linear
train pairs2 --config pairs/options.json
equal pairs pairs2
# A tokenizer's path is one, unless it is a word.
cp -RL a/last tok
echo "not a tokenizer" >chars
train own --preset gpt2-tiny --set n_layer=1 --set n_embd=16 --set n_head=2 \
    --tokenizer tok --context 16 --batch-size 2 --steps 1 text
has own "\"tokenizer\": \"$(pwd -P)/tok\""
has a '"tokenizer": "chars"'

# ---- changing options --------------------------------------------------------
train c --config a/options.json --steps 4 --learning-rate 0.5 other
has c '"steps": 4,'
has c '"learning-rate": 0.5,'
has c '"dropout": 0.1,'
has c "\"files\": [\"$(pwd -P)/other\"]"
# Options excluded by a new one are dropped.
train d --config a/options.json --steps 1 --batch-tokens 50 --valid text
has d '"batch-size": 0,'
has d '"batch-tokens": 50,'
has d '"valid-share": 0,'
train e --config a/options.json --steps 1 --from a
lacks e preset
lacks e tokenizer
has e '"set": []'
train f --config pairs/options.json --steps 1 --target source
has f "\"target\": \"$(pwd -P)/source\""
has f "\"source\": \"$(pwd -P)/source\""
# A list is replaced, not added to.
train g --config a/options.json --steps 1 --set n_layer=2 --set n_embd=16 \
    --set n_head=2
has g '"set": ["n_layer=2", "n_embd=16", "n_head=2"]'
# A resumed run writes its new options.
"$bauta" train --resume a --steps 8 --keep 1 --threads 1 >stdout 2>stderr ||
    fail "a run does not go on"
has a '"steps": 8,'
has a '"keep": 1,'
# A part of the options is enough, and a flag may be false.
cat >part.json <<END
{"preset": "gpt2-tiny", "set": ["n_layer=1", "n_embd=16", "n_head=2"],
 "context": 16, "batch-size": 2, "steps": 2e0, "lines": false,
 "files": ["text"], "from": null}
END
train h --config part.json --tokenizer chars
has h '"lines": false'
has h '"steps": 2,'

# ---- refusals ----------------------------------------------------------------
config() { # MESSAGE JSON
    message=$1
    printf '%s\n' "$2" >bad.json
    fails "$message" --config bad.json --out r text
    [ ! -e r ] || fail "a bad file leaves a folder"
}
config 'bad.json: there is no option "stepz"; did you mean "steps"?' \
    '{"stepz": 3}'
config 'there is no option "xyzzyxyzzy"' '{"xyzzyxyzzy": 3}'
config 'there is no option "resume"' '{"resume": "a"}'
config '"steps" is not a number' '{"steps": "many"}'
config '"lines" is not true or false' '{"lines": 1}'
config '"set" is not a list of texts' '{"set": "n_layer=1"}'
config '"set" is not a list of texts' '{"set": [1]}'
config '"preset" is not a text' '{"preset": 3}'
config 'bad.json: is not a JSON object' '[]'
config 'bad.json: line 2: ' '{"steps": 3'
config 'bad.json: line 1: ' '{"steps": 3, "steps": 4}'
fails "nowhere: cannot open it: " --config nowhere --out r
refused "--config is given twice" --config part.json --config part.json
refused "--config needs a value" --config
printf '{"steps": 1.5}\n' >bad.json
refused "--steps is '1.5', not a whole number" --config bad.json --out r text

# ---- links in a run's folder are not followed -------------------------------
mkdir linked
echo precious >precious
ln -s ../precious linked/options.json
ln -s ../precious linked/.options.json.new
train linked --config part.json --tokenizer chars
[ "$(cat precious)" = precious ] || fail "a link was followed"
[ ! -L linked/options.json ] || fail "the link is still there"
echo "$cases cases"
