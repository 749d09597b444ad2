# SPDX-License-Identifier: Apache-2.0
"""Masked attention over NumPy arrays and other arrays in CPU memory."""

from __future__ import annotations

import math
from typing import Any, Sequence

from . import _core
from ._errors import ArgumentError
from ._mask import Mask, masks_of


def scale_of(scale: float | None) -> float:
    """The library's scale: 0 is 1 / sqrt(dim)."""
    if scale is None:
        return 0.0
    scale = float(scale)
    if scale == 0.0 or not math.isfinite(scale):
        raise ArgumentError(f"scale is {scale}, not a finite number other than 0")
    return scale


def _view(array: Any, name: str) -> Any:
    """A NumPy array over the caller's memory, without a copy."""
    import numpy as np

    if not isinstance(array, np.ndarray):
        if hasattr(array, "__dlpack__"):
            device, _ = array.__dlpack_device__()
            if device != 1:  # kDLCPU
                raise ArgumentError(f"{name} is not in CPU memory")
            array = np.from_dlpack(array)
        else:
            try:
                array = np.asarray(memoryview(array))
            except TypeError:
                raise TypeError(
                    f"{name} is a {type(array).__name__}, which has neither the "
                    "buffer protocol nor __dlpack__"
                ) from None
    if array.dtype != np.float32:
        raise TypeError(f"{name} has the dtype {array.dtype}, not float32")
    return array


def _four_axes(array: Any, name: str, rank: int) -> Any:
    """The array as (batch, heads, tokens, dim)."""
    if array.ndim != rank:
        raise ArgumentError(f"{name} has {array.ndim} axes, and q has {rank}")
    if rank == 4:
        return array
    if rank == 3:
        return array.transpose(1, 0, 2)[None]
    if rank == 2:
        return array[None, None]
    raise ArgumentError(f"{name} has {rank} axes, not 2, 3 or 4")


def _own_axes(array: Any, rank: int) -> Any:
    """The inverse of _four_axes()."""
    if rank == 4:
        return array
    return array[0, 0] if rank == 2 else array[0].transpose(1, 0, 2)


def _merges(array: Any) -> bool:
    """Whether the sequences of a batch follow each other as heads do."""
    batch, heads = array.shape[:2]
    batch_stride, head_stride = array.strides[:2]
    return batch <= 1 or (
        batch_stride >= array.shape[3] * 4
        if heads == 1
        else batch_stride == heads * head_stride
    )


def _lse_empty(q: Any, k: Any, v: Any, out: Any, one_mask: bool) -> Any:
    """lse (batch, heads, queries), in an order of memory that one call of the
    library writes: (queries, batch * heads), or (queries, heads) for each
    sequence."""
    import numpy as np

    batch, heads, queries, _ = q.shape
    merged = one_mask and batch * heads < 1 << 16
    if merged and _merges(q) and _merges(k) and _merges(v) and _merges(out):
        return np.empty((queries, batch, heads), np.float32).transpose(1, 2, 0)
    return np.empty((batch, queries, heads), np.float32).transpose(0, 2, 1)


def _lse_own(lse: Any, rank: int) -> Any:
    if rank == 4:
        return lse
    return lse[0, 0] if rank == 2 else lse[0].T


def _lse_four(lse: Any, rank: int) -> Any:
    if rank == 4:
        return lse
    return lse[None, None] if rank == 2 else lse.T[None]


def _handles(mask: Mask | Sequence[Mask], q: Any, k: Any) -> tuple[Any, ...]:
    masks = masks_of(mask, q.shape[0], q.shape[2], k.shape[2])
    return tuple(each._handle for each in masks)


def _bias_four(bias: Any) -> Any:
    """The bias as (batch, heads, queries, keys); missing axes are broadcast."""
    bias = _view(bias, "bias")
    if not 1 <= bias.ndim <= 4:
        raise ArgumentError(f"bias has {bias.ndim} axes, not from 1 to 4")
    return bias[(None,) * (4 - bias.ndim)]


