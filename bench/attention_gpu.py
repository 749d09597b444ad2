# SPDX-License-Identifier: Apache-2.0
"""Times bauta, FlashAttention 3 and PyTorch's attention back ends in turns.

    python3 bench/attention_gpu.py [--json] [--systems NAME,NAME...]
        [--passes forward,backward] [--rest] [case ...]

The cases are those of attention_gpu.c and some more; all tensors are bfloat16.
The count of useful operations is the same for everyone: visible pairs only, two
products forward, five backward. The systems of a case take turns: five rounds
of one call that is not counted and five that are, and the median of these 25.
A call is timed between two events. Before it the GPU computes matrix products
for about 3 ms, so the call is queued before the GPU reaches it and host time
does not count, and power is a limit as in training. With --rest it waits for
1 ms instead.

bauta       bauta.torch, where the package is installed
flash3      FlashAttention 3, where its module flash_attn_interface is installed
flash3-det  with deterministic=True
cudnn       scaled_dot_product_attention with cuDNN
flash2      the same with FlashAttention 2; documents and windows by varlen_attn
dense       the same with a boolean matrix
flex        FlexAttention, compiled for each case; that takes a minute or more

A system that cannot express a case is not in its rows. A line with # says why
a call failed, or by how much its result differs from that of the first system
if that is more than rounding.
"""

import argparse
import json
import statistics
from typing import NamedTuple

import torch
import torch._functorch.config
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

try:
    import bauta
    import bauta.torch
except ImportError:
    bauta = None

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

ROUNDS, RUNS = 5, 5
SYSTEMS = "bauta flash3 flash3-det cudnn flash2 dense flex".split()
PRODUCTS = {"forward": 2, "backward": 5}
UNEVEN = [512, 1536, 768, 2048, 256, 1024, 1280, 768]  # of 8192


