# SPDX-License-Identifier: Apache-2.0
"""bauta.torch on a GPU, against PyTorch's own attention in float64. Skipped
without a GPU."""

from __future__ import annotations

import gc
import random
import threading
import unittest
import warnings

import bauta
from bauta import Mask
from support import need, raises, seed

torch = need("torch")
import bauta.torch as bt
from test_torch import PLAIN, gradients, laid_out, sdpa, ways

if not torch.cuda.is_available() or bauta._core.gpu_count() == 0:
    raise unittest.SkipTest("there is no GPU")

# The root mean square of errors, relative to that of the numbers: sums in
# float32, and inputs, weights and results rounded to 8 bits.
LIMIT = {torch.float32: 1e-5, torch.bfloat16: 1e-2}
DTYPES = (torch.float32, torch.bfloat16)


def off(got, want):
    error = (got.double() - want).square().mean().sqrt()
    return (error / (want.square().mean().sqrt() + 1e-9)).item()


def problem(number, dtype):
    """Tensors in random layouts, and one mask or one for each sequence."""
    rng = random.Random(number)
    torch.manual_seed(number)
    batch, kv_heads = rng.randint(1, 3), rng.randint(1, 3)
    heads = kv_heads * rng.randint(1, 2)
    queries, keys = rng.choice([1, 70, 200]), rng.choice([64, 100, 300])
    dim = rng.choice([64, 128])
    sizes = ((heads, queries), (kv_heads, keys), (kv_heads, keys))
    q, k, v = (
        laid_out(rng, torch.randn(batch, *size, dim, device="cuda", dtype=dtype))
        for size in sizes
    )
    masks = []
    for _ in range(batch if rng.random() < 0.4 else 1):
        visible = torch.rand(queries, keys) < rng.choice([0.2, 0.7, 2.0])
        visible[:, 0] = True  # PyTorch gives NaN to a query that sees nothing
        masks.append(Mask.dense(visible.numpy()))
    return q, k, v, masks


def dense(masks):
    matrices = [torch.from_numpy(mask.to_dense()) for mask in masks]
    return torch.stack(matrices)[:, None].cuda()


def test_random_problems_agree_with_float64():
    first = seed()
    for number in range(first, first + 30):
        for dtype in DTYPES:
            q, k, v, masks = problem(number, dtype)
            mask = masks[0] if len(masks) == 1 else masks
            out = bt.attention(q, k, v, mask)
            double = [t.detach().double().requires_grad_() for t in (q, k, v)]
            want = sdpa(*double, attn_mask=dense(masks), enable_gqa=True)
            case = (number, dtype)
            assert out.dtype == dtype and off(out, want) <= LIMIT[dtype], case
            weight = torch.randn_like(out)
            got = gradients(out, weight, (q, k, v))
            for x, y in zip(got, gradients(want, weight, double)):
                assert off(x, y) <= 2 * LIMIT[dtype] + (y.abs().max() == 0), case


def test_both_paths_have_the_same_bits():
    """The operator, and the call that goes around PyTorch's dispatcher, with both
    ways of reading tensors."""
    first = seed()
    for number in range(first, first + 10):
        q, k, v, masks = problem(number, DTYPES[number % 2])
        ids = [mask._id for mask in masks]
        mask = masks[0] if len(masks) == 1 else masks
        want, want_lse = bt._attention_forward(q, k, v, ids, 0.0, False, *PLAIN)
        weight = torch.randn_like(want)
        want_grads = gradients(want, weight, (q, k, v))
        for way in ways():
            out, lse = bt.attention(q, k, v, mask, return_lse=True)
            assert torch.equal(out, want) and torch.equal(lse, want_lse), number
            assert out.stride() == want.stride()
            got = gradients(bt.attention(q, k, v, mask), weight, (q, k, v))
            for x, y in zip(got, want_grads):
                assert torch.equal(x, y) and x.stride() == y.stride(), (number, way)
            with torch.no_grad():
                assert torch.equal(bt.attention(q, k, v, mask), want), number


