# SPDX-License-Identifier: Apache-2.0
"""Tokenizers."""

from __future__ import annotations

import json
import os
from array import array
from typing import Any, Iterable, Sequence

from . import _core
from ._errors import ArgumentError

_SPECIAL = ("bos", "eos", "unk", "pad", "cls", "sep", "mask")


def ids_of(tokens: Any, name: str = "tokens") -> Any:
    """A buffer of uint32 over token ids; a copy unless they are uint32."""
    if isinstance(tokens, array) and tokens.typecode == "I":
        return tokens
    if hasattr(tokens, "__array__") or hasattr(tokens, "__dlpack__"):
        return _ids_of_array(tokens, name)
    try:
        return array("I", tokens)
    except OverflowError:
        raise ArgumentError(f"{name} has an id that is negative or too large") from None


def _ids_of_array(tokens: Any, name: str) -> Any:
    import numpy as np

    ids = np.asarray(tokens)
    if ids.dtype.kind not in "iu":
        raise TypeError(f"{name} has the dtype {ids.dtype}, not a type of integers")
    if ids.size and (ids.min() < 0 or ids.max() >= 1 << 32):
        raise ArgumentError(f"{name} has an id that is negative or too large")
    return np.ascontiguousarray(ids, dtype=np.uint32)


class Tokenizer:
    """Text to token ids and back, with the ids of the original implementation.

    >>> import bauta
    >>> tokenizer = bauta.Tokenizer.characters("hello world")
    >>> tokenizer.encode("hello")
    [3, 2, 4, 4, 5]
    >>> tokenizer.decode([3, 2, 4, 4, 5])
    'hello'
    >>> len(tokenizer), tokenizer.eos_token_id
    (10, 9)
    """

    _handle: Any
    _folder: str | None

    def __init__(self) -> None:
        raise TypeError("tokenizers are created by Tokenizer.load() and the like")

    @classmethod
    def _wrap(cls, handle: Any, folder: str | None = None) -> Tokenizer:
        tokenizer = object.__new__(cls)
        tokenizer._handle = handle
        tokenizer._folder = folder
        special = _core.tokenizer_special(handle)
        for name, number in zip(_SPECIAL, special):
            setattr(tokenizer, f"{name}_token_id", number)
        return tokenizer

    bos_token_id: int | None
    eos_token_id: int | None
    unk_token_id: int | None
    pad_token_id: int | None
    cls_token_id: int | None
    sep_token_id: int | None
    mask_token_id: int | None

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Tokenizer:
        """Load from a model's folder or from a tokenizer's file.

        tokenizer.json, SentencePiece models, vocab.txt and the vocab.json with
        merges.txt of GPT-2 are supported.
        """
        path = os.fspath(path)
        return cls._wrap(_core.tokenizer_load(path), path)

    @classmethod
    def bytes(cls) -> Tokenizer:
        """Token b is byte b, and token 256 ends a text.

        >>> import bauta
        >>> bauta.Tokenizer.bytes().encode("é")
        [195, 169]
        """
        return cls._wrap(_core.tokenizer_bytes())

    @classmethod
    def characters(cls, text: str) -> Tokenizer:
        """The distinct characters of a text, <unk> and <|endoftext|>."""
        return cls._wrap(_core.tokenizer_characters(text))

    @classmethod
    def train(
        cls,
        texts: Iterable[str],
        *,
        kind: str = "bpe",
        vocab_size: int = 8000,
        special_tokens: Sequence[str] = (),
        **options: Any,
    ) -> Tokenizer:
        """Train a tokenizer: "bpe", "wordpiece", "unigram" or "characters".

        Options are min_frequency, lowercase and prefer_greatest.

        >>> import bauta
        >>> texts = ["the cat sat on the mat", "the hat"] * 4
        >>> tokenizer = bauta.Tokenizer.train(texts, vocab_size=270)
        >>> tokenizer.decode(tokenizer.encode("the cat"))
        'the cat'
        >>> len(tokenizer.encode("the cat"))
        2
        """
        options.update(kind=kind, vocab_size=vocab_size)
        return cls._wrap(
            _core.tokenizer_train(options, list(texts), list(special_tokens))
        )

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Write the tokenizer's files into an existing folder."""
        _core.tokenizer_save(self._handle, os.fspath(folder))

    def encode(
        self,
        text: str,
        pair: str | None = None,
        *,
        add_special_tokens: bool = True,
        split_special_tokens: bool = False,
        target: bool = False,
    ) -> list[int]:
        """The token ids of a text, or of a pair of texts for BERT.

        With ``target`` the text is the target of a translation. Special tokens
        that are written in the text are recognized unless
        ``split_special_tokens`` is set.
        """
        ids = self._encode(text, pair, add_special_tokens, split_special_tokens, target)
        return _unpack("I", ids[0]).tolist()

    def _encode(self, text: str, pair: Any, *flags: bool) -> Any:
        return _core.tokenizer_encode(self._handle, _utf8(text), _utf8(pair), *flags)

    def encode_with_offsets(
        self, text: str, *, add_special_tokens: bool = True
    ) -> tuple[list[int], list[tuple[int, int]]]:
        """The ids, and the characters [start, end) of the text that each covers.

        >>> import bauta
        >>> bauta.Tokenizer.characters("ä!").encode_with_offsets("!ä")
        ([0, 1], [(0, 1), (1, 2)])
        """
        ids, _, starts, ends = self._encode(text, None, add_special_tokens, False, False)
        position = _byte_positions(text)
        spans = zip(_unpack("N", starts), _unpack("N", ends))
        return (
            _unpack("I", ids).tolist(),
            [(position[start], position[end]) for start, end in spans],
        )

    def decode(
        self,
        ids: Iterable[int],
        *,
        skip_special_tokens: bool = True,
        source: bool = False,
    ) -> str:
        """The text of token ids. With ``source``, of the source of a translation."""
        return _core.tokenizer_decode(
            self._handle, ids_of(ids, "ids"), skip_special_tokens, source
        )

    def apply_chat_template(
        self,
        messages: Sequence[dict[str, Any]],
        *,
        add_generation_prompt: bool = False,
        chat_template: str | None = None,
        **variables: Any,
    ) -> str:
        """The text of a chat, by the template in the folder of the tokenizer.

        ``chat_template`` is the name of one of several templates.
        """
        if self._folder is None:
            raise ArgumentError("the tokenizer was not loaded from a folder")
        variables.update(
            messages=list(messages), add_generation_prompt=add_generation_prompt
        )
        return _core.chat_render(self._folder, chat_template, json.dumps(variables))

    def token_to_id(self, token: str) -> int | None:
        """The id of a token as the vocabulary writes it, or None."""
        return _core.tokenizer_find(self._handle, _utf8(token))

    def id_to_token(self, id: int) -> str | None:
        """A token as the vocabulary writes it, or None."""
        if not 0 <= id < 1 << 32:
            return None
        return _core.tokenizer_piece(self._handle, id)

    def is_special(self, id: int) -> bool:
        """Whether :meth:`decode` skips this token by default."""
        return 0 <= id < 1 << 32 and _core.tokenizer_is_special(self._handle, id)

    @property
    def vocab_size(self) -> int:
        """1 + the largest id."""
        return _core.tokenizer_vocab_size(self._handle)

    def __len__(self) -> int:
        return self.vocab_size

    def __repr__(self) -> str:
        return f"<bauta.Tokenizer, {self.vocab_size} tokens>"


def _utf8(text: str | None) -> Any:
    """Text for the library. Surrogates that stand alone become '?'."""
    if text is None or text.isascii():
        return text
    try:
        text.encode()
        return text
    except UnicodeEncodeError:
        return text.encode("utf-8", "replace").decode()


def _unpack(typecode: str, data: bytes) -> Any:
    """An array of the numbers in bytes; "N" is size_t, of 8 bytes."""
    numbers = array("Q" if typecode == "N" else typecode)
    numbers.frombytes(data)
    return numbers


def _byte_positions(text: str) -> dict[int, int]:
    """The number of the character that begins at a byte of the UTF-8 text."""
    positions, byte = {}, 0
    for number, character in enumerate(text):
        positions[byte] = number
        byte += len(character.encode("utf-8", "replace"))
    positions[byte] = len(text)
    return positions
