# SPDX-License-Identifier: Apache-2.0
"""Bounds of the rounding errors of a model in float32, derived from a run in
float64.

An operation of float32 gives its exact result, for the inputs that it has, up
to an error of which only a bound is known: with u = 2^-24 and K terms, a sum of
products is off by at most g(K) = K u / (1 - K u) times the sum of absolute
products, in whatever order it is computed. Each rule below gives such a bound b
for every element of the operation's result, from magnitudes in float64.

To first order, the error of a logit y is the sum of those errors, each times
the derivative of y with respect to the element where it arose. So

    |error of y| <= sum over operations and elements of |dy / dt| b(t)

where the derivatives are autograd's in float64. Terms of second order are to the
bound as the bound is to the numbers of the model, which are about 1; 1 % is added
for them, and Bound.of() fails if the bound is not far below that.

Nothing is assumed about the order of sums, so the bound holds for eager
attention and for bauta's. Where bauta rounds at other places, the rules
have room for both:

- It multiplies q by scale * log2(e) before the product of q and k, and eager
  multiplies the product: both have head_dim + 3 roundings in a score (rule of
  matmul).
- It takes 2^x where eager takes e^x. Both functions are good to 4 u, and both
  round the difference of a score and the largest one, which is an error of u
  times that difference in the exponent (rule of softmax).
- It divides after the product with v, and eager before: one rounding in both.
- With a softcap it multiplies q by scale / softcap, and eager divides.
- Keys come in blocks of 64, with a correction by 2^(old maximum - new one) for
  each: two roundings for each block, for which softmax counts as many as there
  are keys.

A function without a rule is an error, so no operation is left out.
"""

from __future__ import annotations

import torch
from torch.overrides import TorchFunctionMode

U = 2.0**-24
EXACT = {
    "__getitem__",
    "cat",
    "contiguous",
    "dropout",  # of models in evaluation
    "embedding",
    "expand",
    "neg",
    "reshape",
    "split",
    "to",
    "transpose",
    "type",
    "type_as",
    "view",
}
# Functions whose error is relative: rounded results of IEEE operations, and what
# the vector versions of the others promise, with room (pow is x * x or x * x * x;
# silu is x / (1 + exp(-x)), whose parts have 1, 2 and 2 units).
UNITS = {"add": 1, "div": 1, "mul": 1, "pow": 4, "rsqrt": 4, "tanh": 4, "silu": 8}


def g(terms):
    return terms * U / (1 - terms * U)


def matmul_bound(out, a, b):
    return g(a.shape[-1] + 3) * (a.abs() @ b.abs())


def linear_bound(out, x, weight, bias=None):
    total = x.abs() @ weight.abs().T
    return g(x.shape[-1] + 1) * (total if bias is None else total + bias.abs())


def addmm_bound(out, bias, x, weight):
    return g(x.shape[-1] + 1) * (x.abs() @ weight.abs() + bias.abs())


def mean_bound(out, x, *args, **kwargs):
    return g(x.shape[-1] + 1) * x.abs().mean(-1, keepdim=True)


def gelu_bound(out, x, **kwargs):
    """x (1 + erf(x / sqrt 2)) / 2: for a negative x the sum cancels, so the
    error is one of 1 + |erf| <= 2, times |x| / 2."""
    return 8 * U * x.abs()


def softmax_bound(out, x, *args, **kwargs):
    """The exponent x - max has an error of u |x - max|, and its power 4 u; the
    same holds for the terms of the sum, weighed by their shares."""
    below = (x.max(-1, keepdim=True).values - x).clamp(max=1e4)
    shared = (out * below).sum(-1, keepdim=True)
    return U * (2 * x.shape[-1] + 16 + below + shared) * out


def layer_norm_bound(out, x, shape, weight=None, bias=None, eps=1e-5):
    """(x - mean) / sqrt(var + eps) * weight + bias, also in the form x * a + b
    with b = -mean * a, in which |x| and |mean| and not their difference are
    rounded. The mean is a sum of n terms; the variance, by whatever method, has
    a relative error of at most (n + 4) u (1 + rms / sigma) (Chan, Golub and
    LeVeque), of which the root keeps half."""
    n = x.shape[-1]
    mean, rms = x.mean(-1, keepdim=True), x.square().mean(-1, keepdim=True).sqrt()
    sigma = (x.var(-1, keepdim=True, unbiased=False) + eps).sqrt()
    mean_error = g(n + 1) * x.abs().mean(-1, keepdim=True)
    root_error = g(n + 4) * (1 + rms / sigma) / 2 + 4 * U
    scaled = (mean_error + 4 * U * (x.abs() + mean.abs())) / sigma
    scaled = scaled + root_error * ((x - mean) / sigma).abs()
    return scaled * weight.abs() + 2 * U * (out.abs() + bias.abs())


RULES = {
    "matmul": matmul_bound,
    "linear": linear_bound,
    "addmm": addmm_bound,
    "mean": mean_bound,
    "gelu": gelu_bound,
    "softmax": softmax_bound,
    "layer_norm": layer_norm_bound,
}


class Bound(TorchFunctionMode):
    """Run a float64 model in this context, then ask for the bound of a result.

    Models convert to float32 in places (norms, softmax); here they do not, but
    for what depends on no weight, such as rotary angles, which is then the same
    as in float32.
    """

    def __init__(self):
        super().__init__()
        self.errors = []  # (result of an operation, bounds of its elements)

    def __torch_function__(self, function, types, args=(), kwargs=None):
        kwargs = dict(kwargs or {})
        name = function.__name__
        if args and getattr(args[0], "requires_grad", False):
            if name == "float":
                return args[0]
            if kwargs.get("dtype") == torch.float32:
                kwargs["dtype"] = torch.float64
            if name == "to":
                args = [torch.float64 if a is torch.float32 else a for a in args]
        out = function(*args, **kwargs)
        if isinstance(out, torch.Tensor) and out.requires_grad:
            assert out.dtype == torch.float64, name
            if name in UNITS and all(getattr(a, "is_leaf", True) for a in args):
                return out.float().double()  # 1 + weight of a norm, as in float32
            self.record(name, out, args, kwargs)
        return out

    def record(self, name, out, args, kwargs):
        if name in EXACT:
            return
        with torch.no_grad():
            if name in UNITS:
                bound = UNITS[name] * U * out.abs()
            else:
                assert name in RULES, f"there is no rule for {name}"
                bound = RULES[name](out, *args, **kwargs)
        self.errors.append((out, bound.expand_as(out)))

    def of(self, logits, chosen):
        """The bounds (batch, chosen) of some of the logits (batch, tokens,
        vocabulary), as indices of one sequence's. A logit depends on its own
        sequence alone, so one backward pass serves all sequences."""
        batch = logits.shape[0]
        seeds = torch.zeros(len(chosen), 1, logits[0].numel(), dtype=torch.float64)
        seeds[torch.arange(len(chosen)), 0, chosen] = 1
        slopes = torch.autograd.grad(
            logits,
            [tensor for tensor, _ in self.errors],
            seeds.view(-1, 1, *logits.shape[1:]).expand(-1, *logits.shape),
            allow_unused=True,
            is_grads_batched=True,
        )
        total = torch.zeros(batch, len(chosen), dtype=torch.float64)
        for slope, (_, bound) in zip(slopes, self.errors):
            if slope is not None:
                each = (slope.abs() * bound).reshape(len(chosen), batch, -1)
                total += each.sum(2).T
        assert float(total.max()) < 2e-3, "terms of second order matter"
        return 1.01 * total
