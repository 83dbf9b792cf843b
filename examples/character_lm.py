"""Train a language model on characters, with SD-SSM layers, and let it write.

The text is the documentation in the source code of this package: about 280,000 characters in plain English, read from
its docstrings. The library's `Classifier` predicts a class after every prefix of a string; here the string is a text,
and the class is the next character. The SD-SSM layer stands in a residual block with a feed-forward layer; as in
`time_series.py`, it has an input matrix and is not rescaled.

Prints bits per character on the last tenth of the text, which is not trained on, beside three baselines: chance, which
is a uniform guess and needs 6.6 bits, the frequencies of the characters, and the frequencies of pairs. Then it prints a
sample, written one character at a time with `model.step`, whose memory does not grow with the text.

    python examples/character_lm.py                 # 400 steps, 15 seconds on one core
    python examples/character_lm.py --layers 2 --steps 2000     # some minutes; reads more like a docstring
"""

from __future__ import annotations

import argparse
import ast
import math
from collections import Counter
from itertools import pairwise
from pathlib import Path
from time import perf_counter

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

import sdssm
from sdssm.layers import SelectiveDenseSettings

BATCH, LENGTH = 32, 64
PIECE = 1_000  # characters that the test reads at once


def read_docstrings() -> str:
    """Return the docstrings of all modules, classes and functions of the package, one after the other."""
    texts = []
    for path in sorted(Path(sdssm.__file__).parent.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef):
                text = (ast.get_docstring(node) or "").partition(">>>")[0].strip()  # without the examples
                if text.isascii() and text:
                    texts.append(text)
    return "\n\n".join(texts)


def baselines(training: str, test: str) -> dict[str, float]:
    """Return the bits per character of a uniform guess, of single characters, and of pairs (each count plus one)."""
    alphabet = len(set(training))
    singles, pairs = Counter(training), Counter(pairwise(training))
    unigram = [(singles[c] + 1) / (len(training) + alphabet) for c in test]
    bigram = [(pairs[b, c] + 1) / (singles[b] + alphabet) for b, c in pairwise(test)]
    bits = {name: -sum(map(math.log2, p)) / len(p) for name, p in (("characters", unigram), ("pairs", bigram))}
    return {"uniform": math.log2(alphabet), **bits}


def train(model: nn.Module, tokens: Tensor, steps: int, generator: torch.Generator) -> None:
    """Train on random pieces of the text, to predict each next character."""
    optimizer = torch.optim.Adam(model.parameters(), lr=4e-3)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=4e-3, total_steps=steps, pct_start=0.1)
    windows = tokens.unfold(0, LENGTH + 1, 1)
    for step in range(steps):
        batch = windows[torch.randint(len(windows), (BATCH,), generator=generator)]  # (B, L + 1)
        logits = model(batch[:, :-1])  # (B, L, V)
        loss = cross_entropy(logits.flatten(0, 1), batch[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        if (step + 1) % max(1, steps // 4) == 0:
            print(f"  step {step + 1}: {loss.item() / math.log(2):.2f} bits per character")


@torch.no_grad()
def bits_per_character(model: sdssm.Classifier, tokens: Tensor) -> float:
    """Read the whole text in pieces, with the state carried from one to the next."""
    state, total = None, 0.0
    for inputs, targets in zip(tokens[:-1].split(PIECE), tokens[1:].split(PIECE), strict=True):
        logits, state = model.advance(inputs, state)
        total += cross_entropy(logits, targets, reduction="sum").item()
    return total / (len(tokens) - 1) / math.log(2)


@torch.no_grad()
def write(model: sdssm.Classifier, start: str, alphabet: list[str], n: int, generator: torch.Generator) -> str:
    """Continue a text by `n` characters, drawn from the predictions with the probabilities made a little sharper."""
    logits, state = model.advance(torch.tensor([alphabet.index(c) for c in start]))
    scores, text = logits[-1], start
    for _ in range(n):
        token = torch.multinomial(torch.softmax(scores / 0.7, -1), 1, generator=generator)[0]
        text += alphabet[int(token)]
        scores, state = model.step(token, state)
    return text


def main() -> None:
    parser = argparse.ArgumentParser(description="Train a language model on characters.")
    parser.add_argument("--steps", type=int, default=400, help="training steps (default: %(default)s)")
    parser.add_argument("--layers", type=int, default=1, help="SD-SSM layers (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="of weights and batches (default: %(default)s)")
    arguments = parser.parse_args()
    torch.set_num_threads(1)  # the tensors are small: more threads would only wait for each other
    text = read_docstrings()
    alphabet = sorted(set(text))
    tokens = torch.tensor([alphabet.index(c) for c in text])
    end = len(text) * 9 // 10
    layer = SelectiveDenseSettings(state=64, dictionary=8, input_matrix=True, rescale=False, initial_state="zero")
    settings = sdssm.ModelSettings(
        mixer=layer,
        layers=arguments.layers,
        block="pre-norm",
        feed_forward=128,
        embedding=64,
        norm="affine",
        readout="linear",
    )
    generator = torch.Generator().manual_seed(arguments.seed)
    model = sdssm.Classifier(settings, len(alphabet), len(alphabet), generator=generator)
    size = sum(p.numel() for p in model.parameters())
    print(f"{end:,} characters to train on, {len(text) - end:,} to test on, {len(alphabet)} different")
    print(f"{settings.layers} SD-SSM layer(s), {size:,} parameters")
    started = perf_counter()
    train(model, tokens[:end], arguments.steps, generator)
    print(f"  trained in {perf_counter() - started:.1f} s\n\nBits per character on the rest of the text")
    for name, bits in baselines(text[:end], text[end:]).items():
        print(f"  {name:<12}{bits:.2f}")
    print(f"  {'model':<12}{bits_per_character(model, tokens[end:]):.2f}")
    print(f"\nA sample\n\n{write(model, 'Return the ', alphabet, 300, generator)}")


if __name__ == "__main__":
    main()
