#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Small files as Python's safetensors writes them, for tests/test_safetensors.c.

    python3 -m venv venv && venv/bin/pip install safetensors==0.8.0 numpy
    venv/bin/python tools/make-safetensors-fixtures.py tests/data

tests/data/types.safetensors     two tensors of every type, with names against
                                 the order of the types
tests/data/names.safetensors     names that must be escaped, scalars, no elements
tests/data/empty.safetensors     no tensors at all
tests/data/unaligned.safetensors a header whose length is no multiple of eight,
                                 spelled by hand, which the library reads
"""
import json
import struct
import sys
from pathlib import Path

import numpy as np
from safetensors import TensorSpec, safe_open, serialize_file
from safetensors.numpy import save_file

TYPES = {"uint64": 8, "int64": 8, "float64": 8, "float32": 4, "uint32": 4, "int32": 4,
         "bfloat16": 2, "float16": 2, "uint16": 2, "int16": 2, "float8_e4m3fn": 1,
         "float8_e5m2": 1, "int8": 1, "uint8": 1, "bool": 1}


def types(keep):
    """Two tensors of each type; what they point to goes into keep."""
    tensors = {}
    for i, (dtype, size) in enumerate(TYPES.items()):
        for name, shape in ((chr(ord("z") - i), (2, 3)), (dtype, (1,))):
            data = (np.arange(size * np.prod(shape)) * 37 + i).astype(np.uint8) % 2
            keep.append(data)
            tensors[name] = TensorSpec(dtype=dtype, shape=shape,
                                       data_ptr=data.ctypes.data, data_len=data.nbytes)
    return tensors


def names():
    return {
        'quote " and \\ and /': np.array([1, 2], np.float32),
        "tab \t line \n bell \x07 escape \x1b delete \x7f": np.array([3], np.float32),
        "Vénétie 仮面 🎭": np.array([[4]], np.float32),
        "": np.array([5], np.float32),
        "scalar": np.array(6, np.float32),
        "nothing": np.zeros((3, 0, 2), np.float32),
        "A": np.array([7], np.float32),
        "a": np.array([8], np.float32),
    }


def unaligned(path):
    header = {"half": {"dtype": "F16", "shape": [1], "data_offsets": [0, 2]},
              "x": {"dtype": "F32", "shape": [3], "data_offsets": [2, 14]}}
    text = json.dumps(header).encode()
    text += b" " * ((3 - len(text)) % 8)
    data = np.array([1.5], np.float16).tobytes()
    data += np.array([0.1, -2, 3e38], np.float32).tobytes()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)
    with safe_open(path, "np") as file:
        assert file.get_tensor("x")[1] == -2


def main():
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    keep = []
    serialize_file(types(keep), folder / "types.safetensors", {"format": "pt"})
    save_file(names(), folder / "names.safetensors", metadata={"key": "line\n\"text\" é"})
    save_file({}, folder / "empty.safetensors")
    unaligned(folder / "unaligned.safetensors")


main()
