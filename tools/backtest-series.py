#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Backtests of `bauta train --series` and `bauta forecast` by seed and origin.

    tools/backtest-series.py [--bauta build/bauta] [--seeds 1,2,3]
                             [--origins 0,1,2] [--only NAME,...]
                             [--data ../shared/data/series] [--threads 0]
                             [-- OPTIONS OF TRAIN]

Origin k forecasts two seasons that end k times two seasons before the end of a
table: 0 is the last two seasons. For each seed and origin a model is trained on
the rows before the origin alone: later rows are not in the file that it gets.
Prints MASE by seed and origin, the median over seeds, the classical methods,
and the longest training. Needs nothing but Python.
"""
import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile

# Season, and options of train where a table has no dates.
TABLES = {
    "AirPassengers": (12, []),
    "ausbeer": (4, []),
    "monthly-milk": (12, []),
    "taylor": (48, ["--season", "48"]),
    "exchange_rate": (5, ["--season", "5"]),
    "ETTh1": (24, []),
}
METHODS = ["seasonal naive", "drift", "Holt-Winters"]


def cpu_seconds():
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def backtest(args, name, origin, seed):
    """The methods' scores, and the CPU seconds of training."""
    season, options = TABLES[name]
    with open(os.path.join(args.data, name + ".csv"), encoding="utf-8") as f:
        lines = [line for line in f if line.strip()]
    with tempfile.TemporaryDirectory() as folder:
        table, run = os.path.join(folder, "t.csv"), os.path.join(folder, "run")
        with open(table, "w", encoding="utf-8") as f:
            f.writelines(lines[:len(lines) - origin * 2 * season])
        before = cpu_seconds()
        subprocess.run(
            [args.bauta, "train", "--series", table, "--holdout",
             str(2 * season), "--seed", str(seed), "--no-audit", "--out", run,
             "--threads", args.threads, *options, *args.train],
            check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        seconds = cpu_seconds() - before
        text = subprocess.run(
            [args.bauta, "forecast", run, table, "--backtest", "--json",
             "--seed", str(seed), "--threads", args.threads],
            check=True, capture_output=True, text=True).stdout
    return json.loads(text)["methods"], seconds


def table_run(args, name):
    longest = 0.0
    for origin in args.origins:
        own, loss = [], []
        for seed in args.seeds:
            scores, seconds = backtest(args, name, origin, seed)
            own.append(scores["bauta"]["mase"])
            loss.append(scores["bauta"]["weighted_quantile_loss"])
            longest = max(longest, seconds)
        others = [scores[m]["mase"] for m in METHODS]
        print(f"{name:14} {origin:6}",
              f"{statistics.median(own):7.3f}",
              " ".join(f"{x:9.3f}" for x in others),
              f"{statistics.median(loss):8.4f}",
              f"{scores[METHODS[0]]['weighted_quantile_loss']:8.4f}",
              f"{scores[METHODS[2]]['weighted_quantile_loss']:8.4f}",
              "  by seed:", " ".join(f"{x:.3f}" for x in own),
              f"  {longest:.1f} s", flush=True)


def numbers(text):
    return [int(x) for x in text.split(",")]


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--bauta", default="build/bauta")
    parser.add_argument("--data", default="../shared/data/series")
    parser.add_argument("--seeds", type=numbers, default=[1, 2, 3])
    parser.add_argument("--origins", type=numbers, default=[0, 1, 2])
    parser.add_argument("--only", default=",".join(TABLES))
    parser.add_argument("--threads", default="0")
    parser.add_argument("train", nargs="*", help="options of bauta train")
    args = parser.parse_args()
    print(f"{'table':14} origin   bauta     naive     drift  Holt-W. "
          "     WQL    naive  Holt-W.")
    for name in args.only.split(","):
        if name not in TABLES:
            sys.exit(f"there is no table {name}")
        table_run(args, name)


if __name__ == "__main__":
    main()
