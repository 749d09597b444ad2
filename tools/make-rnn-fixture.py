#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""make-rnn-fixture.py - PyTorch's loss and gradients for the recurrent network
of lab/lab_rnn_net.h, on weights and tokens that a formula gives. Writes
tests/data/rnn_gradients.txt: the loss, then every gradient in the order of
rnn_layout. Needs torch."""
import math
import pathlib

import torch

VOCABULARY, EMBEDDING, HIDDEN = 5, 3, 4
SOURCE, TARGET, START = [1, 4, 2, 0, 3], [3, 0, 2, 4], 1
torch.set_default_dtype(torch.float64)
parameters = []
used = 0


def take(*shape):
    """The next parameters: 0.5 sin(0.7 i + 0.1)."""
    global used
    count = math.prod(shape)
    values = [0.5 * math.sin(0.7 * (used + i) + 0.1) for i in range(count)]
    used += count
    tensor = torch.tensor(values).reshape(shape).requires_grad_()
    parameters.append(tensor)
    return tensor


def gru():
    """PyTorch's own cell on the next parameters."""
    cell = torch.nn.GRUCell(EMBEDDING, HIDDEN)
    for name, shape in (
        ("weight_ih", (3 * HIDDEN, EMBEDDING)),
        ("weight_hh", (3 * HIDDEN, HIDDEN)),
        ("bias_ih", (3 * HIDDEN,)),
        ("bias_hh", (3 * HIDDEN,)),
    ):
        tensor = take(*shape)
        parameters[-1] = torch.nn.Parameter(tensor.detach().clone())
        setattr(cell, name, parameters[-1])
    return cell


source, target = take(VOCABULARY, EMBEDDING), take(VOCABULARY, EMBEDDING)
encoder, decoder = gru(), gru()
attention = take(HIDDEN, HIDDEN)
combine, combine_bias = take(HIDDEN, 2 * HIDDEN), take(HIDDEN)
output, output_bias = take(VOCABULARY, HIDDEN), take(VOCABULARY)

state = torch.zeros(HIDDEN)
states = []
for token in SOURCE:
    state = encoder(source[token], state)
    states.append(state)
states = torch.stack(states)
loss = torch.zeros(())
for before, token in zip([START] + TARGET, TARGET):
    state = decoder(target[before], state)
    weights = torch.softmax(states @ (attention @ state), 0)
    both = torch.cat([weights @ states, state])
    logits = output @ torch.tanh(combine @ both + combine_bias) + output_bias
    loss = loss - torch.log_softmax(logits, 0)[token]
loss.backward()

out = pathlib.Path(__file__).parent.parent / "tests/data/rnn_gradients.txt"
numbers = [loss.item()]
for parameter in parameters:
    numbers += parameter.grad.flatten().tolist()
out.write_text("".join(f"{number:.17g}\n" for number in numbers))
print(f"{out.name}: the loss and {len(numbers) - 1} gradients, torch {torch.__version__}")
