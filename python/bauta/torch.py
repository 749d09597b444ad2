# SPDX-License-Identifier: Apache-2.0
"""Masked attention for PyTorch: a custom operator with autograd.

float32 on the CPU; bfloat16 and float32 on Hopper GPUs, where the library was
built with CUDA. Tensors are read in place.

>>> import bauta, bauta.torch, torch
>>> q = k = v = torch.ones(2, 8, 16, 64, requires_grad=True)
>>> out = bauta.torch.attention(q, k, v, bauta.Mask.causal(16))
>>> out.sum().backward()
>>> q.grad.shape
torch.Size([2, 8, 16, 64])
"""

from __future__ import annotations

import threading
from collections import OrderedDict, deque
from typing import Any, List, Optional, Sequence, Tuple, Union

import torch
from torch import Tensor

from . import _core
from ._attention import positions_of, scale_of
from ._errors import ArgumentError, UnsupportedError
from ._mask import Mask, _by_id, masks_of

__all__ = [
    "attention",
    "flash_attn_func",
    "flash_attn_varlen_func",
    "paged_attention",
    "scaled_dot_product_attention",
]

_GPU_PLANS = 8  # kept with each mask
_IDLE_PLANS = 16  # of masks that were freed, kept for others
_MASKS = 64  # kept by each _MaskCache


# ---- layouts ------------------------------------------------------------------


def _in_place(tensor: Tensor) -> bool:
    """Whether the library can read a tensor (batch, heads, tokens, dim)."""
    _, heads, tokens, dim = tensor.shape
    _, head_stride, token_stride, last = tensor.stride()
    return (
        (dim <= 1 or last == 1)
        and (heads <= 1 or head_stride >= dim)
        and (tokens <= 1 or token_stride >= dim)
    )


def _readable(tensor: Tensor) -> Tensor:
    return tensor if _in_place(tensor) else tensor.contiguous()


def _merges(tensor: Tensor) -> bool:
    """Whether the sequences of a batch follow each other as heads do."""
    batch, heads, _, dim = tensor.shape
    if batch <= 1:
        return True
    if heads == 1:
        return tensor.stride(0) >= dim
    return tensor.stride(0) == heads * tensor.stride(1)


def _follows(tensor: Tensor) -> bool:
    """Whether the sequences of a batch follow each other as tokens do."""
    batch, _, tokens, _ = tensor.shape
    return batch <= 1 or tensor.stride(0) == tokens * tensor.stride(2)


def _one_call(tensors: Sequence[Tensor], one_mask: bool) -> bool:
    """Whether the batch can be further heads of one call of the library."""
    batch, heads = tensors[0].shape[:2]
    return one_mask and batch * heads < 1 << 16 and all(map(_merges, tensors))


def _results_empty(
    q: Tensor, k: Tensor, v: Tensor, one_mask: bool
) -> Tuple[Tensor, Tensor]:
    """out and lse. out has the axes of q in the same order in memory as far as
    one call can write it, so that the heads of a projection stay together."""
    batch, heads, tokens, _ = q.shape
    dim = v.shape[3]
    heads_inside = heads > 1 and tokens > 1 and q.stride(1) < q.stride(2)
    merged = _one_call((q, k, v), one_mask)
    if merged and heads_inside:
        out = q.new_empty((tokens, batch, heads, dim)).permute(1, 2, 0, 3)
    elif merged or (q.device.type == "cpu" and not heads_inside):
        out = q.new_empty((batch, heads, tokens, dim))
    else:
        out = q.new_empty((batch, tokens, heads, dim)).transpose(1, 2)
    return out, _lse_empty(q, merged)


def _lse_empty(q: Tensor, merged: bool) -> Tensor:
    """lse (batch, heads, tokens), in memory as one call of the library writes
    it: (tokens, batch * heads), or (tokens, heads) for each sequence."""
    batch, heads, tokens, _ = q.shape
    if merged:
        lse = q.new_empty((tokens, batch, heads), dtype=torch.float32)
        return lse.permute(1, 2, 0)
    lse = q.new_empty((batch, tokens, heads), dtype=torch.float32)
    return lse.permute(0, 2, 1)


def _describe(tensor: Tensor) -> Tuple[int, Tuple[int, ...], Tuple[int, ...]]:
    shape, stride = tuple(tensor.shape), tensor.stride()
    if tensor.numel():
        # The memory may have been freed or cut under the tensor.
        end = 1 + tensor.storage_offset()
        end += sum((size - 1) * step for size, step in zip(shape, stride))
        if tensor.untyped_storage().nbytes() < end * tensor.element_size():
            raise ArgumentError(f"the memory of a tensor {shape} was freed")
    return tensor.data_ptr(), shape, stride


# ---- GPUs ---------------------------------------------------------------------

_gpu_lock = threading.Lock()
_gpu_contexts: dict = {}


def _current_stream(device: int) -> int:
    return torch.cuda.current_stream(device).cuda_stream


# The same without an object of Python.
_raw_stream = getattr(torch._C, "_cuda_getCurrentRawStream", _current_stream)


def _gpu_context(name: Tuple[int, int]) -> Any:
    """The context of a device and a stream. Call it with the lock."""
    context = _gpu_contexts.get(name)
    if context is None:
        context = _gpu_contexts[name] = _core.gpu_context(*name)
    return context


# Plans of masks that were freed, with their keys. Creating a plan allocates, and
# freeing one waits for the GPU; a new mask takes an idle plan instead, which is
# updated on the stream of its last use.
_idle_plans: Any = deque(maxlen=_IDLE_PLANS)


class _GpuPlan:
    """A plan of a mask, which becomes idle when the mask drops it."""

    __slots__ = ("handle", "context", "key", "_idle")

    def __init__(self, handle: Any, context: Any, key: Tuple[Any, ...]) -> None:
        self.handle, self.context, self.key = handle, context, key
        self._idle = _idle_plans

    def __del__(self) -> None:
        self._idle.append((self.key, self.handle))


def _take_idle(key: Tuple[Any, ...]) -> Any:
    for _ in range(len(_idle_plans)):  # others may append meanwhile
        found, handle = _idle_plans.popleft()
        if found == key:
            return handle
        _idle_plans.append((found, handle))
    return None


