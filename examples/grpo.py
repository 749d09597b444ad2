# SPDX-License-Identifier: Apache-2.0
"""Reinforcement learning in which the sampler and the trainer are the same bits.

    python examples/grpo.py [--steps N] [--seeds N] [--sampler bauta|transformers|both]
        [--device cuda] [--dtype bfloat16]

A small GPT-2 with random weights learns to count: after a digit, each next digit
is to be one more. Every step samples groups of answers, rewards them, and takes
one policy gradient step (GRPO: the advantage of an answer is its reward less the
mean of its group, divided by the standard deviation).

A policy gradient assumes that the policy that is trained is the one that
sampled. With a separate inference engine that is only nearly true: both round
differently, and the log-probabilities of the same tokens differ. The column
"divergence" is the largest such difference. With bauta it is exactly 0.0 at
every token, because incremental decoding and the parallel pass are the same
function, bit for bit, on the CPU and on a GPU. Beside it, if transformers is
installed, the run of the first seed samples with transformers.
"""

from __future__ import annotations

import argparse
import sys
import time

import bauta

DIGITS = "0123456789"
PROMPTS = 8  # of a step
GROUP = 16  # answers to a prompt
LENGTH = 8  # digits of an answer


def new_model(seed: int, device: str, dtype: str) -> bauta.Model:
    tokenizer = bauta.Tokenizer.characters(DIGITS)
    sizes = {"n_layer": 2, "n_head": 4, "n_embd": 64, "n_positions": 32}
    return bauta.Model.preset(
        "gpt2-tiny", tokenizer, seed=seed, device=device, dtype=dtype, **sizes
    )


def reward(prompt: list[int], answer: list[int]) -> float:
    """The share of digits that are one more than the digit before."""
    digits = prompt[-1:] + answer
    right = sum(b == (a + 1) % 10 for a, b in zip(digits, digits[1:]))
    return right / len(answer)


def advantages(rewards: list[float]) -> list[float]:
    mean = sum(rewards) / len(rewards)
    variance = sum((r - mean) ** 2 for r in rewards) / len(rewards)
    return [(r - mean) / (variance**0.5 + 1e-4) for r in rewards]


class BautaSampler:
    """Samples with the model that is trained."""

    def __init__(self, model: bauta.Model) -> None:
        self.model = model

    def sample(self, prompts, seed):
        groups = self.model.generate(
            prompts,
            do_sample=True,
            num_return_sequences=GROUP,
            max_new_tokens=LENGTH,
            top_k=0,
            eos_token_id=[],
            seed=seed,
            max_sequences=PROMPTS * GROUP,
        )
        return [[(s.tokens, s.logprobs) for s in group] for group in groups]


class TransformersSampler:
    """Samples with transformers, from a copy of the weights of every step."""

    def __init__(self, model: bauta.Model) -> None:
        import tempfile

        import torch
        import transformers

        transformers.utils.logging.disable_progress_bar()
        torch.set_num_threads(1)  # so small a model gains nothing from more
        self.torch, self.model = torch, model
        with tempfile.TemporaryDirectory() as folder:
            model.save(folder + "/model")
            self.copy = transformers.GPT2LMHeadModel.from_pretrained(folder + "/model")
        self.copy.eval()

    def sample(self, prompts, seed):
        torch = self.torch
        weights = {k: torch.from_numpy(v) for k, v in self.model.state_dict().items()}
        with torch.no_grad():
            for name, tensor in self.copy.state_dict().items():
                if name in weights:
                    tensor.copy_(weights[name])
        torch.manual_seed(seed)
        ids = torch.tensor([p for p in prompts for _ in range(GROUP)])
        result = self.copy.generate(
            ids,
            attention_mask=torch.ones_like(ids),
            do_sample=True,
            max_new_tokens=LENGTH,
            top_k=0,
            eos_token_id=None,
            pad_token_id=0,
            output_logits=True,
            return_dict_in_generate=True,
        )
        answers = result.sequences[:, ids.shape[1] :]
        logits = torch.stack(result.logits, 1).log_softmax(-1)
        logprobs = logits.gather(2, answers[..., None])[..., 0]
        flat = list(zip(answers.tolist(), logprobs.tolist()))
        return [flat[at : at + GROUP] for at in range(0, len(flat), GROUP)]


