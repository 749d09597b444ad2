#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# help.sh - every example of every --help runs.
#
#   help.sh BAUTA FOLDERS
#
# The examples are taken from the help of each verb and run unchanged, in a
# folder that holds small models and texts under the names that they use. A
# `bauta` wrapper on the PATH makes the long ones short: few steps of small
# batches, --fast, two experiments instead of all. FOLDERS holds the models of
# tests/cli/write_models.c.
set -eu
BAUTA=$1
folders=$2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
FAILURES=$work/failures
export BAUTA FAILURES
mkdir "$work/bin" "$work/here"
: >"$FAILURES"

cat >"$work/bin/bauta" <<'END'
#!/bin/sh
# The program, with less to do. It notes a failure, which a pipe would hide;
# 141 is what a closed pipe leaves.
previous=
verb=${1-}
resumes= steps=" --steps 4"
for word; do
    shift
    case $previous in
    --steps) word=4 ;;
    --epochs) word=1 ;;
    --minutes) word=0.02 ;;
    --average | --keep) word=2 ;;
    esac
    previous=$word
    case $verb:$word in
    train:--resume*) resumes=yes ;;
    train:--epochs* | train:--minutes*) steps= ;;
    lab:all)
        set -- "$@" layers
        word=masks
        ;;
    esac
    set -- "$@" "$word"
done
# shellcheck disable=SC2086 # it is words
case $verb:$resumes in
train:yes) set -- "$@" --steps 6 --threads 1 ;;
train:) set -- "$@" $steps --batch-size 2 --context 24 --eval-every 2 \
    --eval-tokens 100 --threads 1 ;;
lab:* | demo:*) set -- "$@" --fast ;;
chat:*) set -- "$@" -n 2 ;;
esac
status=0
# A server that has started is told to end, and must end well. A build may have
# none.
if [ "$verb" = serve ]; then
    : >listening
    "$BAUTA" "$@" --port 0 >listening 2>said &
    until [ -s listening ] || ! kill -0 $! 2>/dev/null; do
        sleep 0.05
    done
    kill $! 2>/dev/null
    wait $! || status=$?
    cat said >&2
    ! grep -q "this build has no server" said || status=0
else
    "$BAUTA" "$@" || status=$?
fi
case $status in
0 | 141) ;;
*) echo "status $status: bauta $*" >>"$FAILURES" ;;
esac
exit $status
END
chmod +x "$work/bin/bauta"
if ! command -v jq >/dev/null; then
    printf '#!/bin/sh\ncat\n' >"$work/bin/jq"
    chmod +x "$work/bin/jq"
fi
PATH=$work/bin:$PATH
export PATH
cd "$work/here"

# ---- texts and models --------------------------------------------------------
"$BAUTA" demo --grammar | head -n 400 >pairs.tsv
cut -f 1 pairs.tsv >train.en
cut -f 2 pairs.tsv >train.de
for name in val test; do
    head -n 5 train.en >$name.en
    head -n 5 train.de >$name.de
done
for name in input.txt stories.txt notes.txt; do
    cp train.en $name
done
for name in valid.txt lines.txt wiki.test.raw a.txt b.txt prompts.txt; do
    cp val.en $name
done
for name in output.de a.de b.de; do
    cp test.de $name
done
gzip -c train.en >corpus.gz
awk 'BEGIN {
    print "month,sales"
    for (t = 0; t < 96; t++)
        printf "%d-%02d,%d\n", 2010 + int(t / 12), t % 12 + 1, 50 + t % 12 + t
}' >sales.csv
printf 'I [MASK] you.\nThe [MASK] sees a <mask>.\n' >gaps.txt

model() { # NAME OPTION...: a model folder of few numbers
    name=$1
    shift
    mkdir -p models
    "$BAUTA" train --out "made-$name" --steps 1 --batch-size 2 --threads 1 \
        --no-audit "$@" >said 2>&1 || {
        cat said
        exit 1
    }
    cp -RL "made-$name/last" "models/$name"
    rm -rf "made-$name"
}
model gpt2 --preset gpt2-tiny --set n_layer=2 --set n_embd=32 --set n_head=4 \
    --tokenizer bytes --context 64 input.txt
model bert --preset bert-tiny --set num_hidden_layers=2 \
    --set hidden_size=32 --set intermediate_size=64 \
    --set num_attention_heads=4 --tokenizer wordpiece:120 --lines \
    --context 32 input.txt
model en-de --preset transformer-tiny --set d_model=32 --set encoder_layers=6 \
    --set decoder_layers=6 --tokenizer unigram:200 --source train.en \
    --target train.de
cp -R models/en-de models/opus-mt-en-de
cp -R models/bert models/roberta
cp -R models/en-de models/marian
cp -R "$folders/mistral" models/mistral
model qwen3 --preset gpt2-tiny --set n_layer=1 --set n_embd=32 --set n_head=4 \
    --tokenizer bytes --context 1024 input.txt
printf '%s' '{% for m in messages %}{{ m.content }}{% endfor %}' \
    >models/qwen3/chat_template.jinja

# ---- the examples ------------------------------------------------------------
# An example is a line of two blanks and what goes on below it, deeper.
examples() { # VERB, or none
    "$BAUTA" ${1:+"$1"} --help |
        awk -v work="$work" '
        on && /^  [^ ]/ { count++ }
        on && /^  / { print substr($0, 3) > (work "/example-" count) }
        on && /^$/ { on = 0 }
        /^examples$/ { on = 1 }
        END { print count + 0 }'
}
total=0
# The examples of train first: others use its runs.
verbs=$("$BAUTA" --help |
    awk '/^$/ { on = 0 } on { print $1 } /^verbs$/ { on = 1 }')
for verb in train $(echo "$verbs" | grep -vx train) ""; do
    count=$(examples "$verb")
    [ "$count" -gt 0 ] || {
        echo "bauta $verb --help has no examples"
        exit 1
    }
    i=0
    while [ $i -lt "$count" ]; do
        i=$((i + 1))
        status=0
        printf 'The king sees' |
            sh -eu "$work/example-$i" >"$work/stdout" 2>"$work/stderr" ||
            status=$?
        if [ "$status" != 0 ] || [ -s "$FAILURES" ]; then
            echo "an example of 'bauta $verb --help' fails, status $status:"
            cat "$work/example-$i" "$FAILURES" "$work/stderr"
            exit 1
        fi
    done
    total=$((total + count))
done
echo "$total examples"
[ "$total" -gt 40 ]