def _gpu_plan(mask: Mask, key: Tuple[Any, ...]) -> _GpuPlan:
    """A plan that serves both passes, cached with the mask. A plan has scratch
    memory for one stream, so device and stream are the first of the key."""
    with _gpu_lock:
        plans = mask._cache.get("gpu")
        if plans is None:
            plans = mask._cache["gpu"] = OrderedDict()
        plan = plans.get(key)
        if plan is not None:
            plans.move_to_end(key)
            return plan
        context = _gpu_context(key[:2])
        handle = _take_idle(key)
        if handle is not None:
            _core.gpu_plan_update(context, handle, mask._handle)
        else:
            bfloat16 = key[-1] == torch.bfloat16
            handle = _core.gpu_plan(context, mask._handle, *key[2:-1], bfloat16, True)
        plan = plans[key] = _GpuPlan(handle, context, key)
        while len(plans) > _GPU_PLANS:
            plans.popitem(last=False)
        return plan


def _plan_of(mask: Mask, times: int, *key: Any) -> _GpuPlan:
    """The plan of a mask, or of so many repetitions of it, for the calls that the
    extension module makes itself; it keeps the last ones with the mask, too."""
    return _gpu_plan(_packed((mask,), times) if times else mask, key)


def _packed(masks: Tuple[Mask, ...], batch: int) -> Mask:
    """The masks of a batch as one mask over its tokens."""
    if len(masks) == 1 and batch == 1:
        return masks[0]
    key = ("packed", batch, tuple(mask._id for mask in masks[1:]))
    cache = masks[0]._cache
    if key not in cache:
        cache[key] = Mask.pack(masks * batch if len(masks) == 1 else masks)
    return cache[key]


def _as_tokens(tensor: Tensor) -> Tensor:
    """(batch, heads, tokens, dim) as one sequence (1, heads, tokens, dim)."""
    batch, heads, tokens, dim = tensor.shape
    # view() fails where flatten() would make a copy.
    view = tensor.transpose(1, 2).view(batch * tokens, heads, dim)
    return view.transpose(0, 1)[None]


def _gpu_run(
    masks: Tuple[Mask, ...], scale: float, tensors: List[Tensor], backward: bool
) -> None:
    """`tensors` are q, k, v, out, lse and those of the backward pass, whose
    layouts _gpu_readable() has made mergeable."""
    q, k, v = tensors[:3]
    batch, heads, kv_heads = q.shape[0], q.shape[1], k.shape[1]
    if batch == 0:
        return
    four = [tensor for tensor in tensors if tensor.dim() == 4]
    if _one_call(four, len(masks) == 1):
        mask, times = masks[0], batch
        views = tensors
    else:
        mask, times = _packed(masks, batch), 1
        views = [
            _as_tokens(t) if t.dim() == 4 else _as_tokens(t[..., None])[..., 0]
            for t in tensors
        ]
    shape = (heads * times, kv_heads * times, q.shape[3], v.shape[3], q.dtype)
    device = q.get_device()
    plan = _gpu_plan(mask, (device, _raw_stream(device), *shape))
    run = _core.gpu_attention_backward if backward else _core.gpu_attention_forward
    run(plan.context, plan.handle, scale, *map(_describe, views))


def _gpu_readable(tensors: Sequence[Tensor], one_mask: bool) -> List[Tensor]:
    """Tensors of which one call serves the whole batch."""
    tensors = [_readable(tensor) for tensor in tensors]
    if _one_call(tensors, one_mask):
        return tensors
    return [t if _follows(t) else _tokens_first(t) for t in tensors]


def _tokens_first(tensor: Tensor) -> Tensor:
    """The tensor as (batch, tokens, heads, dim) in memory."""
    return tensor.transpose(1, 2).contiguous().transpose(1, 2)


# ---- operators -----------------------------------------------------------------