def _slopes_four(slopes: Any) -> Any:
    slopes = _view(slopes, "alibi_slopes")
    if slopes.ndim != 1:
        raise ArgumentError(f"alibi_slopes has {slopes.ndim} axes, not 1")
    return slopes[None, None, None]


def positions_of(positions: Any) -> Any:
    """Positions of queries as the library has them."""
    import numpy as np

    array = np.asarray(positions)
    if array.dtype.kind not in "iu":
        raise TypeError(f"positions have the dtype {array.dtype}, not an integer one")
    if array.size and not 0 <= array.min() <= array.max() < 1 << 31:
        raise ArgumentError("positions are not from 0 to 2^31 - 1")
    return np.ascontiguousarray(array, np.uint32)


def _terms(
    softcap: float | None, bias: Any, slopes: Any, positions: Any, dbias: Any = None
) -> Any:
    """What is done to the scores, as the extension module takes it."""
    if softcap is None:
        softcap = 0.0
    if positions is not None:
        if slopes is None:
            raise ArgumentError("positions are given without alibi_slopes")
        positions = positions_of(positions)
    if not softcap and bias is None and slopes is None:
        return None
    return float(softcap), bias, slopes, positions, dbias


def attention(
    q: Any,
    k: Any,
    v: Any,
    mask: Mask | Sequence[Mask],
    *,
    scale: float | None = None,
    softcap: float | None = None,
    bias: Any = None,
    alibi_slopes: Any = None,
    positions: Any = None,
    return_lse: bool = False,
) -> Any:
    """softmax(q k^T * scale over the visible keys) v, as a NumPy array.

    Arrays are float32 in CPU memory: NumPy arrays, or objects with the buffer
    protocol or ``__dlpack__``. They are read in place, with any strides as long
    as the last axis is contiguous.

    ======= ============================== =================================
    axes    q, k, v                        mask
    ======= ============================== =================================
    4       (batch, heads, tokens, dim)    (tokens of q, tokens of k), a list
                                           of one mask for each sequence, or
                                           one mask for the packed batch
    3       (tokens, heads, dim)           (tokens of q, tokens of k)
    2       (tokens, dim)                  (tokens of q, tokens of k)
    ======= ============================== =================================

    k and v may have fewer heads than q, by a divisor (grouped-query
    attention). ``scale`` is 1 / sqrt(dim) by default. A query that sees nothing
    gets 0. Hidden keys and values are never read:

    >>> import bauta, numpy as np
    >>> q = k = np.zeros((3, 1), np.float32)
    >>> v = np.array([[1], [2], [np.nan]], np.float32)
    >>> bauta.attention(q, k, v, bauta.Mask.causal(3))[:2]
    array([[1. ],
           [1.5]], dtype=float32)

    With ``softcap`` the scores s are softcap * tanh(s / softcap). Then a bias is
    added to those of visible keys: ``bias`` is (batch, heads, queries, keys), in
    which axes may be 1 or, from the first on, be left out; or ``alibi_slopes``
    (heads) gives slope * (key - query). A mask hides keys, a bias only weighs
    them: under -infinity a key has weight 0, but is read. In a packed batch the
    keys of a bias count from the first key of the query's sequence, and
    ``positions`` (queries), of queries in their sequences, are needed by slopes
    if a sequence has not as many keys as queries.

    With ``return_lse`` the result is (out, lse), where lse is the natural
    logarithm of the sum of exponentials of each row: (batch, heads, tokens),
    (tokens, heads) or (tokens,). :func:`attention_backward` needs both.
    """
    import numpy as np

    q, k, v = _view(q, "q"), _view(k, "k"), _view(v, "v")
    rank = q.ndim
    q, k, v = (
        _four_axes(q, "q", rank),
        _four_axes(k, "k", rank),
        _four_axes(v, "v", rank),
    )
    handles = _handles(mask, q, k)
    if bias is not None:
        bias = _bias_four(bias)
    if alibi_slopes is not None:
        alibi_slopes = _slopes_four(alibi_slopes)
    terms = _terms(softcap, bias, alibi_slopes, positions)
    out = _own_axes(q, rank)
    out = _four_axes(np.empty((*out.shape[:-1], v.shape[3]), np.float32), "out", rank)
    lse = None
    if return_lse:
        lse = _lse_empty(q, k, v, out, len(handles) == 1 and terms is None)
    _core.attention_forward(handles, scale_of(scale), q, k, v, out, lse, terms)
    own = _own_axes(out, rank)
    return (own, _lse_own(lse, rank)) if return_lse else own


