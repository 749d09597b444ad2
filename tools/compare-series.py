#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compare two ways to read and predict numbers with a causal Transformer.

    tools/compare-series.py [--data ../shared/data/series] [--seeds 1,2,3]
                            [--origins 0,1,2] [--steps 400] [--only NAME,...]

Needs torch from PyPI. Both ways train the same decoder (that of the preset
series-tiny: 2 layers, 64 wide, context 128) with the same steps and batches on
the same numbers, those of src/series/codec.h before they are quantised:
differences to the value one lag earlier, divided by the mean absolute
difference of the past, in asinh. They differ in both ends:

    tokens      100 bins, an embedding for each, and cross-entropy
    projection  a linear layer from the number, and one to the location, scale
                and degrees of freedom of Student's t; the negative
                log-likelihood is the loss

Origin k forecasts two seasons that end k times two seasons before the end of a
table. Models are trained on the rows before the first of the origins. Forecasts
are quantiles of 100 sampled paths. Prints MASE and weighted quantile loss, means
over columns and origins for each seed. There is no calendar.
"""
import argparse
import csv
import math
import os
import time

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

SEASONS = {"AirPassengers": 12, "ausbeer": 4, "monthly-milk": 12, "taylor": 48,
           "exchange_rate": 5, "ETTh1": 24}
BINS, WIDTH, HEADS, LAYERS, CONTEXT, BATCH = 100, 64, 4, 2, 128, 16
MOST = math.asinh(6.0)
LEVELS = np.arange(1, 10) / 10.0


# ---- numbers ---------------------------------------------------------------

def columns_read(path):
    """Every column of numbers; dates are left out."""
    with open(path, encoding="utf-8") as f:
        rows = [row for row in csv.reader(f) if row][1:]
    found = []
    for cells in zip(*rows):
        try:
            found.append(np.array([float(x) for x in cells]))
        except ValueError:
            pass
    return found


def lag_choose(columns, season):
    """The rule of src/series/codec_create.c."""
    votes = 0.0
    for z in columns:
        slope = (z[-1] - z[0]) / (len(z) - 1)

        def error(distance):
            d = z[2 * season:] - z[2 * season - distance:len(z) - distance]
            return np.abs(d - slope * distance).mean()

        last = np.mean([error(h) for h in range(1, 2 * season + 1)])
        votes += math.log(last / (0.5 * error(season) + 0.5 * error(2 * season)))
    return 1 if votes < 0.0 else season


class Codec:
    def __init__(self, columns, season):
        self.log = all((c > 0).all() for c in columns)
        self.lag = lag_choose([self.z(c) for c in columns], season)
        self.window = max(4 * season, 64)
        self.start = self.lag + max(4, self.lag // 2)

    def z(self, values):
        return np.log(values) if self.log else values

    def scale(self, z, t):
        """Over the window before t; z may be (paths, rows)."""
        count = min(self.window, t - self.lag)
        d = z[..., t - count:t] - z[..., t - count - self.lag:t - self.lag]
        return (np.abs(d).mean(-1) + 1e-9 * np.abs(z[..., t - 1]) + 1e-12)

    def numbers(self, z):
        """From z[start] on; scale() for all t at once."""
        d = z[self.lag:] - z[:-self.lag]
        sums = np.concatenate([[0.0], np.cumsum(np.abs(d))])
        last = np.arange(self.start - self.lag, len(d))
        first = np.maximum(last - self.window, 0)
        scale = ((sums[last] - sums[first]) / (last - first) +
                 1e-9 * np.abs(z[self.start - 1:-1]) + 1e-12)
        return d[last] / scale


# ---- the model -------------------------------------------------------------

class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norms = nn.ModuleList(nn.LayerNorm(WIDTH) for _ in range(2))
        self.qkv = nn.Linear(WIDTH, 3 * WIDTH)
        self.out = nn.Linear(WIDTH, WIDTH)
        self.mlp = nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH),
                                 nn.GELU(approximate="tanh"),
                                 nn.Linear(4 * WIDTH, WIDTH))
        self.drop = nn.Dropout(0.1)

    def forward(self, x, past):
        n, length, _ = x.shape
        q, k, v = (y.view(n, length, HEADS, -1).transpose(1, 2)
                   for y in self.qkv(self.norms[0](x)).split(WIDTH, -1))
        if past is not None:
            k, v = torch.cat([past[0], k], 2), torch.cat([past[1], v], 2)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=length > 1)
        x = x + self.drop(self.out(y.transpose(1, 2).reshape(n, length, -1)))
        return x + self.drop(self.mlp(self.norms[1](x))), (k, v)


class Model(nn.Module):
    def __init__(self, tokens):
        super().__init__()
        self.tokens = tokens
        self.read = nn.Embedding(BINS, WIDTH) if tokens else nn.Linear(1, WIDTH)
        self.positions = nn.Embedding(CONTEXT, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(LAYERS))
        self.norm = nn.LayerNorm(WIDTH)
        self.head = nn.Linear(WIDTH, BINS if tokens else 3)
        self.drop = nn.Dropout(0.1)
        for name, p in self.named_parameters():
            if p.dim() > 1 and not (name.startswith("read") and not tokens):
                nn.init.normal_(p, std=0.02)

    def bins(self, x):
        return ((x + MOST) / (2 * MOST) * BINS).floor().clamp(0, BINS - 1).long()

    def forward(self, x, past=None):
        """x (n, length) in asinh; the head's outputs, and keys and values."""
        begin = past[0][0].shape[2] if past else 0
        e = self.read(self.bins(x)) if self.tokens else self.read(x[..., None])
        e = self.drop(e + self.positions.weight[begin:begin + x.shape[1]])
        kept = []
        for i, block in enumerate(self.blocks):
            e, kv = block(e, past[i] if past else None)
            kept.append(kv)
        return self.head(self.norm(e)), kept

    def student(self, out):
        return torch.distributions.StudentT(
            2.0 + F.softplus(out[..., 2]), out[..., 0],
            F.softplus(out[..., 1]) + 1e-3)

    def loss(self, x):
        out, _ = self(x[:, :-1])
        if self.tokens:
            return F.cross_entropy(out.reshape(-1, BINS),
                                   self.bins(x[:, 1:]).reshape(-1))
        return -self.student(out).log_prob(x[:, 1:]).mean()

    def sample(self, out):
        """A number for each row of out."""
        if self.tokens:
            b = torch.multinomial(torch.softmax(out, -1), 1)[:, 0]
            return (b + 0.5) / BINS * 2 * MOST - MOST
        return self.student(out).sample().clamp(-MOST, MOST)


