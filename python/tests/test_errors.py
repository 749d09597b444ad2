# SPDX-License-Identifier: Apache-2.0
"""Wrong shapes, types, devices, strides and freed memory are exceptions."""

from __future__ import annotations

import itertools
import unittest

import bauta
from bauta import Mask
from support import need, raises

np = need("numpy")

WRONG = (ValueError, TypeError, bauta.Error)
SHAPE = (2, 4, 6, 8)  # batch, heads, tokens, dim


def run_all(cases, call, least):
    """Each case is a name and three arrays; the good ones must work after."""
    count = 0
    for name, arrays in cases:
        try:
            with raises(WRONG):
                call(*arrays())
        except AssertionError as error:
            raise AssertionError(f"{name}: {error}") from None
        count += 1
    assert count >= least, count


def replaced(good, changes):
    """Cases in which one of q, k and v is wrong in one way."""
    for at, (name, change) in itertools.product(range(3), changes.items()):

        def arrays(at=at, change=change):
            return [change(x) if at == i else x for i, x in enumerate(good)]

        yield f"{'qkv'[at]} with {name}", arrays


def test_wrong_arrays():
    good = [np.ones(SHAPE, np.float32) for _ in range(3)]
    mask = Mask.causal(6)

    def strided(x):
        return np.ones((*SHAPE[:3], 16), np.float32)[..., ::2]

    def unaligned(x):
        return np.ones(x.nbytes + 1, np.uint8)[1:].view(np.float32).reshape(SHAPE)

    def fields(x):
        return np.ones(SHAPE, [("x", "<f4"), ("y", "u1")])["x"]

    changes = {
        "another batch": lambda x: x[:1].repeat(3, 0),
        "three heads": lambda x: x[:, :3],
        "fewer tokens": lambda x: x[:, :, :5],
        "more tokens": lambda x: np.concatenate([x, x], 2),
        "three axes": lambda x: x[0],
        "five axes": lambda x: x[None],
        "no axis": lambda x: np.float32(1),
        "float64": lambda x: x.astype(np.float64),
        "float16": lambda x: x.astype(np.float16),
        "int32": lambda x: x.astype(np.int32),
        "bool": lambda x: x.astype(bool),
        "complex": lambda x: x.astype(np.complex64),
        "objects": lambda x: x.astype(object),
        "the other byte order": lambda x: x.astype(">f4"),
        "a stride on the last axis": strided,
        "a reversed axis": lambda x: x[:, ::-1],
        "reversed tokens": lambda x: x[:, :, ::-1],
        "no alignment": unaligned,
        "strides that are no elements": fields,
        "None": lambda x: None,
        "a list": lambda x: x.tolist(),
        "a str": lambda x: "array",
        "a number": lambda x: 3,
    }
    run_all(
        replaced(good, changes), lambda q, k, v: bauta.attention(q, k, v, mask), 69
    )
    # The dim of v is free; those of q and k are not.
    for short in ((0,), (1,)):
        arrays = [x[..., :5] if i in short else x for i, x in enumerate(good)]
        with raises(WRONG):
            bauta.attention(*arrays, mask)
    assert bauta.attention(*good, mask).shape == SHAPE


def test_wrong_backward_arrays():
    q = k = v = np.ones(SHAPE, np.float32)
    mask = Mask.causal(6)
    out, lse = bauta.attention(q, k, v, mask, return_lse=True)
    good = {"dout": out, "q": q, "k": k, "v": v, "out": out, "lse": lse}
    changes = {
        "fewer tokens": lambda x: x[:, :, :5],
        "another batch": lambda x: x[:1],
        "float64": lambda x: x.astype(np.float64),
        "None": lambda x: None,
        "one axis": lambda x: x.reshape(-1),
    }
    for name, (kind, change) in itertools.product(good, changes.items()):
        arguments = {**good, name: change(good[name])}
        try:
            with raises((*WRONG, AttributeError)):
                bauta.attention_backward(*arguments.values(), mask)
        except AssertionError as error:
            raise AssertionError(f"{name} with {kind}: {error}") from None
    bauta.attention_backward(*good.values(), mask)