class _MaskCache:
    """Masks by what describes them; the oldest are dropped."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.masks: OrderedDict = OrderedDict()
        self.lock = threading.Lock()

    def get(self, key: Any, create: Any) -> Mask:
        with self.lock:
            if key in self.masks:
                self.masks.move_to_end(key)
                return self.masks[key]
        mask = create()
        with self.lock:
            self.masks[key] = mask
            while len(self.masks) > self.size:
                self.masks.popitem(last=False)
        return mask


# A compiled graph keeps the numbers of its masks, not the masks, between the
# forward and the backward pass. So the masks of its last calls are kept here.
_compiled_masks = _MaskCache(_MASKS)


def _masks_by_id(ids: Sequence[int]) -> Tuple[Mask, ...]:
    try:
        return tuple(_by_id[number] for number in ids)
    except KeyError as error:
        raise ArgumentError(f"mask {error} was freed before its use") from None


def _check(q: Tensor, k: Tensor, v: Tensor) -> None:
    same = q.dtype is k.dtype is v.dtype and q.device == k.device == v.device
    if same and q.dim() == k.dim() == v.dim() == 4:
        if q.dtype is torch.float32 and (q.is_cuda or q.is_cpu):
            return
        if q.dtype is torch.bfloat16 and q.is_cuda:
            return
    for name, tensor in (("q", q), ("k", k), ("v", v)):
        if tensor.dim() != 4:
            raise ArgumentError(f"{name} has {tensor.dim()} axes, not 4")
        if tensor.device != q.device:
            raise ArgumentError(f"{name} is on {tensor.device}, and q on {q.device}")
        if tensor.dtype != q.dtype:
            raise TypeError(f"{name} is {tensor.dtype}, and q is {q.dtype}")
    known = {"cpu": (torch.float32,), "cuda": (torch.float32, torch.bfloat16)}
    if q.device.type not in known:
        raise UnsupportedError(f"q is on {q.device}, not on a CPU or a GPU of CUDA")
    if q.dtype not in known[q.device.type]:
        names = " or ".join(map(str, known[q.device.type]))
        raise TypeError(f"q is {q.dtype}; on {q.device.type} it must be {names}")


def _bias_readable(bias: Tensor) -> bool:
    """Whether the library can read a bias (batch, heads, queries, keys)."""
    steps = [step for size, step in zip(bias.shape, bias.stride()) if size > 1]
    return all(steps) and (bias.shape[3] <= 1 or bias.stride(3) == 1)


def _check_terms(q: Tensor, bias: Optional[Tensor], slopes: Optional[Tensor]) -> None:
    for name, tensor in (("bias", bias), ("alibi_slopes", slopes)):
        if tensor is None:
            continue
        if tensor.device != q.device:
            raise ArgumentError(f"{name} is on {tensor.device}, and q on {q.device}")
        if tensor.dtype != torch.float32:
            raise TypeError(f"{name} is {tensor.dtype}, not torch.float32")
    if q.device.type != "cpu":
        raise UnsupportedError("softcap and biases are not supported on a GPU")


def _terms(
    softcap: float,
    bias: Optional[Tensor],
    slopes: Optional[Tensor],
    positions: Optional[Tensor],
    dbias: Optional[Tensor] = None,
) -> Any:
    """What is done to the scores, as the extension module takes it."""
    if not softcap and bias is None and slopes is None:
        return None
    return (
        softcap,
        None if bias is None else _describe(bias),
        None if slopes is None else _describe(slopes.contiguous()[None, None, None]),
        None if positions is None else positions_of(positions.numpy()),
        None if dbias is None else _describe(dbias),
    )


@torch.library.custom_op("bauta::attention_forward", mutates_args=())
def _attention_forward(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    masks: List[int],
    scale: float,
    compiled: bool,
    softcap: float,
    bias: Optional[Tensor],
    slopes: Optional[Tensor],
    positions: Optional[Tensor],
) -> Tuple[Tensor, Tensor]:
    _check(q, k, v)
    found = _masks_by_id(masks)
    if compiled:
        for mask in found:
            _compiled_masks.get(mask._id, lambda: mask)
    return _forward(q, k, v, found, scale, softcap, bias, slopes, positions)


def _forward(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    masks: Tuple[Mask, ...],
    scale: float,
    softcap: float = 0.0,
    bias: Optional[Tensor] = None,
    slopes: Optional[Tensor] = None,
    positions: Optional[Tensor] = None,
) -> Tuple[Tensor, Tensor]:
    """out and lse of tensors that _check() has accepted."""
    biased = softcap != 0.0 or bias is not None or slopes is not None
    if biased:
        _check_terms(q, bias, slopes)
        if bias is not None and not _bias_readable(bias):
            bias = bias.contiguous()
    one_mask = len(masks) == 1 and not biased
    if q.is_cuda:
        q, k, v = _gpu_readable((q, k, v), one_mask)
        out, lse = _results_empty(q, k, v, one_mask)
        _gpu_run(masks, scale, [q, k, v, out, lse], False)
        return out, lse
    q, k, v = _readable(q), _readable(k), _readable(v)
    out, lse = _results_empty(q, k, v, one_mask)
    handles = tuple(mask._handle for mask in masks)
    arrays: List[Any] = [_describe(t) for t in (q, k, v, out, lse)]
    if biased:
        arrays.append(_terms(softcap, bias, slopes, positions))
    _core.attention_forward(handles, scale, *arrays)
    return out, lse


@_attention_forward.register_fake
def _(q, k, v, masks, scale, compiled, softcap, bias, slopes, positions):
    _check(q, k, v)
    biased = softcap != 0.0 or bias is not None or slopes is not None
    if biased:
        _check_terms(q, bias, slopes)
    one_mask = len(masks) == 1 and not biased
    if q.device.type == "cuda":
        q, k, v = _gpu_readable((q, k, v), one_mask)
    else:
        q, k, v = _readable(q), _readable(k), _readable(v)
    return _results_empty(q, k, v, one_mask)


def _with_gradient(tensor: Tensor) -> Tuple[Tensor, Tensor]:
    """A tensor and an empty one of the same strides. A tensor whose memory has
    gaps or repeats is copied."""
    gradient = torch.empty_like(tensor)
    if gradient.stride() != tensor.stride() or not _in_place(tensor):
        tensor = tensor.contiguous()
        gradient = torch.empty_like(tensor)
    return tensor, gradient


def _copy_as(like: Tensor, tensor: Tensor) -> Tensor:
    if tensor.stride() == like.stride():
        return tensor
    return torch.empty_strided(
        like.shape, like.stride(), dtype=like.dtype, device=like.device
    ).copy_(tensor)


def _backward_tensors(
    q: Tensor, k: Tensor, v: Tensor, out: Tensor, one_mask: bool
) -> Tuple[List[Tensor], List[Tensor]]:
    """q, k, v, out in layouts that the backward pass takes, and empty gradients
    of the first three."""
    on_gpu = q.device.type == "cuda"
    if on_gpu:
        q, k, v, out = _gpu_readable((q, k, v, out), one_mask)
    (q, dq), (k, dk), (v, dv) = map(_with_gradient, (q, k, v))
    tensors = [q, k, v, out]
    if not on_gpu or _one_call(tensors, one_mask):
        return tensors, [dq, dk, dv]
    # A copy above may have changed one layout and not the others.
    tensors = list(map(_tokens_first, tensors))
    return tensors, list(map(torch.empty_like, tensors[:3]))


def _bias_with_gradient(bias: Tensor) -> Tuple[Tensor, Tensor]:
    """A bias and zeros of the same strides. A bias whose memory has gaps or
    repeats is copied."""
    gradient = torch.zeros_like(bias)
    if gradient.stride() != bias.stride() or not _bias_readable(bias):
        bias = bias.contiguous()
        gradient = torch.zeros_like(bias)
    return bias, gradient


@torch.library.custom_op("bauta::attention_backward", mutates_args=())
def _attention_backward(
    dout: Tensor,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    out: Tensor,
    lse: Tensor,
    masks: List[int],
    scale: float,
    softcap: float,
    bias: Optional[Tensor],
    slopes: Optional[Tensor],
    positions: Optional[Tensor],
    bias_gradient: bool,
) -> Tuple[Tensor, Tensor, Tensor, Tensor]:
    """The last result is the gradient of the bias, empty if it is not wanted."""
    _check(q, k, v)
    terms = (softcap, bias, slopes, positions, bias_gradient)
    dq, dk, dv, dbias = _gradients(
        dout, q, k, v, out, lse, _masks_by_id(masks), scale, *terms
    )
    return dq, dk, dv, q.new_empty(0) if dbias is None else dbias


def _gradients(
    dout: Tensor,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    out: Tensor,
    lse: Tensor,
    masks: Tuple[Mask, ...],
    scale: float,
    softcap: float = 0.0,
    bias: Optional[Tensor] = None,
    slopes: Optional[Tensor] = None,
    positions: Optional[Tensor] = None,
    bias_gradient: bool = False,
) -> Tuple[Tensor, Tensor, Tensor, Optional[Tensor]]:
    biased = softcap != 0.0 or bias is not None or slopes is not None
    one_mask = len(masks) == 1 and not biased
    tensors, (dq, dk, dv) = _backward_tensors(q, k, v, out, one_mask)
    lse = _copy_as(_lse_empty(tensors[0], _one_call(tensors, one_mask)), lse)
    dout = _copy_as(tensors[3], dout)
    tensors += [lse, dout, dq, dk, dv]
    dbias = None
    if bias is not None and bias_gradient:
        bias, dbias = _bias_with_gradient(bias)
    elif bias is not None and not _bias_readable(bias):
        bias = bias.contiguous()
    if q.is_cuda:
        _gpu_run(masks, scale, tensors, True)
    else:
        handles = tuple(mask._handle for mask in masks)
        arrays: List[Any] = [_describe(t) for t in tensors]
        if biased:
            arrays.append(_terms(softcap, bias, slopes, positions, dbias))
        _core.attention_backward(handles, scale, *arrays)
    return dq, dk, dv, dbias


@_attention_backward.register_fake
def _(
    dout,
    q,
    k,
    v,
    out,
    lse,
    masks,
    scale,
    softcap,
    bias,
    slopes,
    positions,
    bias_gradient,
):
    biased = softcap != 0.0 or bias is not None or slopes is not None
    one_mask = len(masks) == 1 and not biased
    _, (dq, dk, dv) = _backward_tensors(q, k, v, out, one_mask)
    if bias is None or not bias_gradient:
        return dq, dk, dv, q.new_empty(0)
    return dq, dk, dv, _bias_with_gradient(bias)[1]


def _setup_context(ctx: Any, inputs: Any, output: Any) -> None:
    q, k, v, masks, scale, compiled, softcap, bias, slopes, positions = inputs
    out, lse = output
    ctx.save_for_backward(q, k, v, out, lse, bias, slopes, positions)
    ctx.mark_non_differentiable(lse)
    ctx.masks, ctx.scale, ctx.softcap = masks, scale, softcap
    # The masks must live as long as the graph.
    ctx.kept = None if compiled else _masks_by_id(masks)


def _backward(ctx: Any, dout: Tensor, dlse: Any) -> Any:
    q, k, v, out, lse, bias, slopes, positions = ctx.saved_tensors
    if ctx.needs_input_grad[8]:
        raise UnsupportedError("alibi_slopes have no gradient")
    dq, dk, dv, dbias = _attention_backward(
        dout,
        q,
        k,
        v,
        out,
        lse,
        ctx.masks,
        ctx.scale,
        ctx.softcap,
        bias,
        slopes,
        positions,
        ctx.needs_input_grad[7],
    )
    own = dbias if ctx.needs_input_grad[7] else None
    return dq, dk, dv, None, None, None, None, own, None, None


_attention_forward.register_autograd(_backward, setup_context=_setup_context)
if hasattr(_attention_forward, "register_autocast"):  # PyTorch 2.5
    _attention_forward.register_autocast("cpu", torch.float32)
    _attention_forward.register_autocast("cuda", torch.bfloat16)


# ---- without the dispatcher ----------------------------------------------------
#
# PyTorch's dispatcher takes many times as long as queueing a kernel. So calls with
# plain tensors in eager mode go around it: _core.torch_attention() makes those
# whose tensors can be read where they are, and _Attention is their autograd.


def _four_axes(tensor: Tensor) -> Tensor:
    """(tokens, heads, dim) or (tokens, heads) as (1, heads, tokens, ...)."""
    return tensor.transpose(0, 1).unsqueeze(0)


def _own_axes(tensor: Tensor) -> Tensor:
    """The inverse of _four_axes()."""
    return tensor.squeeze(0).transpose(0, 1)


def _forward_plain(
    q: Tensor, k: Tensor, v: Tensor, masks: Tuple[Mask, ...], scale: float
) -> Tuple[Tensor, Tensor]:
    """out and lse of tensors that may have to be copied."""
    if q.dim() == 4:
        _check(q, k, v)
        return _forward(q, k, v, masks, scale)
    q, k, v = map(_four_axes, (q, k, v))
    _check(q, k, v)
    out, lse = _forward(q, k, v, masks, scale)
    return _own_axes(out), _own_axes(lse)


def _gradients_plain(
    given: Sequence[Tensor], masks: Tuple[Mask, ...], scale: float
) -> Sequence[Tensor]:
    """Gradients for q, k, v, out, lse, dout that may have to be copied."""
    q, k, v, out, lse, dout = given
    if q.dim() == 4:
        return _gradients(dout, q, k, v, out, lse, masks, scale)[:3]
    q, k, v, out, lse, dout = map(_four_axes, given)
    made = _gradients(dout, q, k, v, out, lse, masks, scale)[:3]
    return [_own_axes(each) for each in made]


def _one_mask(mask: Any, q: Tensor) -> Tuple[Any, bool]:
    """The mask that _core takes, and whether it is for the tokens of all
    sequences: on a GPU, the masks of a batch are packed."""
    packed = type(mask) is tuple and q.is_cuda
    return _packed(mask, q.shape[0]) if packed else mask, packed


def _function_forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, call: Any) -> Any:
    """forward() of _Attention for several masks and for tensors that may have to
    be copied."""
    mask, scale, return_lse = call
    one, packed = _one_mask(mask, q)
    made = _core.torch_forward(q, k, v, one, scale, packed, True)
    if made is None:
        masks = mask if type(mask) is tuple else _masks_for(mask, q, k)
        made = _forward_plain(q, k, v, masks, scale_of(scale))
    out, lse = made
    ctx.save_for_backward(q, k, v, out, lse)
    ctx.call = call
    if not return_lse:
        return out
    ctx.mark_non_differentiable(lse)
    ctx.set_materialize_grads(False)
    return out, lse


class _Attention(torch.autograd.Function):
    """The operator for plain tensors in eager mode. The mask is one for all
    sequences, or a tuple of one for each."""

    # (ctx, q, k, v, (mask, scale, return_lse))
    forward = staticmethod(_core.torch_function_forward)

    @staticmethod
    def backward(ctx: Any, dout: Optional[Tensor], dlse: Any = None) -> Any:
        if torch.is_grad_enabled():  # with create_graph=True
            return _differentiated_once(ctx, dout)
        return _backward_plain(ctx, dout)


def _backward_plain(ctx: Any, dout: Optional[Tensor]) -> Any:
    if dout is None:
        return (None,) * 4
    q, k, v, out, lse = ctx.saved_tensors
    mask, scale, _ = ctx.call
    one, packed = _one_mask(mask, q)
    made = _core.torch_backward(q, k, v, one, scale, packed, out, lse, dout)
    if made is None:
        given = (q, k, v, out, lse, dout)
        masks = mask if type(mask) is tuple else _masks_for(mask, q, k)
        made = _gradients_plain(given, masks, scale_of(scale))
    dq, dk, dv = made
    return dq, dk, dv, None


_differentiated_once = torch.autograd.function.once_differentiable(_backward_plain)
# Function.apply is for tensors of functorch, too; without them it is this.
_apply = super(torch.autograd.Function, _Attention).apply
_PLAIN = (Tensor, torch.nn.Parameter)
_dispatch_modes = getattr(torch._C, "_len_torch_dispatch_stack", lambda: 1)
_transforms = getattr(torch._C, "_are_functorch_transforms_active", lambda: True)
# Where compiled graphs have their allocations from.
_allocators = getattr(getattr(torch._C, "_dynamo", None), "guards", None)
_in_dynamo = torch.compiler.is_dynamo_compiling
_autocast = getattr(torch._C, "_is_any_autocast_enabled", None)
if _autocast is None:  # PyTorch 2.4

    def _autocast() -> bool:
        return torch.is_autocast_enabled() or torch.is_autocast_cpu_enabled()


def _setup(exchange: Any) -> bool:
    """Tell the extension module what it asks PyTorch for. Without `exchange`, of
    PyTorch 2.10 and later, it reads the attributes of tensors."""
    return _core.torch_setup(
        *_PLAIN,
        Mask,
        torch.float32,
        torch.bfloat16,
        exchange,
        _dispatch_modes,
        _transforms,
        _autocast,
        torch.is_grad_enabled,
        torch.empty_strided,
        getattr(_allocators, "_empty_strided_cpu", None),
        getattr(_allocators, "_empty_strided_cuda", None),
        _raw_stream,
        _plan_of,
        _apply,
        _function_forward,
    )


_setup(getattr(Tensor, "__dlpack_c_exchange_api__", None))


def _is_plain(q: Tensor, k: Tensor, v: Tensor) -> bool:
    """Whether nothing but autograd has to see the call: no compiler, mode,
    transform, autocast, or tensor that is more than its memory."""
    for tensor in (q, k, v):
        if type(tensor) not in _PLAIN or tensor.is_neg():
            return False
        if not (tensor.is_cuda or tensor.is_cpu):
            return False
    return not (_dispatch_modes() or _transforms() or _autocast())


# ---- calls ---------------------------------------------------------------------


def _masks_for(
    mask: Union[Mask, Sequence[Mask]], q: Tensor, k: Tensor
) -> Tuple[Mask, ...]:
    """One mask for all sequences, or one for each."""
    batch, queries, keys = 1, q.shape[0], k.shape[0]
    if q.dim() == 4:
        batch, queries, keys = q.shape[0], q.shape[2], k.shape[2]
    if isinstance(mask, Mask) and mask._shape == (queries, keys):
        return (mask,)
    return tuple(masks_of(mask, batch, queries, keys))


def attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: Union[Mask, Sequence[Mask]],
    *,
    scale: Optional[float] = None,
    softcap: Optional[float] = None,
    bias: Optional[Tensor] = None,
    alibi_slopes: Optional[Tensor] = None,
    positions: Optional[Tensor] = None,
    return_lse: bool = False,
) -> Any:
    """softmax(q k^T * scale over the visible keys) v, with autograd.

    Tensors are (batch, heads, tokens, dim), or (tokens, heads, dim) for a
    packed batch. k and v may have fewer heads than q, by a divisor. ``mask`` is
    for (tokens of q, tokens of k) and serves all sequences of a batch; or it is
    a list of one mask for each sequence, or one mask for the packed batch, such
    as ``Mask.from_lengths(lengths, time)``.

    ``scale`` is 1 / sqrt(dim) by default. ``softcap``, ``bias``,
    ``alibi_slopes`` and ``positions`` are those of :func:`bauta.attention`, on
    the CPU only; of these, the bias has a gradient. With ``return_lse`` the
    result is (out, lse), where lse is (batch, heads, tokens) or (tokens,
    heads); it has no gradient.

    It works in ``torch.compile(fullgraph=True)`` if the mask is created outside
    of the compiled function. Under autocast it computes in float32 on the CPU
    and in bfloat16 on a GPU.

    >>> import bauta, bauta.torch, torch
    >>> q, k, v = torch.zeros(3, 1, 5, 2, 4).unbind()
    >>> v[:, :, -1] = float("nan")  # the last token
    >>> out = bauta.torch.attention(q, k, v, bauta.Mask.causal(2))
    >>> bool(out[:, :, 0].isfinite().all())
    True
    """
    unbiased = softcap is None and bias is None and alibi_slopes is None
    if unbiased and positions is None and not _in_dynamo():
        made = _core.torch_attention(q, k, v, mask, scale, return_lse)
        if made is not None:
            return made
    compiled = torch.compiler.is_compiling()
    if q.dim() == 3:
        if k.dim() != 3 or v.dim() != 3:
            raise ArgumentError(f"q has 3 axes, k has {k.dim()} and v has {v.dim()}")
    elif q.dim() != 4 or k.dim() != 4:
        raise ArgumentError(f"q has {q.dim()} axes and k {k.dim()}, not 3 or 4")
    masks = _masks_for(mask, q, k)
    if unbiased and positions is None and not compiled and _is_plain(q, k, v):
        return _attention_plain(q, k, v, masks, scale, return_lse)
    terms = _check_shapes(softcap, bias, alibi_slopes, positions)
    packed = q.dim() == 3
    if packed:
        q, k, v = map(_four_axes, (q, k, v))
    ids = [each._id for each in masks]
    out, lse = _attention_forward(q, k, v, ids, scale_of(scale), compiled, *terms)
    if packed:
        out, lse = _own_axes(out), _own_axes(lse)
    return (out, lse) if return_lse else out


def _attention_plain(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    masks: Tuple[Mask, ...],
    scale: Optional[float],
    return_lse: bool,
) -> Any:
    """Calls with several masks, or whose tensors have to be copied, or whose
    arguments are wrong."""
    mask = masks[0] if len(masks) == 1 else masks
    if torch.is_grad_enabled():
        if q.requires_grad or k.requires_grad or v.requires_grad:
            return _apply(q, k, v, (mask, scale, return_lse))
    out = lse = None
    if len(masks) > 1 and q.is_cuda:
        one = _packed(masks, q.shape[0])
        made = _core.torch_forward(q, k, v, one, scale, True, return_lse)
        if made is not None:
            out, lse = made
    if out is None:
        out, lse = _forward_plain(q, k, v, masks, scale_of(scale))
    return (out, lse) if return_lse else out


def _check_shapes(
    softcap: Optional[float],
    bias: Optional[Tensor],
    alibi_slopes: Optional[Tensor],
    positions: Optional[Tensor],
) -> Any:
    """softcap, bias, alibi_slopes and positions as the operator takes them."""
    if bias is not None:
        if not 1 <= bias.dim() <= 4:
            raise ArgumentError(f"bias has {bias.dim()} axes, not from 1 to 4")
        bias = bias[(None,) * (4 - bias.dim())]
    if alibi_slopes is not None and alibi_slopes.dim() != 1:
        raise ArgumentError(f"alibi_slopes has {alibi_slopes.dim()} axes, not 1")
    if positions is not None and alibi_slopes is None:
        raise ArgumentError("positions are given without alibi_slopes")
    return float(softcap or 0.0), bias, alibi_slopes, positions


_mask_cache = _MaskCache(_MASKS)


@torch.compiler.disable
def _cached_mask(kind: str, *key: Any) -> Mask:
    return _mask_cache.get((kind, *key), lambda: _create_mask(kind, *key))


def _create_mask(kind: str, *key: Any) -> Mask:
    if kind == "band":
        return Mask._band(*key)
    if kind == "top-left":
        queries, keys = key
        return Mask.causal(max(queries, keys))[:queries, :keys]
    cu_q, cu_k, left, right = key
    return Mask.from_cu_seqlens(cu_q, cu_k, window_size=(left, right))


def _refuse(**options: Any) -> None:
    for name, given in options.items():
        if given:
            raise UnsupportedError(f"{name} is not supported")


def _refuse_slopes(slopes: Optional[Tensor], causal: bool) -> None:
    """FlashAttention's slopes are of distances in both directions."""
    if slopes is not None and (not causal or slopes.dim() != 1):
        raise UnsupportedError("alibi_slopes are supported as (heads), with causal")


