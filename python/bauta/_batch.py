# SPDX-License-Identifier: Apache-2.0
"""Batches of token sequences, and numbers for each of their rows."""

from __future__ import annotations

from array import array
from typing import Any, Sequence

from ._errors import ArgumentError
from ._mask import Mask, _handle_of, _sizes
from ._tokenizer import Tokenizer, ids_of

IGNORE = 0xFFFFFFFF


class Batch:
    """Tokens as a user gives them, and as the library takes them.

    ========================================== ==================================
    given                                      results
    ========================================== ==================================
    one sequence: ids, or a str                (tokens, ...)
    an array (batch, tokens), with ``lengths`` (batch, tokens, ...), 0 in padding
    a list of sequences, or of str             a list of arrays (tokens, ...)
    ========================================== ==================================
    """

    kind: str  # "one", "grid" or "list"

    def __init__(
        self,
        tokens: Any,
        name: str,
        tokenizer: Tokenizer | None,
        *,
        lengths: Any = None,
        token_type_ids: Any = None,
        mask: Mask | None = None,
        cross_mask: Mask | None = None,
        prefix_lengths: Any = None,
        target: bool = False,
    ) -> None:
        tokens = encode_all(tokens, tokenizer, name, target)
        self.name = name
        self.stride = 0
        if getattr(tokens, "ndim", 1) == 2:
            self._set_grid(tokens, lengths)
        elif lengths is not None:
            raise ArgumentError(f"lengths need {name} with two axes")
        elif is_one(tokens):
            self.kind = "one"
            self.ids = ids_of(tokens, name)
            self.lengths = [len(self.ids)]
        else:
            self.kind = "list"
            self._set_list([ids_of(each, name) for each in tokens])
        self.count = len(self.lengths)
        self.rows = self.count * self.stride or sum(self.lengths)
        self.types = None
        if token_type_ids is not None:
            self.types = self.flat(token_type_ids, "token_type_ids", "uint32")
        self.mask = None if mask is None else _handle_of(mask)
        self.cross_mask = None if cross_mask is None else _handle_of(cross_mask)
        self.prefixes = None
        if prefix_lengths is not None:
            self.prefixes = _sizes(prefix_lengths, "prefix_lengths")

    def _set_grid(self, tokens: Any, lengths: Any) -> None:
        self.kind = "grid"
        self.ids = ids_of(tokens, self.name)
        count, self.stride = self.ids.shape
        if lengths is None:
            self.lengths = [self.stride] * count
        else:
            self.lengths = _sizes(lengths, "lengths")
        if len(self.lengths) != count:
            raise ArgumentError(f"{count} sequences have {len(self.lengths)} lengths")
        if self.stride == 0:
            raise ArgumentError(f"the sequences of {self.name} are empty")

    def _set_list(self, sequences: list[Any]) -> None:
        self.ids = array("I")
        for each in sequences:
            self.ids.frombytes(each.tobytes())
        self.lengths = [len(each) for each in sequences]

    def as_tuple(self) -> tuple[Any, ...]:
        """The form of the extension module."""
        return (
            self.ids,
            self.lengths,
            self.stride,
            self.count,
            self.types,
            self.mask,
            self.cross_mask,
            self.prefixes,
        )

    def starts(self) -> list[int]:
        """The first row of each sequence."""
        if self.stride:
            return [number * self.stride for number in range(self.count)]
        starts, row = [], 0
        for length in self.lengths:
            starts.append(row)
            row += length
        return starts

    def results(self, rows: Any) -> Any:
        """An array (rows, ...) in the form in which the tokens were given."""
        if self.kind == "one":
            return rows
        if self.kind == "grid":
            return rows.reshape(self.count, self.stride, *rows.shape[1:])
        return [
            rows[start : start + length]
            for start, length in zip(self.starts(), self.lengths)
        ]

    def flat(self, values: Any, name: str, dtype: str) -> Any:
        """A number for each row, from the form of the tokens. Negative labels
        are ignored ones."""
        import numpy as np

        if self.kind == "list":
            parts = [np.asarray(each) for each in values]
            if [len(part) for part in parts] != self.lengths:
                raise ArgumentError(f"{name} and {self.name} have different lengths")
            values = np.concatenate(parts) if parts else np.empty(0)
        values = np.asarray(values)
        shape = (self.count, self.stride) if self.kind == "grid" else (self.rows,)
        if values.shape != shape:
            raise ArgumentError(f"{name} is {values.shape}, and {self.name} is {shape}")
        if dtype == "uint32":
            if values.size and values.dtype.kind not in "iu":
                raise TypeError(f"{name} has the dtype {values.dtype}, not integers")
            values = np.where(values < 0, IGNORE, values)
        return np.ascontiguousarray(values.reshape(-1), dtype=dtype)

    def next_tokens(self) -> Any:
        """The token after each row; the last one of a sequence is ignored."""
        import numpy as np

        labels = np.full(self.rows, IGNORE, np.uint32)
        ids = np.frombuffer(self.ids, np.uint32)
        for start, length in zip(self.starts(), self.lengths):
            if length:
                labels[start : start + length - 1] = ids[start + 1 : start + length]
        return labels


def is_one(tokens: Any) -> bool:
    """Whether these are the ids of one sequence."""
    if hasattr(tokens, "ndim"):
        return tokens.ndim == 1
    return len(tokens) == 0 or hasattr(tokens[0], "__index__")


def encode_all(
    tokens: Any, tokenizer: Tokenizer | None, name: str, target: bool = False
) -> Any:
    """Texts as ids; ids as they are."""
    if isinstance(tokens, str):
        if tokenizer is None:
            raise ArgumentError(f"{name} is text, and the model has no tokenizer")
        return tokenizer.encode(tokens, target=target)
    if not hasattr(tokens, "ndim") and not isinstance(tokens, (list, tuple, array)):
        tokens = list(tokens)
    if isinstance(tokens, (list, tuple)) and any(isinstance(t, str) for t in tokens):
        return [encode_all(text, tokenizer, name, target) for text in tokens]
    if getattr(tokens, "ndim", 1) not in (1, 2):
        raise ArgumentError(f"{name} has {tokens.ndim} axes, not 1 or 2")
    return tokens


def decode_all(tokenizer: Tokenizer, ids: Sequence[Any]) -> list[str]:
    """The text of each token alone, for labels."""
    return [tokenizer.decode([i], skip_special_tokens=False) for i in ids]