def attention_backward(
    dout: Any,
    q: Any,
    k: Any,
    v: Any,
    out: Any,
    lse: Any,
    mask: Mask | Sequence[Mask],
    *,
    scale: float | None = None,
    softcap: float | None = None,
    bias: Any = None,
    alibi_slopes: Any = None,
    positions: Any = None,
) -> tuple[Any, ...]:
    """The gradients (dq, dk, dv), from the gradient of ``out``; with a ``bias``
    (dq, dk, dv, dbias).

    out and lse are the results of :func:`attention` with ``return_lse=True``
    for the same arguments. Arrays whose memory has gaps or repeats are copied.

    >>> import bauta, numpy as np
    >>> q = k = v = np.ones((2, 1), np.float32)
    >>> mask = bauta.Mask.causal(2)
    >>> out, lse = bauta.attention(q, k, v, mask, return_lse=True)
    >>> dout = np.ones_like(out)
    >>> dq, dk, dv = bauta.attention_backward(dout, q, k, v, out, lse, mask)
    >>> dv.round(3)
    array([[1.5],
           [0.5]], dtype=float32)
    """
    import numpy as np

    rank = _view(q, "q").ndim
    arrays = []
    gradients = []
    for array, name in ((q, "q"), (k, "k"), (v, "v"), (out, "out")):
        array = _four_axes(_view(array, name), name, rank)
        gradient = np.empty_like(array)  # dense, in the order of axes of array
        if not _same_strides(gradient, array):
            array = _copy_like(gradient, array)
        arrays.append(array)
        gradients.append(gradient)
    q, k, v, out = arrays
    handles = _handles(mask, q, k)
    dout = _four_axes(_view(dout, "dout"), "dout", rank)
    if dout.shape != out.shape:
        raise ArgumentError(f"dout is {dout.shape}, and out is {out.shape}")
    if not _same_strides(dout, out):
        dout = _copy_like(gradients[3], dout)
    lse = _lse_four(_view(lse, "lse"), rank)
    if lse.shape != q.shape[:3]:
        raise ArgumentError(f"lse is {lse.shape}, and q is {q.shape}")
    dbias, own_shape = None, ()
    if bias is not None:
        own_shape, bias = _view(bias, "bias").shape, _bias_four(bias)
        dbias = np.zeros_like(bias)
        if not _same_strides(dbias, bias):
            bias = _copy_like(dbias, bias)
    if alibi_slopes is not None:
        alibi_slopes = _slopes_four(alibi_slopes)
    terms = _terms(softcap, bias, alibi_slopes, positions, dbias)
    # Copies may have changed how the batch is laid out.
    wanted = _lse_empty(q, k, v, out, len(handles) == 1 and terms is None)
    if not _same_strides(lse, wanted):
        lse = _copy_like(wanted, lse)
    dq, dk, dv, _ = gradients
    _core.attention_backward(
        handles, scale_of(scale), q, k, v, out, lse, dout, dq, dk, dv, terms
    )
    own = _own_axes(dq, rank), _own_axes(dk, rank), _own_axes(dv, rank)
    return own if dbias is None else (*own, dbias.reshape(own_shape))


def _same_strides(a: Any, b: Any) -> bool:
    """Of the axes on which there is more than one element."""
    return all(size <= 1 or x == y for size, x, y in zip(a.shape, a.strides, b.strides))


def _copy_like(to: Any, array: Any) -> Any:
    import numpy as np

    copy = np.empty_like(to)
    np.copyto(copy, array)
    return copy
