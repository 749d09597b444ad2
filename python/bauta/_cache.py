# SPDX-License-Identifier: Apache-2.0
"""KV caches in pages, for decoding."""

from __future__ import annotations

import threading
from typing import Any

from . import _core
from ._attention import _four_axes, _own_axes, _view, scale_of
from ._errors import ArgumentError
from ._mask import Mask, _handle_of, _size


class KVCache:
    """The keys and values of one sequence, in pages of 64 tokens.

    Arrays are (tokens, heads, dim), float32 in CPU memory. Attention over the
    cache has the bits of :func:`bauta.attention` over what was appended.

    >>> import bauta, numpy as np
    >>> q, k, v = np.random.default_rng(1).random((3, 5, 2, 8), np.float32)
    >>> cache = bauta.KVCache(heads=2, head_dim=8, capacity=100)
    >>> cache.append(k, v)
    >>> step = cache.attention(q[4:], bauta.Mask.causal(1, 5))
    >>> whole = bauta.attention(q, k, v, bauta.Mask.causal(5))
    >>> bool((step == whole[4:]).all())
    True

    Calls of several threads on a cache and its forks wait for each other.
    """

    def __init__(
        self, heads: int, head_dim: int, capacity: int, *, value_dim: int | None = None
    ) -> None:
        self.heads, self.head_dim = _size(heads, "heads"), _size(head_dim, "head_dim")
        self.value_dim = self.head_dim if value_dim is None else value_dim
        self._lock = threading.Lock()  # shared with forks, as pages are
        self._handle = _core.cache_create(
            self.heads, self.head_dim, self.value_dim, _size(capacity, "capacity")
        )

    def append(self, k: Any, v: Any) -> None:
        """Append keys and values (tokens, heads, dim)."""
        k, v = _four_axes(_view(k, "k"), "k", 3), _four_axes(_view(v, "v"), "v", 3)
        wanted = (self.heads, self.head_dim, self.value_dim)
        if (k.shape[1], k.shape[3], v.shape[3]) != wanted:
            raise ArgumentError(
                f"k and v have {k.shape[1]} heads of {k.shape[3]} and {v.shape[3]}, "
                f"the cache {self.heads} of {self.head_dim} and {self.value_dim}"
            )
        with self._lock:
            _core.cache_append(self._handle, k, v)

    def attention(self, q: Any, mask: Mask, *, scale: float | None = None) -> Any:
        """Attention of queries (tokens, heads, dim) over the cache.

        The mask is for (tokens of q, tokens of the cache). q may have a multiple
        of the cache's heads.
        """
        import numpy as np

        q = _four_axes(_view(q, "q"), "q", 3)
        if mask.keys != len(self):
            raise ArgumentError(
                f"the mask has {mask.keys} keys, and the cache {len(self)} tokens"
            )
        if q.shape[3] != self.head_dim or q.shape[1] % self.heads:
            raise ArgumentError(
                f"q has {q.shape[1]} heads of {q.shape[3]}, the cache "
                f"{self.heads} of {self.head_dim}"
            )
        shape = (q.shape[2], q.shape[1], self.value_dim)
        out = _four_axes(np.empty(shape, np.float32), "out", 3)
        with self._lock:
            _core.attention_cached(
                self._handle, _handle_of(mask), scale_of(scale), self.heads, q, out
            )
        return _own_axes(out, 3)

    def fork(self) -> KVCache:
        """A second cache with the same contents; pages are copied on write."""
        copy = object.__new__(KVCache)
        copy.heads, copy.head_dim = self.heads, self.head_dim
        copy.value_dim, copy._lock = self.value_dim, self._lock
        with self._lock:
            copy._handle = _core.cache_fork(self._handle)
        return copy

    def truncate(self, tokens: int) -> None:
        """Keep the first tokens."""
        with self._lock:
            _core.cache_cut(self._handle, _size(tokens, "tokens"), False)

    def evict(self, tokens: int) -> None:
        """Free the pages that lie wholly before this token. Numbers stay."""
        with self._lock:
            _core.cache_cut(self._handle, _size(tokens, "tokens"), True)

    def __len__(self) -> int:
        return _core.cache_tokens(self._handle)

    def __repr__(self) -> str:
        return f"<bauta.KVCache {len(self)} tokens>"