def scaled_dot_product_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Union[None, Mask, Sequence[Mask], Tensor] = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: Optional[float] = None,
    enable_gqa: bool = False,
) -> Tensor:
    """The call of ``torch.nn.functional.scaled_dot_product_attention``.

    Tensors are (batch, heads, tokens, dim) or (heads, tokens, dim).
    ``attn_mask`` is a :class:`bauta.Mask`; or a bool tensor (queries, keys) or
    (batch, 1, queries, keys), which is converted in every call; or, on the CPU,
    a float32 tensor that is added to the scores and has a gradient. As in
    PyTorch, ``is_causal`` aligns the first query with the first key. dropout is
    not supported.

    >>> import bauta.torch, torch
    >>> q = k = v = torch.rand(1, 2, 5, 8)
    >>> out = bauta.torch.scaled_dot_product_attention(q, k, v, is_causal=True)
    >>> want = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
    >>> torch.allclose(out, want, atol=1e-6)
    True
    """
    _refuse(dropout_p=dropout_p)
    if query.dim() == 3:
        query, key, value = (t.unsqueeze(0) for t in (query, key, value))
        out = scaled_dot_product_attention(
            query, key, value, attn_mask, 0.0, is_causal, scale, enable_gqa
        )
        return out.squeeze(0)
    if query.dim() != 4 or key.dim() != 4:
        raise ArgumentError(f"query has {query.dim()} axes, not 3 or 4")
    if not enable_gqa and query.shape[1] != key.shape[1]:
        raise ArgumentError(
            f"query has {query.shape[1]} heads and key {key.shape[1]}; "
            "pass enable_gqa=True"
        )
    queries, keys = query.shape[2], key.shape[2]
    if attn_mask is None:
        kind = ("top-left",) if is_causal else ("band",)
        rest = (queries, keys) if is_causal else (queries, keys, -1, -1)
        attn_mask = _cached_mask(*kind, *rest)
    elif is_causal:
        raise ArgumentError("attn_mask and is_causal are both given")
    elif isinstance(attn_mask, Tensor) and attn_mask.dtype == torch.bool:
        attn_mask = _mask_of_tensor(attn_mask, query.shape[0], queries, keys)
    elif isinstance(attn_mask, Tensor):
        mask = _cached_mask("band", queries, keys, -1, -1)
        bias = attn_mask.expand(*attn_mask.shape[:-1], keys)
        return attention(query, key, value, mask, scale=scale, bias=bias)
    return attention(query, key, value, attn_mask, scale=scale)