class Case(NamedTuple):
    kind: str
    time: int
    d: int
    group: int = 1  # query heads that share a key head
    tokens: int = 16384
    width: int = 2048

    @property
    def heads(self):
        return self.width // self.d

    @property
    def batch(self):
        return self.tokens // self.time

    @property
    def lengths(self):
        """Documents of one sequence."""
        if self.kind == "even":
            return [1024] * (self.time // 1024)
        if self.kind == "documents":
            return [share * self.time // 8192 for share in UNEVEN]
        return [self.time]


CASES = {
    "causal_d128_16k": Case("causal", 16384, 128),
    "causal_d64_8k": Case("causal", 8192, 64),
    "all_d128_8k": Case("all", 8192, 128),
    "causal_d128_16k_gqa4": Case("causal", 16384, 128, 4),
    "causal_d64_64x1k": Case("causal", 1024, 64, 1, 65536, 1024),
    "causal_d64_64x512": Case("causal", 512, 64, 1, 32768, 1024),
    "window1024_d128_8k": Case("window", 8192, 128),
    "documents8x1k_d128_8k": Case("even", 8192, 128),
    "documents8_d128_8k": Case("documents", 8192, 128),
    "prefix1024_d128_8k": Case("prefix", 8192, 128),
    "sinks_window1024_d128_8k": Case("sinks", 8192, 128),
    "all_d64_8k": Case("all", 8192, 64),
    "causal_d128_8k": Case("causal", 8192, 128),
    "causal_d128_4k": Case("causal", 4096, 128),
    "causal_d128_2k": Case("causal", 2048, 128),
    "causal_d96_8k": Case("causal", 8192, 96),
    "causal_d192_8k": Case("causal", 8192, 192),
    "causal_d256_8k": Case("causal", 8192, 256),
    "all_d256_8k": Case("all", 8192, 256),
    "window1024_d256_8k": Case("window", 8192, 256),
}


# ---- masks -----------------------------------------------------------------


def rule(case):
    """mask_mod of FlexAttention, and of the dense matrix; None: all."""
    if case.kind == "causal":
        return lambda b, h, q, k: k <= q
    if case.kind == "window":
        return lambda b, h, q, k: (k <= q) & (q - k < 1024)
    if case.kind == "sinks":
        return lambda b, h, q, k: (k <= q) & ((q - k < 1024) | (k < 4))
    if case.kind == "prefix":
        return lambda b, h, q, k: (k <= q) | (k < 1024)
    if case.kind in ("even", "documents"):
        lengths = torch.tensor(case.lengths)
        doc = torch.arange(len(lengths)).repeat_interleave(lengths).cuda()
        return lambda b, h, q, k: (k <= q) & (doc[q] == doc[k])
    return None


def dense(case):
    i = torch.arange(case.time, device="cuda")
    return rule(case)(0, 0, i[:, None], i[None, :])


def pairs_of(case):
    """Visible pairs of a head, in all sequences."""
    mod = rule(case)
    pairs = int(dense(case).sum()) if mod else case.time * case.time
    return pairs * case.batch


def mask_of(case):
    """bauta's, of one sequence."""
    time, masks = case.time, bauta.Mask
    if case.kind == "causal":
        return masks.causal(time)
    if case.kind == "window":
        return masks.window(time, window=1024)
    if case.kind == "sinks":
        return masks.window(time, window=1024) | masks.sinks(time, sinks=4)
    if case.kind == "prefix":
        return masks.prefix(time, prefix=1024)
    if case.kind in ("even", "documents"):
        return masks.from_lengths(case.lengths, causal=True)
    return masks.all(time)


# ---- systems ---------------------------------------------------------------
#
# Each takes a case and q, k, v (batch, heads, tokens, dim), which are
# (batch, tokens, heads, dim) in memory, and yields names and calls.


def first(result):
    """The output: some versions also return the log-sum-exp."""
    return result[0] if isinstance(result, tuple) else result


def ends_of(case):
    """Where documents end in the packed batch, and the longest."""
    ends = [0]
    for length in case.lengths * case.batch:
        ends.append(ends[-1] + length)
    ends = torch.tensor(ends, dtype=torch.int32, device="cuda")
    return ends, max(case.lengths)


def flattened(tensors):
    return [x.transpose(1, 2).flatten(0, 1) for x in tensors]


def as_batch(case, out):
    """(tokens, heads, dim) as the other systems have it."""
    return out.unflatten(0, (case.batch, case.time)).transpose(1, 2)


def bauta_calls(case, q, k, v):
    if bauta:
        mask = mask_of(case)
        yield "bauta", lambda: bauta.torch.attention(q, k, v, mask)


def flash3_calls(case, *qkv):
    if not flash_attn_func or case.kind in ("prefix", "sinks"):
        return
    options = {"causal": case.kind != "all"}
    if case.kind == "window":
        options["window_size"] = (1023, 0)
    if len(case.lengths) > 1:
        ends, longest = ends_of(case)
        flat = flattened(qkv)
        options.update(max_seqlen_q=longest, max_seqlen_k=longest)

        def call(det):
            out = flash_attn_varlen_func(
                *flat, ends, ends, deterministic=det, **options
            )
            return as_batch(case, first(out))

    else:
        inputs = [x.transpose(1, 2) for x in qkv]

        def call(det):
            out = flash_attn_func(*inputs, deterministic=det, **options)
            return first(out).transpose(1, 2)

    yield "flash3", lambda: call(False)
    yield "flash3-det", lambda: call(True)


def sdpa_calls(case, *qkv):
    options = {"enable_gqa": case.group > 1}
    if case.kind in ("all", "causal"):
        for name, backend in (
            ("cudnn", SDPBackend.CUDNN_ATTENTION),
            ("flash2", SDPBackend.FLASH_ATTENTION),
        ):

            def call(backend=backend):
                with sdpa_kernel(backend):
                    return F.scaled_dot_product_attention(
                        *qkv, is_causal=case.kind == "causal", **options
                    )

            yield name, call
    else:
        matrix = dense(case)
        yield (
            "dense",
            lambda: F.scaled_dot_product_attention(
                *qkv, attn_mask=matrix, **options
            ),
        )


def varlen_calls(case, *qkv):
    if not varlen_attn or case.kind in ("all", "causal", "prefix", "sinks"):
        return
    ends, longest = ends_of(case)
    flat = flattened(qkv)
    window = (1023, 0) if case.kind == "window" else (-1, 0)

    def call():
        out = varlen_attn(
            *flat, ends, ends, longest, longest, window_size=window
        )
        return as_batch(case, first(out))

    yield "flash2", call


def flex_calls(case, q, k, v):
    from torch.nn.attention import flex_attention as flex

    mod = rule(case)
    size = case.time
    block = flex.create_block_mask(mod, None, None, size, size) if mod else None
    torch._dynamo.reset()  # each case compiled for its own shape
    compiled = torch.compile(flex.flex_attention)
    yield (
        "flex",
        lambda: compiled(q, k, v, block_mask=block, enable_gqa=case.group > 1),
    )


def calls(case, qkv, wanted):
    makers = [bauta_calls, flash3_calls, sdpa_calls, varlen_calls]
    makers += [flex_calls] if "flex" in wanted else []
    made = dict(pair for maker in makers for pair in maker(case, *qkv))
    return {name: made[name] for name in wanted if name in made}


# ---- timing ----------------------------------------------------------------


def waiting(rest):
    """A call that keeps the GPU busy while the next one is queued."""
    if rest:
        return lambda: torch.cuda._sleep(2_000_000)  # cycles
    x = torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16)
    y = torch.empty_like(x)

    def products():
        for _ in range(2):
            torch.mm(x, x, out=y)

    return products


def one_ms(call, wait):
    start = torch.cuda.Event(enable_timing=True)
    stop = torch.cuda.Event(enable_timing=True)
    wait()
    start.record()
    call()
    stop.record()
    stop.synchronize()
    return start.elapsed_time(stop)


def in_turns(made, wait):
    """Medians by the names of calls."""
    times = {name: [] for name in made}
    for _ in range(ROUNDS):
        for name, call in made.items():
            times[name] += [one_ms(call, wait) for _ in range(RUNS + 1)][1:]
    return {name: statistics.median(each) for name, each in times.items()}


def off(x, y):
    x, y = x.float(), y.float()
    return ((x - y).square().mean() / y.square().mean()).sqrt().item()


def prepared(name, which, made, inputs):
    """The calls that run, in the pass that is timed, after one call of each
    whose results are compared."""
    ready, want = {}, None
    for system, call in made.items():
        try:
            if which == "forward":
                with torch.no_grad():
                    found = [call()]
                ready[system] = call
            else:
                out = call()
                torch.manual_seed(1)
                dout = torch.randn(out.shape, device="cuda", dtype=out.dtype)
                dout = torch.empty_like(out).copy_(dout)
                ready[system] = lambda out=out, dout=dout: torch.autograd.grad(
                    out, inputs, dout, retain_graph=True
                )
                found = ready[system]()
            torch.cuda.synchronize()
        except Exception as error:  # one that refuses is a result
            ready.pop(system, None)
            text = (str(error).strip() or type(error).__name__).split("\n")[0]
            print(f"# {name} {which} {system}: {text[:100]}", flush=True)
            continue
        want = want or found
        worst = max(map(off, found, want))
        if not worst < 0.02:
            print(f"# {name} {which} {system}: off by {worst:.1e}", flush=True)
    return ready


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
            f"{name:26} {which:8} {system:10} {rate:8.1f} TFLOP/s "
            f"{ms:9.4f} ms",
            flush=True,
        )


def inputs_of(case):
    return [
        torch.randn(
            case.batch,
            case.time,
            heads,
            case.d,
            device="cuda",
            dtype=torch.bfloat16,
        )
        .transpose(1, 2)
        .requires_grad_()
        for heads in (
            case.heads,
            case.heads // case.group,
            case.heads // case.group,
        )
    ]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("cases", nargs="*", default=list(CASES))
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--systems", default=",".join(SYSTEMS))
    parser.add_argument("--passes", default=",".join(PRODUCTS))
    parser.add_argument("--rest", action="store_true")
    options = parser.parse_args()
    wait = waiting(options.rest)
    for name in options.cases:
        case = CASES[name]
        torch.manual_seed(0)
        inputs = inputs_of(case)
        work = 2 * case.d * pairs_of(case) * case.heads
        made = calls(case, inputs, options.systems.split(","))
        for which in options.passes.split(","):
            with torch.set_grad_enabled(which == "backward"):
                ready = prepared(name, which, made, inputs)
                times = in_turns(ready, wait)
            for system, ms in times.items():
                rate = PRODUCTS[which] * work / (ms * 1e9)
                report(options.json, system, name, which, rate, ms)


if __name__ == "__main__":
    main()
