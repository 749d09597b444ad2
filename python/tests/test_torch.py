# SPDX-License-Identifier: Apache-2.0
"""bauta.torch on the CPU, against PyTorch's own attention in float64."""

from __future__ import annotations

import gc
import random
import warnings

import bauta
from bauta import Mask
from support import all_raise, need, raises, seed

np = need("numpy")
torch = need("torch")
import bauta.torch as bt

PLAIN = (0.0, None, None, None)  # neither softcap nor bias
sdpa = torch.nn.functional.scaled_dot_product_attention


def laid_out(rng, tensor):
    """The same numbers with other strides."""
    kind = rng.randrange(6)
    if kind == 0:
        tensor = tensor.transpose(1, 2).contiguous().transpose(1, 2)
    elif kind == 1:
        tensor = torch.cat([tensor, tensor], 3)[..., : tensor.shape[3]]
    elif kind == 2:
        tensor = torch.cat([tensor, tensor], 2)[:, :, : tensor.shape[2]]
    elif kind == 3:  # the last axis is not contiguous
        tensor = tensor.transpose(2, 3).contiguous().transpose(2, 3)
    elif kind == 4:
        tensor = tensor.permute(2, 0, 1, 3).contiguous().permute(1, 2, 0, 3)
    return tensor.detach().requires_grad_()


def random_problem(number):
    rng = random.Random(number)
    torch.manual_seed(number)
    batch, kv_heads = rng.randint(1, 3), rng.randint(1, 3)
    heads = kv_heads * rng.randint(1, 2)
    queries, keys = rng.choice([1, 9, 70]), rng.choice([1, 5, 64, 100])
    dim, value_dim = rng.choice([4, 33]), rng.choice([4, 20])
    q = laid_out(rng, torch.randn(batch, heads, queries, dim))
    k = laid_out(rng, torch.randn(batch, kv_heads, keys, dim))
    v = laid_out(rng, torch.randn(batch, kv_heads, keys, value_dim))
    count = batch if rng.random() < 0.4 else 1
    masks = []
    for _ in range(count):
        visible = torch.rand(queries, keys) < rng.choice([0.2, 0.7, 2.0])
        visible[:, 0] = True  # PyTorch gives NaN to a query that sees nothing
        masks.append(Mask.dense(visible.numpy()))
    return q, k, v, masks


def close(got, want, case):
    error = (got.double() - want).abs()
    # As in test_attention.py.
    assert (error <= 1e-4 * (1 + want.abs())).all(), (case, error.max())


def gradients(out, weight, inputs):
    return torch.autograd.grad((out * weight.to(out.dtype)).sum(), inputs)


def test_random_problems_agree_with_float64():
    first = seed()
    for number in range(first, first + 40):
        q, k, v, masks = random_problem(number)
        scale = random.Random(number).choice([None, 0.4])
        mask = masks[0] if len(masks) == 1 else masks
        out = bt.attention(q, k, v, mask, scale=scale)
        visible = torch.stack([torch.from_numpy(m.to_dense()) for m in masks])[:, None]
        double = [t.detach().double().requires_grad_() for t in (q, k, v)]
        want = sdpa(*double, attn_mask=visible, scale=scale, enable_gqa=True)
        close(out, want, number)
        weight = torch.randn(out.shape)
        got = gradients(out, weight, (q, k, v))
        for x, y in zip(got, gradients(want, weight, double)):
            close(x, y, number)
        # sum() sends a gradient that repeats one element.
        torch.autograd.grad(bt.attention(q, k, v, mask).sum(), (q, k, v))