@torch.compiler.disable
def _mask_of_tensor(
    tensor: Tensor, batch: int, queries: int, keys: int
) -> Union[Mask, List[Mask]]:
    if tensor.dim() == 4 and tensor.shape[1] == 1 and tensor.shape[0] in (1, batch):
        tensor = tensor.expand(-1, -1, queries, keys).squeeze(1)
        masks = [Mask.dense(each) for each in tensor.cpu().numpy()]
        return masks if len(masks) == batch else masks[0]
    if tensor.dim() == 2:
        return Mask.dense(tensor.expand(queries, keys).cpu().numpy())
    raise UnsupportedError(
        f"attn_mask is {tuple(tensor.shape)}, not (queries, keys) or "
        "(batch, 1, queries, keys)"
    )


def flash_attn_func(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    dropout_p: float = 0.0,
    softmax_scale: Optional[float] = None,
    causal: bool = False,
    window_size: Tuple[int, int] = (-1, -1),
    softcap: float = 0.0,
    alibi_slopes: Optional[Tensor] = None,
    deterministic: bool = False,
    return_attn_probs: bool = False,
) -> Tensor:
    """The call of ``flash_attn.flash_attn_func``: (batch, tokens, heads, dim).

    The last query is aligned with the last key. softcap and, with ``causal``,
    alibi_slopes (heads) are supported on the CPU. dropout and return_attn_probs
    are not supported; results are always deterministic.

    >>> import bauta.torch, torch
    >>> q = k = v = torch.rand(2, 5, 4, 8)
    >>> bauta.torch.flash_attn_func(q, k, v, causal=True, window_size=(2, 0)).shape
    torch.Size([2, 5, 4, 8])
    """
    _refuse(dropout_p=dropout_p, return_attn_probs=return_attn_probs)
    _refuse_slopes(alibi_slopes, causal)
    left, right = window_size
    q, k, v = (t.transpose(1, 2) for t in (q, k, v))
    mask = _cached_mask("band", q.shape[2], k.shape[2], left, 0 if causal else right)
    out = attention(
        q,
        k,
        v,
        mask,
        scale=softmax_scale,
        softcap=softcap,
        alibi_slopes=alibi_slopes,
    )
    return out.transpose(1, 2)


