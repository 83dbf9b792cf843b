"""Train models with a loop of your own, in plain PyTorch, and test them on longer strings.

The library gives the strings and the label of every prefix; model, loss, optimizer and loop are yours. The task is
`cycle`: a walker on a ring of five positions stays, steps forward or steps back, and the model predicts where it is.
Two models are trained on strings of 1 to 20 symbols: an LSTM written with torch alone, and the library's SD-SSM, which
is a `torch.nn.Module` like any other. Prints the accuracy at training lengths and beyond; chance is 20 %.
How far a model generalises differs from seed to seed; the recipe of `sdssm.train` gets further than this short loop.

    python examples/own_training_loop.py                # 1,000 steps for each model, 30 seconds on one core
    python examples/own_training_loop.py --task d4 --steps 3000
"""

from __future__ import annotations

import argparse
from time import perf_counter

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

import sdssm
from sdssm.layers import SelectiveDenseSettings

TRAIN_LENGTH = 20
TEST_LENGTHS = (10, 20, 40, 100, 400)
BATCH = 64


class LSTMClassifier(nn.Module):
    """Any model works that maps tokens (B, L) to logits (B, L, C), one prediction for every prefix."""

    def __init__(self, n_symbols: int, n_classes: int, state: int = 32) -> None:
        super().__init__()
        self.embedding = nn.Embedding(n_symbols, state)
        self.lstm = nn.LSTM(state, state, batch_first=True)
        self.readout = nn.Linear(state, n_classes)

    def forward(self, tokens: Tensor) -> Tensor:
        return self.readout(self.lstm(self.embedding(tokens))[0])


def train(model: nn.Module, task: sdssm.Task, steps: int, generator: torch.Generator) -> None:
    """Train on the labels of all prefixes, with strings of another length at each step."""
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.0, total_iters=steps)
    lengths = [length for length in range(1, TRAIN_LENGTH + 1) if task.has_length(length)]
    for step in range(steps):
        length = lengths[int(torch.randint(len(lengths), (), generator=generator))]
        batch = task.sample(BATCH, length, generator=generator)  # tokens and labels, both (B, L)
        logits = model(batch.tokens)  # (B, L, C)
        # The label of a prefix that is not a valid string is -1, which cross_entropy leaves out.
        loss = cross_entropy(logits.flatten(0, 1), batch.labels.flatten(), ignore_index=-1)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        if (step + 1) % (max(1, steps // 3)) == 0:
            print(f"  step {step + 1}: loss {loss.item():.4f} at length {length}")


@torch.no_grad()
def accuracy(model: nn.Module, task: sdssm.Task, length: int, generator: torch.Generator) -> float:
    """Return the accuracy of the last prediction on 512 strings of this length, in percent."""
    batch = task.sample(512, task.longest_valid_length(length), generator=generator)
    return 100 * (model(batch.tokens)[:, -1].argmax(-1) == batch.labels[:, -1]).float().mean().item()


def main() -> None:
    parser = argparse.ArgumentParser(description="Train models with a loop of your own.")
    parser.add_argument("--task", default="cycle", help="a name that `sdssm tasks` lists (default: %(default)s)")
    parser.add_argument("--steps", type=int, default=1000, help="steps for each model (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="of weights and strings (default: %(default)s)")
    arguments = parser.parse_args()
    torch.set_num_threads(1)  # the tensors are small: more threads would only wait for each other
    task = sdssm.task(arguments.task)
    torch.manual_seed(arguments.seed)
    generator = torch.Generator().manual_seed(arguments.seed)
    settings = sdssm.ModelSettings(mixer=SelectiveDenseSettings(state=16, dictionary=4))
    models = {
        "LSTM": LSTMClassifier(task.n_symbols, task.n_classes),
        "SD-SSM": sdssm.Classifier(settings, task.n_symbols, task.n_classes, generator=generator),
    }
    rows = []
    for name, model in models.items():
        print(f"{name}, {sum(p.numel() for p in model.parameters()):,} parameters")
        started = perf_counter()
        train(model, task, arguments.steps, torch.Generator().manual_seed(arguments.seed + 1))
        print(f"  trained in {perf_counter() - started:.1f} s")
        test_strings = torch.Generator().manual_seed(arguments.seed + 2)
        rows.append((name, [accuracy(model, task, length, test_strings) for length in TEST_LENGTHS]))
    print(f"\nAccuracy in % on {task.name}, at lengths up to {TRAIN_LENGTH} as in training, and beyond\n")
    rows.append(("chance", [task.chance_accuracy] * len(TEST_LENGTHS)))
    print("length" + "".join(f"{length:>8}" for length in TEST_LENGTHS))
    for name, accuracies in rows:
        print(f"{name:<6}" + "".join(f"{value:8.1f}" for value in accuracies))


if __name__ == "__main__":
    main()
