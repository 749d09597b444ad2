# SPDX-License-Identifier: Apache-2.0
"""bauta as the attention of Hugging Face models.

>>> import bauta.transformers, transformers
>>> bauta.transformers.register()
>>> config = transformers.GPT2Config(n_embd=32, n_layer=1, n_head=2)
>>> model = transformers.GPT2LMHeadModel._from_config(
...     config, attn_implementation="bauta"
... )

``from_pretrained(..., attn_implementation="bauta")`` does the same. Padding on
either side, sliding windows, packed batches (position ids that restart), custom
masks, and dynamic and static caches are supported, in float32 on the CPU and in
float32 and bfloat16 on Hopper GPUs. A padding token is never read, and no large
negative number stands for a hidden one.
"""

from __future__ import annotations

import threading
from typing import Any, Callable, Optional, Sequence, Tuple, Union

import torch
from torch import Tensor
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.masking_utils import (
    bidirectional_mask_function,
    causal_mask_function,
    sdpa_mask,
)

from . import torch as bauta_torch
from ._errors import UnsupportedError
from ._mask import Mask

__all__ = ["MaskBatch", "register"]


class MaskBatch:
    """The masks of a batch, one for all sequences or one for each.

    Models pass it from the mask function to the attention of every layer, where
    a tensor (batch, 1, queries, keys) would be.
    """

    __slots__ = ("masks", "shape")

    ndim = 4

    def __init__(self, masks: Sequence[Mask], batch: int) -> None:
        self.masks = tuple(masks)
        self.shape = (batch, 1, *self.masks[0].shape)

    def to(self, *args: Any, **kwargs: Any) -> MaskBatch:
        """Masks have no device and no dtype."""
        return self

    def contiguous(self) -> MaskBatch:
        """generate() asks for it."""
        return self

    def __repr__(self) -> str:
        return f"<bauta MaskBatch {self.shape}>"


def _masks_of_dense(visible: Tensor, batch: int) -> MaskBatch:
    """Masks of a bool tensor (batch or 1, 1, queries, keys)."""
    if visible.shape[1] != 1:
        raise UnsupportedError("the mask depends on the head")
    rows = visible[:, 0].cpu()
    if len(rows) > 1 and bool((rows == rows[:1]).all()):
        rows = rows[:1]
    return MaskBatch([Mask.dense(each.numpy()) for each in rows], batch)


def _plain_mask(
    function: Callable[..., Any],
    queries: int,
    keys: int,
    first_query: Any,
    first_key: int,
) -> Optional[Mask]:
    """The mask of a function that is known, without padding; else None."""
    if function is bidirectional_mask_function:
        return Mask.all(queries, keys)
    if function is causal_mask_function:
        # The last query of a longer causal mask is aligned with its last key.
        position = int(first_query) - int(first_key)
        if position >= 0:
            whole = Mask.causal(queries, max(position + queries, keys))
            if position + queries >= keys:
                return whole[:, :keys]
    return None


@torch.compiler.disable
def _mask(
    batch_size: int,
    q_length: int,
    kv_length: int,
    q_offset: Any = 0,
    kv_offset: int = 0,
    mask_function: Callable[..., Any] = causal_mask_function,
    attention_mask: Union[None, Tensor, MaskBatch] = None,
    use_vmap: bool = False,
    device: Any = "cpu",
    **kwargs: Any,
) -> MaskBatch:
    """The mask function that transformers calls once for each forward pass."""
    if isinstance(attention_mask, MaskBatch):  # prepared by generate()
        return attention_mask
    if attention_mask is None:
        mask = _plain_mask(mask_function, q_length, kv_length, q_offset, kv_offset)
        if mask is not None:
            return MaskBatch([mask], batch_size)
    visible = sdpa_mask(
        batch_size=batch_size,
        q_length=q_length,
        kv_length=kv_length,
        q_offset=q_offset,
        kv_offset=kv_offset,
        mask_function=mask_function,
        attention_mask=attention_mask,
        allow_is_causal_skip=False,
        allow_is_bidirectional_skip=False,
        use_vmap=use_vmap,
        device=device,
    )
    assert visible is not None
    return _masks_of_dense(visible, batch_size)


class _LastMask(threading.local):
    """The masks of the last tensor, which every layer of a model is given."""

    key: Any = None
    masks: Optional[MaskBatch] = None


_last = _LastMask()


@torch.compiler.disable
def _masks_of_tensor(tensor: Tensor, batch: int, queries: int, keys: int) -> MaskBatch:
    """Masks of a tensor that a user prepared: bool, or 0 and a large negative."""
    key = (tensor.data_ptr(), tensor._version, tensor.shape, tensor.stride(), batch)
    if _last.masks is not None and _last.key == (id(tensor), key):
        return _last.masks
    visible = tensor
    if tensor.dtype != torch.bool:
        visible = tensor == 0
        hidden = tensor <= torch.finfo(tensor.dtype).min / 2
        if not bool((visible | hidden).all()):
            raise UnsupportedError("additive masks other than 0 and -infinity")
    masks = _masks_of_dense(visible.expand(-1, -1, queries, keys), batch)
    _last.key, _last.masks = (id(tensor), key), masks
    return masks


def _attention(
    module: Any,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Union[None, Tensor, MaskBatch],
    scaling: Optional[float] = None,
    dropout: float = 0.0,
    is_causal: Optional[bool] = None,
    **kwargs: Any,
) -> Tuple[Tensor, None]:
    """The attention function: (batch, heads, tokens, dim) to (batch, tokens,
    heads, dim)."""
    for name in ("s_aux", "position_bias", "head_mask"):
        if kwargs.get(name) is not None:
            raise UnsupportedError(f"{name} of {type(module).__name__}")
    if dropout:
        raise UnsupportedError(
            f"dropout {dropout} of attention weights; set it to 0 in the config"
        )
    if kwargs.get("output_attentions"):
        raise UnsupportedError("output_attentions; use another attn_implementation")
    queries, keys = query.shape[2], key.shape[2]
    if attention_mask is None:
        if is_causal is None:
            is_causal = getattr(module, "is_causal", True)
        right = 0 if is_causal and queries > 1 else -1
        mask = bauta_torch._cached_mask("band", queries, keys, -1, right)
        masks: Sequence[Mask] = [mask]
    else:
        if isinstance(attention_mask, Tensor):
            attention_mask = _masks_of_tensor(
                attention_mask, query.shape[0], queries, keys
            )
        masks = attention_mask.masks
    out = bauta_torch.attention(
        query,
        key,
        value,
        masks[0] if len(masks) == 1 else masks,
        scale=scaling,
        softcap=kwargs.get("softcap"),
    )
    return out.transpose(1, 2).contiguous(), None


def register(name: str = "bauta") -> None:
    """Make ``attn_implementation=name`` work in transformers.

    Softcaps (Gemma 2) are supported on the CPU. Dropout of attention weights,
    attention sinks, position biases (T5) and output_attentions are rejected with
    :class:`bauta.UnsupportedError`.
    """
    AttentionInterface.register(name, _attention)
    AttentionMaskInterface.register(name, _mask)
