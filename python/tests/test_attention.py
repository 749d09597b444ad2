# SPDX-License-Identifier: Apache-2.0
"""Attention and its gradients over NumPy arrays, against float64."""

from __future__ import annotations

import random
import threading

import bauta
from bauta import Mask
from support import all_raise, need, raises, seed

np = need("numpy")


def reference(q, k, v, visible, scale=None, dout=None, terms=(None, 0.0)):
    """float64 attention of (batch, heads, tokens, dim) under `visible` (batch,
    queries, keys): out and lse, and with dout the gradients, at last those of
    what is added to the scores. `terms` are a softcap and an addend."""
    q, k, v = (x.astype(np.float64) for x in (q, k, v))
    group = q.shape[1] // k.shape[1]
    kk, vv = k.repeat(group, 1), v.repeat(group, 1)
    scale = q.shape[3] ** -0.5 if scale is None else scale
    softcap, added = terms
    scores, slope = q @ kk.swapaxes(2, 3) * scale, 1.0
    if softcap:
        scores = np.tanh(scores / softcap)
        scores, slope = scores * softcap, 1 - scores**2
    scores = np.where(visible[:, None], scores + added, -np.inf)
    top = scores.max(-1, keepdims=True, initial=-np.inf)
    top = np.where(np.isfinite(top), top, 0.0)
    weights = np.exp(scores - top)
    total = weights.sum(-1, keepdims=True)
    with np.errstate(divide="ignore"):
        lse = (np.log(total) + top)[..., 0]
    weights = weights / np.where(total == 0, 1.0, total)
    out = weights @ vv
    if dout is None:
        return out, lse
    dout = dout.astype(np.float64)
    dweights = dout @ vv.swapaxes(2, 3)
    dadded = weights * (dweights - (dout * out).sum(-1, keepdims=True))
    dscores = dadded * slope * scale

    def fold(gradient):
        batch, _, tokens, dim = gradient.shape
        return gradient.reshape(batch, k.shape[1], group, tokens, dim).sum(2)

    dk = fold(dscores.swapaxes(2, 3) @ q)
    dv = fold(weights.swapaxes(2, 3) @ dout)
    return dscores @ kk, dk, dv, dadded


def unbroadcast(gradient, shape):
    """The sum over the axes on which a bias of this shape was broadcast."""
    wide = (1,) * (gradient.ndim - len(shape)) + tuple(shape)
    axes = tuple(i for i, size in enumerate(wide) if size == 1)
    return gradient.sum(axes, keepdims=True).reshape(shape)


def random_mask(rng, queries, keys):
    share = rng.choice([0.1, 0.5, 0.9])
    kinds = [
        lambda: Mask.all(queries, keys),
        lambda: Mask.causal(queries, keys),
        lambda: Mask.window(queries, keys, window=rng.randint(1, 40)),
        lambda: Mask.prefix(queries, keys, prefix=rng.randint(0, keys)),
        lambda: Mask.dense(
            np.random.default_rng(rng.randrange(1 << 30)).random((queries, keys))
            < share
        ),
    ]
    return rng.choice(kinds)()


def laid_out(numbers, array):
    """The same numbers with other strides: (batch, tokens, heads, dim), a part
    of a larger array, or dense."""
    kind = numbers.integers(4)
    if kind == 0:
        return array
    if kind == 1:
        return np.ascontiguousarray(array.swapaxes(1, 2)).swapaxes(1, 2)
    if kind == 2:
        batch, heads, tokens, dim = array.shape
        whole = np.full((batch, heads, tokens, dim + 3), np.nan, np.float32)
        whole[..., :dim] = array
        return whole[..., :dim]
    return np.ascontiguousarray(array.transpose(2, 1, 0, 3)).transpose(2, 1, 0, 3)


def random_problem(number):
    rng, numbers = random.Random(number), np.random.default_rng(number)
    batch, kv_heads = rng.randint(1, 3), rng.randint(1, 3)
    heads = kv_heads * rng.randint(1, 3)
    queries, keys = rng.choice([1, 7, 64, 90]), rng.choice([1, 5, 64, 130])
    dim, value_dim = rng.choice([1, 8, 33]), rng.choice([1, 8, 20])
    normal = lambda *shape: laid_out(
        numbers, numbers.standard_normal(shape).astype(np.float32)
    )
    q = normal(batch, heads, queries, dim)
    k = normal(batch, kv_heads, keys, dim)
    v = normal(batch, kv_heads, keys, value_dim)
    dout = normal(batch, heads, queries, value_dim)
    each = rng.random() < 0.4
    masks = [random_mask(rng, queries, keys) for _ in range(batch if each else 1)]
    return q, k, v, dout, masks, batch