def flash_attn_varlen_func(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    cu_seqlens_q: Tensor,
    cu_seqlens_k: Tensor,
    max_seqlen_q: Optional[int] = None,
    max_seqlen_k: Optional[int] = None,
    dropout_p: float = 0.0,
    softmax_scale: Optional[float] = None,
    causal: bool = False,
    window_size: Tuple[int, int] = (-1, -1),
    softcap: float = 0.0,
    alibi_slopes: Optional[Tensor] = None,
    deterministic: bool = False,
    return_attn_probs: bool = False,
) -> Tensor:
    """The call of ``flash_attn.flash_attn_varlen_func``: (tokens, heads, dim).

    Sequences are packed, and ``cu_seqlens_q`` and ``cu_seqlens_k`` are their
    cumulative lengths. They are read on the host in every call: keep the mask
    of ``Mask.from_cu_seqlens()`` and call :func:`attention` to avoid that.
    max_seqlen_q and max_seqlen_k are not needed.

    >>> import bauta.torch, torch
    >>> q = k = v = torch.rand(5, 4, 8)
    >>> cu = torch.tensor([0, 2, 5], dtype=torch.int32)
    >>> bauta.torch.flash_attn_varlen_func(q, k, v, cu, cu, causal=True).shape
    torch.Size([5, 4, 8])
    """
    _refuse(dropout_p=dropout_p, return_attn_probs=return_attn_probs)
    _refuse_slopes(alibi_slopes, causal)
    left, right = window_size
    cu_q, cu_k = tuple(cu_seqlens_q.tolist()), tuple(cu_seqlens_k.tolist())
    mask = _cached_mask("cu_seqlens", cu_q, cu_k, left, 0 if causal else right)
    positions = None
    if alibi_slopes is not None:
        positions = _positions(cu_seqlens_q.cpu(), cu_seqlens_k.cpu())
    return attention(
        q,
        k,
        v,
        mask,
        scale=softmax_scale,
        softcap=softcap,
        alibi_slopes=alibi_slopes,
        positions=positions,
    )


