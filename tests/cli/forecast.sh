#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# forecast.sh - bauta train --series and bauta forecast, on a small series that
# is generated here: output formats, backtests, the audit, resuming, refusals.
#
#   forecast.sh BAUTA
# shellcheck source=tests/cli/common.sh
. "$(dirname "$0")/common.sh"

# Ten years of months with a trend and a season; a second column with a gap.
awk 'BEGIN {
    print "month,sales,\"returns, all\""
    for (t = 0; t < 120; t++) {
        x = (100 + t) * (1 + 0.3 * sin(t * 0.5235988))
        printf "%d-%02d,%.3f,%s\n", 2010 + int(t / 12), t % 12 + 1, x, \
            t == 50 ? "" : 20 + x / 10
    }
}' >sales.csv
head -n 97 sales.csv >past.csv # the header and 96 rows
# The same past, and another future.
awk -F, 'NR > 97 { print $1 ",7,9999"; next } { print }' sales.csv >other.csv
small="--set n_layer=1 --set n_embd=16 --set n_head=2 --steps 30 \
    --calendar always"
# shellcheck disable=SC2086 # it is words
train run --series sales.csv --holdout 24 $small --batch-size 4
says stderr "season of 12; values are predicted as ratios from the last season"

# ---- refusals --------------------------------------------------------------
runs 0 --help
says stdout "examples"
refused "a model and a table are needed"
refused "a model and a table are needed" run
refused "there is more than one table" run sales.csv past.csv
refused "there is no option '--xyzzy'" run sales.csv --xyzzy
refused "did you mean '--horizon'?" run sales.csv --horizn 3
refused "--paths needs --json" run sales.csv --paths
refused "exclude each other" run sales.csv --backtest --rows 50
for list in 0.5,0.1 1 0 x 0.1,,0.5 0.1; do
    [ "$list" = 0.1 ] || refused "increasing" run sales.csv --quantiles "$list"
done
fails "nowhere" nowhere sales.csv
fails "missing.csv" run missing.csv
fails "\"x\" is missing" run sales.csv --column x
fails "more than the 120 rows" run sales.csv --backtest --horizon 120
fails "there are no 500 rows" run sales.csv --rows 500
printf 'a,b\n1,2\n3\n' >bad.csv
fails "bad.csv, line 3" run bad.csv
printf 'a\n1\n2\n' >plain.csv
fails "has no dates" run plain.csv
sed 's/^2012-05,[^,]*/2012-05,-1/' sales.csv >negative.csv
fails "row 29" run negative.csv

# ---- results ---------------------------------------------------------------
runs 0 run sales.csv --rows 96 --horizon 30 --samples 20
[ "$(wc -l <stdout)" = 61 ] || fail "not 60 rows and a header"
says stdout "column,date,0.1,0.5,0.9"
says stdout "sales,2018-01,"
says stdout "\"returns, all\",2020-06,"
# Later rows change nothing, nor does their absence, nor the threads.
cp stdout first
runs 0 run past.csv --horizon 30 --samples 20 --threads 1
cmp -s stdout first || fail "the rows after the past change the forecast"
runs 0 run other.csv --rows 96 --horizon 30 --samples 20 --threads 2
cmp -s stdout first || fail "other rows after the past change the forecast"
runs 0 run past.csv --horizon 30 --samples 20 --seed 2
! cmp -s stdout first || fail "another seed samples the same"
runs 0 run past.csv --json --paths --samples 3 --horizon 4 --column sales \
    --quantiles 0.25,0.5
says stdout '"dates":["2018-01","2018-02","2018-03","2018-04"]'
says stdout '"paths":[['
says stdout '"0.25":['

# ---- backtests -------------------------------------------------------------
runs 0 run sales.csv --backtest
says stdout "1 window of 24 rows, season 12, 2 columns"
for method in bauta "seasonal naive" drift Holt-Winters; do
    says stdout "$method"
done
runs 0 run sales.csv --backtest --windows 2 --horizon 12 --json
says stdout '"seasonal naive":{"mase":'
# A model is not scored on what it was trained on.
fails "train it with --holdout 36 or more" run sales.csv --backtest \
    --windows 3 --horizon 12

# ---- charts ----------------------------------------------------------------
runs 0 run sales.csv --rows 96 --show
says stdout "× truth"
says stdout "░"
runs 0 run sales.csv --show
! grep -q "truth" stdout || fail "there is no truth after the last row"
fails "ends in .png, .svg or .pdf" run sales.csv --plot chart.gif
: >stdout
for kind in svg png pdf; do
    "$bauta" forecast run sales.csv --backtest --plot chart.$kind >stdout \
        2>stderr && [ -s chart.$kind ] ||
        grep -q "without cairo" stderr || fail "chart.$kind"
done

# ---- other verbs -----------------------------------------------------------
"$bauta" audit run --tokens 40 >stdout 2>stderr || fail "audit"
says stdout "future      ok"
"$bauta" audit run --tokens 40 --series sales.csv --json >stdout 2>stderr ||
    fail "audit --json"
says stdout "no value of the future reaches a forecast"
# A stopped run continues to the same bits, and keeps series.json.
# shellcheck disable=SC2086 # it is words
train half --series sales.csv --holdout 24 $small --batch-size 4 \
    --save-every 10 --keep 9
"$bauta" train --resume half --from-step 10 --threads 1 >stdout 2>stderr ||
    fail "resume"
cmp -s half/last/model.safetensors run/last/model.safetensors ||
    fail "the resumed run differs"
cmp -s half/last/series.json run/last/series.json || fail "series.json differs"
# Damage is found.
sed 's/"season": *12/"season": 11/' run/last/series.json >changed
rm -rf damaged
cp -RL run/last damaged
cp changed damaged/series.json
fails "series.json" damaged sales.csv
rm damaged/series.json damaged/trainer.json
fails "is not a model of series" damaged sales.csv
# Training options that make no sense with series.
verb=train
refused "tokenizer of its own" --series sales.csv --tokenizer chars --out x
refused "backtest" --series sales.csv --valid-share 0.1 --out x
refused "need --series" --preset gpt2-tiny --tokenizer chars --season 3 \
    --out x sales.csv
fails "needs at least" --series sales.csv --holdout 110 --out x

echo "$cases cases"