# ---- training and forecasts ------------------------------------------------

def batches(columns, codec, steps, generator):
    """Windows of columns, with factors from 0.8 to 1.2 where columns are short:
    as src/series/series_corpus.c."""
    found = [codec.numbers(codec.z(c)) for c in columns]
    many = sum(map(len, found)) >= 20000
    longest = np.array([len(r) for r in found], float)
    for _ in range(steps):
        rows = []
        for _ in range(BATCH):
            r = found[generator.choice(len(found), p=longest / longest.sum())]
            length = min(CONTEXT + 1, len(r))
            at = generator.integers(len(r) - length + 1)
            factor = 1.0 if many else 0.8 + 0.4 * generator.random()
            rows.append(np.arcsinh(factor * r[at:at + length]))
        shortest = min(map(len, rows))
        yield torch.tensor(np.stack([r[:shortest] for r in rows]),
                           dtype=torch.float32).clamp(-MOST, MOST)


def train(tokens, columns, codec, steps, seed):
    torch.manual_seed(seed)
    model = Model(tokens)
    groups = [{"params": [p for p in model.parameters() if p.dim() > 1],
               "weight_decay": 0.1},
              {"params": [p for p in model.parameters() if p.dim() < 2],
               "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=2e-3, betas=(0.9, 0.99))
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda i: min((i + 1) / 40, 0.05 + 0.475 * (
            1 + math.cos(math.pi * max(0, i - 40) / max(1, steps - 40)))))
    for x in batches(columns, codec, steps, np.random.default_rng(seed)):
        loss = model.loss(x)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
    return model.eval()


@torch.no_grad()
def forecast(model, codec, history, horizon, samples=100):
    """(samples, horizon) paths; the past is read once."""
    z = codec.z(history)
    known = np.arcsinh(codec.numbers(z))[-(CONTEXT - min(horizon, CONTEXT // 2)):]
    z = np.concatenate([np.repeat(z[None], samples, 0),
                        np.zeros((samples, horizon))], 1)
    x = torch.tensor(known, dtype=torch.float32).clamp(-MOST, MOST)
    x, past = x.expand(samples, -1), None
    for h in range(horizon):
        if past and past[0][0].shape[2] == CONTEXT:  # begin again with a half
            past, step = None, x[:, -CONTEXT // 2:]
        else:
            step = x if h == 0 else x[:, -1:]
        out, past = model(step, past)
        new = model.sample(out[:, -1])
        x = torch.cat([x, new[:, None]], 1)
        t = len(history) + h
        z[:, t] = (z[:, t - codec.lag] +
                   np.sinh(new.numpy()) * codec.scale(z, t))
    paths = z[:, len(history):]
    return np.exp(np.minimum(paths, 700.0)) if codec.log else paths


def scores(paths, history, truth, season):
    q = np.quantile(paths, LEVELS, axis=0)
    naive = np.abs(history[season:] - history[:-season]).mean()
    d = truth - q
    pinball = np.maximum(LEVELS[:, None] * d, (LEVELS[:, None] - 1) * d)
    return (np.abs(truth - q[4]).mean() / naive,
            2 * pinball.mean(0).sum() / np.abs(truth).sum())


def run(tokens, columns, season, origins, steps, seed):
    """MASE and weighted quantile loss."""
    horizon, rows, each = 2 * season, len(columns[0]), []
    past = [c[:rows - (max(origins) + 1) * horizon] for c in columns]
    codec = Codec(past, season)
    model = train(tokens, past, codec, steps, seed)
    for origin in origins:
        begin = rows - (origin + 1) * horizon
        each += [scores(forecast(model, codec, c[:begin], horizon), c[:begin],
                        c[begin:begin + horizon], season) for c in columns]
    return np.mean(each, 0)


def numbers(text):
    return [int(x) for x in text.split(",")]


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--data", default="../shared/data/series")
    parser.add_argument("--seeds", type=numbers, default=[1, 2, 3])
    parser.add_argument("--origins", type=numbers, default=[0, 1, 2])
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--only", default=",".join(SEASONS))
    args = parser.parse_args()
    print(f"{'table':14} MASE: tokens  projection   WQL: tokens  projection")
    for name in args.only.split(","):
        columns = columns_read(os.path.join(args.data, name + ".csv"))
        began = time.process_time()
        found = [[run(way, columns, SEASONS[name], args.origins, args.steps,
                      seed) for seed in args.seeds] for way in (True, False)]
        middle = np.median(found, 1)
        print(f"{name:14} {middle[0][0]:12.3f} {middle[1][0]:11.3f}"
              f" {middle[0][1]:13.4f} {middle[1][1]:11.4f}   MASE by seed:",
              *(" ".join(f"{s[0]:.3f}" for s in way) + ";" for way in found),
              f"{time.process_time() - began:.0f} CPU s", flush=True)


if __name__ == "__main__":
    main()
