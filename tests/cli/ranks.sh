#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# ranks.sh - bauta train and bauta perplexity on several ranks: the files are
# those of a single rank, also of a run that moves between numbers of ranks, is
# stopped by a signal, loses a rank or fills a disk.
#
#   ranks.sh BAUTA [FAULTS]
#
# FAULTS is the library of preload_faults.c; without it no disk is full.
# BAUTA_KILLS ranks are killed, by default 3.
set -eu
bauta=$1
faults=${2-}
kills=${BAUTA_KILLS:-3}
[ -n "${TMPDIR-}" ] || [ ! -w /dev/shm ] || export TMPDIR=/dev/shm
unset RANK WORLD_SIZE MASTER_ADDR MASTER_PORT SLURM_PROCID SLURM_STEP_NUM_TASKS
unset OMPI_COMM_WORLD_SIZE PMI_SIZE MPI_LOCALNRANKS
work=$(mktemp -d)
child=
# shellcheck disable=SC2086,SC2154
trap 'for one in $child; do kill -9 $one 2>/dev/null || :; done
    rm -rf "$work"' EXIT
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
    "$bauta" "$@" >stdout 2>stderr </dev/null || got=$?
    [ "$got" = "$want" ] || fail "bauta $*: status $got, not $want"
}
says() { # STREAM TEXT
    grep -qF -- "$2" "$1" || fail "'$2' is not on $1"
}
lines() { # COUNT: of stderr
    [ "$(wc -l <stderr)" = "$1" ] || fail "stderr has not $1 lines"
}
same() { # RUN RUN STEP: to the byte, but for the time that steps took
    for file in model.safetensors optimizer.safetensors trainer.json; do
        cmp -s "$1/step-$3/$file" "$2/step-$3/$file" ||
            fail "$1 and $2 differ in step-$3/$file"
    done
    for run in "$1" "$2"; do
        sed 's/,"seconds":[^}]*//' "$run/metrics.jsonl" >"metrics-$run"
    done
    cmp -s "metrics-$1" "metrics-$2" || fail "$1 and $2 differ in metrics.jsonl"
    if [ -d "$1/average" ]; then
        cmp -s "$1/average/model.safetensors" "$2/average/model.safetensors" ||
            fail "$1 and $2 differ in average"
    fi
}

i=0
while [ $i -lt 60 ]; do
    echo "line $i of a text, with the number $((i * 7919 % 1000))"
    i=$((i + 1))
done >text
model="--preset gpt2-tiny --set n_layer=1 --set n_embd=8 --set n_head=1
    --context 8 --batch-size 8 --threads 1 --tokenizer chars --lines
    --warmup-steps 2 --dropout 0.1 --ema-decay 0.9 --max-grad-norm 0.1
    --gradient-accumulation-steps 2 --no-audit --lanes 4"
train() { # STATUS ARGUMENT...
    want=$1
    shift
    # shellcheck disable=SC2086
    runs "$want" train $model "$@"
}

# Every number of ranks.
more="--steps 12 --save-every 4 --keep 9 --eval-every 6 --valid-share 0.2"
# shellcheck disable=SC2086
for ranks in 1 2 4; do
    train 0 $more --ranks $ranks --out "r$ranks" text
    says stdout "step 12"
    same r1 "r$ranks" 00000012
done
says stderr "4 ranks of"

# What is refused, in one message for all ranks.
# shellcheck disable=SC2086
for refused in "--ranks 3" "--ranks 128" "--dry-run --ranks 2" \
    "--minutes 1 --ranks 2"; do
    train 2 $more $refused --out no text
    [ "$(grep -c 'bauta train:' stderr)" = 1 ] || fail "$refused: many messages"
done
train 1 --steps 4 --ranks 8 --out no text
says stderr "8 ranks cannot share 4 lanes"
lines 1
train 1 --steps 4 --ranks 4 --out no missing
says stderr missing
lines 1
runs 2 train --preset gpt2-tiny --tokenizer chars --ranks 2 --out no -
says stderr "standard input cannot be read by 2 ranks"

# Start on 4, go on with 1 from step 4, end on 2 from step 8.
cp -R r4 moved
rm -rf moved/step-00000012 moved/step-00000008
runs 0 train --resume moved --threads 1 --ranks 1
same r1 moved 00000012
rm -rf moved/step-00000012
runs 0 train --resume moved --threads 1 --ranks 2
same r1 moved 00000012

