# SPDX-License-Identifier: Apache-2.0
"""Times PyTorch's attention back ends on the cases of attention_gpu.c.

    python3 bench/attention_gpu.py [--json] [--no-flex | --only-flex]
        [--no-forward | --no-backward] [case ...]

The same shapes, the same count of useful operations (visible pairs only; two
products forward, five backward), the median of single calls between two
events. A back end that cannot express a
case is not in its row: cuDNN and FlashAttention-2 know causal and no mask, and
FlashAttention-2 documents and windows through varlen_attn; FlexAttention knows
all of them; "dense" is scaled_dot_product_attention with a boolean matrix.
FlashAttention-3 ("flash3"; "flash3-det" with deterministic=True) is timed where
its module flash_attn_interface is installed.
"""

import json
import statistics
import sys

import torch
import torch._functorch.config
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

try:
    from torch.nn.attention.varlen import varlen_attn
except ImportError:  # PyTorch before 2.10
    varlen_attn = None

try:  # the folder hopper/ of FlashAttention's repository
    from flash_attn_interface import flash_attn_func, flash_attn_varlen_func
except ImportError:
    flash_attn_func = None

# A backward pass is timed again and again on one graph.
torch._functorch.config.donated_buffer = False

TOKENS, WIDTH, WARM, RUNS = 16384, 2048, 5, 25
SHARES = [512, 1536, 768, 2048, 256, 1024, 1280, 768]  # of 8192


