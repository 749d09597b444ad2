# SPDX-License-Identifier: Apache-2.0
"""Masks: which keys each query may see."""

from __future__ import annotations

import itertools
import operator
import weakref
from array import array
from typing import Any, Callable, Iterable, Sequence

from . import _core
from ._errors import ArgumentError

# The pairs that from_mask_mod() evaluates at once.
_MOD_PAIRS = 1 << 22
# Cells of the picture in notebooks, in each direction.
_PICTURE_CELLS = 64
# str() draws masks up to this size.
_TEXT_QUERIES, _TEXT_KEYS = 64, 128

_ids = itertools.count(1)
# Masks by their id, for operators whose arguments are numbers.
_by_id: weakref.WeakValueDictionary[int, Mask] = weakref.WeakValueDictionary()


def _size(value: Any, name: str) -> int:
    size = operator.index(value)
    if size < 0:
        raise ArgumentError(f"{name} is {size}, less than 0")
    return size


def _sizes(values: Any, name: str) -> list[int]:
    if hasattr(values, "tolist"):  # NumPy arrays and PyTorch tensors
        values = values.tolist()
    return [_size(value, name) for value in values]


def _numpy() -> Any:
    import numpy

    return numpy


class Mask:
    """The keys that each query may see. Immutable; threads may share it.

    Query ``i`` of ``n`` over ``m`` keys has the position ``i + m - n``, so the
    last query is aligned with the last key. Create masks with the class
    methods and combine them with ``&``, ``|`` and ``~``:

    >>> from bauta import Mask
    >>> print(Mask.window(5, window=2) | Mask.sinks(5, sinks=1))
    #....
    ##...
    ###..
    #.##.
    #..##

    Two masks are equal if they have the same size and the same visible pairs.
    The compiled form for the kernels is created by the first attention that
    uses a mask and kept with it, so keep masks that you use again.
    """

    __slots__ = ("_handle", "_shape", "_id", "_cache", "__weakref__")

    _handle: Any
    _shape: tuple[int, int]
    _id: int
    _cache: dict[Any, Any]

    def __init__(self) -> None:
        raise TypeError("use a constructor such as Mask.causal(queries)")

    @classmethod
    def _wrap(cls, handle: Any) -> Mask:
        mask = object.__new__(cls)
        set_field = object.__setattr__
        set_field(mask, "_handle", handle)
        set_field(mask, "_shape", _core.mask_shape(handle))
        set_field(mask, "_id", next(_ids))
        set_field(mask, "_cache", {})
        _by_id[mask._id] = mask
        return mask

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError("masks are immutable")

    def __delattr__(self, name: str) -> None:
        raise AttributeError("masks are immutable")

    # ---- constructors ------------------------------------------------------

    @classmethod
    def _positional(cls, kind: str, queries: Any, keys: Any, number: int = 0) -> Mask:
        queries = _size(queries, "queries")
        keys = queries if keys is None else _size(keys, "keys")
        return cls._wrap(_core.mask_positional(kind, queries, keys, number))

    @classmethod
    def all(cls, queries: int, keys: int | None = None) -> Mask:
        """Every query sees every key. ``keys`` defaults to ``queries``.

        >>> Mask.all(2, 3).pairs
        6
        """
        return cls._positional("all", queries, keys)

    @classmethod
    def none(cls, queries: int, keys: int | None = None) -> Mask:
        """No query sees a key.

        >>> Mask.none(2, 3).pairs
        0
        """
        return ~cls.all(queries, keys)

    @classmethod
    def causal(cls, queries: int, keys: int | None = None) -> Mask:
        """A query sees the keys up to its own position.

        >>> print(Mask.causal(2, 5))
        ####.
        #####
        """
        return cls._positional("causal", queries, keys)

    @classmethod
    def window(cls, queries: int, keys: int | None = None, *, window: int) -> Mask:
        """A query sees itself and the ``window - 1`` keys before it.

        >>> print(Mask.window(4, window=2))
        #...
        ##..
        .##.
        ..##
        """
        return cls._positional("window", queries, keys, _size(window, "window"))

    @classmethod
    def prefix(cls, queries: int, keys: int | None = None, *, prefix: int) -> Mask:
        """Every query sees the first ``prefix`` keys and those up to its own.

        >>> print(Mask.prefix(4, prefix=2))
        ##..
        ##..
        ###.
        ####
        """
        return cls._positional("prefix", queries, keys, _size(prefix, "prefix"))

    @classmethod
    def sinks(cls, queries: int, keys: int | None = None, *, sinks: int) -> Mask:
        """A query sees those of the first ``sinks`` keys that are not after it.

        >>> print(Mask.sinks(4, sinks=2))
        #...
        ##..
        ##..
        ##..
        """
        return cls._positional("sinks", queries, keys, _size(sinks, "sinks"))

    @classmethod
    def lengths(
        cls,
        key_lengths: Iterable[int],
        key_time: int | None = None,
        *,
        query_lengths: Iterable[int] | None = None,
        query_time: int | None = None,
    ) -> Mask:
        """A padded batch, of which the first ``key_lengths[b]`` tokens are real.

        Sequences are padded to ``key_time``, by default the longest one. A real
        query sees the real keys of its sequence, a padding query sees nothing.
        Queries have the lengths and the time of the keys if none are given.

        >>> print(Mask.lengths([2, 1]))
        ##..
        ##..
        ..#.
        ....
        """
        keys = _sizes(key_lengths, "a length")
        time = max(keys, default=0) if key_time is None else _size(key_time, "key_time")
        if query_lengths is None:
            query_list, query_time = None, time if query_time is None else query_time
        else:
            query_list = _sizes(query_lengths, "a length")
            if query_time is None:
                query_time = max(query_list, default=0)
        query_time = _size(query_time, "query_time")
        return cls._wrap(_core.mask_lengths(query_time, time, query_list, keys))

    @classmethod
    def documents(
        cls, query_lengths: Iterable[int], key_lengths: Iterable[int] | None = None
    ) -> Mask:
        """Packed documents: each sees exactly itself.

        With ``key_lengths``, the queries of document ``d`` see its keys, as in
        cross-attention.

        >>> print(Mask.documents([2, 1]))
        ##.
        ##.
        ..#
        """
        queries = _sizes(query_lengths, "a length")
        keys = None if key_lengths is None else _sizes(key_lengths, "a length")
        return cls._wrap(_core.mask_documents(queries, keys))

    @classmethod
    def pack(cls, masks: Iterable[Mask]) -> Mask:
        """Masks as the documents of one batch, which do not see each other.

        Each keeps its own alignment, so a batch of decoding steps is the pack
        of their last rows:

        >>> print(Mask.pack([Mask.causal(1, 3), Mask.causal(1, 2)]))
        ###..
        ...##
        """
        return cls._wrap(_core.mask_pack([_handle_of(mask) for mask in masks]))

    @classmethod
    def dense(cls, visible: Any) -> Mask:
        """Any boolean matrix (queries, keys); True means visible.

        >>> import numpy as np
        >>> print(Mask.dense(np.eye(3, dtype=bool)))
        #..
        .#.
        ..#
        """
        np = _numpy()
        matrix = np.asarray(visible)
        if matrix.ndim != 2:
            raise ArgumentError(f"the matrix has {matrix.ndim} axes, not 2")
        if matrix.dtype != np.bool_:
            raise TypeError(f"the matrix has the dtype {matrix.dtype}, not bool")
        matrix = np.ascontiguousarray(matrix)
        return cls._wrap(_core.mask_dense(matrix.view(np.uint8), *matrix.shape))

    from_dense = dense

    @classmethod
    def rows(
        cls,
        row: Callable[[int], Iterable[tuple[int, int]]],
        queries: int,
        keys: int | None = None,
    ) -> Mask:
        """Any function that gives the spans [lo, hi) of a query.

        Spans must be sorted, disjoint, not empty and within the keys.

        >>> print(Mask.rows(lambda query: [(query, 3)], 3))
        ###
        .##
        ..#
        """
        queries = _size(queries, "queries")
        keys = queries if keys is None else _size(keys, "keys")
        start, spans = array("Q", [0]), array("I")
        for query in range(queries):
            for lo, hi in row(query):
                spans.extend((_size(lo, "lo"), _size(hi, "hi")))
            start.append(len(spans) // 2)
        handle = _core.mask_from_spans(
            queries, keys, start.tobytes(), spans.tobytes(), None
        )
        return cls._wrap(handle)

    @classmethod
    def parse(cls, text: str, queries: int, keys: int | None = None) -> Mask:
        """Parse a mask expression.

        ``|`` is OR, ``&`` is AND and binds tighter, ``!`` is NOT. Masks are
        all, none, causal, window(n), prefix(n), sinks(n), documents(3, 2),
        lengths(3, 1), reach(mask, layers) and compose(upper, lower).

        >>> mask = Mask.parse("causal & documents(2, 1)", 3)
        >>> mask == Mask.from_lengths([2, 1], causal=True)
        True
        """
        queries = _size(queries, "queries")
        keys = queries if keys is None else _size(keys, "keys")
        return cls._wrap(_core.mask_parse(text, queries, keys))

    # ---- from other libraries' descriptions ----------------------------------

    @classmethod
    def from_lengths(
        cls, lengths: Iterable[int], time: int | None = None, *, causal: bool = False
    ) -> Mask:
        """Sequences of these lengths: packed, or padded to ``time``.

        >>> print(Mask.from_lengths([2, 1], causal=True))
        #..
        ##.
        ..#
        >>> print(Mask.from_lengths([2, 1], 2, causal=True))
        #...
        ##..
        ..#.
        ....
        """
        if causal and time is None:
            sizes = _sizes(lengths, "a length")
            return cls._wrap(_core.mask_causal_documents(sizes))
        mask = cls.documents(lengths) if time is None else cls.lengths(lengths, time)
        return mask & cls.causal(mask.queries) if causal else mask

    @classmethod
    def from_cu_seqlens(
        cls,
        cu_seqlens_q: Iterable[int],
        cu_seqlens_k: Iterable[int] | None = None,
        *,
        causal: bool = False,
        window_size: tuple[int, int] = (-1, -1),
    ) -> Mask:
        """Packed sequences by their cumulative lengths, as in FlashAttention.

        ``window_size`` is (left, right), the keys before and after a query's
        position that it sees; -1 means all. Positions are aligned at the last
        query and key of each sequence.

        >>> print(Mask.from_cu_seqlens([0, 2, 5], causal=True, window_size=(1, -1)))
        #....
        ##...
        ..#..
        ..##.
        ...##
        """
        queries = _differences(cu_seqlens_q, "cu_seqlens_q")
        same = cu_seqlens_k is None
        keys = queries if same else _differences(cu_seqlens_k, "cu_seqlens_k")
        if len(keys) != len(queries):
            raise ArgumentError(
                f"cu_seqlens_q has {len(queries)} sequences, cu_seqlens_k {len(keys)}"
            )
        left, right = (operator.index(side) for side in window_size)
        if causal:
            right = 0
        if left < 0 and right < 0:
            return cls.documents(queries, None if same else keys)
        if queries == keys:
            # Every sequence is square, and so is the batch: one band for all.
            total = sum(queries)
            return cls.documents(queries) & cls._band(total, total, left, right)
        return cls.pack(cls._band(q, k, left, right) for q, k in zip(queries, keys))

    @classmethod
    def _band(cls, queries: int, keys: int, left: int, right: int) -> Mask:
        """The keys from ``left`` before a query's position to ``right`` after."""
        if right < 0 and left < 0:
            return cls.all(queries, keys)
        if right < 0:
            right = queries  # past the last key, from every row
        # More keys move every position to the right; the slice removes them.
        if left < 0:
            band = cls.causal(queries, keys + right)
        else:
            band = cls.window(queries, keys + right, window=left + right + 1)
        return band if right == 0 else band[:, :keys]

    @classmethod
    def from_mask_mod(
        cls,
        mask_mod: Callable[[Any, Any, Any, Any], Any],
        queries: int,
        keys: int | None = None,
        *,
        batch: int | None = None,
    ) -> Mask:
        """A mask_mod function (b, h, q_idx, kv_idx) of FlexAttention.

        It is called with NumPy arrays of indices, which broadcast to (queries,
        keys), and with h = 0: masks do not depend on the head. Indices are as
        in FlexAttention, from the first query and key. With ``batch``, the
        masks of b = 0, 1, ... are packed.

        >>> print(Mask.from_mask_mod(lambda b, h, q, kv: (q >= kv) & (q - kv < 2), 3))
        #..
        ##.
        .##
        """
        queries = _size(queries, "queries")
        keys = queries if keys is None else _size(keys, "keys")
        if batch is not None:
            return cls.pack(
                cls._from_mod(mask_mod, queries, keys, b)
                for b in range(_size(batch, "batch"))
            )
        return cls._from_mod(mask_mod, queries, keys, 0)

    @classmethod
    def _from_mod(cls, mask_mod: Any, queries: int, keys: int, b: int) -> Mask:
        np = _numpy()
        matrix = np.empty((queries, keys), dtype=bool)
        kv_idx = np.arange(keys)[None, :]
        step = max(1, _MOD_PAIRS // max(keys, 1))
        zero, sequence = np.zeros((1, 1), dtype=np.int64), np.full((1, 1), b)
        for first in range(0, queries, step):
            q_idx = np.arange(first, min(first + step, queries))[:, None]
            visible = np.asarray(mask_mod(sequence, zero, q_idx, kv_idx))
            if visible.dtype != np.bool_:
                raise TypeError(f"mask_mod returned {visible.dtype}, not bool")
            matrix[first : first + step] = visible
        return cls.dense(matrix)

    # ---- algebra -------------------------------------------------------------

    def __and__(self, other: Mask) -> Mask:
        if not isinstance(other, Mask):
            return NotImplemented
        return self._wrap(_core.mask_and(self._handle, other._handle))

    def __or__(self, other: Mask) -> Mask:
        if not isinstance(other, Mask):
            return NotImplemented
        return self._wrap(_core.mask_or(self._handle, other._handle))

    def __invert__(self) -> Mask:
        return self._wrap(_core.mask_not(self._handle))

    def compose(self, lower: Mask) -> Mask:
        """Visibility through two layers, this one above ``lower``.

        >>> window = Mask.window(4, window=2)
        >>> window.compose(window) == Mask.window(4, window=3)
        True
        """
        return self._wrap(_core.mask_compose(self._handle, _handle_of(lower)))

    def reach(self, layers: int) -> Mask:
        """The inputs that can influence each output of ``layers`` layers.

        >>> Mask.window(8, window=3).reach(2) == Mask.window(8, window=5)
        True
        """
        return self._wrap(_core.mask_reach(self._handle, _size(layers, "layers")))

    def __getitem__(self, index: slice | tuple[slice, slice]) -> Mask:
        """A part of the mask, ``mask[rows, keys]``, by slices of step 1.

        >>> Mask.causal(5)[-1:] == Mask.causal(1, 5)
        True
        """
        rows, keys = index if isinstance(index, tuple) else (index, slice(None))
        bounds = []
        for part, size in ((rows, self.queries), (keys, self.keys)):
            if not isinstance(part, slice):
                raise TypeError("masks are indexed by slices; visible() takes numbers")
            first, end, step = part.indices(size)
            if step != 1:
                raise ArgumentError(f"the step of a slice is {step}, not 1")
            bounds += [first, max(first, end)]
        return self._wrap(_core.mask_slice(self._handle, *bounds))

    def _split(self, batch: int) -> tuple[Mask, ...]:
        """The masks of the sequences of a batch of equal shapes."""
        key = ("split", batch)
        if key not in self._cache:
            q, k = self.queries // batch, self.keys // batch
            parts = tuple(
                self[b * q : (b + 1) * q, b * k : (b + 1) * k] for b in range(batch)
            )
            if sum(part.pairs for part in parts) != self.pairs:
                raise ArgumentError(
                    f"the mask is for {batch} sequences of {q} queries and {k} "
                    "keys, and one of them sees another"
                )
            self._cache[key] = parts
        return self._cache[key]

    # ---- questions -----------------------------------------------------------

    @property
    def shape(self) -> tuple[int, int]:
        """(queries, keys)"""
        return self._shape

    @property
    def queries(self) -> int:
        """The number of queries."""
        return self._shape[0]

    @property
    def keys(self) -> int:
        """The number of keys."""
        return self._shape[1]

    @property
    def pairs(self) -> int:
        """The number of visible pairs.

        >>> Mask.causal(5).pairs
        15
        """
        return _core.mask_pairs(self._handle)

    def visible(self, query: int, key: int) -> bool:
        """Whether a query sees a key.

        >>> Mask.causal(5).visible(1, 2)
        False
        """
        return _core.mask_visible(
            self._handle, _size(query, "query"), _size(key, "key")
        )

    def row(self, query: int) -> list[tuple[int, int]]:
        """The spans [lo, hi) of keys that a query sees.

        >>> Mask.parse("window(2) | sinks(1)", 5).row(4)
        [(0, 1), (3, 5)]
        """
        return _core.mask_row(self._handle, _size(query, "query"))

    def origin(self, query: int) -> int:
        """The key from which the positions of a query's document are counted.

        >>> Mask.documents([3, 2]).origin(4)
        3
        """
        return _core.mask_origin(self._handle, _size(query, "query"))

    def is_causal(self) -> bool:
        """Whether no query sees a key after its own position."""
        return _core.mask_future(self._handle) is None

    def first_future_pair(self) -> tuple[int, int] | None:
        """The first query and key after it that it sees, or None.

        >>> Mask.prefix(4, prefix=2).first_future_pair()
        (0, 1)
        """
        return _core.mask_future(self._handle)

    def to_dense(self) -> Any:
        """The mask as a NumPy array of bool (queries, keys).

        >>> Mask.causal(2).to_dense()
        array([[ True, False],
               [ True,  True]])
        """
        np = _numpy()
        dense = np.empty(self._shape, dtype=np.uint8)
        _core.mask_fill(self._handle, dense)
        return dense.view(np.bool_)

    def to_json(self) -> str:
        """The mask as JSON.

        >>> Mask.causal(2).to_json()
        '{"queries":2,"keys":2,"pairs":3,"rows":[[[0,1]],[[0,2]]]}'
        """
        return _core.mask_json(self._handle)

    def text(self) -> str:
        """A line for each query: '#' is visible, '.' hidden."""
        return _core.mask_text(self._handle)[:-1]

    # ---- protocols -------------------------------------------------------------

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Mask):
            return NotImplemented
        return self is other or _core.mask_equal(self._handle, other._handle)

    def __hash__(self) -> int:
        if "hash" not in self._cache:
            self._cache["hash"] = _core.mask_hash(self._handle)
        return self._cache["hash"]

    def __reduce__(self) -> Any:
        return _restore, (*self._shape, *_core.mask_spans(self._handle))

    def __copy__(self) -> Mask:
        return self

    def __deepcopy__(self, memo: Any) -> Mask:
        return self

    def __repr__(self) -> str:
        return f"<bauta.Mask {self.queries} x {self.keys}, {self.pairs} pairs>"

    def __str__(self) -> str:
        if self.queries > _TEXT_QUERIES or self.keys > _TEXT_KEYS:
            return repr(self)
        return self.text()

    def _repr_html_(self) -> str:
        """The picture in notebooks: darker cells show more of their pairs."""
        caption = f"{self.queries} x {self.keys}, {self.pairs} pairs"
        if self.queries == 0 or self.keys == 0:
            return f"<div>Mask {caption}</div>"
        rows = min(self.queries, _PICTURE_CELLS)
        columns = min(self.keys, _PICTURE_CELLS)
        cell = max(4, 256 // max(rows, columns))
        parts = [
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{columns * cell}" '
            f'height="{rows * cell}" shape-rendering="crispEdges">'
            '<rect width="100%" height="100%" fill="#eee"/>'
        ]
        shares = _core.mask_density(self._handle, rows, columns)
        for row in range(rows):
            line = shares[row * columns : (row + 1) * columns]
            column = 0
            for share, run in itertools.groupby(line):
                count = len(list(run))
                if share > 0:
                    parts.append(
                        f'<rect x="{column * cell}" y="{row * cell}" '
                        f'width="{count * cell}" height="{cell}" '
                        f'fill="#246" fill-opacity="{share:.3g}"/>'
                    )
                column += count
        parts.append("</svg>")
        return f'<div title="Mask {caption}">{"".join(parts)}<br>{caption}</div>'


def _differences(cumulative: Any, name: str) -> list[int]:
    numbers = _sizes(cumulative, name)
    if not numbers or numbers[0] != 0:
        raise ArgumentError(f"{name} does not begin with 0")
    lengths = [after - before for before, after in zip(numbers, numbers[1:])]
    if min(lengths, default=0) < 0:
        raise ArgumentError(f"{name} decreases")
    return lengths


def _handle_of(mask: Any) -> Any:
    if not isinstance(mask, Mask):
        raise TypeError(f"a mask is a bauta.Mask, not {type(mask).__name__}")
    return mask._handle


def _restore(
    queries: int, keys: int, start: bytes, spans: bytes, origins: bytes
) -> Mask:
    """What pickle calls."""
    return Mask._wrap(_core.mask_from_spans(queries, keys, start, spans, origins))


def masks_of(
    mask: Mask | Sequence[Mask], batch: int, queries: int, keys: int
) -> tuple[Mask, ...]:
    """One mask for all sequences of a batch, or one for each."""
    if not isinstance(mask, Mask):
        masks = tuple(mask)
        for each in masks:
            _handle_of(each)
        if len(masks) != batch:
            raise ArgumentError(f"there are {len(masks)} masks for a batch of {batch}")
        return masks
    if mask._shape == (queries, keys):
        return (mask,)
    if batch and mask._shape == (batch * queries, batch * keys):
        return mask._split(batch)
    raise ArgumentError(
        f"the mask is {mask.queries} x {mask.keys}, and there are {batch} sequences "
        f"of {queries} queries and {keys} keys"
    )