def test_plain_calls_go_around_the_dispatcher():
    """(tokens, heads, dim), heads before tokens, tokens before heads."""
    torch.manual_seed(seed())
    mask = Mask.causal(70)
    call = bt._core.torch_attention
    for dtype in DTYPES:
        packed = torch.randn(3, 70, 4, 64, device="cuda", dtype=dtype).unbind()
        inner = torch.randn(3, 2, 70, 4, 64, device="cuda", dtype=dtype)
        inner = [t.transpose(1, 2) for t in inner.unbind()]
        outer = [t.contiguous() for t in inner]
        for given in (packed, inner, outer):
            given = [t.detach().requires_grad_() for t in given]
            out = call(*given, mask, None, False)
            assert out is not None and out.grad_fn is not None
            made = bt._core.torch_backward(
                *given, mask, None, False, *out.grad_fn.saved_tensors[3:], out.detach()
            )
            assert made is not None
            got = torch.autograd.grad(out, given, out.detach())
            assert all(torch.equal(x, y) for x, y in zip(made, got))


def test_threads_on_streams_of_their_own():
    torch.manual_seed(seed())
    q, k, v = torch.randn(3, 100, 2, 64, device="cuda", dtype=torch.bfloat16).unbind()
    mask = Mask.causal(100)
    want = bt.attention(q, k, v, mask)
    torch.cuda.synchronize()
    differ = []

    def work(number):
        stream = torch.cuda.Stream()
        with torch.cuda.stream(stream):
            for turn in range(20):
                own = mask if (number + turn) % 2 else Mask.causal(100)
                differ.append(not torch.equal(bt.attention(q, k, v, own), want))

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(differ) == 80 and not any(differ)


def test_opcheck():
    first = seed()
    for number in range(first, first + 2):
        for dtype in DTYPES:
            q, k, v, masks = problem(number, dtype)
            ids = [mask._id for mask in masks]
            torch.library.opcheck(
                torch.ops.bauta.attention_forward.default,
                (q, k, v, ids, 0.0, False, *PLAIN),
            )
            out, lse = bt._attention_forward(q, k, v, ids, 0.0, False, *PLAIN)
            inputs = [t.detach() for t in (torch.randn_like(out), q, k, v, out, lse)]
            torch.library.opcheck(
                torch.ops.bauta.attention_backward.default,
                (*inputs, ids, 0.0, *PLAIN, False),
            )


def test_gradcheck():
    """float32, so differences are over a step of 1e-2 and compared to 1e-2."""
    torch.manual_seed(seed())
    q, k, v = (
        torch.randn(1, 2, 5, 3, device="cuda", requires_grad=True) for _ in range(3)
    )
    mask = Mask.window(5, window=3)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert torch.autograd.gradcheck(
            lambda *inputs: bt.attention(*inputs, mask),
            (q, k, v),
            eps=1e-2,
            atol=1e-2,
            rtol=1e-2,
            nondet_tol=0.0,
        )


def test_a_batch_has_the_bits_of_its_sequences():
    torch.manual_seed(seed())
    lengths = [130, 1, 77]
    q, k, v = (
        torch.randn(sum(lengths), 4, 64, device="cuda", dtype=torch.bfloat16)
        for _ in range(3)
    )
    packed = bt.attention(q, k, v, Mask.from_lengths(lengths, causal=True))
    first = 0
    for length in lengths:
        part = slice(first, first + length)
        alone = bt.attention(q[part], k[part], v[part], Mask.causal(length))
        assert torch.equal(packed[part], alone)
        first += length