def test_wrong_masks():
    x = np.ones(SHAPE, np.float32)
    masks = [
        Mask.causal(5),
        Mask.causal(6, 7),
        Mask.all(12),
        Mask.all(18),
        [Mask.causal(6)],
        [Mask.causal(6), Mask.causal(5)],
        [Mask.causal(6), None],
        [],
        None,
        "causal",
        np.ones((6, 6), bool),
        6,
    ]
    for number, mask in enumerate(masks):
        try:
            with raises(WRONG):
                bauta.attention(x, x, x, mask)
        except AssertionError as error:
            raise AssertionError(f"case {number}: {error}") from None
    for scale in (0.0, float("nan"), float("inf"), "big"):
        with raises(WRONG):
            bauta.attention(x, x, x, Mask.causal(6), scale=scale)


def test_wrong_caches():
    x = np.ones((3, 2, 8), np.float32)
    cache = bauta.KVCache(2, 8, 4)
    cache.append(x, x)
    cases = [
        lambda: cache.append(x, x),  # beyond its capacity
        lambda: cache.append(x[:, :1], x[:, :1]),
        lambda: cache.append(x[..., :4], x),
        lambda: cache.append(x[:1], x[:1].astype(np.float64)),
        lambda: cache.append(x[:1], x[:, :, None]),
        lambda: cache.append(x[:1], None),
        lambda: cache.attention(x, Mask.causal(3, 4)),
        lambda: cache.attention(x, Mask.causal(2, 3)),
        lambda: cache.attention(x[:, :1], Mask.causal(3)),
        lambda: cache.attention(x[..., :4], Mask.causal(3)),
        lambda: cache.attention(x, Mask.documents([2, 1])),
        lambda: cache.truncate(4),
        lambda: cache.truncate(-1),
        lambda: cache.evict(9),
        lambda: bauta.KVCache(0, 8, 4),
        lambda: bauta.KVCache(2, 1000, 4),
        lambda: bauta.KVCache(2, 8, -1),
    ]
    for number, call in enumerate(cases):
        try:
            with raises(WRONG):
                call()
        except AssertionError as error:
            raise AssertionError(f"case {number}: {error}") from None
    assert len(cache) == 3
    fork = cache.fork()
    fork.append(x[:1], x[:1])
    assert (len(cache), len(fork)) == (3, 4)


def test_wrong_tensors():
    try:
        import torch
    except ImportError:
        raise unittest.SkipTest("there is no torch") from None
    import bauta.torch as bt

    good = [torch.ones(SHAPE) for _ in range(3)]
    mask = Mask.causal(6)

    def freed(x):
        x = x.clone()
        x.untyped_storage().resize_(0)
        return x

    def cut(x):
        x = x.clone()[1:].expand(2, -1, -1, -1)
        x.untyped_storage().resize_(512)
        return x

    changes = {
        "another batch": lambda x: x[:1],
        "three heads": lambda x: x[:, :3],
        "fewer tokens": lambda x: x[:, :, :5],
        "three axes": lambda x: x[0],
        "five axes": lambda x: x[None],
        "two axes": lambda x: x[0, 0],
        "float64": lambda x: x.double(),
        "float16": lambda x: x.half(),
        "bfloat16": lambda x: x.bfloat16(),
        "int64": lambda x: x.long(),
        "bool": lambda x: x.bool(),
        "complex": lambda x: x.to(torch.complex64),
        "the device meta": lambda x: x.to("meta"),
        "memory that was freed": freed,
        "memory that was cut": cut,
        "a sparse layout": lambda x: x.to_sparse(),
        "a quantized type": lambda x: torch.quantize_per_tensor(x, 1, 0, torch.qint8),
        "None": lambda x: None,
        "an array": lambda x: x.numpy(),
        "a number": lambda x: 3.0,
    }
    wrong = (*WRONG, AttributeError, RuntimeError)
    count = 0
    for name, arrays in replaced(good, changes):
        try:
            with raises(wrong):
                bt.attention(*arrays(), mask)
        except AssertionError as error:
            raise AssertionError(f"{name}: {error}") from None
        count += 1
    assert count >= 60
    assert bt.attention(*good, mask).shape == SHAPE
