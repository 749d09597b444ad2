# SPDX-License-Identifier: Apache-2.0
"""make_llama.py - a Llama of 1 or 8 billion random bfloat16 parameters, in
shards.

    make_llama.py 1b|8b FOLDER

For bench/model_gpu --folder, which measures how long it takes to load and to
generate. Needs PyTorch with a GPU and safetensors; 3 or 16 GB of disk.
"""
import json
import os
import sys

import torch
from safetensors.torch import save_file

SIZES = {"1b": (2048, 16, 8192), "8b": (4096, 32, 14336)}
WIDTH, LAYERS, FFN = SIZES[sys.argv[1]]
HEADS, KV_HEADS, VOCAB = 32, 8, 128256
TIED = sys.argv[1] == "1b"
LAYERS_OF_SHARD = 4


def matrix(rows, columns):
    x = torch.randn(rows, columns, device="cuda", dtype=torch.bfloat16)
    return (x * 0.02).cpu()


def layer(number):
    p = f"model.layers.{number}."
    kv = WIDTH * KV_HEADS // HEADS
    shapes = {
        "self_attn.q_proj": (WIDTH, WIDTH),
        "self_attn.k_proj": (kv, WIDTH),
        "self_attn.v_proj": (kv, WIDTH),
        "self_attn.o_proj": (WIDTH, WIDTH),
        "mlp.gate_proj": (FFN, WIDTH),
        "mlp.up_proj": (FFN, WIDTH),
        "mlp.down_proj": (WIDTH, FFN),
    }
    tensors = {f"{p}{n}.weight": matrix(*shape) for n, shape in shapes.items()}
    for norm in ("input_layernorm", "post_attention_layernorm"):
        tensors[f"{p}{norm}.weight"] = torch.ones(WIDTH, dtype=torch.bfloat16)
    return tensors


def main():
    folder = sys.argv[2]
    os.makedirs(folder, exist_ok=True)
    config = {
        "model_type": "llama",
        "hidden_size": WIDTH,
        "num_attention_heads": HEADS,
        "num_key_value_heads": KV_HEADS,
        "num_hidden_layers": LAYERS,
        "intermediate_size": FFN,
        "vocab_size": VOCAB,
        "max_position_embeddings": 8192,
        "rms_norm_eps": 1e-5,
        "rope_theta": 500000.0,
        "tie_word_embeddings": TIED,
    }
    with open(os.path.join(folder, "config.json"), "w") as file:
        json.dump(config, file)
    weight_map = {}

    def save(name, shard):
        name = f"model-{name}.safetensors"
        save_file(shard, os.path.join(folder, name), {"format": "pt"})
        weight_map.update(dict.fromkeys(shard, name))

    save("embedding", {
        "model.embed_tokens.weight": matrix(VOCAB, WIDTH),
        "model.norm.weight": torch.ones(WIDTH, dtype=torch.bfloat16),
    })
    if not TIED:
        save("head", {"lm_head.weight": matrix(VOCAB, WIDTH)})
    for first in range(0, LAYERS, LAYERS_OF_SHARD):
        shard = {}
        for number in range(first, first + LAYERS_OF_SHARD):
            shard.update(layer(number))
        save(f"layers-{first:02}", shard)
    with open(os.path.join(folder, "model.safetensors.index.json"), "w") as f:
        json.dump({"metadata": {}, "weight_map": weight_map}, f)


main()
