#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Train GPT-2 124M on a GPU with bauta and with PyTorch, and compare losses.

    python3 tools/check-gpu-training.py [--steps 300] [--batch 16]
        [--length 512] [--data ../shared/data] [--device cuda]
        [--dtype bfloat16] [--layers 12] [--width 768]

needs the package bauta, PyTorch and transformers. Three runs start from the
same random weights: bauta, PyTorch with autocast to bfloat16 and the same
batches, and PyTorch with the batches in another order. All have float32 master
weights, AdamW, clipping and no dropout. The loss on the same held-out windows is
taken every 25 steps. It fails if bauta's mean difference from PyTorch is more
than that between the two runs of PyTorch. --device cpu with small sizes tries
the script out.
"""

from __future__ import annotations

import argparse
import pathlib
import sys
import tempfile
import time

import numpy as np
import torch
import transformers

import bauta

RATE, CLIP, EVERY, HELD_OUT = 3e-4, 1.0, 25, 16


def windows_of(data, length):
    tokenizer = bauta.Tokenizer.load(data / "gpt2-bpe")
    text = (data / "tinyshakespeare" / "input.txt").read_text()
    ids = np.asarray(tokenizer.encode(text), dtype=np.int64)
    count = (len(ids) - 1) // length
    return np.stack([ids[i * length : (i + 1) * length + 1] for i in range(count)])


def order_of(count, steps, batch, seed):
    """The windows of each step: epochs in random order."""
    random = np.random.default_rng(seed)
    epochs = -(-steps * batch // count)
    order = np.concatenate([random.permutation(count) for _ in range(epochs)])
    return order[: steps * batch].reshape(steps, batch)


def run_torch(folder, windows, held_out, order, args):
    model = transformers.GPT2LMHeadModel.from_pretrained(
        folder, attn_implementation="sdpa"
    ).to(args.device)
    model.eval()  # there is no dropout
    optimizer = torch.optim.AdamW(model.parameters(), lr=RATE, weight_decay=0.0)

    def loss_of(rows):
        ids = torch.from_numpy(rows).to(args.device)
        with torch.autocast(args.device, torch.bfloat16):
            logits = model(ids[:, :-1]).logits
        return torch.nn.functional.cross_entropy(
            logits.flatten(0, 1).float(), ids[:, 1:].flatten()
        )

    losses, validations = [], []
    for step, rows in enumerate(order):
        loss = loss_of(windows[rows])
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), CLIP)
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.detach())
        if (step + 1) % EVERY == 0:
            with torch.no_grad():
                validations.append(loss_of(held_out).item())
    return [loss.item() for loss in losses], validations


def run_bauta(folder, windows, held_out, order, args):
    dtype = None if args.device == "cpu" else args.dtype
    model = bauta.Model.load(folder, trainable=True, device=args.device, dtype=dtype)
    trainer = bauta.Trainer(
        model,
        learning_rate=RATE,
        max_steps=len(order),
        warmup_steps=0,
        lr_scheduler_type="constant",
        weight_decay=0.0,
        max_grad_norm=CLIP,
        adam_beta1=0.9,
        adam_beta2=0.999,
        adam_epsilon=1e-8,
    )
    losses, validations = [], []
    for step, rows in enumerate(order):
        batch = windows[rows]
        report = trainer.step_batch(
            {"input_ids": batch[:, :-1].tolist(), "targets": batch[:, 1:].tolist()}
        )
        losses.append(report.loss)
        if (step + 1) % EVERY == 0:
            logprobs = model.logprobs(
                held_out[:, :-1].tolist(), targets=held_out[:, 1:].tolist()
            )
            validations.append(-float(np.mean([np.mean(row) for row in logprobs])))
    return losses, validations


def main():
    tree = pathlib.Path(__file__).resolve().parents[1]
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--length", type=int, default=512)
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--width", type=int, default=768)
    parser.add_argument("--data", type=pathlib.Path, default=tree / "../shared/data")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--dtype", default="bfloat16")
    args = parser.parse_args()
    windows = windows_of(args.data, args.length)
    held_out, windows = windows[-HELD_OUT:], windows[:-HELD_OUT]
    orders = [order_of(len(windows), args.steps, args.batch, seed) for seed in (1, 2)]
    config = transformers.GPT2Config(
        n_embd=args.width,
        n_layer=args.layers,
        n_head=args.width // 64,
        resid_pdrop=0.0,
        embd_pdrop=0.0,
        attn_pdrop=0.0,
    )
    torch.manual_seed(1)
    results = {}
    with tempfile.TemporaryDirectory() as folder:
        transformers.GPT2LMHeadModel(config).save_pretrained(folder)
        for name, run, order in (
            ("bauta", run_bauta, orders[0]),
            ("PyTorch", run_torch, orders[0]),
            ("PyTorch, another order", run_torch, orders[1]),
        ):
            begin = time.perf_counter()
            results[name] = run(folder, windows, held_out, order, args)
            print(f"{name}: {time.perf_counter() - begin:.1f} s", flush=True)
    (ours, our_held), (theirs, their_held), (_, other_held) = results.values()
    print("step  held out: bauta  PyTorch  another order")
    for i, row in enumerate(zip(our_held, their_held, other_held)):
        print(f"{(i + 1) * EVERY:4}  {row[0]:.5f}  {row[1]:.5f}  {row[2]:.5f}")
    same = np.abs(np.subtract(ours, theirs))
    near = np.abs(np.subtract(our_held, their_held))
    far = np.abs(np.subtract(other_held, their_held))
    print(f"training loss, same batches: mean difference {same.mean():.2e}, "
          f"largest {same.max():.2e}")
    print(f"held out: bauta and PyTorch mean {near.mean():.2e}, largest "
          f"{near.max():.2e}; two orders of PyTorch mean {far.mean():.2e}, "
          f"largest {far.max():.2e}")
    if near.mean() > far.mean():
        sys.exit("the difference is more than that of two orders")


if __name__ == "__main__":
    main()
