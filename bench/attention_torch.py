# SPDX-License-Identifier: Apache-2.0
"""bauta.torch on a GPU: host time of a call, and packed batches whose documents
are new in every step, beside PyTorch's attention.

    python3 bench/attention_torch.py [host] [packed]

host    Microseconds of Python and driver until a call returns; the GPU works
        on a small problem meanwhile.
packed  16,384 tokens of bfloat16 in documents of random lengths, 16 heads of
        128, forward and backward pass. A step begins with the lengths on the
        host and includes what follows from them: bauta's mask and plan,
        FlexAttention's create_block_mask, the boolean matrix of
        scaled_dot_product_attention, the cumulative lengths of varlen_attn.
        The median of steps, each until the GPU is done.
"""

from __future__ import annotations

import random
import statistics
import sys
import time

import torch
import torch.nn.functional as F

import bauta
import bauta.torch

TOKENS, HEADS, DIM = 16384, 16, 128
WARM, STEPS = 4, 20


def host_us(call, calls=200, rounds=7):
    """The fastest of some rounds, whose calls the GPU has finished before."""
    times = []
    for _ in range(rounds):
        torch.cuda.synchronize()
        start = time.perf_counter()
        for _ in range(calls):
            call()
        times.append((time.perf_counter() - start) / calls * 1e6)
        torch.cuda.synchronize()
    return min(times)


def host():
    shape = (1, 4, 128, 64)
    plain = [torch.randn(shape, device="cuda", dtype=torch.bfloat16) for _ in range(3)]
    with_grad = [t.clone().requires_grad_() for t in plain]
    mask = bauta.Mask.causal(128)
    ops = torch.ops.bauta.attention_forward.default
    calls = {
        "bauta.torch.attention": lambda x: bauta.torch.attention(*x, mask),
        "as an operator": lambda x: ops(
            *x, [mask._id], 0.0, False, 0.0, None, None, None
        )[0],
        "sdpa": lambda x: F.scaled_dot_product_attention(*x, is_causal=True),
    }
    weight = torch.ones_like(plain[0])
    for name, call in calls.items():
        row = [host_us(lambda: call(plain)), host_us(lambda: call(with_grad))]
        row.append(
            host_us(lambda: torch.autograd.grad(call(with_grad), with_grad, weight))
        )
        print(
            f"host us: {name:22} without gradients {row[0]:6.1f}, with {row[1]:6.1f}, "
            f"forward and backward {row[2]:6.1f}",
            flush=True,
        )


def random_lengths(rng):
    """Documents of 64 to 4,096 tokens, mostly short."""
    lengths, left = [], TOKENS
    while left:
        length = min(left, int(64 * 64 ** rng.random()))
        lengths.append(length)
        left -= length
    return lengths


def document_of(lengths):
    numbers = torch.arange(len(lengths)).repeat_interleave(torch.tensor(lengths))
    return numbers.to("cuda", non_blocking=True)


def bauta_step(q, k, v):
    def step(lengths):
        mask = bauta.Mask.from_lengths(lengths, causal=True)
        return bauta.torch.attention(q, k, v, mask)

    return step


def flex_step(q, k, v):
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    compiled = torch.compile(flex_attention)
    make = torch.compile(create_block_mask)
    document = torch.zeros(TOKENS, dtype=torch.int64, device="cuda")
    heads_first = [t.transpose(0, 1)[None] for t in (q, k, v)]

    def visible(b, h, row, key):
        return (key <= row) & (document[row] == document[key])

    def step(lengths):
        document.copy_(document_of(lengths))
        block = make(visible, None, None, TOKENS, TOKENS, device="cuda")
        return compiled(*heads_first, block_mask=block)[0].transpose(0, 1)

    return step


def dense_step(q, k, v):
    heads_first = [t.transpose(0, 1)[None] for t in (q, k, v)]

    def step(lengths):
        document = document_of(lengths)
        matrix = (document[:, None] == document[None]).tril()
        out = F.scaled_dot_product_attention(*heads_first, attn_mask=matrix)
        return out[0].transpose(0, 1)

    return step


def varlen_step(q, k, v):
    from torch.nn.attention.varlen import varlen_attn

    def step(lengths):
        ends = torch.tensor([0, *lengths]).cumsum(0).int().cuda(non_blocking=True)
        longest = max(lengths)
        out = varlen_attn(q, k, v, ends, ends, longest, longest, window_size=(-1, 0))
        return out[0] if isinstance(out, tuple) else out

    return step


def packed():
    torch.manual_seed(0)
    q, k, v = (
        torch.randn(
            TOKENS, HEADS, DIM, device="cuda", dtype=torch.bfloat16, requires_grad=True
        )
        for _ in range(3)
    )
    weight = torch.randn_like(q)
    known = {
        "bauta": bauta_step,
        "varlen_attn": varlen_step,
        "sdpa, dense": dense_step,
        "FlexAttention": flex_step,
    }
    want = None
    for name, make in known.items():
        rng = random.Random(5)
        try:
            step = make(q, k, v)
            times = []
            for _ in range(WARM + STEPS):
                lengths = random_lengths(rng)
                torch.cuda.synchronize()
                start = time.perf_counter()
                out = step(lengths)
                grads = torch.autograd.grad(out, (q, k, v), weight)
                queued = time.perf_counter()
                torch.cuda.synchronize()
                times.append((time.perf_counter() - start, queued - start))
            if want is None:
                want = [t.double() for t in (out.detach(), *grads)]
            error = max(
                ((x.double() - y).square().mean() / y.square().mean()).sqrt().item()
                for x, y in zip((out.detach(), *grads), want)
            )
        except Exception as error:  # one that refuses is a result
            print(f"packed: {name}: {str(error).strip().splitlines()[0][:200]}", flush=True)
            continue
        whole, host_time = (
            statistics.median(each[i] for each in times[WARM:]) * 1e3 for i in range(2)
        )
        print(
            f"packed: {name:14} {whole:8.3f} ms a step, of which the host takes "
            f"{host_time:7.3f}; off by {error:.1e} from bauta",
            flush=True,
        )


if __name__ == "__main__":
    for part in sys.argv[1:] or ["host", "packed"]:
        {"host": host, "packed": packed}[part]()