# A signal stops all ranks after the same step, and all is saved.
# shellcheck disable=SC2086
"$bauta" train $model --steps 1000000 --eval-every 0 --ranks 4 --out stopped \
    text >stdout 2>stderr </dev/null &
child=$!
while ! [ -s stopped/metrics.jsonl ]; do
    kill -0 $child || fail "ended by itself"
    sleep 0.1
done
kill -TERM $child
wait $child || fail "a stopped run fails"
child=
says stderr "stopped and saved"
step=$(readlink stopped/last)
[ -s "stopped/$step/trainer.json" ] || fail "nothing was saved"

long="--steps 800 --save-every 40 --eval-every 200 --valid-share 0.2"
# shellcheck disable=SC2086
train 0 $long --ranks 1 --out whole text

# A rank that is killed at any time takes the others with it, and the run goes
# on to the same end on any number of ranks.
killed=0
tried=0
if ! command -v ps >/dev/null; then
    echo "there is no ps: no rank was killed"
    kills=0
fi
while [ $killed -lt "$kills" ] && [ $tried -lt $((2 * kills)) ]; do
    tried=$((tried + 1))
    rm -rf lost
    # shellcheck disable=SC2086
    "$bauta" train $model $long --ranks 4 --out lost text >stdout 2>stderr \
        </dev/null &
    child=$!
    # The rank and the step are different in each round.
    until [ "$(wc -l 2>/dev/null <lost/metrics.jsonl || echo 0)" -ge \
        $((tried * 7919 % 700)) ] || ! kill -0 $child 2>/dev/null; do
        sleep 0.01
    done
    victim=$(ps -o pid= --ppid $child | sed -n "$((tried % 4 + 1))p")
    if [ -n "$victim" ]; then
        kill -9 "$victim" 2>/dev/null || :
        began=$(date +%s)
        code=0
        wait $child || code=$?
        [ $(($(date +%s) - began)) -le 10 ] || fail "10 seconds were not enough"
        if [ $code != 0 ]; then
            killed=$((killed + 1))
            says stderr "was ended by signal 9"
            [ "$(grep -c 'bauta train:' stderr)" = 1 ] || fail "many messages"
        fi
    else
        wait $child || fail "a run that was not killed"
    fi
    child=
    if [ -L lost/last ]; then
        runs 0 train --resume lost --threads 1 --ranks $((1 << tried % 3))
    else # killed before the first checkpoint
        rm -rf lost
        # shellcheck disable=SC2086
        train 0 $long --ranks 2 --out lost text
    fi
    same whole lost 00000800
done

# A run that starts on 4, loses a rank, goes on with 1, is stopped there and ends
# on 8 is the run of 1.
eight=$(echo "$model" | sed 's/--lanes 4/--lanes 8/')
wait_steps() { # RUN COUNT: until there are so many lines or it has ended
    until [ "$(wc -l 2>/dev/null <"$1/metrics.jsonl" || echo 0)" -ge "$2" ] ||
        ! kill -0 $child 2>/dev/null; do
        sleep 0.01
    done
}
if command -v ps >/dev/null; then
    # shellcheck disable=SC2086
    {
        runs 0 train $eight $long --ranks 1 --out eight text
        "$bauta" train $eight $long --ranks 4 --out moves text >stdout \
            2>stderr </dev/null &
        child=$!
        wait_steps moves 200
        victim=$(ps -o pid= --ppid $child | sed -n 3p)
        kill -9 $victim
        ! wait $child || fail "a run that lost a rank ends well"
        says stderr "was ended by signal 9"
        "$bauta" train --resume moves --threads 1 --ranks 1 >stdout 2>stderr \
            </dev/null &
        child=$!
        wait_steps moves 500
        kill -TERM $child
        wait $child || fail "a stopped run fails"
        child=
        says stderr "stopped and saved"
        runs 0 train --resume moves --threads 1 --ranks 8
        same eight moves 00000800
    }
fi

# Perplexity.
runs 0 perplexity r1/last text --lines --json
cp stdout one
for ranks in 2 4; do
    runs 0 perplexity r1/last text --lines --json --ranks $ranks
    cmp -s one stdout || fail "another perplexity on $ranks ranks"
