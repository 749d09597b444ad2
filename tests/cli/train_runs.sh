#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# train_runs.sh - bauta train: the life of a run. Its lock, its end by a signal,
# resuming from a damaged checkpoint and at the end of an epoch, and the files
# that a failed run leaves.
#
#   train_runs.sh BAUTA
set -eu
bauta=$1
[ -n "${TMPDIR-}" ] || [ ! -w /dev/shm ] || export TMPDIR=/dev/shm
work=$(mktemp -d)
child=
trap '[ -z "$child" ] || kill -9 "$child" 2>/dev/null || :; rm -rf "$work"' EXIT
cd "$work"

fail() {
    echo "$1"
    echo "stdout:"
    cat stdout
    echo "stderr:"
    cat stderr
    exit 1
}
runs() { # STATUS ARGUMENT...
    want=$1
    shift
    got=0
    "$bauta" "$@" >stdout 2>stderr || got=$?
    [ "$got" = "$want" ] || fail "bauta $*: status $got, not $want"
}
says() { # STREAM TEXT
    grep -qF -- "$2" "$1" || fail "'$2' is not on $1"
}
damage() { # FILE: the last but ninth byte
    size=$(wc -c <"$1")
    at=$((size - 9))
    old=$(dd if="$1" bs=1 skip=$at count=1 2>/dev/null)
    new=7
    [ "$old" != 7 ] || new=8
    printf %s $new | dd of="$1" bs=1 seek=$at conv=notrunc 2>/dev/null
}
small="--preset gpt2-tiny --set n_layer=1 --set n_embd=8 --set n_head=1
    --context 8 --batch-size 1 --threads 1 --tokenizer chars --warmup 2"
train() { # STATUS ARGUMENT...
    want=$1
    shift
    # shellcheck disable=SC2086
    runs "$want" train $small "$@"
}
long="--steps 1000000 --eval-every 0 --no-audit"

# A run can be resumed at every position of an epoch.
printf 'hello\nthere\n' >lines
train 0 --lines --steps 7 --save-every 1 --keep 9 --out e lines
for step in 1 2 3 4 5 6; do
    runs 0 train --resume e --from-step $step --threads 1
    [ "$(readlink e/last)" = step-00000007 ] || fail "not resumed at $step"
done
runs 2 train --from-step 3 --preset gpt2-tiny --out f lines
says stderr "--from-step"
runs 1 train --resume e --from-step 8
says stderr "e has no checkpoint of step 8"

# A failed run leaves the existing files, and nothing else.
echo "the mask hides the face, and the face is behind the mask" >text
train 1 --steps 2 --out new/run missing
[ ! -e new ] || fail "an empty folder was left"
mkdir there
train 1 --steps 2 --out there/run missing
[ -z "$(ls -A there)" ] || fail "an empty folder was left in one"
train 1 --steps 2 --out there missing
[ -z "$(ls -A there)" ] || fail "something was left in an empty folder"

# One training at a time. The lock ends with its process, however it ends.
starts() { # RUN: in the background, until it has taken a step
    # shellcheck disable=SC2086
    "$bauta" train $small $long --out "$1" text >stdout 2>stderr &
    child=$!
    awaits "$1"
}
awaits() {
    i=0
    until [ -s "$1/metrics.jsonl" ] || [ $i = 200 ]; do
        sleep 0.05
        i=$((i + 1))
    done
}
ends() { # SIGNAL STATUS: of the one in the background
    kill "-$1" $child
    got=0
    wait $child || got=$?
    child=
    [ $got = "$2" ] || fail "$1: status $got, not $2"
}
starts l
cp stderr of-child
train 1 --steps 2 --out l text
says stderr "l: another training runs in this folder (process $child on"
runs 1 train --resume l
says stderr "another training runs"
runs 0 train --resume e --dry-run
ends KILL 137
[ -e l/.bauta.lock ] || fail "there was no lock"
train 0 --steps 2 --out l text # the lock of a dead process is ignored
[ ! -e l/.bauta.lock ] || fail "the lock was left"

# Signals that end the program, or a closed terminal, save first.
for name in TERM HUP PIPE; do
    starts "s$name"
    ends $name 0
    [ -e "s$name/last/trainer.json" ] || fail "$name: nothing was saved"
    says stderr "stopped and saved"
done
# shellcheck disable=SC2086
"$bauta" train $small $long --out pipe text 2>&1 >/dev/null | head -n 3 >stdout
i=0
until [ -e pipe/last ] || [ $i = 200 ]; do
    sleep 0.05
    i=$((i + 1))
done
[ -e pipe/last/trainer.json ] || fail "a closed pipe: nothing was saved"
# shellcheck disable=SC2086
nohup "$bauta" train $small $long --out n text >stdout 2>stderr &
child=$!
awaits n
kill -HUP $child
sleep 0.1
kill -0 $child || fail "nohup was not heard"
ends TERM 0

# A damaged checkpoint: the previous one is used, and the damage is named.
train 0 --steps 6 --save-every 2 --keep 3 --valid-share 0.3 --out d text
for file in model.safetensors optimizer.safetensors trainer.json config.json \
    tokenizer.json; do
    rm -rf x
    cp -R d x
    damage x/step-00000006/$file
    ln -sfn step-00000006 x/best
    runs 0 train --resume x --threads 1 --no-audit
    says stderr "step-00000006/$file"
    says stderr "the checkpoint of step 6 in x is damaged"
    says stderr "resuming from x/step-00000004"
    cmp x/last/model.safetensors d/last/model.safetensors ||
        fail "$file: resumed from the one before, it is another model"
    cmp x/last/trainer.json d/last/trainer.json || fail "$file: another record"
    runs 0 generate x the --threads 1

    rm -rf x
    cp -R d x
    damage x/step-00000006/$file
    runs 1 train --resume x --from-step 6
    says stderr "step-00000006/$file"
    # Loading a model checks its digest, too; only training reads the moments.
    [ $file = optimizer.safetensors ] || {
        runs 1 generate x/step-00000006 the
        says stderr "step-00000006/$file"
    }
    [ $file = optimizer.safetensors ] || [ $file = tokenizer.json ] || {
        runs 1 inspect x/step-00000006
        says stderr "step-00000006/$file"
    }
done
for step in 2 4 6; do
    damage x/step-0000000$step/model.safetensors
done
runs 1 train --resume x
says stderr "x has no other complete checkpoint"
# A changed text is no damage, and no older checkpoint is tried.
cp text kept
echo more >>text
runs 1 train --resume d
says stderr "the corpus is not"
grep -q damaged stderr && fail "a changed text is not damage"
mv kept text

# Fewer checkpoints are kept than were damaged, but the good one is kept.
rm -rf x
cp -R d x
damage x/step-00000006/model.safetensors
runs 0 train --resume x --keep 1 --save-every 1 --steps 5 --threads 1
[ "$(readlink x/last)" = step-00000005 ] || fail "the last is not step 5"
[ -e x/step-00000005/trainer.json ] || fail "the new checkpoint was removed"

# A checkpoint with a foreign file in it is not removed.
touch d/step-00000002/mine
runs 0 train --resume d --steps 8 --keep 1 --threads 1
says stderr "bauta did not write 'mine'"
for file in mine trainer.json model.safetensors; do
    [ -e d/step-00000002/$file ] ||
        fail "a checkpoint with somebody's file was touched"
done
[ ! -e d/step-00000004 ] || fail "an old checkpoint was kept"
