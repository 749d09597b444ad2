# SPDX-License-Identifier: Apache-2.0
"""bauta.torch on a GPU: host time of a call, GPU time beside the C bench, and
packed batches whose documents are new in every step, beside PyTorch's attention
and FlashAttention 3.

    python3 bench/attention_torch.py [host] [c] [packed] [flex]
        [--bench build/src/backend/cuda/attention_gpu] [--seconds 150]

host    Microseconds of Python and driver until a call returns, while the GPU
        works on a small problem; and those of its parts.
c       Calls of cases of attention_gpu.c, beside that program itself, which runs
        before and after. "gpu" is the time between two events of calls that
        were queued before the GPU reached them; "alone" has the time that the
        host takes on an idle GPU in it.
packed  16,384 tokens of bfloat16 in documents of random lengths, 16 heads of
        128, forward and backward pass, all systems in turns. A step begins with
        the lengths on the host and includes what follows from them: bauta's mask
        and plan, the cumulative lengths of varlen_attn and of FlashAttention 3,
        which runs where its module flash_attn_interface is installed, the block
        mask of FlexAttention, the boolean matrix of
        scaled_dot_product_attention. The median of steps, each until the GPU is
        done.
flex    The first steps of FlexAttention, compiled with its create_block_mask, in
        a process of its own that is ended after --seconds. Its kernels are kept
        in PyTorch's caches. packed does that first, and leaves FlexAttention out
        if it takes longer.
"""

from __future__ import annotations

import argparse
import itertools
import json
import random
import statistics
import subprocess
import sys
import time

import torch
import torch.nn.functional as F

import bauta
import bauta.torch