def _positions(cu_q: Tensor, cu_k: Tensor) -> Tensor:
    """Positions of packed queries in their sequences, of which the last query is
    aligned with the last key. A query before the first key sees nothing, and
    counts as 0."""
    queries = cu_q.diff()
    first = cu_k.diff() - queries - cu_q[:-1]
    positions = torch.arange(int(cu_q[-1])) + first.repeat_interleave(queries)
    return positions.clamp(min=0)


# ---- paged decoding --------------------------------------------------------------


def _check_paged(
    q: Tensor, k_cache: Tensor, v_cache: Tensor, block_table: Tensor, lengths: Tensor
) -> None:
    _check(q, k_cache, v_cache)
    if q.device.type != "cpu":
        raise UnsupportedError("paged_attention is not supported on a GPU")
    for name, tensor, axes in (
        ("block_table", block_table, 2),
        ("cache_seqlens", lengths, 1),
    ):
        if tensor.dim() != axes or tensor.shape[0] != q.shape[0]:
            raise ArgumentError(
                f"{name} is {tuple(tensor.shape)} for {q.shape[0]} sequences"
            )
        if tensor.dtype not in (torch.int32, torch.int64):
            raise TypeError(f"{name} is {tensor.dtype}, not torch.int32 or int64")
    if k_cache.shape[:3] != v_cache.shape[:3]:
        raise ArgumentError(
            f"k_cache is {tuple(k_cache.shape)}, and v_cache {tuple(v_cache.shape)}"
        )


