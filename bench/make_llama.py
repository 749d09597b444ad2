# SPDX-License-Identifier: Apache-2.0
"""make_llama.py - a Llama of 8 billion random bfloat16 parameters, in shards.

    make_llama.py FOLDER [LAYERS]

For bench/model_gpu --folder, which measures how long it takes to load and to
generate. Needs PyTorch with a GPU and safetensors; 16 GB of disk.
"""
import json
import os
import sys

import torch
from safetensors.torch import save_file

WIDTH, HEADS, KV_HEADS, FFN, VOCAB = 4096, 32, 8, 14336, 128256
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
    folder = sys.argv[1]
    layers = int(sys.argv[2]) if len(sys.argv) > 2 else 32
    os.makedirs(folder, exist_ok=True)
    config = {
        "model_type": "llama",
        "hidden_size": WIDTH,
        "num_attention_heads": HEADS,
        "num_key_value_heads": KV_HEADS,
        "num_hidden_layers": layers,
        "intermediate_size": FFN,
        "vocab_size": VOCAB,
        "max_position_embeddings": 8192,
        "rms_norm_eps": 1e-5,
        "rope_theta": 500000.0,
        "tie_word_embeddings": False,
    }
    with open(os.path.join(folder, "config.json"), "w") as file:
        json.dump(config, file)
    shards = [{"model.embed_tokens.weight": matrix(VOCAB, WIDTH)},
              {"lm_head.weight": matrix(VOCAB, WIDTH),
               "model.norm.weight": torch.ones(WIDTH, dtype=torch.bfloat16)}]
    for first in range(0, layers, LAYERS_OF_SHARD):
        shard = {}
        for number in range(first, min(first + LAYERS_OF_SHARD, layers)):
            shard.update(layer(number))
        shards.append(shard)
    weight_map = {}
    for i, shard in enumerate(shards):
        name = f"model-{i + 1:05}-of-{len(shards):05}.safetensors"
        save_file(shard, os.path.join(folder, name), {"format": "pt"})
        weight_map.update(dict.fromkeys(shard, name))
    with open(os.path.join(folder, "model.safetensors.index.json"), "w") as f:
        json.dump({"metadata": {}, "weight_map": weight_map}, f)


main()
