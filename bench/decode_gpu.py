# SPDX-License-Identifier: Apache-2.0
"""Times PyTorch's attention back ends on cases of decode_gpu.c.

    python3 bench/decode_gpu.py [--json] [case ...]

One query a sequence over keys and values that lie in one piece. As there, each
case has several sets of sequences and a graph of 32 calls or more, all sets in
turns; a figure is the median of the graph's replays, for one call. Only visible keys and
values count. Sinks and a window can only be said with a boolean mask, of which
cuDNN alone takes one here.
"""

import json
import statistics
import sys

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

WARM, RUNS = 3, 15
CALLS = 32  # of a graph, at least

# sequences, keys, heads, kv_heads, head_dim, sinks and window
CASES = {
    "32x8k_32:8_d128": (32, 8192, 32, 8, 128, False),
    "1x32k_32:8_d128": (1, 32768, 32, 8, 128, False),
    "1x8k_32:8_d128": (1, 8192, 32, 8, 128, False),
    "1x4k_32:8_d128": (1, 4096, 32, 8, 128, False),
    "1x1k_32:8_d128": (1, 1024, 32, 8, 128, False),
    "8x8k_32:8_d128": (8, 8192, 32, 8, 128, False),
    "128x2k_32:8_d128": (128, 2048, 32, 8, 128, False),
    "32x8k_32:32_d128": (32, 8192, 32, 32, 128, False),
    "32x8k_64:4_d128": (32, 8192, 64, 4, 128, False),
    "32x8k_32:8_d64": (32, 8192, 32, 8, 64, False),
    "32x32k_sinks_window1024": (32, 32768, 32, 8, 128, True),
}

BACKENDS = {
    "cudnn": SDPBackend.CUDNN_ATTENTION,
    "flash2": SDPBackend.FLASH_ATTENTION,
}


def tensors(batch, heads, time, d):
    return torch.randn(
        batch, heads, time, d, device="cuda", dtype=torch.bfloat16
    )


def graph_us(calls):
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for call in calls[:2]:
            call()
    calls = calls * -(-CALLS // len(calls))
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for call in calls:
            call()
    times = []
    for i in range(WARM + RUNS):
        start = torch.cuda.Event(enable_timing=True)
        stop = torch.cuda.Event(enable_timing=True)
        start.record()
        graph.replay()
        stop.record()
        stop.synchronize()
        if i >= WARM:
            times.append(start.elapsed_time(stop) * 1e3 / len(calls))
    return statistics.median(times)


def attention(backend, q, k, v, mask):
    def call():
        with sdpa_kernel(backend):
            return F.scaled_dot_product_attention(
                q, k, v, attn_mask=mask, enable_gqa=q.shape[1] != k.shape[1]
            )

    return call


def report(as_json, name, system, seen, us):
    rate = seen / us * 1e-6
    if as_json:
        row = {"system": system, "case": name, "tb_s": rate, "us": us}
        print(json.dumps(row), flush=True)
    else:
        print(f"{name:26} {system:8} {rate:7.3f} TB/s {us:9.2f} us", flush=True)


def main():
    arguments = sys.argv[1:]
    wanted = [a for a in arguments if not a.startswith("--")] or list(CASES)
    torch.manual_seed(0)
    for name in wanted:
        batch, time, heads, kv_heads, d, window = CASES[name]
        size = batch * time * kv_heads * d * 2
        sets = min(max((1 << 30) // size + 1, 2 if window else 3), 64)
        q = tensors(batch, heads, 1, d)
        sources = [
            [tensors(batch, kv_heads, time, d) for _ in range(2)]
            for _ in range(sets)
        ]
        mask = None
        if window:
            at = torch.arange(time, device="cuda")
            mask = ((at < 4) | (at >= time - 1024))[None, None, None, :]
        seen = (1028 if window else time) * batch * kv_heads * d * 4
        for system in ("cudnn",) if window else ("cudnn", "flash2"):
            try:
                with torch.no_grad():
                    us = graph_us(
                        [
                            attention(BACKENDS[system], q, k, v, mask)
                            for k, v in sources
                        ]
                    )
            except Exception as error:  # a back end that refuses is a result
                first = str(error).strip().split("\n")[0]
                print(f"# {name} {system}: {first[:100]}", flush=True)
                continue
            report("--json" in arguments, name, system, seen, us)
        del sources
        torch.cuda.empty_cache()


if __name__ == "__main__":
    main()
