#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Masked attention of PyTorch and of bauta, timed in turns in one process.

    python3 -m venv venv && venv/bin/pip install torch numpy
    make && venv/bin/python bench/peers.py [--threads N] [--library FILE]

PyTorch takes is_causal for the causal mask and a dense boolean mask for the
others, which is what its users have. Both compute in float32 and both keep
what the backward pass needs. Figures are medians; nothing of this is needed by
the library or its tests."""
import argparse
import ctypes
import statistics
import time

import numpy
import torch

PARSER = argparse.ArgumentParser()
PARSER.add_argument("--threads", type=int, default=2)
PARSER.add_argument("--library", default="build/libbauta.so")
PARSER.add_argument("--seconds", type=float, default=3, help="for each line")
OPTIONS = PARSER.parse_args()
BAUTA = ctypes.CDLL(OPTIONS.library)


class Options(ctypes.Structure):
    _fields_ = [("size", ctypes.c_size_t), ("threads", ctypes.c_int),
                ("isa", ctypes.c_char_p)]


class Shape(ctypes.Structure):
    _fields_ = ([(name, ctypes.c_size_t) for name in
                 ("size", "heads", "kv_heads", "head_dim", "value_dim")] +
                [("scale", ctypes.c_float)] +
                [(name, ctypes.c_size_t) for name in
                 ("q_token", "q_head", "k_token", "k_head", "v_token", "v_head",
                  "out_token", "out_head")])


def call(function, *arguments):
    """Call a function whose last argument is the error."""
    if getattr(BAUTA, function)(*arguments, None):
        raise RuntimeError(function)


def create(function, *arguments):
    handle = ctypes.c_void_p()
    call(function, ctypes.byref(handle), *arguments)
    return handle


def size(number):
    return ctypes.c_size_t(number)


def causal(tokens):
    return create("bauta_mask_causal", size(tokens), size(tokens))


def window(tokens):
    return create("bauta_mask_window", size(tokens), size(tokens), size(256))


def documents(tokens):
    lengths = [12 + 397 * d % 1001 for d in range(tokens // 512 - 1)]
    lengths.append(tokens - sum(lengths))
    masks = (ctypes.c_void_p * len(lengths))(*[causal(n) for n in lengths])
    return create("bauta_mask_pack", size(len(lengths)), masks)


def dense(mask, tokens):
    """The mask as PyTorch takes it: a boolean matrix."""
    length = BAUTA.bauta_mask_text(mask, None, size(0))
    text = ctypes.create_string_buffer(length + 1)
    BAUTA.bauta_mask_text(mask, text, size(length + 1))
    rows = numpy.frombuffer(text.raw[:length], dtype=numpy.uint8)
    return torch.from_numpy(
        (rows.reshape(tokens, tokens + 1)[:, :tokens] == ord("#")).copy())


def pointer(array):
    return ctypes.c_void_p(array.ctypes.data)


class Ours:
    def __init__(self, mask, tokens, heads, dim, random):
        self.context = create(
            "bauta_context_create",
            ctypes.byref(Options(ctypes.sizeof(Options), OPTIONS.threads)))
        self.plan = create("bauta_plan_create", mask, size(0), size(tokens))
        self.shape = Shape(ctypes.sizeof(Shape), heads, heads, dim, dim, 0)
        self.q, self.k, self.v, self.dout = [
            random.standard_normal((tokens, heads, dim), dtype=numpy.float32)
            for _ in range(4)]
        self.out, self.dq, self.dk, self.dv = [
            numpy.zeros_like(self.q) for _ in range(4)]
        self.lse = numpy.zeros((tokens, heads), dtype=numpy.float32)

    def forward(self):
        call("bauta_attention_forward", self.context, self.plan,
             ctypes.byref(self.shape), *map(pointer, (
                 self.q, self.k, self.v, self.out, self.lse)))

    def backward(self):
        call("bauta_attention_backward", self.context, self.plan,
             ctypes.byref(self.shape), *map(pointer, (
                 self.q, self.k, self.v, self.out, self.lse, self.dout,
                 self.dq, self.dk, self.dv)))


class Theirs:
    def __init__(self, ours, mask):
        self.mask = mask
        self.q, self.k, self.v, self.dout = [
            torch.from_numpy(x).transpose(0, 1).contiguous().unsqueeze(0)
            for x in (ours.q, ours.k, ours.v, ours.dout)]
        for x in (self.q, self.k, self.v):
            x.requires_grad_(True)

    def forward(self):
        self.out = torch.nn.functional.scaled_dot_product_attention(
            self.q, self.k, self.v, attn_mask=self.mask,
            is_causal=self.mask is None)

    def backward(self):
        self.grads = torch.autograd.grad(self.out, (self.q, self.k, self.v),
                                         self.dout)


def timed(function):
    start = time.perf_counter()
    function()
    return (time.perf_counter() - start) * 1e3


def same(ours, theirs):
    for mine, other in ((ours.out, theirs.out), (ours.dq, theirs.grads[0]),
                        (ours.dk, theirs.grads[1]), (ours.dv, theirs.grads[2])):
        other = other.detach()[0].transpose(0, 1).numpy()
        assert numpy.abs(mine - other).max() < 1e-4, "the results differ"


def line(name, kind, tokens, heads, dim):
    mask = kind(tokens)
    ours = Ours(mask, tokens, heads, dim, numpy.random.default_rng(1))
    theirs = Theirs(ours, None if kind is causal else dense(mask, tokens))
    took = [[], [], [], []]
    end = time.perf_counter() + OPTIONS.seconds
    while len(took[0]) < 4 or time.perf_counter() < end:
        for times, function in zip(took, (ours.forward, ours.backward,
                                          theirs.forward, theirs.backward)):
            times.append(timed(function))
    same(ours, theirs)
    f, b, tf, tb = [statistics.median(times[1:]) for times in took]
    print(f"{name:24} {f:9.2f} {tf:9.2f} {tf / f:6.2f} x "
          f"{b:9.2f} {tb:9.2f} {tb / b:6.2f} x", flush=True)


def main():
    torch.set_num_threads(OPTIONS.threads)
    print(f"PyTorch {torch.__version__}, {OPTIONS.threads} threads, 12 heads")
    print(f"{'mask, tokens, head':24} {'bauta ms':>9} {'torch ms':>9} "
          f"{'forward':>8} {'bauta ms':>9} {'torch ms':>9} {'backward':>8}")
    for dim in (64, 128):
        for tokens in (256, 1024, 4096):
            line(f"causal {tokens} d{dim}", causal, tokens, 12, dim)
        line(f"documents 4096 d{dim}", documents, 4096, 12, dim)
        line(f"window 256, 4096 d{dim}", window, 4096, 12, dim)


main()