def test_results_are_those_of_numpy_to_the_bit():
    first = seed()
    for number in range(first, first + 10):
        q, k, v, masks = random_problem(number)
        masks = masks * (q.shape[0] // len(masks))
        out, lse = bt.attention(q, k, v, masks, return_lse=True)
        arrays = [t.detach().contiguous().numpy() for t in (q, k, v)]
        want, want_lse = bauta.attention(*arrays, masks, return_lse=True)
        assert np.array_equal(out.detach().numpy(), want)
        assert np.array_equal(lse.detach().numpy(), want_lse)


def ways():
    """How the extension module reads tensors: by PyTorch's C functions, if it has
    them, and by attributes. The last is the first again."""
    known = getattr(torch.Tensor, "__dlpack_c_exchange_api__", None)
    for exchange in (known, None, known):
        assert bt._setup(exchange) == (exchange is not None)
        yield exchange is not None


def test_both_paths_have_the_same_bits():
    """The operator, and the call that goes around PyTorch's dispatcher."""
    first = seed()
    for number in range(first, first + 15):
        q, k, v, masks = random_problem(number)
        mask = masks[0] if len(masks) == 1 else masks
        ids = [each._id for each in masks]
        want, want_lse = bt._attention_forward(q, k, v, ids, 0.0, False, *PLAIN)
        weight = torch.randn_like(want)
        want_grads = gradients(want, weight, (q, k, v))
        for way in ways():
            out, lse = bt.attention(q, k, v, mask, return_lse=True)
            assert torch.equal(out, want) and torch.equal(lse, want_lse), number
            assert out.stride() == want.stride() and not lse.requires_grad
            got = gradients(bt.attention(q, k, v, mask), weight, (q, k, v))
            for x, y in zip(got, want_grads):
                assert torch.equal(x, y) and x.stride() == y.stride(), (number, way)
            with torch.no_grad():
                assert torch.equal(bt.attention(q, k, v, mask), want), number


def test_packed_tensors_have_the_bits_of_a_batch_of_one():
    first = seed()
    for number in range(first, first + 10):
        q, k, v, masks = random_problem(number)
        four = [t[:1].detach().requires_grad_() for t in (q, k, v)]
        three = [t[0].transpose(0, 1).detach().requires_grad_() for t in four]
        want, want_lse = bt.attention(*four, masks[0], return_lse=True)
        weight = torch.randn_like(want)
        want_grads = gradients(want, weight, four)
        for _ in ways():
            out, lse = bt.attention(*three, masks[0], return_lse=True)
            assert torch.equal(out.transpose(0, 1), want[0]), number
            assert torch.equal(lse.T, want_lse[0]), number
            got = gradients(out, weight[0].transpose(0, 1), three)
            for x, y in zip(got, want_grads):
                assert torch.equal(x.transpose(0, 1), y[0]), number


def test_which_calls_go_around_the_dispatcher():
    torch.manual_seed(seed())
    q, k, v = torch.randn(3, 2, 6, 4, 8)  # (batch, tokens, heads, dim)
    mask = Mask.causal(6)
    plain = [t.transpose(1, 2) for t in (q, k, v)]

    class Subclass(torch.Tensor):
        pass

    def negated(x):
        return torch.complex(torch.zeros_like(x), -x).conj().imag

    def freed(x):
        x = x.clone()
        x.untyped_storage().resize_(0)
        return x

    def cut(x):
        x = x.clone()
        x.untyped_storage().resize_(x.untyped_storage().nbytes() - 4)
        return x

    others = {
        "another type": lambda x: x.double(),
        "another rank": lambda x: x[None],
        "another length": lambda x: x[:, :, :5],
        "a stride of the last axis": lambda x: x.repeat_interleave(2, 3)[..., ::2],
        "a repeated axis": lambda x: x[:, :1].expand(-1, 4, -1, -1),
        "no element": lambda x: x[:0],
        "a subclass": lambda x: x.as_subclass(Subclass),
        "a negated view": negated,
        "memory that was freed": freed,
        "memory that was cut": cut,
        "no tensor": lambda x: x.numpy(),
        "the device meta": lambda x: x.to("meta"),
        "a sparse layout": lambda x: x.to_sparse(),
    }
    call = bt._core.torch_attention
    for way in ways():
        want = bt.attention(*plain, mask)
        assert torch.equal(call(*plain, mask, None, False), want)
        assert torch.equal(call(*(t.contiguous() for t in plain), mask, None, False), want)
        parameters = [torch.nn.Parameter(t) for t in plain]
        assert torch.equal(call(*parameters, mask, None, False), want)
        assert call(q[0], k[0], v[0], mask, 0.5, True)[1].shape == (6, 4)
        for name, change in others.items():
            for i in range(3):
                wrong = list(plain)
                wrong[i] = change(wrong[i])
                assert call(*wrong, mask, None, False) is None, (name, i, way)
        assert call(*plain, [mask], None, False) is None
        assert call(*plain, Mask.causal(5), None, False) is None
        assert call(*plain, mask, 0.0, False) is None
        assert call(*plain, mask, float("nan"), False) is None
        assert call(*plain, mask, 1, False) is None
        with torch.autocast("cpu"):
            assert call(*plain, mask, None, False) is None
        torch.vmap(lambda x: check_none(call(x, x, x, mask, None, False), x))(q[None])
        with torch.utils._python_dispatch.TorchDispatchMode():
            assert call(*plain, mask, None, False) is None
    # What is not served there is the same call.
    assert torch.equal(bt.attention(negated(plain[0]), *plain[1:], mask), want)
    assert torch.equal(bt.attention(*plain, [mask] * 2), want)


def check_none(result, tensor):
    assert result is None
    return tensor


def test_the_gradient_of_a_gradient_is_an_error():
    q = torch.randn(1, 2, 5, 8, requires_grad=True)
    out = bt.attention(q, q, q, Mask.causal(5))
    weight = torch.randn_like(out).requires_grad_()
    (first,) = torch.autograd.grad(out, q, weight, create_graph=True)
    with raises(RuntimeError, "differentiate twice"):
        first.sum().backward()


def test_opcheck():
    first = seed()
    for number in range(first, first + 8):
        q, k, v, masks = random_problem(number)
        ids = [mask._id for mask in masks]
        torch.library.opcheck(
            torch.ops.bauta.attention_forward.default,
            (q, k, v, ids, 0.0, False, *PLAIN),
        )
        out, lse = bt._attention_forward(q, k, v, ids, 0.0, False, *PLAIN)
        inputs = (torch.randn_like(out), q, k, v, out, lse)
        inputs = tuple(t.detach() for t in inputs)
        torch.library.opcheck(
            torch.ops.bauta.attention_backward.default,
            (*inputs, ids, 0.0, *PLAIN, False),
        )


def test_gradcheck():
    """float32, so differences are over a step of 1e-2 and compared to 1e-2."""
    torch.manual_seed(seed())
    q, k, v = (torch.randn(2, 2, 5, 3, requires_grad=True) for _ in range(3))
    mask = Mask.window(5, window=3)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert torch.autograd.gradcheck(
            lambda *inputs: bt.attention(*inputs, mask),
            (q, k, v),
            eps=1e-2,
            atol=1e-2,
            rtol=1e-2,
        )


def test_compile_fullgraph():
    torch.manual_seed(seed())

    @torch.compile(fullgraph=True)
    def layer(q, k, v, mask):
        return bt.attention(q * 2, k, v, mask) * 3

    for transposed in (False, True):
        for batch in (1, 2, 3):
            inputs = [torch.randn(batch, 9, 4, 8) for _ in range(3)]
            inputs = [t.transpose(1, 2) if transposed else t for t in inputs]
            inputs = [t.detach().requires_grad_() for t in inputs]
            mask = Mask.window(inputs[0].shape[2], window=batch)
            got, want = layer(*inputs, mask), 3 * bt.attention(
                inputs[0] * 2, *inputs[1:], mask
            )
            assert torch.equal(got, want)
            weight = torch.randn_like(want)
            for x, y in zip(
                gradients(got, weight, inputs), gradients(want, weight, inputs)
            ):
                assert torch.equal(x, y)


def test_new_masks_recompile_at_most_once():
    from torch._dynamo.testing import CompileCounter

    counter = CompileCounter()
    layer = torch.compile(
        lambda q, mask: bt.attention(q, q, q, mask), fullgraph=True, backend=counter
    )
    q = torch.randn(1, 2, 6, 8)
    for window in range(1, 8):
        mask = Mask.window(6, window=window)
        assert torch.equal(layer(q, mask), bt.attention(q, q, q, mask))
    assert counter.frame_count <= 2, counter.frame_count


def test_masks_live_until_the_backward_pass():
    q = torch.randn(1, 1, 4, 8, requires_grad=True)
    compiled = torch.compile(lambda q, m: bt.attention(q, q, q, m), fullgraph=True)
    for layer in (lambda q, m: bt.attention(q, q, q, m), compiled):
        out = layer(q, Mask.causal(4))
        gc.collect()
        out.sum().backward()
    number = Mask.causal(4)._id
    with raises(bauta.ArgumentError, "was freed"):
        bt._attention_forward(q, q, q, [number], 0.0, False, *PLAIN)


def test_saved_tensors_are_those_of_autograd():
    torch.manual_seed(seed())
    q, k, v = torch.randn(3, 1, 2, 5, 4).unbind()
    q.requires_grad_()
    mask, seen = Mask.causal(5), []

    def unpack(tensor):
        seen.append(tensor.shape)
        return tensor

    (want,) = torch.autograd.grad(bt.attention(q, k, v, mask).sum(), q)
    with torch.autograd.graph.saved_tensors_hooks(torch.clone, unpack):
        out = bt.attention(q, k, v, mask)
    (got,) = torch.autograd.grad(out.sum(), q)
    assert torch.equal(got, want)
    assert seen == [q.shape] * 4 + [q.shape[:3]], seen
    for change in (lambda out: k.zero_(), lambda out: out.detach().zero_()):
        out = bt.attention(q, k, v, mask)
        change(out)
        with raises(RuntimeError, "modified by an inplace operation"):
            out.sum().backward()


def test_packed_tokens():
    torch.manual_seed(seed())
    q, k, v = (torch.randn(7, 4, 8, requires_grad=True) for _ in range(3))
    mask = Mask.from_lengths([3, 4], causal=True)
    out, lse = bt.attention(q, k, v, mask, return_lse=True)
    assert out.shape == (7, 4, 8) and lse.shape == (7, 4)
    assert out.is_contiguous() and not lse.requires_grad
    want = []
    for part in (slice(0, 3), slice(3, 7)):
        alone = [t[part].transpose(0, 1)[None].double() for t in (q, k, v)]
        want.append(sdpa(*alone, is_causal=True)[0].transpose(0, 1))
    close(out, torch.cat(want), "packed")
    out.sum().backward()
    assert q.grad.shape == q.shape


def test_padded_batch():
    torch.manual_seed(seed())
    q, k, v = torch.randn(3, 2, 3, 5, 8)
    mask = Mask.from_lengths([5, 2], 5, causal=True)
    k[1, :, 2:], v[1, :, 2:] = float("nan"), float("inf")
    out = bt.attention(q, k, v, mask)
    assert out.isfinite().all() and not out[1, :, 2:].any()
    close(out[:1], sdpa(*(t[:1].double() for t in (q, k, v)), is_causal=True), "first")


def test_scaled_dot_product_attention():
    torch.manual_seed(seed())
    q, k, v = torch.randn(2, 4, 6, 8), torch.randn(2, 4, 9, 8), torch.randn(2, 4, 9, 5)
    visible = torch.rand(6, 9) < 0.5
    visible[:, 0] = True
    each = torch.rand(2, 1, 6, 9) < 0.5
    each[..., 0] = True
    cases = [
        {},
        {"is_causal": True},
        {"attn_mask": visible},
        {"attn_mask": each},
        {"attn_mask": each[:1]},
        {"attn_mask": visible[:1]},
        {"attn_mask": each[:, :, :1]},
        {"scale": 0.1},
        {"attn_mask": torch.randn(6, 9)},
        {"attn_mask": torch.randn(2, 1, 1, 9)},
        {"attn_mask": torch.randn(4, 6, 1)},
        {"attn_mask": torch.zeros(6, 9).masked_fill(~visible, float("-inf"))},
    ]
    for options in cases:
        double = [t.double() for t in (q, k, v)]
        got = bt.scaled_dot_product_attention(q, k, v, **options)
        if "attn_mask" in options and options["attn_mask"].dtype != torch.bool:
            options = {"attn_mask": options["attn_mask"].double()}
        close(got, sdpa(*double, **options), options)
    short = [t[:, :, :4] for t in (k, v)]
    close(
        bt.scaled_dot_product_attention(q, *short, is_causal=True),
        sdpa(q.double(), *(t.double() for t in short), is_causal=True),
        "more queries than keys",
    )
    close(
        bt.scaled_dot_product_attention(q[0], k[0], v[0]),
        sdpa(q[0].double(), k[0].double(), v[0].double()),
        "three axes",
    )
    with raises(bauta.UnsupportedError, "dropout_p"):
        bt.scaled_dot_product_attention(q, k, v, dropout_p=0.1)
    with raises(TypeError, "bias is torch.float64"):
        bt.scaled_dot_product_attention(q, k, v, attn_mask=torch.zeros(6, 9).double())
    with raises(bauta.ArgumentError, "both"):
        bt.scaled_dot_product_attention(q, k, v, attn_mask=visible, is_causal=True)
    with raises(bauta.ArgumentError, "enable_gqa"):
        bt.scaled_dot_product_attention(q, k[:, :2], v[:, :2])
    bt.scaled_dot_product_attention(q, k[:, :2], v[:, :2], enable_gqa=True)


def test_flash_attn_func():
    rng = random.Random(seed())
    for _ in range(20):
        n, m = rng.randint(1, 9), rng.randint(1, 9)
        q, k, v = (
            torch.randn(2, n, 4, 8),
            torch.randn(2, m, 2, 8),
            torch.randn(2, m, 2, 8),
        )
        left, right = rng.randint(-1, 4), rng.randint(-1, 4)
        got = bt.flash_attn_func(q, k, v, window_size=(left, right))
        ahead = torch.arange(m)[None] - (torch.arange(n)[:, None] + m - n)
        visible = torch.ones(n, m, dtype=torch.bool)
        if left >= 0:
            visible &= ahead >= -left
        if right >= 0:
            visible &= ahead <= right
        double = [t.transpose(1, 2).double() for t in (q, k, v)]
        want = sdpa(*double, attn_mask=visible, enable_gqa=True).nan_to_num()
        want[:, :, ~visible.any(1)] = 0
        close(got, want.transpose(1, 2), (n, m, left, right))
    with raises(bauta.UnsupportedError, "dropout_p"):
        bt.flash_attn_func(q, k, v, dropout_p=0.5)
    with raises(bauta.UnsupportedError, "alibi_slopes"):
        bt.flash_attn_func(q, k, v, alibi_slopes=torch.ones(4))
    with raises(bauta.UnsupportedError, "alibi_slopes"):
        bt.flash_attn_func(q, k, v, causal=True, alibi_slopes=torch.ones(2, 4))


def plain_attention(q, k, v, visible, softcap=0.0, added=0.0):
    """PyTorch's own operations, with autograd."""
    scores = q @ k.transpose(2, 3) / q.shape[3] ** 0.5
    if softcap:
        scores = softcap * torch.tanh(scores / softcap)
    scores = (scores + added).masked_fill(~visible, float("-inf"))
    return scores.softmax(-1) @ v


def test_flash_attn_softcap_and_alibi():
    torch.manual_seed(seed())
    q, k, v = torch.randn(2, 5, 4, 8), torch.randn(2, 7, 4, 8), torch.randn(2, 7, 4, 8)
    slopes = torch.rand(4)
    got = bt.flash_attn_func(q, k, v, causal=True, softcap=1.5, alibi_slopes=slopes)
    ahead = torch.arange(7)[None] - (torch.arange(5)[:, None] + 2)
    double = [t.transpose(1, 2).double() for t in (q, k, v)]
    added = -slopes.double()[:, None, None] * ahead.abs()
    want = plain_attention(*double, ahead <= 0, 1.5, added)
    close(got, want.transpose(1, 2), "flash")
    # Packed sequences have the bits of sequences alone, however long they are.
    cu_q = torch.tensor([0, 3, 5], dtype=torch.int32)
    cu_k = torch.tensor([0, 6, 7], dtype=torch.int32)
    options = {"causal": True, "softcap": 1.5, "alibi_slopes": slopes}
    got = bt.flash_attn_varlen_func(q[0], k[0], v[0], cu_q, cu_k, **options)
    for rows, keys in ((slice(0, 3), slice(0, 6)), (slice(3, 5), slice(6, 7))):
        alone = bt.flash_attn_func(q[:1, rows], k[:1, keys], v[:1, keys], **options)
        assert torch.equal(got[rows], alone[0])


def random_bias(number, q, k):
    rng = random.Random(number)
    full = (*q.shape[:3], k.shape[2])
    shape = [rng.choice([1, size]) for size in full[:3]] + [full[3]]
    bias = torch.randn(shape)
    kind = rng.randrange(3)
    if kind == 0:  # the last axis is not contiguous
        bias = bias.transpose(2, 3).contiguous().transpose(2, 3)
    elif kind == 1:  # repeated elements
        bias = bias[:, :, :1].expand(*shape[:2], full[2], full[3])
    return bias.detach().requires_grad_()


def test_softcap_and_biases_agree_with_float64():
    first = seed()
    for number in range(first, first + 30):
        q, k, v, masks = random_problem(number)
        k, v = (t[:, :1].expand(-1, q.shape[1], -1, -1) for t in (k, v))
        softcap = random.Random(number).choice([0.0, 2.0])
        bias = random_bias(number, q, k)
        mask = masks[0] if len(masks) == 1 else masks
        out = bt.attention(q, k, v, mask, softcap=softcap, bias=bias)
        visible = torch.stack([torch.from_numpy(m.to_dense()) for m in masks])[:, None]
        double = [t.detach().double().requires_grad_() for t in (q, k, v, bias)]
        want = plain_attention(*double[:3], visible, softcap, double[3])
        close(out, want, number)
        weight = torch.randn(out.shape)
        for x, y in zip(
            gradients(out, weight, (q, k, v, bias)), gradients(want, weight, double)
        ):
            close(x, y, number)


def test_opcheck_and_gradcheck_with_biases():
    number = seed()
    torch.manual_seed(number)
    q, k, v = (torch.randn(2, 2, 5, 3, requires_grad=True) for _ in range(3))
    mask = Mask.window(5, window=3)
    slopes, positions = torch.rand(2), torch.arange(5)
    bias = torch.randn(1, 2, 5, 5, requires_grad=True)
    for terms in (
        (2.0, bias, None, None),
        (0.0, random_bias(number, q, k), None, None),
        (2.0, None, slopes, None),
        (0.0, None, slopes, positions),
    ):
        torch.library.opcheck(
            torch.ops.bauta.attention_forward.default,
            (q, k, v, [mask._id], 0.0, False, *terms),
        )
        out, lse = bt._attention_forward(q, k, v, [mask._id], 0.0, False, *terms)
        inputs = [t.detach() for t in (torch.randn_like(out), q, k, v, out, lse)]
        terms = tuple(t.detach() if torch.is_tensor(t) else t for t in terms)
        torch.library.opcheck(
            torch.ops.bauta.attention_backward.default,
            (*inputs, [mask._id], 0.0, *terms, terms[1] is not None),
        )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert torch.autograd.gradcheck(
            lambda q, k, v, bias: bt.attention(q, k, v, mask, softcap=3.0, bias=bias),
            (q, k, v, bias),
            eps=1e-2,
            atol=1e-2,
            rtol=1e-2,
        )
    slopes.requires_grad_()
    with raises(bauta.UnsupportedError, "no gradient"):
        bt.attention(q, k, v, mask, alibi_slopes=slopes).sum().backward()


def test_biases_compile():
    torch.manual_seed(seed())

    @torch.compile(fullgraph=True)
    def layer(q, k, v, bias, mask):
        return bt.attention(q, k, v, mask, softcap=5.0, bias=bias * 2)

    inputs = [torch.randn(2, 4, 9, 8, requires_grad=True) for _ in range(3)]
    inputs.append(torch.randn(4, 9, 9, requires_grad=True))
    mask = Mask.causal(9)
    got = layer(*inputs, mask)
    want = bt.attention(*inputs[:3], mask, softcap=5.0, bias=inputs[3] * 2)
    assert torch.equal(got, want)
    weight = torch.randn_like(want)
    for x, y in zip(gradients(got, weight, inputs), gradients(want, weight, inputs)):
        assert torch.equal(x, y)


def random_cache(number):
    """Sequences, and the same keys and values in blocks that are shuffled among
    others, whose contents must not matter."""
    rng = random.Random(number)
    torch.manual_seed(number)
    batch, heads, group = rng.randint(1, 4), rng.randint(1, 2), rng.randint(1, 2)
    dim, value_dim = rng.choice([4, 16]), rng.choice([4, 20])
    queries, size = rng.choice([1, 1, 5]), rng.choice([1, 16, 64])
    lengths = [rng.choice([queries, 30, 64, 65, 200]) for _ in range(batch)]
    most = max(-(-n // size) for n in lengths)
    blocks = batch * most + 3
    k_cache = torch.full((blocks, size, heads, dim), float("nan"))
    v_cache = torch.full((blocks, size, heads, value_dim), float("nan"))
    table = torch.randperm(blocks)[: batch * most].view(batch, most).int()
    sequences = []
    for b, n in enumerate(lengths):
        k, v = torch.randn(n, heads, dim), torch.randn(n, heads, value_dim)
        for j in range(n):
            k_cache[table[b, j // size], j % size] = k[j]
            v_cache[table[b, j // size], j % size] = v[j]
        sequences.append((torch.randn(n, heads * group, dim), k, v))
    q = torch.stack([q[-queries:] for q, _, _ in sequences])
    return q, k_cache, v_cache, table, torch.tensor(lengths).int(), sequences


def test_paged_attention_has_the_bits_of_the_forward_pass():
    first = seed()
    for number in range(first, first + 30):
        rng = random.Random(number)
        *paged, sequences = random_cache(number)
        queries = paged[0].shape[1]
        left = rng.choice([-1, 0, 10, 100])
        softcap = rng.choice([0.0, 3.0])
        options = {"softcap": softcap, "return_lse": True}
        kind = rng.choice(["window", "mask"])
        if kind == "window":
            got, lse = bt.paged_attention(*paged, window_size=(left, 0), **options)
            whole = [Mask._band(len(q), len(q), left, 0) for q, _, _ in sequences]
        else:
            whole = [
                Mask.causal(len(q)) & ~Mask.window(len(q), window=3)
                for q, _, _ in sequences
            ]
            rows = [mask[-queries:] for mask in whole]
            got, lse = bt.paged_attention(*paged, rows, **options)
        for b, (tensors, mask) in enumerate(zip(sequences, whole)):
            want, sums = bt.attention(*tensors, mask, **options)
            assert torch.equal(got[b], want[-queries:]), (number, b)
            assert torch.equal(lse[b], sums[-queries:].T), (number, b)


def test_paged_attention_does_not_read_blocks_before_a_window():
    q, k_cache, v_cache, table, lengths, _ = random_cache(7)
    lengths[:] = int(lengths.max())
    table = torch.randperm(len(k_cache))[: table.shape[1]].expand(len(q), -1).clone()
    k_cache.normal_(), v_cache.normal_()
    want = bt.paged_attention(q, k_cache, v_cache, table, lengths, window_size=(3, 0))
    size = k_cache.shape[1]
    first = (int(lengths[0]) - q.shape[1] - 3) // 64 * 64
    table[:, : first // size] = -1
    got = bt.paged_attention(q, k_cache, v_cache, table, lengths, window_size=(3, 0))
    assert first > 0 and torch.equal(got, want)


def test_paged_attention_opcheck_and_compile():
    first = seed()
    for number in range(first, first + 3):
        *paged, _ = random_cache(number)
        torch.library.opcheck(
            torch.ops.bauta.paged_attention.default, (*paged, [], -1, 0, 0.0, 0.0)
        )
    step = torch.compile(
        lambda *tensors: bt.paged_attention(*tensors) * 2, fullgraph=True
    )
    lengths = paged[4]
    for shorter in range(2):
        now = (*paged[:4], (lengths - shorter).clamp(min=1))
        assert torch.equal(step(*now), bt.paged_attention(*now) * 2)


def test_bad_block_tables_are_errors():
    q, k, v = (
        torch.randn(2, 1, 4, 8),
        torch.randn(6, 16, 2, 8),
        torch.randn(6, 16, 2, 8),
    )
    table = torch.tensor([[0, 1], [2, 3]])
    lengths = torch.tensor([20, 32])

    def run(q=q, k=k, v=v, table=table, lengths=lengths, mask=None):
        return bt.paged_attention(q, k, v, table, lengths, mask)

    cases = [
        (lambda: run(table=table + 4), ValueError, "blocks from 4 to 7"),
        (lambda: run(table=table - 1), ValueError, "blocks from -1"),
        (lambda: run(table=table[:1]), ValueError, "block_table is (1, 2)"),
        (lambda: run(table=table[0]), ValueError, "block_table is (2,)"),
        (lambda: run(table=table.float()), TypeError, "block_table is torch.float32"),
        (lambda: run(lengths=lengths + 1), ValueError, "33 tokens"),
        (lambda: run(lengths=-lengths), ValueError, "-32"),
        (lambda: run(lengths=lengths[:1]), ValueError, "cache_seqlens is (1,)"),
        (lambda: run(lengths=lengths.double()), TypeError, "cache_seqlens is"),
        (lambda: run(q=q[0]), ValueError, "q has 3 axes"),
        (lambda: run(q=q.double()), TypeError, "float"),
        (lambda: run(q=q[:, :, :3]), ValueError, "heads"),
        (lambda: run(q=q[..., :4]), ValueError, "k is"),
        (lambda: run(v=v[:5]), ValueError, "v_cache (5, 16, 2, 8)"),
        (lambda: run(mask=[Mask.causal(1, 20)]), ValueError, "1 masks"),
        (lambda: run(mask=[Mask.causal(1, 20)] * 2), ValueError, "1 x 20"),
    ]
    all_raise(cases)
    assert run().shape == (2, 1, 4, 8)


def test_flash_attn_varlen_func():
    torch.manual_seed(seed())
    q, k, v = torch.randn(7, 4, 8), torch.randn(9, 2, 8), torch.randn(9, 2, 8)
    cu_q = torch.tensor([0, 3, 7], dtype=torch.int32)
    cu_k = torch.tensor([0, 4, 9], dtype=torch.int32)
    got = bt.flash_attn_varlen_func(q, k, v, cu_q, cu_k, 4, 5, causal=True)
    for d in range(2):
        rows, keys = slice(cu_q[d], cu_q[d + 1]), slice(cu_k[d], cu_k[d + 1])
        alone = bt.flash_attn_func(
            q[None, rows], k[None, keys], v[None, keys], causal=True
        )
        assert torch.equal(got[rows], alone[0])


def test_autocast_computes_in_float32():
    q = torch.randn(1, 2, 5, 8)
    mask = Mask.causal(5)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        out = bt.attention(q.bfloat16(), q.bfloat16(), q.bfloat16(), mask)
    assert out.dtype == torch.float32
    rounded = q.bfloat16().float()
    assert torch.equal(out, bt.attention(rounded, rounded, rounded, mask))


def test_modules_train():
    """A layer with a window learns to copy its previous token."""
    torch.manual_seed(1)
    qkv = torch.nn.Linear(8, 24)
    optimizer = torch.optim.Adam(qkv.parameters(), 3e-2)
    mask = Mask.window(12, window=2) & ~Mask.window(12, window=1)
    losses = []
    for _ in range(60):
        x = torch.randn(4, 12, 8)
        q, k, v = (t.unsqueeze(1) for t in qkv(x).chunk(3, -1))
        out = bt.attention(q, k, v, mask)[:, 0]
        loss = (out[:, 1:] - x[:, :-1]).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 0.3 * losses[0], losses


def test_bad_tensors_are_errors():
    x = torch.randn(2, 2, 4, 8)
    mask = Mask.causal(4)
    run = lambda q=x, k=x, v=x, m=mask, **options: bt.attention(q, k, v, m, **options)
    meta = torch.empty(2, 2, 4, 8, device="meta")
    cases = [
        (lambda: run(q=x.double(), k=x.double(), v=x.double()), TypeError, "float64"),
        (lambda: run(q=x.bfloat16()), TypeError, "bfloat16"),
        (lambda: run(k=x.half()), TypeError, "k is torch.float16"),
        (lambda: run(q=x[0, 0]), ValueError, "2 axes"),
        (lambda: run(q=x[0]), ValueError, "q has 3 axes, k has 4"),
        (lambda: run(v=x[0]), ValueError, "v has 3 axes"),
        (lambda: run(k=meta), ValueError, "k is on meta"),
        (lambda: run(k=x[:1]), ValueError, "k is (1, 2, 4, 8)"),
        (lambda: run(v=x[:, :1]), ValueError, "v is"),
        (lambda: run(q=x[:, :1]), ValueError, "heads"),
        (lambda: run(m=Mask.causal(3)), ValueError, "3 x 3"),
        (lambda: run(m=Mask.all(8)), ValueError, "sees another"),
        (lambda: run(m=[mask]), ValueError, "1 masks"),
        (lambda: run(m=None), TypeError, ""),
        (lambda: run(scale=0.0), ValueError, "scale is 0"),
        (lambda: run(scale=float("inf")), ValueError, "scale is inf"),
    ]
    all_raise(cases)
    assert run().shape == x.shape


def test_tensors_are_numpy_arrays_to_the_plain_call():
    x = torch.randn(5, 2, 8)
    mask = Mask.causal(5)
    got = bauta.attention(x, x, x, mask)
    assert np.array_equal(got, bt.attention(x, x, x, mask).numpy())


def test_docstrings():
    import doctest

    results = doctest.testmod(bt)
    assert results.failed == 0 and results.attempted > 10


def test_gpus_are_reported():
    """The tests run without a GPU; the call that would use it says why not."""
    if bauta._core.gpu_count() == 0:
        with raises(bauta.Error):
            bauta._core.gpu_context(0, 0)