done
# A disk that is full ends the run with one sentence, and the last checkpoint is
# complete: the run goes on when there is room. Only rank 0 writes.
full() { # RANKS
    says stderr "rank 0 on $(uname -n): "
    says stderr "No space left on device"
    [ "$(grep -c 'bauta train:' stderr)" = 1 ] || fail "many messages"
    [ -L full/last ] || fail "no checkpoint is complete"
    runs 0 train --resume full --threads 1 --ranks "$1"
    same whole full 00000800
}
if [ -n "$faults" ]; then
    export LD_PRELOAD="$faults" BAUTA_FAIL_AT=space:100000
    # shellcheck disable=SC2086
    train 1 $long --ranks 4 --out full text
    unset LD_PRELOAD BAUTA_FAIL_AT
    full 2
fi

# Ranks that find each other over TCP, by the variables of torchrun and srun.
# They share stdout and stderr, as a launcher has it.
fault_rank= # its disk becomes full
moved_rank= # it is in another folder
tcp_start() { # COUNT VARIABLE VARIABLE ARGUMENT...
    count=$1
    rank_is=$2
    count_is=$3
    shift 3
    : >stdout
    : >stderr
    rank=$count
    while [ "$rank" -gt 0 ]; do
        rank=$((rank - 1))
        fault=
        [ $rank != "$fault_rank" ] ||
            fault="LD_PRELOAD=$faults BAUTA_FAIL_AT=space:100000"
        folder=.
        [ $rank != "$moved_rank" ] || folder=elsewhere
        # shellcheck disable=SC2086
        (
            cd $folder
            exec env $rank_is=$rank "$count_is=$count" MASTER_ADDR=127.0.0.1 \
                MASTER_PORT=$port $fault "$bauta" train $model "$@" </dev/null
        ) >>stdout 2>>stderr &
        child="$! $child" # rank 0 first
    done
}
tcp_wait() { # COUNT: of ranks that fail; 1 if the port is not free
    failed=0
    for one in $child; do
        wait "$one" || failed=$((failed + 1))
        if grep -q "cannot listen" stderr; then
            # shellcheck disable=SC2086
            kill $child 2>/dev/null || :
            child=
            return 1
        fi
    done
    child=
    [ $failed = "$1" ] || fail "$failed ranks fail, not $1"
}
tcp() { # FAILURES COUNT VARIABLE VARIABLE ARGUMENT...
    failures=$1
    shift
    for try in 1 2 3; do
        tcp_start "$@"
        ! tcp_wait "$failures" || return 0
        port=$((port + 10007 - try))
    done
    echo "no free port: ranks over TCP were not tried"
    exit 0
}
one_reason() { # TEXT
    says stderr "$1"
    [ "$(grep -c 'bauta train:' stderr)" = 1 ] || fail "many messages"
}
host=$(uname -n)
port=$((20000 + $$ % 10000))
torchrun="RANK WORLD_SIZE"
srun="SLURM_PROCID SLURM_STEP_NUM_TASKS"
# shellcheck disable=SC2086
{
    tcp 0 2 $torchrun $more --out tcp2 text
    same r1 tcp2 00000012
    tcp 0 4 $srun $more --out tcp4 text
    same r1 tcp4 00000012
    [ "$(grep -c '^step 12/12' stderr)" = 1 ] || fail "not one rank speaks"
    tcp 4 4 $torchrun $more --out no missing
    one_reason "rank 0 on $host: missing: cannot open it"
    if [ -n "$faults" ]; then
        fault_rank=0
        rm -rf full
        tcp 2 2 $torchrun $long --out full text
        full 4
        fault_rank=1 # which writes nothing
        tcp 0 2 $torchrun $more --out tcp1 text
        same r1 tcp1 00000012
        fault_rank=
    fi
    moved_rank=1 # to where the text is another one
    mkdir elsewhere
    sed s/line/file/ text >elsewhere/text
    tcp 2 2 $torchrun $more --out no text
    one_reason "rank 1 on $host: this rank is at step 0 of another run"
    moved_rank=
}

# The neighbours of a rank that dies notice it, and one of them says so.
for victim in 1 4; do # rank 0 and rank 3
    # shellcheck disable=SC2086
    tcp_start 4 $srun --steps 1000000 --eval-every 0 --out dead$victim text
    until [ -s dead$victim/metrics.jsonl ] || grep -q "bauta train:" stderr; do
        sleep 0.05
    done
    # shellcheck disable=SC2086
    kill -9 "$(echo $child | cut -d ' ' -f $victim)" 2>/dev/null || :
    tcp_wait 4 || exit 0
    one_reason "rank $((victim - 1)) on $host ended unexpectedly"
done
echo "$killed ranks were killed in $tried runs."