def train(
    seed: int,
    steps: int,
    kind: type,
    quiet: bool = False,
    device: str = "cpu",
    dtype: str = "float32",
):
    """(mean rewards of the steps, largest divergence, tokens compared)"""
    model = new_model(seed, device, dtype)
    trainer = bauta.Trainer(
        model,
        learning_rate=3e-3,
        lr_scheduler_type="constant",
        warmup_steps=0,
        weight_decay=0.0,
        max_steps=steps,
    )
    sampler = kind(model)
    rewards, divergence, compared = [], 0.0, 0
    for step in range(steps):
        prompts = [[(step * PROMPTS + p) % 10] for p in range(PROMPTS)]
        groups = sampler.sample(prompts, seed * 1_000_000 + step * GROUP)
        texts, targets, weights, sampled = [], [], [], []
        step_reward = 0.0
        for prompt, group in zip(prompts, groups):
            scores = [reward(prompt, answer) for answer, _ in group]
            step_reward += sum(scores) / len(scores) / PROMPTS
            for (answer, logprobs), advantage in zip(group, advantages(scores)):
                texts.append(prompt + answer)
                # Row i predicts token i + 1; the prompt is not predicted.
                targets.append([-100] * (len(prompt) - 1) + answer + [-100])
                weights.append([advantage] * len(texts[-1]))
                sampled.append(logprobs)
        trained = model.logprobs(texts, targets=targets)
        for line, logprobs, prompt_length in zip(
            trained, sampled, (len(text) - LENGTH for text in texts)
        ):
            for now, then in zip(line[prompt_length - 1 :].tolist(), logprobs):
                divergence = max(divergence, abs(now - then))
                compared += 1
        trainer.step_batch({"input_ids": texts, "targets": targets, "weights": weights})
        rewards.append(step_reward)
        if not quiet and (step + 1) % 20 == 0:
            print(f"  step {step + 1:4}  reward {step_reward:.3f}  divergence {divergence}")
    return rewards, divergence, compared


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--first-seed", type=int, default=1)
    parser.add_argument(
        "--sampler", choices=("bauta", "transformers", "both"), default="both"
    )
    parser.add_argument("--device", default="cpu", help="cpu, cuda or cuda:N")
    parser.add_argument("--dtype", choices=("float32", "bfloat16"), default="float32")
    options = parser.parse_args()
    kinds = {"bauta": BautaSampler, "transformers": TransformersSampler}
    if options.sampler != "both":
        kinds = {options.sampler: kinds[options.sampler]}
    failed = False
    for name, kind in kinds.items():
        # Beside bauta, transformers samples for one seed: it takes longer.
        beside = name == "transformers" and len(kinds) > 1
        seeds = 1 if beside else options.seeds
        for seed in range(options.first_seed, options.first_seed + seeds):
            start = time.monotonic()
            print(f"{name} samples, seed {seed}")
            try:
                rewards, divergence, compared = train(
                    seed,
                    options.steps,
                    kind,
                    device=options.device,
                    dtype=options.dtype,
                )
            except ImportError as error:
                print(f"  skipped: {error}")
                break
            tenth = max(1, len(rewards) // 10)
            first, last = sum(rewards[:tenth]) / tenth, sum(rewards[-tenth:]) / tenth
            print(
                f"  reward {first:.3f} -> {last:.3f}; divergence {divergence} over "
                f"{compared} tokens; {time.monotonic() - start:.1f} s"
            )
            if last <= first or (name == "bauta" and divergence != 0.0):
                print("  FAILED")
                failed = True
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