def test_compile_fullgraph():
    torch.manual_seed(seed())

    @torch.compile(fullgraph=True)
    def layer(q, k, v, mask):
        return bt.attention(q * 2, k, v, mask) * 3

    inputs = [
        torch.randn(2, 70, 4, 64, device="cuda", dtype=torch.bfloat16)
        .transpose(1, 2)
        .requires_grad_()
        for _ in range(3)
    ]
    for window in (3, 50):
        mask = Mask.window(70, window=window)
        got, want = layer(*inputs, mask), 3 * bt.attention(
            inputs[0] * 2, *inputs[1:], mask
        )
        assert off(got, want.double()) <= 1e-2
        weight = torch.randn_like(want)
        for x, y in zip(
            gradients(got, weight, inputs), gradients(want, weight, inputs)
        ):
            assert off(x, y.double()) <= 1e-2


def test_cuda_graphs():
    torch.manual_seed(seed())
    q, k, v = (
        torch.randn(
            1, 4, 200, 64, device="cuda", dtype=torch.bfloat16, requires_grad=True
        )
        for _ in range(3)
    )
    mask = Mask.causal(200)
    weight = torch.randn_like(q)

    def step():
        out = bt.attention(q, k, v, mask)
        return out, *gradients(out, weight, (q, k, v))

    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        step()  # makes the plan
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream):
        results = step()
    with torch.no_grad():
        for tensor in (q, k, v):
            tensor.copy_(torch.randn_like(tensor))
    graph.replay()
    torch.cuda.synchronize()
    for got, want in zip(results, step()):
        assert torch.equal(got, want)


def test_streams():
    torch.manual_seed(seed())
    q, k, v = (
        torch.randn(1, 2, 100, 64, device="cuda", dtype=torch.bfloat16)
        for _ in range(3)
    )
    mask = Mask.causal(100)
    want = bt.attention(q, k, v, mask)
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        got = bt.attention(q, k, v, mask)
    stream.synchronize()
    assert torch.equal(got, want)


def test_plans_of_freed_masks_are_used_again():
    torch.manual_seed(seed())
    q, k, v = (
        torch.randn(96, 2, 64, device="cuda", dtype=torch.bfloat16, requires_grad=True)
        for _ in range(3)
    )
    rng = random.Random(seed())
    made = 0
    create = bt._core.gpu_plan

    class Counted:
        def __getattr__(self, name):
            return getattr(bauta._core, name)

        def gpu_plan(self, *arguments):
            nonlocal made
            made += 1
            return create(*arguments)

    bt._core = Counted()
    try:
        for _ in range(40):
            first = rng.randint(1, 95)
            lengths = [first, 96 - first]
            mask = Mask.from_lengths(lengths, causal=True)
            out = bt.attention(q, k, v, mask)
            grads = gradients(out, torch.ones_like(out), (q, k, v))
            for part in (slice(0, first), slice(first, 96)):
                alone = [t[part] for t in (q, k, v)]
                want = bt.attention(*alone, Mask.causal(len(alone[0])))
                assert torch.equal(out[part], want)
                for x, y in zip(
                    grads, gradients(want, torch.ones_like(want), (q, k, v))
                ):
                    assert torch.equal(x[part], y[part])
            del mask, out, want
            gc.collect()
    finally:
        bt._core = bauta._core
    assert made <= 4, made


def test_autocast_computes_in_bfloat16():
    q = torch.randn(1, 2, 70, 64, device="cuda", requires_grad=True)
    with torch.autocast("cuda", torch.bfloat16):
        out = bt.attention(q, q, q, Mask.causal(70))
    assert out.dtype == torch.bfloat16
    out.float().sum().backward()
    assert q.grad.dtype == torch.float32


def test_errors():
    q = torch.randn(1, 2, 8, 64, device="cuda")
    mask = Mask.causal(8)
    with raises(TypeError, "float16"):
        bt.attention(q.half(), q.half(), q.half(), mask)
    with raises(ValueError, "k is on cpu"):
        bt.attention(q, q.cpu(), q, mask)
    odd = torch.randn(1, 2, 8, 12, device="cuda", dtype=torch.bfloat16)
    with raises(bauta.Error):
        bt.attention(odd, odd, odd, mask)
    assert torch.isfinite(bt.attention(q, q, q, mask)).all()
