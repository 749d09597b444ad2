# SPDX-License-Identifier: Apache-2.0
"""Exact masked attention, and Transformers on top of it.

>>> import bauta, numpy as np
>>> mask = bauta.Mask.causal(4) & bauta.Mask.documents([2, 2])
>>> q = k = v = np.ones((4, 8, 64), np.float32)  # (tokens, heads, dim)
>>> bauta.attention(q, k, v, mask).shape
(4, 8, 64)

``bauta.torch`` has the same for PyTorch tensors, with autograd, and
``bauta.transformers`` makes it the attention of Hugging Face models. Models run
and train without either:

>>> tokenizer = bauta.Tokenizer.characters("abc")
>>> model = bauta.Model.preset("gpt2-tiny", tokenizer)
>>> text = model.generate("abc", max_new_tokens=5).text
"""

from __future__ import annotations

from . import _core
from ._attention import attention, attention_backward
from ._cache import KVCache
from ._errors import (
    ArgumentError,
    DeviceError,
    Error,
    FileError,
    FormatError,
    NotFiniteError,
    OutOfMemoryError,
    UnsupportedError,
)
from ._generate import Generation, Token
from ._inspect import AttentionWeights, Audit
from ._mask import Mask
from ._model import Filling, Model
from ._tokenizer import Tokenizer
from ._train import Corpus, Step, Trainer, preset_options, presets

__version__: str = _core.version()

__all__ = [
    "ArgumentError",
    "AttentionWeights",
    "Audit",
    "Corpus",
    "DeviceError",
    "Error",
    "FileError",
    "Filling",
    "FormatError",
    "Generation",
    "KVCache",
    "Mask",
    "Model",
    "NotFiniteError",
    "OutOfMemoryError",
    "Step",
    "Token",
    "Tokenizer",
    "Trainer",
    "UnsupportedError",
    "attention",
    "attention_backward",
    "get_num_threads",
    "isa",
    "preset_options",
    "presets",
    "set_num_threads",
]


def set_num_threads(threads: int) -> None:
    """The threads that a call computes with; 0 is one per core, the default.

    No bit of a result depends on it.

    >>> import bauta
    >>> bauta.set_num_threads(1)
    >>> bauta.get_num_threads()
    1
    >>> bauta.set_num_threads(0)
    """
    _core.set_num_threads(threads)


def get_num_threads() -> int:
    """The number of threads that a call computes with."""
    return _core.get_num_threads()


def isa() -> str:
    """The instruction set in use: "c", "avx2" or "avx512"."""
    return _core.get_isa()