TOKENS, HEADS, DIM = 16384, 16, 128
WARM, STEPS, TURNS = 4, 16, 4
WIDTH = 2048
SHARES = [512, 1536, 768, 2048, 256, 1024, 1280, 768]  # of 8192
CASES = {
    "causal_d128_16k": (16384, 128, bauta.Mask.causal),
    "all_d128_8k": (8192, 128, bauta.Mask.all),
    "causal_d128_8k": (8192, 128, bauta.Mask.causal),
    "causal_d64_8k": (8192, 64, bauta.Mask.causal),
    "window1024_d128_8k": (8192, 128, lambda n: bauta.Mask.window(n, window=1024)),
    "documents8_d128_8k": (
        8192,
        128,
        lambda n: bauta.Mask.from_lengths([s * n // 8192 for s in SHARES], causal=True),
    ),
}


# ---- host time -------------------------------------------------------------------


def host_us(calls, each=200, rounds=21):
    """Microseconds of a call until it returns: (median, fastest) of the rounds of
    every one. They take turns, and the GPU has finished before each round."""
    times = [[] for _ in calls]
    for _ in range(rounds):
        for call, found in zip(calls, times):
            torch.cuda.synchronize()
            start = time.perf_counter()
            for _ in range(each):
                call()
            found.append((time.perf_counter() - start) / each * 1e6)
    torch.cuda.synchronize()
    return [(statistics.median(found), min(found)) for found in times]


def host(options):
    shape = (1, 4, 128, 64)
    plain = [torch.randn(shape, device="cuda", dtype=torch.bfloat16) for _ in range(3)]
    with_grad = [t.clone().requires_grad_() for t in plain]
    weight = torch.ones_like(plain[0])
    mask = bauta.Mask.causal(128)
    ops = torch.ops.bauta.attention_forward.default
    systems = {
        "bauta.torch.attention": lambda x: bauta.torch.attention(*x, mask),
        "as an operator": lambda x: ops(
            *x, [mask._id], 0.0, False, 0.0, None, None, None
        )[0],
        "sdpa": lambda x: F.scaled_dot_product_attention(*x, is_causal=True),
    }

    def three(call):
        return (
            lambda: call(plain),
            lambda: call(with_grad),
            lambda: torch.autograd.grad(call(with_grad), with_grad, weight),
        )

    found = host_us([call for system in systems.values() for call in three(system)])
    for i, name in enumerate(systems):
        row = [f"{m:6.1f} ({best:5.1f})" for m, best in found[3 * i : 3 * i + 3]]
        print(
            f"host us, median (fastest): {name:22} without gradients {row[0]}, "
            f"with {row[1]}, forward and backward {row[2]}",
            flush=True,
        )
    parts(plain, mask)


def result_new(like):
    """As the extension module does it, where PyTorch has this function."""
    new = getattr(bauta.torch._allocators, "_empty_strided_cuda", None)
    if new is None:
        return torch.empty_like(like)
    return new(tuple(like.shape), like.stride(), like.dtype)


def parts(tensors, mask):
    """What a call is made of."""
    core = bauta.torch._core
    q, k, v = tensors
    device = q.get_device()
    key = (device, bauta.torch._raw_stream(device), 4, 4, 64, 64, q.dtype)
    plan = bauta.torch._gpu_plan(mask, key)
    out, lse = core.torch_forward(q, k, v, mask, None, False, True)
    made = [torch.randn_like(out), *map(torch.empty_like, (q, k, v))]
    dout = made[0]
    arrays = [bauta.torch._describe(t) for t in (q, k, v, out, lse)]
    grads = [bauta.torch._describe(t) for t in made]
    bare = (plan.context, plan.handle, 0.0, *arrays)
    given = (q, k, v, mask, None, False)
    calls = {
        "empty_like": lambda: torch.empty_like(q),
        "an empty result": lambda: result_new(q),
        "the library's forward pass": lambda: core.gpu_attention_forward(*bare),
        "with its tensors": lambda: core.torch_forward(*given, False),
        "the backward pass": lambda: core.gpu_attention_backward(*bare, *grads),
        "with its tensors ": lambda: core.torch_backward(*given, out, lse, dout),
    }
    found = host_us(list(calls.values()))
    rows = (f"{name} {m:.1f} ({best:.1f})" for name, (m, best) in zip(calls, found))
    print("host us: " + ", ".join(rows), flush=True)


# ---- beside the C bench ----------------------------------------------------------


def between_events(call, queued, warm=5, runs=25):
    """The median of single calls. With `queued` the GPU is kept busy until the
    call is in its queue."""
    times = []
    for i in range(warm + runs):
        start = torch.cuda.Event(enable_timing=True)
        stop = torch.cuda.Event(enable_timing=True)
        if queued:
            torch.cuda._sleep(1_000_000)
        start.record()
        call()
        stop.record()
        stop.synchronize()
        if i >= warm:
            times.append(start.elapsed_time(stop))
    return statistics.median(times)


def c_times(options):
    command = [options.bench, "--json", *CASES]
    text = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    rows = map(json.loads, text.splitlines())
    return {(r["case"], r["pass"]): r["ms"] for r in rows if "ms" in r}


def beside_c(options):
    try:
        before = c_times(options)
    except (OSError, subprocess.CalledProcessError) as error:
        reason = getattr(error, "stderr", None) or error
        print(f"c: {options.bench} did not run: {reason}")
        return
    found = {}
    torch.manual_seed(0)
    for name, (length, dim, make) in CASES.items():
        masks = [make(length)] * (TOKENS // length)
        mask = bauta.Mask.pack(masks) if len(masks) > 1 else masks[0]
        q, k, v = (
            # Uniform, of variance 1, as in the C bench.
            ((torch.rand(TOKENS, WIDTH // dim, dim, device="cuda") * 2 - 1) * 1.732)
            .bfloat16()
            .requires_grad_()
            for _ in range(3)
        )

        def forward():
            with torch.no_grad():
                return bauta.torch.attention(q, k, v, mask)

        out = bauta.torch.attention(q, k, v, mask)
        dout = torch.randn_like(out)

        def backward():
            return torch.autograd.grad(out, (q, k, v), dout, retain_graph=True)

        for which, call in (("forward", forward), ("backward", backward)):
            found[name, which] = [between_events(call, queued) for queued in (1, 0)]
    after = c_times(options)
    for case, (gpu, alone) in found.items():
        ms = (before[case] + after[case]) / 2
        print(
            f"c: {case[0]:20} {case[1]:8} {ms:8.4f} ms in C ({before[case]:.4f}, "
            f"{after[case]:.4f}); from Python {gpu:8.4f}, ratio {gpu / ms:.3f}; alone "
            f"{alone:8.4f}, ratio {alone / ms:.3f}",
            flush=True,
        )
    worst = max(gpu * 2 / (before[c] + after[c]) for c, (gpu, _) in found.items())
    long = [
        gpu * 2 / (before[c] + after[c])
        for c, (gpu, _) in found.items()
        if before[c] >= 1
    ]
    print(f"c: worst ratio {worst:.3f}, of calls of 1 ms or more {max(long):.3f}")


# ---- packed batches --------------------------------------------------------------


def random_lengths(rng):
    """Documents of 64 to 4,096 tokens, mostly short."""
    lengths, left = [], TOKENS
    while left:
        length = min(left, int(64 * 64 ** rng.random()))
        lengths.append(length)
        left -= length
    return lengths


def ends_of(lengths):
    ends = list(itertools.accumulate(lengths, initial=0))
    return torch.tensor(ends, dtype=torch.int32).cuda(non_blocking=True)


def document_of(lengths):
    numbers = torch.arange(len(lengths)).repeat_interleave(torch.tensor(lengths))
    return numbers.to("cuda", non_blocking=True)


def bauta_step(q, k, v):
    def step(lengths):
        mask = bauta.Mask.from_lengths(lengths, causal=True)
        return bauta.torch.attention(q, k, v, mask)

    return step


def without_large_sorts():
    """create_block_mask sorts blocks in a kernel that Inductor compiles for 1, 8
    and 32 rows, to take the fastest. The last takes ptxas many minutes, so it is
    left out. Kernels are compiled in this process, where that is known."""
    from torch._inductor import config
    from torch._inductor.runtime import triton_heuristics

    known = triton_heuristics._persistent_reduction_configs

    def fewer(*args, **options):
        found = known(*args, **options)
        return [c for c in found if c.kwargs.get("XBLOCK", 1) <= 8] or found

    config.compile_threads = 1
    triton_heuristics._persistent_reduction_configs = fewer


def flex_step(q, k, v):
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    compiled = torch.compile(flex_attention, dynamic=False)
    make = torch.compile(create_block_mask, dynamic=False)
    without_large_sorts()
    document = torch.zeros(TOKENS, dtype=torch.int64, device="cuda")
    heads_first = [t.transpose(0, 1)[None] for t in (q, k, v)]

    def visible(b, h, row, key):
        return (key <= row) & (document[row] == document[key])

    def block_mask(lengths):
        document.copy_(document_of(lengths))
        return make(visible, None, None, TOKENS, TOKENS, device="cuda")

    def step(lengths):
        block = block_mask(lengths)
        return compiled(*heads_first, block_mask=block)[0].transpose(0, 1)

    step.block_mask = block_mask
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
        ends, longest = ends_of(lengths), max(lengths)
        out = varlen_attn(q, k, v, ends, ends, longest, longest, window_size=(-1, 0))
        return out[0] if isinstance(out, tuple) else out

    return step


def flash3_step(deterministic):
    def make(q, k, v):
        from flash_attn_interface import flash_attn_varlen_func

        def step(lengths):
            ends, longest = ends_of(lengths), max(lengths)
            out = flash_attn_varlen_func(
                q,
                k,
                v,
                ends,
                ends,
                longest,
                longest,
                causal=True,
                deterministic=deterministic,
            )
            return out[0] if isinstance(out, tuple) else out

        return step

    return make


def packed_inputs():
    torch.manual_seed(0)
    q, k, v, weight = (
        torch.randn(TOKENS, HEADS, DIM, device="cuda", dtype=torch.bfloat16)
        for _ in range(4)
    )
    return [t.requires_grad_() for t in (q, k, v)], weight


def one_step(step, lengths, inputs, weight):
    """Seconds until the GPU is done, seconds until all is queued, and results."""
    torch.cuda.synchronize()
    start = time.perf_counter()
    out = step(lengths)
    grads = torch.autograd.grad(out, inputs, weight)
    queued = time.perf_counter()
    torch.cuda.synchronize()
    return time.perf_counter() - start, queued - start, [out.detach(), *grads]


def steps_of(known, batches, inputs, weight):
    """The steps that run, after their first calls."""
    ready, want = {}, None
    for name, make in known.items():
        try:
            step = make(*inputs)
            first, _, found = one_step(step, batches[0], inputs, weight)
            for lengths in batches[1:]:
                _, _, found = one_step(step, lengths, inputs, weight)
        except Exception as error:  # one that refuses is a result
            text = str(error).strip().splitlines() or [type(error).__name__]
            print(f"packed: {name}: {text[0][:200]}", flush=True)
            continue
        ready[name] = step
        want = want or found
        worst = max(map(off, found, want))
        print(
            f"packed: {name}: first step {first:.2f} s; off by {worst:.1e}", flush=True
        )
    return ready


def measure(known):
    """Steps on documents that are new in every one. All take turns of some steps,
    of which the first are not counted: the host has other code in its caches."""
    inputs, weight = packed_inputs()
    rng = random.Random(5)
    batches = [random_lengths(rng) for _ in range(STEPS)]
    ready = steps_of(known, batches[:2], inputs, weight)
    times = {name: [] for name in ready}
    for _ in range(TURNS):
        for name, step in ready.items():
            # Results are freed before the next step.
            found = [one_step(step, x, inputs, weight)[:2] for x in batches]
            times[name] += found[WARM:]
    for name, each in times.items():
        whole, host_time = (statistics.median(x) * 1e3 for x in zip(*each))
        print(
            f"packed: {name:14} {whole:8.3f} ms a step, of which the host takes "
            f"{host_time:7.3f}",
            flush=True,
        )


def off(x, y):
    y = y.double()
    return ((x.double() - y).square().mean() / y.square().mean()).sqrt().item()


def bauta_parts():
    """The host time of bauta's step."""
    (q, k, v), weight = packed_inputs()
    device = q.get_device()
    shape = (HEADS, HEADS, DIM, DIM, q.dtype)
    key = (device, bauta.torch._raw_stream(device), *shape)
    rng = random.Random(6)
    names, times = ("mask", "plan", "forward", "backward"), []
    for _ in range(WARM + STEPS):
        lengths = random_lengths(rng)
        torch.cuda.synchronize()
        at = [time.perf_counter()]
        mask = bauta.Mask.from_lengths(lengths, causal=True)
        at.append(time.perf_counter())
        bauta.torch._gpu_plan(mask, key)
        at.append(time.perf_counter())
        out = bauta.torch.attention(q, k, v, mask)
        at.append(time.perf_counter())
        torch.autograd.grad(out, (q, k, v), weight)
        at.append(time.perf_counter())
        times.append([(b - a) * 1e6 for a, b in zip(at, at[1:])])
    medians = map(statistics.median, zip(*times[WARM:]))
    text = ", ".join(f"{n} {us:.0f}" for n, us in zip(names, medians))
    print(f"packed: host us of bauta: {text}", flush=True)


KNOWN = {
    "bauta": bauta_step,
    "FA3 varlen": flash3_step(False),
    "FA3 varlen det": flash3_step(True),
    "FlexAttention": flex_step,
    "varlen_attn": varlen_step,
    "sdpa, dense": dense_step,
}


def packed(options):
    known = dict(KNOWN)
    if not flex(options):
        del known["FlexAttention"]
    measure(known)
    bauta_parts()


def flex(options):
    """Compile FlexAttention within a budget; whether it ran. The kernels stay in
    the caches of Inductor and Triton."""
    command = [sys.executable, __file__, "flex-itself"]
    start = time.perf_counter()
    try:
        failed = subprocess.run(command, timeout=options.seconds).returncode
    except subprocess.TimeoutExpired:
        print(f"packed: FlexAttention: not compiled within {options.seconds:.0f} s")
        return False
    print(f"packed: FlexAttention: {time.perf_counter() - start:.0f} s in its process")
    return not failed


def flex_itself(options):
    """Two steps of FlexAttention, and the time of its masks."""
    inputs, weight = packed_inputs()
    rng = random.Random(5)
    batches = [random_lengths(rng) for _ in range(STEPS)]
    ready = steps_of({"FlexAttention": flex_step}, batches[:2], inputs, weight)
    if not ready:
        sys.exit(1)
    times = []
    for lengths in batches:
        torch.cuda.synchronize()
        start = time.perf_counter()
        ready["FlexAttention"].block_mask(lengths)
        torch.cuda.synchronize()
        times.append((time.perf_counter() - start) * 1e6)
    print(f"packed: FlexAttention: {statistics.median(times):.0f} us a block mask")


PARTS = {
    "host": host,
    "c": beside_c,
    "packed": packed,
    "flex": flex,
    "flex-itself": flex_itself,
}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("parts", nargs="*", default=["host", "c", "packed"])
    parser.add_argument("--bench", default="build/src/backend/cuda/attention_gpu")
    parser.add_argument("--seconds", type=float, default=150.0)
    options = parser.parse_args()
    for part in options.parts:
        PARTS[part](options)


if __name__ == "__main__":
    main()
