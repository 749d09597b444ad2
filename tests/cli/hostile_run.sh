#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# hostile_run.sh - malicious run folders: links, pipes and files under every
# name that bauta train writes or removes, in a resumed run and in the folder of
# a new one. Nothing outside of the folder changes, and nothing hangs.
#
#   hostile_run.sh BAUTA
set -eu
bauta=$1
[ -n "${TMPDIR-}" ] || [ ! -w /dev/shm ] || export TMPDIR=/dev/shm # for many syncs
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"

fail() {
    echo "$1"
    cat log
    exit 1
}

echo "the mask hides the face, and the face is behind the mask" >text
small="--preset gpt2-tiny --set n_layer=1 --set n_embd=8 --set n_head=1
    --context 8 --batch-size 1 --threads 1 --tokenizer chars --save-every 1
    --eval-every 1 --valid-share 0.3 --keep 1 --average 2"
# shellcheck disable=SC2086
"$bauta" train $small --steps 2 --out good text >log 2>&1 ||
    fail "the run itself"
[ -e good/average ] || fail "there is no average"

# The target of the links. It looks like a checkpoint, so that following a link
# would have an effect.
cp -R good/step-00000002 canary
printf '{"step": 1, "loss": 3}\n{"step": 9, "loss": 3}\n' >canary/file
mkdir canary/folder canary/empty
echo "kept" >canary/folder/kept
seen() {
    find canary | LC_ALL=C sort
    find canary -type f | LC_ALL=C sort | xargs cksum
}
place() { # KIND PATH
    case $1 in
    link-to-folder) ln -s "$work/canary" "$2" ;;
    link-to-empty) ln -s "$work/canary/empty" "$2" ;;
    link-to-file) ln -s "$work/canary/file" "$2" ;;
    link-to-nothing) ln -s "$work/canary/none" "$2" ;;
    hard-link) ln canary/file "$2" ;;
    pipe) mkfifo "$2" ;;
    file) cp canary/file "$2" ;;
    folder-of-links)
        mkdir "$2"
        ln -s "$work/canary" "$2/folder"
        ln -s "$work/canary/file" "$2/model.safetensors"
        ln -s "$work/canary/file" "$2/.bauta-1-1.tmp"
        ln -s "$work/canary/trainer.json" "$2/trainer.json"
        ;;
    esac
}

resume() {
    "$bauta" train --resume run --steps 4 --threads 1 --no-audit
}
begin() { # in a folder that is there already
    # shellcheck disable=SC2086
    "$bauta" train $small --steps 4 --no-audit --out run text
}
attack() { # NAME KIND resume|begin
    rm -rf run
    if [ "$3" = resume ]; then cp -R good run; else mkdir run; fi
    rm -rf "run/$1"
    place "$2" "run/$1"
    got=0
    $3 >log 2>&1 || got=$?
    seen >after
    cmp before after || fail "$1 as $2: something outside of the run changed"
    [ $got -le 1 ] || fail "$1 as $2: status $got"
    [ $got = 0 ] || [ -s log ] || fail "$1 as $2: no message"
    [ $got = 1 ] || [ "$(readlink run/last)" = step-00000004 ] ||
        fail "$1 as $2: it went well, and there is no step 4"
    cases=$((cases + 1))
}

seen >before
cases=0
for name in .bauta-4194300-0.folder .bauta-4194300-0.tmp .bauta.lock \
    step-00000001 step-00000003 step-00000004 last best average \
    .last.new .best.new metrics.jsonl metrics.jsonl.new .metrics.jsonl.new \
    options.json .options.json.new; do
    for kind in link-to-folder link-to-empty link-to-file link-to-nothing \
        hard-link pipe file folder-of-links; do
        attack $name $kind resume
    done
    for kind in link-to-folder link-to-file link-to-nothing hard-link; do
        attack $name $kind begin
    done
done
for kind in link-to-folder link-to-file hard-link pipe folder-of-links; do
    attack step-00000002/.bauta-4194300-0.tmp $kind resume
    attack step-00000002/extra $kind resume
done

# A name that bauta train does not use does not stop it.
for name in .bauta-4194300-0.folder .bauta-4194300-0.tmp step-00000001 \
    .last.new metrics.jsonl.new .metrics.jsonl.new step-00000002/extra; do
    rm -rf run
    cp -R good run
    rm -rf "run/$name"
    place link-to-folder "run/$name"
    resume >log 2>&1 || fail "$name as a link stops the run"
done
echo "$cases hostile folders"