def documents(time):
    lengths = [share * time // 8192 for share in SHARES]
    return torch.repeat_interleave(
        torch.arange(len(lengths)), torch.tensor(lengths)
    ).cuda()


def rule(kind, time):
    """mask_mod of FlexAttention, and of the dense matrix."""
    if kind == "causal":
        return lambda b, h, q, k: k <= q
    if kind == "window":
        return lambda b, h, q, k: (k <= q) & (q - k < 1024)
    if kind == "sinks":
        return lambda b, h, q, k: (k <= q) & ((q - k < 1024) | (k < 4))
    if kind == "prefix":
        return lambda b, h, q, k: (k <= q) | (k < 1024)
    if kind == "documents":
        doc = documents(time)
        return lambda b, h, q, k: (k <= q) & (doc[q] == doc[k])
    return None


CASES = {
    "causal_d128_16k": ("causal", 16384, 128, 1),
    "causal_d64_8k": ("causal", 8192, 64, 1),
    "window1024_d128_8k": ("window", 8192, 128, 1),
    "documents8_d128_8k": ("documents", 8192, 128, 1),
    "prefix1024_d128_8k": ("prefix", 8192, 128, 1),
    "all_d128_8k": ("all", 8192, 128, 1),
    "all_d64_8k": ("all", 8192, 64, 1),
    "causal_d128_8k": ("causal", 8192, 128, 1),
    "causal_d128_4k": ("causal", 4096, 128, 1),
    "causal_d128_2k": ("causal", 2048, 128, 1),
    "causal_d96_8k": ("causal", 8192, 96, 1),
    "causal_d192_8k": ("causal", 8192, 192, 1),
    "causal_d256_8k": ("causal", 8192, 256, 1),
    "all_d256_8k": ("all", 8192, 256, 1),
    "window1024_d256_8k": ("window", 8192, 256, 1),
}


def dense(kind, time):
    i = torch.arange(time, device="cuda")
    return rule(kind, time)(0, 0, i[:, None], i[None, :])


def median_ms(call):
    times = []
    for i in range(WARM + RUNS):
        start = torch.cuda.Event(enable_timing=True)
        stop = torch.cuda.Event(enable_timing=True)
        start.record()
        call()
        stop.record()
        stop.synchronize()
        if i >= WARM:
            times.append(start.elapsed_time(stop))
    return statistics.median(times)


def packed(kind, time):
    """Where sequences end, and the longest."""
    ends = [0]
    for _ in range(TOKENS // time):
        for share in SHARES if kind == "documents" else [8192]:
            ends.append(ends[-1] + share * time // 8192)
    longest = max(b - a for a, b in zip(ends, ends[1:]))
    return torch.tensor(ends, dtype=torch.int32, device="cuda"), longest


def flattened(d, *tensors):
    return [x.transpose(1, 2).reshape(TOKENS, WIDTH // d, d) for x in tensors]


def first(result):
    """The output: some versions also return the log-sum-exp."""
    return result[0] if isinstance(result, tuple) else result


def flash3_calls(kind, time, d, q, k, v):
    if not flash_attn_func or kind in ("prefix", "sinks"):
        return
    options = {"causal": kind != "all"}
    if kind == "window":
        options["window_size"] = (1023, 0)
    if kind == "documents":
        ends, longest = packed(kind, time)
        inputs = flattened(d, q, k, v) + [ends, ends]
        options.update(max_seqlen_q=longest, max_seqlen_k=longest)
        call = flash_attn_varlen_func
    else:
        inputs = [x.transpose(1, 2) for x in (q, k, v)]
        call = flash_attn_func
    for name, det in (("flash3", False), ("flash3-det", True)):
        yield (
            name,
            lambda det=det: first(call(*inputs, deterministic=det, **options)),
        )


def calls(kind, time, d, q, k, v):
    """(name, call) of every back end that can express the case."""
    causal = kind == "causal"
    if kind in ("all", "causal"):
        for name, backend in (
            ("cudnn", SDPBackend.CUDNN_ATTENTION),
            ("flash2", SDPBackend.FLASH_ATTENTION),
        ):

            def call(backend=backend):
                with sdpa_kernel(backend):
                    return F.scaled_dot_product_attention(
                        q, k, v, is_causal=causal
                    )

            yield name, call
    if varlen_attn and kind in ("documents", "window"):
        ends, longest = packed(kind, time)
        flat = flattened(d, q, k, v)
        window = (1023, 0) if kind == "window" else (-1, 0)

        def call_varlen():
            return varlen_attn(
                *flat, ends, ends, longest, longest, window_size=window
            )

        yield "flash2-varlen", call_varlen
    yield from flash3_calls(kind, time, d, q, k, v)
    mod = rule(kind, time)
    if mod and not causal:
        matrix = dense(kind, time)
        yield (
            "dense",
            lambda: F.scaled_dot_product_attention(q, k, v, attn_mask=matrix),
        )


def flex_calls(kind, time, d, q, k, v):
    mod = rule(kind, time)
    block = create_block_mask(mod, None, None, time, time) if mod else None
    torch._dynamo.reset()  # each case compiled for its own shape
    compiled = torch.compile(flex_attention)
    yield "flex", lambda: compiled(q, k, v, block_mask=block)


def backward_call(call, inputs):
    """The backward pass alone, of a forward pass that was made once."""
    out = call()
    dout = torch.randn_like(out)
    return lambda: torch.autograd.grad(out, inputs, dout, retain_graph=True)


def report(as_json, system, name, which, rate, ms):
    if as_json:
        row = {
            "system": system,
            "case": name,
            "pass": which,
            "tflops": round(rate, 1),
            "ms": round(ms, 4),
        }
        print(json.dumps(row), flush=True)
    else:
        print(
            f"{name:26} {which:8} {system:14} {rate:8.1f} TFLOP/s "
            f"{ms:9.4f} ms",
            flush=True,
        )


def measure(call, which, inputs):
    if which == "forward":
        with torch.no_grad():
            return median_ms(call)
    return median_ms(backward_call(call, inputs))


def main():
    arguments = sys.argv[1:]
    as_json = "--json" in arguments
    wanted = [a for a in arguments if not a.startswith("--")] or list(CASES)
    systems = [] if "--only-flex" in arguments else [calls]
    systems += [] if "--no-flex" in arguments else [flex_calls]
    passes = [] if "--no-forward" in arguments else [("forward", 2)]
    passes += [] if "--no-backward" in arguments else [("backward", 5)]
    torch.manual_seed(0)
    for name in wanted:
        kind, time, d, _ = CASES[name]
        heads, batch = WIDTH // d, TOKENS // time
        inputs = [
            torch.randn(
                batch, time, heads, d, device="cuda", dtype=torch.bfloat16
            )
            .transpose(1, 2)
            .requires_grad_()
            for _ in range(3)
        ]
        pairs = (
            time * time if kind == "all" else int(dense(kind, time).sum())
        ) * batch
        for system, call in (
            pair for f in systems for pair in f(kind, time, d, *inputs)
        ):
            for which, products in passes:
                try:
                    ms = measure(call, which, inputs)
                except Exception as error:  # one that refuses is a result
                    first = str(error).strip().split("\n")[0]
                    print(f"# {name} {which} {system}: {first[:100]}")
                    continue
                rate = 2 * products * d * pairs * heads / (ms * 1e9)
                report(as_json, system, name, which, rate, ms)


if __name__ == "__main__":
    main()