def masks_argument(masks, batch, rng):
    if len(masks) == 1 and batch != 1:
        return masks[0]
    return Mask.pack(masks) if rng.random() < 0.5 else masks


def close(got, want, case):
    # A sum of n products of normal numbers, n up to 130, each rounded to 2^-24;
    # exp() and the division add a few units. 1e-4 is ten times what is seen.
    assert got.dtype == np.float32 and got.shape == want.shape, case
    with np.errstate(invalid="ignore"):  # lse is -inf where nothing is seen
        error = np.abs(got - want)
        same = (got == want) | (error <= 1e-4 * (1 + np.abs(want)))
    assert same.all(), (case, error.max())


def test_random_problems_agree_with_float64():
    first = seed()
    for number in range(first, first + 60):
        q, k, v, dout, masks, batch = random_problem(number)
        rng = random.Random(number)
        scale = rng.choice([None, 0.3, -0.7])
        mask = masks_argument(masks, batch, rng)
        visible = np.stack([m.to_dense() for m in masks * (batch // len(masks))])
        out, lse = bauta.attention(q, k, v, mask, scale=scale, return_lse=True)
        want, want_lse = reference(q, k, v, visible, scale)
        close(out, want, number)
        close(lse, want_lse, number)
        again = bauta.attention(q, k, v, mask, scale=scale)
        assert np.array_equal(out, again)
        gradients = bauta.attention_backward(dout, q, k, v, out, lse, mask, scale=scale)
        wanted = reference(q, k, v, visible, scale, dout)
        for gradient, want in zip(gradients, wanted):
            close(gradient, want, number)


def random_terms(number, q, k):
    """A softcap and a bias of the scores, as arguments and added up."""
    rng, numbers = random.Random(number), np.random.default_rng(number + 1)
    batch, heads, queries, keys = (*q.shape[:3], k.shape[2])
    options = {"softcap": rng.choice([None, 0.0, 2.5])}
    kind = rng.choice(["bias", "slopes", "none"])
    if kind == "slopes":
        slopes = numbers.random(heads, np.float32)
        options["alibi_slopes"] = slopes
        last = np.arange(queries) + keys - queries
        if rng.random() < 0.5:
            options["positions"] = last = numbers.integers(0, 50, queries)
        ahead = np.arange(keys) - last[:, None]
        return options, slopes[:, None, None].astype(np.float64) * ahead
    shape = [rng.choice([1, size]) for size in (batch, heads, queries)] + [keys]
    while shape[0] == 1 and rng.random() < 0.5 and len(shape) > 1:
        shape.pop(0)
    bias = numbers.standard_normal(shape).astype(np.float32)
    if kind == "none":
        return options, np.zeros(1)
    if len(shape) == 4:
        bias = laid_out(numbers, bias)
    options["bias"] = bias
    return options, bias.astype(np.float64)


def test_softcap_and_biases_agree_with_float64():
    first = seed()
    for number in range(first, first + 60):
        q, k, v, dout, masks, batch = random_problem(number)
        options, added = random_terms(number, q, k)
        visible = np.stack([m.to_dense() for m in masks * (batch // len(masks))])
        mask = masks_argument(masks, batch, random.Random(number))
        out, lse = bauta.attention(q, k, v, mask, return_lse=True, **options)
        terms = options["softcap"], added
        want, want_lse = reference(q, k, v, visible, None, terms=terms)
        close(out, want, number)
        close(lse, want_lse, number)
        got = bauta.attention_backward(dout, q, k, v, out, lse, mask, **options)
        *wanted, dscores = reference(q, k, v, visible, None, dout, terms)
        assert len(got) == (4 if "bias" in options else 3)
        if "bias" in options:
            wanted.append(unbroadcast(dscores, options["bias"].shape))
        for gradient, want in zip(got, wanted):
            close(gradient, want, number)


def test_biases_of_packed_sequences_count_from_their_first_key():
    numbers = np.random.default_rng(seed())
    q, k, v, dout = numbers.standard_normal((4, 9, 2, 8)).astype(np.float32)
    bias = numbers.standard_normal((2, 9, 5)).astype(np.float32)
    slopes = numbers.random(2, np.float32)
    packed = Mask.from_lengths([4, 5], causal=True)
    for options in ({"bias": bias, "softcap": 3.0}, {"alibi_slopes": slopes}):
        out, lse = bauta.attention(q, k, v, packed, return_lse=True, **options)
        got = bauta.attention_backward(dout, q, k, v, out, lse, packed, **options)
        for rows in (slice(0, 4), slice(4, 9)):
            n = rows.stop - rows.start
            own = dict(options)
            if "bias" in own:
                own["bias"] = bias[:, rows]
            mask = Mask.causal(n)
            alone, sums = bauta.attention(
                q[rows], k[rows], v[rows], mask, return_lse=True, **own
            )
            assert np.array_equal(alone, out[rows])
            want = bauta.attention_backward(
                dout[rows], q[rows], k[rows], v[rows], alone, sums, mask, **own
            )
            for x, y in zip(want[:3], got[:3]):
                assert np.array_equal(x, y[rows])
            if "bias" in own:
                assert np.array_equal(want[3], got[3][:, rows])


def test_biases_of_hidden_keys_are_never_read():
    numbers = np.random.default_rng(seed())
    q, k, v, dout = numbers.standard_normal((4, 1, 2, 70, 8)).astype(np.float32)
    bias = numbers.standard_normal((1, 1, 70, 70)).astype(np.float32)
    mask = Mask.window(70, window=20)
    results = []
    for hidden in (0.0, np.nan):
        bias[..., ~mask.to_dense()] = hidden
        out, lse = bauta.attention(q, k, v, mask, bias=bias, return_lse=True)
        grads = bauta.attention_backward(dout, q, k, v, out, lse, mask, bias=bias)
        assert not grads[3][..., ~mask.to_dense()].any()
        results.append((out, lse, *grads))
    for x, y in zip(*results):
        assert np.array_equal(x, y)
    bias[..., ~mask.to_dense()] = -np.inf  # the same weights, by other means
    close(bauta.attention(q, k, v, Mask.all(70), bias=bias), out, "-inf")


def test_bad_biases_are_errors_with_a_sentence():
    x = np.ones((2, 2, 4, 8), np.float32)
    mask = Mask.causal(4)
    run = lambda **options: bauta.attention(x, x, x, mask, **options)
    ones = lambda *shape: np.ones(shape, np.float32)
    cases = [
        ({"softcap": -1.0}, ValueError, "softcap is -1"),
        ({"softcap": float("nan")}, ValueError, "softcap is"),
        ({"bias": ones(2, 3, 4, 4)}, ValueError, "(2, 3, 4, 4)"),
        ({"bias": ones(3, 1, 1, 4)}, ValueError, "broadcast"),
        ({"bias": ones(1, 1, 3, 4)}, ValueError, "broadcast"),
        ({"bias": ones(4, 3)}, ValueError, "bias has 3 keys"),
        ({"bias": ones(4, 1)}, ValueError, "bias has 1 keys"),
        ({"bias": ones(1, 2, 2, 4, 4)}, ValueError, "5 axes"),
        ({"bias": np.ones((4, 4))}, TypeError, "bias has the dtype float64"),
        ({"bias": ones(4, 8)[:, ::2]}, ValueError, "contiguous"),
        ({"bias": np.broadcast_to(ones(4), (4, 4))}, ValueError, "repeats"),
        ({"bias": [1.0]}, TypeError, "list"),
        ({"alibi_slopes": ones(3)}, ValueError, "alibi_slopes is"),
        ({"alibi_slopes": ones(2, 2)}, ValueError, "2 axes"),
        ({"alibi_slopes": ones(4)[::2]}, ValueError, "contiguous"),
        ({"alibi_slopes": ones(2), "bias": ones(4, 4)}, ValueError, ""),
        ({"positions": [0, 1, 2, 3]}, ValueError, "without alibi_slopes"),
        ({"alibi_slopes": ones(2), "positions": [0, 1]}, ValueError, ""),
        ({"alibi_slopes": ones(2), "positions": [-1] * 4}, ValueError, "from 0"),
        ({"alibi_slopes": ones(2), "positions": [0.5] * 4}, TypeError, "float64"),
    ]
    for options, kind, text in cases:
        try:
            with raises(kind, text):
                run(**options)
        except AssertionError as error:
            raise AssertionError(f"{options}: {error}") from None


def test_layouts_and_batches_change_no_bit():
    first = seed()
    for number in range(first, first + 20):
        q, k, v, dout, masks, batch = random_problem(number)
        masks = masks * (batch // len(masks))
        out, lse = bauta.attention(q, k, v, masks, return_lse=True)
        gradients = bauta.attention_backward(dout, q, k, v, out, lse, masks)
        for b in range(batch):
            alone = [np.ascontiguousarray(x[b : b + 1]) for x in (q, k, v, dout)]
            o, l = bauta.attention(*alone[:3], masks[b], return_lse=True)
            assert np.array_equal(o[0], out[b]) and np.array_equal(l[0], lse[b])
            dalone = bauta.attention_backward(alone[3], *alone[:3], o, l, masks[b])
            for x, y in zip(dalone, gradients):
                assert np.array_equal(x[0], y[b])


def test_three_and_two_axes_are_packed_tokens():
    numbers = np.random.default_rng(seed())
    q, k, v, dout = numbers.standard_normal((4, 9, 3, 8)).astype(np.float32)
    mask = Mask.from_lengths([4, 5], causal=True)
    out, lse = bauta.attention(q, k, v, mask, return_lse=True)
    assert out.shape == (9, 3, 8) and lse.shape == (9, 3)
    four = [x.transpose(1, 0, 2)[None] for x in (q, k, v)]
    assert np.array_equal(bauta.attention(*four, mask)[0].transpose(1, 0, 2), out)
    gradients = bauta.attention_backward(dout, q, k, v, out, lse, mask)
    for head in range(3):
        alone = [x[:, head] for x in (q, k, v)]
        one, one_lse = bauta.attention(*alone, mask, return_lse=True)
        assert one.shape == (9, 8) and one_lse.shape == (9,)
        assert np.array_equal(one, out[:, head])
        assert np.array_equal(one_lse, lse[:, head])
        back = bauta.attention_backward(dout[:, head], *alone, one, one_lse, mask)
        for x, y in zip(back, gradients):
            assert np.array_equal(x, y[:, head])


def test_hidden_nan_changes_no_bit():
    first = seed()
    for number in range(first, first + 20):
        q, k, v, dout, masks, batch = random_problem(number)
        masks = masks * (batch // len(masks))
        out, lse = bauta.attention(q, k, v, masks, return_lse=True)
        before = (
            out,
            lse,
            *bauta.attention_backward(dout, q, k, v, out, lse, masks),
        )
        k, v = k.copy(), v.copy()
        for b, mask in enumerate(masks):
            hidden = ~mask.to_dense().any(0)
            k[b, :, hidden], v[b, :, hidden] = np.nan, np.inf
        out, lse = bauta.attention(q, k, v, masks, return_lse=True)
        after = (out, lse, *bauta.attention_backward(dout, q, k, v, out, lse, masks))
        for x, y in zip(before, after):
            assert np.array_equal(x, y), number


def test_a_query_that_sees_nothing_gets_zero():
    q = k = v = np.ones((4, 2, 8), np.float32)
    mask = Mask.none(4)
    out, lse = bauta.attention(q, k, v, mask, return_lse=True)
    assert not out.any() and (lse == -np.inf).all()
    for gradient in bauta.attention_backward(out + 1, q, k, v, out, lse, mask):
        assert not gradient.any()


def test_sizes_of_zero_give_empty_results():
    for batch, queries, keys in ((0, 3, 3), (2, 0, 3), (2, 3, 0), (0, 0, 0)):
        q = np.ones((batch, 2, queries, 4), np.float32)
        k = v = np.ones((batch, 2, keys, 4), np.float32)
        mask = Mask.all(queries, keys)
        out, lse = bauta.attention(q, k, v, mask, return_lse=True)
        assert out.shape == q.shape and not out.any()
        dq, dk, dv = bauta.attention_backward(out, q, k, v, out, lse, mask)
        assert dq.shape == q.shape and not dk.any() and not dv.any()


def test_arrays_are_read_in_place():
    big = np.zeros((4096, 8, 64), np.float32)
    big[:, 0, 0] = np.arange(4096)
    big.flags.writeable = False
    mask = Mask.window(4096, window=1)
    out = bauta.attention(big, big, big, mask)
    assert np.array_equal(out, big)
    fused = np.random.default_rng(1).standard_normal((50, 3, 4, 16))
    fused = fused.astype(np.float32)
    q, k, v = (fused[:, i] for i in range(3))
    causal = Mask.causal(50)
    dense = [x.copy() for x in (q, k, v)]
    assert np.array_equal(
        bauta.attention(q, k, v, causal), bauta.attention(*dense, causal)
    )


def test_other_arrays_by_buffer_and_dlpack():
    class OnlyDlpack:
        def __init__(self, array):
            self.array = array

        def __dlpack__(self, **options):
            return self.array.__dlpack__(**options)

        def __dlpack_device__(self):
            return self.array.__dlpack_device__()

    class Elsewhere(OnlyDlpack):
        def __dlpack_device__(self):
            return (2, 0)

    x = np.random.default_rng(1).standard_normal((5, 2, 4)).astype(np.float32)
    mask = Mask.causal(5)
    want = bauta.attention(x, x, x, mask)
    for kind in (OnlyDlpack, memoryview):
        assert np.array_equal(bauta.attention(*[kind(x)] * 3, mask), want)
    with raises(bauta.ArgumentError, "not in CPU memory"):
        bauta.attention(Elsewhere(x), x, x, mask)


def test_dense_masks_and_functions():
    numbers = np.random.default_rng(seed())
    for _ in range(20):
        shape = numbers.integers(0, 20, 2)
        matrix = numbers.random(shape) < 0.5
        mask = Mask.dense(matrix)
        assert mask.shape == tuple(shape)
        assert np.array_equal(mask.to_dense(), matrix)
        assert np.array_equal(Mask.dense(matrix.T).to_dense(), matrix.T)
        assert Mask.from_mask_mod(lambda b, h, q, kv: matrix[q, kv], *shape) == mask
    document = np.array([0, 0, 0, 1, 1])
    mod = lambda b, h, q, kv: (document[q] == document[kv]) & (q >= kv)
    assert Mask.from_mask_mod(mod, 5) == Mask.from_lengths([3, 2], causal=True)
    lengths = np.array([2, 4])
    padding = lambda b, h, q, kv: (kv < lengths[b]) & (q >= 0)
    batch = Mask.from_mask_mod(padding, 4, batch=2).to_dense()
    assert batch[:4].sum() == 8 and batch[4:].sum() == 16
    assert Mask.from_mask_mod(lambda b, h, q, kv: kv >= 3, 2, 5).pairs == 4
    with raises(TypeError, "not bool"):
        Mask.from_mask_mod(lambda b, h, q, kv: q - kv, 3)
    with raises(TypeError, "not bool"):
        Mask.dense(np.ones((2, 2)))
    with raises(bauta.ArgumentError, "3 axes"):
        Mask.dense(np.ones((2, 2, 2), bool))


def test_large_functions_are_evaluated_in_parts():
    before = bauta._mask._MOD_PAIRS
    try:
        bauta._mask._MOD_PAIRS = 50
        got = Mask.from_mask_mod(lambda b, h, q, kv: q >= kv, 23, 17)
    finally:
        bauta._mask._MOD_PAIRS = before
    assert np.array_equal(got.to_dense(), np.tri(23, 17, dtype=bool))


def test_bad_arrays_are_errors_with_a_sentence():
    x = np.ones((2, 2, 4, 8), np.float32)
    mask = Mask.causal(4)
    run = lambda q=x, k=x, v=x, m=mask, **options: bauta.attention(
        q, k, v, m, **options
    )
    crossing = Mask.all(8)
    wide = np.ones((2, 2, 4, 300), np.float32)
    cases = [
        (lambda: run(q=x.astype(np.float64)), TypeError, "float64"),
        (lambda: run(k=x.astype(np.float16)), TypeError, "float16"),
        (lambda: run(v=x.astype(">f4")), TypeError, "v has the dtype >f4"),
        (lambda: run(q=[[1.0]]), TypeError, "list"),
        (lambda: run(q=None), TypeError, "NoneType"),
        (lambda: run(q=x[0]), ValueError, "k has 4 axes, and q has 3"),
        (lambda: run(q=x[None], k=x[None], v=x[None]), ValueError, "5 axes"),
        (lambda: run(q=x[0, 0, 0], k=x[0, 0, 0], v=x[0, 0, 0]), ValueError, "1 axes"),
        (lambda: run(k=x[:1], v=x[:1]), ValueError, "k is (1, 2, 4, 8)"),
        (lambda: run(v=x[:, :1]), ValueError, "v is"),
        (lambda: run(v=x[:, :, :3]), ValueError, "v is"),
        (lambda: run(k=x[..., :4]), ValueError, "k is"),
        (lambda: run(q=x[:, :1]), ValueError, "heads"),
        (lambda: run(q=x[..., ::2], k=x[..., ::2]), ValueError, "contiguous"),
        (lambda: run(q=x[:, :, ::-1]), ValueError, "negative stride"),
        (lambda: run(k=np.broadcast_to(x[:, :1], x.shape)), ValueError, "repeats"),
        (lambda: run(m=None), TypeError, ""),
        (lambda: run(m=[mask, None]), TypeError, "NoneType"),
        (lambda: run(m=[mask]), ValueError, "1 masks for a batch of 2"),
        (lambda: run(m=[mask, Mask.all(3)]), ValueError, "the mask is 3 x 3"),
        (lambda: run(m=Mask.causal(5)), ValueError, "the mask is 5 x 5"),
        (lambda: run(m=crossing), ValueError, "one of them sees another"),
        (lambda: run(scale=0.0), ValueError, "scale is 0"),
        (lambda: run(scale=float("nan")), ValueError, "scale is nan"),
        (lambda: run(scale=1e300), ValueError, "scale is inf"),
        (lambda: run(q=x[..., :0], k=x[..., :0]), ValueError, "head_dim is 0"),
        (lambda: run(q=wide, k=wide), ValueError, "head_dim is 300"),
    ]
    out, lse = run(return_lse=True)
    back = lambda dout=out, o=out, l=lse, q=x, m=mask: bauta.attention_backward(
        dout, q, x, x, o, l, m
    )
    cases += [
        (lambda: back(dout=out[:1]), ValueError, "dout is (1, 2, 4, 8)"),
        (lambda: back(dout=out.astype(np.float64)), TypeError, "dout"),
        (lambda: back(l=lse[:1]), ValueError, "lse is (1, 2, 4)"),
        (lambda: back(o=out[:1]), ValueError, ""),
        (lambda: back(q=x[:, :1]), ValueError, ""),
        (lambda: back(m=Mask.all(3)), ValueError, "3 x 3"),
    ]
    all_raise(cases)
    assert np.array_equal(out, run())


def test_a_batch_may_repeat_keys():
    """A stride of 0 on the batch axis: all sequences share their keys."""
    numbers = np.random.default_rng(seed())
    q = numbers.standard_normal((3, 2, 5, 8)).astype(np.float32)
    for heads in (1, 2):
        one = numbers.standard_normal((1, heads, 5, 8)).astype(np.float32)
        k = np.broadcast_to(one, (3, heads, 5, 8))
        mask = Mask.causal(5)
        want = bauta.attention(q, k.copy(), k.copy(), mask)
        assert np.array_equal(bauta.attention(q, k, k, mask), want)


def test_threads_share_a_new_mask():
    numbers = np.random.default_rng(seed())
    x = numbers.standard_normal((64, 2, 16)).astype(np.float32)
    want = bauta.attention(x, x, x, Mask.causal(64))
    wrong = []
    for _ in range(30):
        mask = Mask.causal(64)  # without a plan yet
        start = threading.Barrier(4)

        def work():
            start.wait()
            if not np.array_equal(bauta.attention(x, x, x, mask), want):
                wrong.append(1)

        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert not wrong


def test_attention_releases_the_gil():
    x = np.random.default_rng(1).standard_normal((3000, 8, 64)).astype(np.float32)
    mask = Mask.causal(3000)
    done = threading.Event()
    thread = threading.Thread(
        target=lambda: (bauta.attention(x, x, x, mask), done.set())
    )
    thread.start()
    turns = 0
    while not done.is_set():
        turns += 1
    thread.join()
    assert turns > 100
