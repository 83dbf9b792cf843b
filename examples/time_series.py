"""Classify real time series with `SelectiveDense`: who says the vowel?

The layer reads vectors, not only symbols. The data set is JapaneseVowels (Kudo, Toyama and Shimbo 1999): nine speakers,
270 recordings to train on and 370 to test on, each a sequence of 7 to 29 vectors of 12 numbers. It is a file inside the
package sktime, which this script reads without importing sktime: `pip install 'sdssm[examples]'`.

`SelectiveDense.for_inputs` has the settings for real inputs. Three differ from those for strings: B u is added to the
state, so that the state depends on the size of the input; the state is not divided by its norm, which would forget that
size; and it starts at zero. A GRU of the same size is the baseline. Prints the accuracy of both on the test recordings;
chance is 11.1 %.

    python examples/time_series.py              # 30 passes over the data, 10 seconds on one core
    python examples/time_series.py --epochs 100
"""

from __future__ import annotations

import argparse
from importlib.util import find_spec
from pathlib import Path
from time import perf_counter

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.nn.utils.rnn import pack_padded_sequence, pad_sequence

from sdssm.layers import SelectiveDense

STATE = 32
BATCH = 30


def read_recordings(part: str) -> tuple[Tensor, Tensor, Tensor]:
    """Return inputs (B, L, 12), padded with zeros, lengths (B,) and speakers (B,) of the part TRAIN or TEST."""
    package = find_spec("sktime")
    if package is None or package.origin is None:
        raise SystemExit("this example reads a data set of sktime; pip install 'sdssm[examples]'")
    path = Path(package.origin).parent / "datasets" / "data" / "JapaneseVowels" / f"JapaneseVowels_{part}.ts"
    series, speakers = [], []
    for line in path.read_text().partition("@data")[2].split():  # 12 lists of numbers and the speaker, between colons
        *channels, speaker = line.split(":")
        series.append(torch.tensor([[float(x) for x in channel.split(",")] for channel in channels]).T)
        speakers.append(int(speaker) - 1)
    return pad_sequence(series, batch_first=True), torch.tensor([len(x) for x in series]), torch.tensor(speakers)


class SelectiveDenseClassifier(nn.Module):
    """A SelectiveDense layer, and a linear readout of its state at the end of the sequence."""

    def __init__(self, width: int, classes: int, generator: torch.Generator) -> None:
        super().__init__()
        self.layer = SelectiveDense.for_inputs(width, state=STATE, dictionary=8, generator=generator)
        self.readout = nn.Linear(STATE, classes)

    def forward(self, inputs: Tensor, lengths: Tensor) -> Tensor:
        _, final = self.layer(inputs, lengths=lengths)  # the state at the end of each row, (B, N)
        return self.readout(final)


class GRUClassifier(nn.Module):
    """The baseline: a GRU with the same size of state and the same readout."""

    def __init__(self, width: int, classes: int) -> None:
        super().__init__()
        self.layer = nn.GRU(width, STATE, batch_first=True)
        self.readout = nn.Linear(STATE, classes)

    def forward(self, inputs: Tensor, lengths: Tensor) -> Tensor:
        packed = pack_padded_sequence(inputs, lengths, batch_first=True, enforce_sorted=False)
        return self.readout(self.layer(packed)[1][0])


def train(model: nn.Module, inputs: Tensor, lengths: Tensor, speakers: Tensor, epochs: int) -> None:
    """Train with Adam; the learning rate falls to zero along a line."""
    generator = torch.Generator().manual_seed(1)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.0, total_iters=epochs)
    for _ in range(epochs):
        for rows in torch.randperm(len(inputs), generator=generator).split(BATCH):
            loss = cross_entropy(model(inputs[rows], lengths[rows]), speakers[rows])
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
        schedule.step()


@torch.no_grad()
def accuracy(model: nn.Module, inputs: Tensor, lengths: Tensor, speakers: Tensor) -> float:
    """Return the accuracy in percent."""
    return 100 * (model(inputs, lengths).argmax(-1) == speakers).float().mean().item()


def main() -> None:
    parser = argparse.ArgumentParser(description="Classify real time series with SelectiveDense and with a GRU.")
    parser.add_argument("--epochs", type=int, default=30, help="passes over the training data (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="of the initial weights (default: %(default)s)")
    arguments = parser.parse_args()
    torch.set_num_threads(1)  # the tensors are small: more threads would only wait for each other
    training, test = read_recordings("TRAIN"), read_recordings("TEST")
    width, classes = training[0].shape[-1], int(training[2].max()) + 1
    torch.manual_seed(arguments.seed)
    models = {
        "SelectiveDense": SelectiveDenseClassifier(width, classes, torch.Generator().manual_seed(arguments.seed)),
        "GRU": GRUClassifier(width, classes),
    }
    print(f"{len(training[0])} recordings of {classes} speakers to train on, {len(test[0])} to test on\n")
    print("model           parameters  seconds  training %  test %")
    for name, model in models.items():
        started = perf_counter()
        train(model, *training, epochs=arguments.epochs)
        seconds = perf_counter() - started
        size = sum(p.numel() for p in model.parameters())
        print(
            f"{name:<15} {size:>10,}  {seconds:7.1f}  {accuracy(model, *training):10.1f}  {accuracy(model, *test):6.1f}"
        )
    print(f"{'chance':<15} {'':>10}  {'':>7}  {100 / classes:10.1f}  {100 / classes:6.1f}")


if __name__ == "__main__":
    main()