def _cache_rows(
    k_cache: Tensor, block_table: Tensor, first: Tensor, lengths: Tensor
) -> Tensor:
    """Where the keys from `first` on of every sequence are in the cache, as rows
    (blocks * block size). Entries of the block table for others are not read."""
    blocks, size = k_cache.shape[:2]
    counts = lengths - first
    total = int(counts.sum())
    if int(lengths.max()) > block_table.shape[1] * size:
        raise ArgumentError(
            f"a sequence has {int(lengths.max())} tokens, and its "
            f"{block_table.shape[1]} blocks of {size} hold fewer"
        )
    start = first - (counts.cumsum(0) - counts)
    keys = torch.arange(total) + start.repeat_interleave(counts)
    sequences = torch.arange(len(counts)).repeat_interleave(counts)
    block = block_table.long()[sequences, keys // size]
    if total and not 0 <= int(block.min()) <= int(block.max()) < blocks:
        raise ArgumentError(
            f"block_table has blocks from {int(block.min())} to {int(block.max())}, "
            f"and the cache {blocks}"
        )
    return block * size + keys % size


def _first_keys(lengths: Tensor, queries: int, left: int) -> Tensor:
    """The first key that is gathered: of the first visible one's block of 64,
    on which the bits of a row depend."""
    if left < 0:
        return torch.zeros_like(lengths)
    return (lengths - queries - left).clamp(min=0) // 64 * 64


@torch.library.custom_op("bauta::paged_attention", mutates_args=())
def _paged_attention(
    q: Tensor,
    k_cache: Tensor,
    v_cache: Tensor,
    block_table: Tensor,
    lengths: Tensor,
    masks: List[int],
    left: int,
    right: int,
    scale: float,
    softcap: float,
) -> Tuple[Tensor, Tensor]:
    _check_paged(q, k_cache, v_cache, block_table, lengths)
    batch, queries, heads, _ = q.shape
    out, lse = _paged_results(q, v_cache)
    if q.numel() == 0:
        return out, lse
    lengths = lengths.long()
    if int(lengths.min()) < 0:
        raise ArgumentError(f"cache_seqlens has {int(lengths.min())}")
    first = torch.zeros_like(lengths)
    if masks:
        found = _masks_by_id(masks)
        for mask, tokens in zip(found, lengths.tolist()):
            if mask._shape != (queries, tokens):
                raise ArgumentError(
                    f"the mask is {mask.queries} x {mask.keys}, and there are "
                    f"{queries} queries and {tokens} tokens in the cache"
                )
        mask = _packed(found, batch)
    else:
        first = _first_keys(lengths, queries, left)
        cu_q = tuple(range(0, (batch + 1) * queries, queries))
        cu_k = (0, *(lengths - first).cumsum(0).tolist())
        mask = _cached_mask("cu_seqlens", cu_q, cu_k, left, right)
    rows = _cache_rows(k_cache, block_table, first, lengths)
    k = k_cache.flatten(0, 1).index_select(0, rows)
    v = v_cache.flatten(0, 1).index_select(0, rows)
    q = q.contiguous()
    tensors = (q.flatten(0, 1), k, v, out.flatten(0, 1))
    views = [t.transpose(0, 1)[None] for t in tensors]
    # The library's lse is (queries, heads).
    packed_lse = lse.new_empty(batch * queries, heads)
    views.append(packed_lse.transpose(0, 1)[None])
    arrays: List[Any] = [_describe(view) for view in views]
    arrays.append(_terms(softcap, None, None, None))
    _core.attention_forward((mask._handle,), scale, *arrays)
    lse.copy_(packed_lse.view(batch, queries, heads).transpose(1, 2))
    return out, lse


def _paged_results(q: Tensor, v_cache: Tensor) -> Tuple[Tensor, Tensor]:
    batch, queries, heads, _ = q.shape
    out = q.new_empty((batch, queries, heads, v_cache.shape[3]))
    return out, q.new_empty((batch, heads, queries))


@_paged_attention.register_fake
def _(q, k_cache, v_cache, block_table, lengths, masks, left, right, scale, softcap):
    _check_paged(q, k_cache, v_cache, block_table, lengths)
    return _paged_results(q, v_cache)


def paged_attention(
    q: Tensor,
    k_cache: Tensor,
    v_cache: Tensor,
    block_table: Tensor,
    cache_seqlens: Tensor,
    mask: Optional[Sequence[Mask]] = None,
    *,
    causal: bool = True,
    window_size: Tuple[int, int] = (-1, -1),
    scale: Optional[float] = None,
    softcap: Optional[float] = None,
    return_lse: bool = False,
) -> Any:
    """Attention over keys and values in blocks, for decoding on the CPU.

    q is (batch, queries, heads, dim), with one query for each sequence in
    decoding and more in a chunk of a prompt. k_cache and v_cache are (blocks,
    block size, heads, dim), with fewer heads than q by a divisor. Key j of
    sequence b is token j % block size of block ``block_table[b, j // block
    size]``, for the first ``cache_seqlens[b]`` tokens, those of q included.

    The last query is aligned with the last key. ``window_size`` is (left,
    right), as in :func:`flash_attn_func`; or ``mask`` is a list of one mask
    (queries, cache_seqlens[b]) for each sequence. Entries of the block table
    before a window are not read, so its blocks may be used again.

    A row has the bits of :func:`attention` over the same keys. Visible keys are
    gathered in every call. :class:`bauta.KVCache` reads them in place. There is
    no gradient.

    >>> import bauta, bauta.torch, torch
    >>> q, k, v = torch.rand(3, 5, 2, 8)  # (tokens, heads, dim)
    >>> k_cache, v_cache = torch.zeros(2, 10, 4, 2, 8)  # 10 blocks of 4 tokens
    >>> block_table = torch.tensor([[7, 3]], dtype=torch.int32)
    >>> k_cache[7], k_cache[3, :1] = k[:4], k[4:]
    >>> v_cache[7], v_cache[3, :1] = v[:4], v[4:]
    >>> step = bauta.torch.paged_attention(
    ...     q[None, 4:], k_cache, v_cache, block_table, torch.tensor([5])
    ... )
    >>> whole = bauta.torch.attention(q, k, v, bauta.Mask.causal(5))
    >>> torch.equal(step[0, 0], whole[4])
    True
    """
    left, right = window_size
    right = 0 if causal else right
    ids: List[int] = []
    if mask is not None:
        masks = tuple(mask)
        if len(masks) != q.shape[0]:
            raise ArgumentError(
                f"there are {len(masks)} masks for {q.shape[0]} sequences"
            )
        ids = [each._id for each in masks]
    out, lse = _paged_attention(
        q,
        k_cache,
        v_cache,
        block_table,
        cache_seqlens,
        ids,
        left,
        right,
        scale_of(scale),
        float(softcap or 0.0),
    )
    return (out, lse) if return_lse else out
