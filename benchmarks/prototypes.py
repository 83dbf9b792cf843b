"""Cost of prototypes: time to read strings with and without moving the state to the nearest prototype every m symbols.

    python -m benchmarks.prototypes FILE.att

The model is built from the automaton of the file, with noise on its matrices, as in `benchmarks.proofs`. Every label of
the corrected model is compared with the automaton before anything is timed.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from time import perf_counter

import torch
from torch import Tensor

from benchmarks.proofs import build_noisy, describe_machine
from sdssm.exact import snap
from sdssm.models import TokenModel
from sdssm.models.snapped_recurrence import SnappedRecurrence
from sdssm.tasks import Task, get_task

#: Symbols that are read at a time.
PIECE = 4_096
#: Strings and lengths that are timed.
SHAPES = ((512, 40), (64, 20_000))


def read_labels(model: TokenModel, tokens: Tensor) -> Tensor:
    """Return the predictions after every symbol: (B, L) -> (B, L)."""
    state, labels = None, []
    with torch.inference_mode():
        for piece in torch.split(tokens, PIECE, 1):
            logits, state = model.advance(piece, state)
            labels.append(logits.argmax(-1))
    return torch.cat(labels, 1)


def read_by_symbols(model: TokenModel, tokens: Tensor) -> Tensor:
    """Read a model with prototypes symbol by symbol, without tables of blocks."""
    module = model.module
    assert isinstance(module, SnappedRecurrence)
    start = module.start.expand(len(tokens), -1), tokens.new_zeros(len(tokens), 1)
    with torch.inference_mode():
        return module.read_symbols(tokens, start)[0].argmax(-1)


def best_time(function, *arguments: object, repeats: int = 3) -> float:  # type: ignore[no-untyped-def]
    """Return the shortest of several times, in seconds."""
    times = []
    for _ in range(repeats):
        start = perf_counter()
        function(*arguments)
        times.append(perf_counter() - start)
    return min(times)


def check_long_strings(model: TokenModel, task: Task, length: int) -> None:
    """Raise an error unless every label of covering and uniform strings is correct, to a great length."""
    generator = torch.Generator().manual_seed(0)
    uniform = task.sample(4, length, generator=generator)
    covering = task.sample(32, 1_000, generator=generator, sampling="covering")
    for batch in (uniform, covering):
        wrong = int((read_labels(model, batch.tokens) != batch.labels).sum())
        if wrong:
            raise SystemExit(f"{wrong} labels of strings of length {batch.tokens.shape[1]:,} are wrong")


def main() -> None:
    """Print the time without and with prototypes, for several m."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path)
    parser.add_argument("--state", type=int, default=64)
    parser.add_argument("--noise", type=float, default=0.05)
    parser.add_argument("--every", type=int, nargs="+", default=[1, 2, 4])
    options = parser.parse_args()
    torch.set_num_threads(1)
    print(describe_machine())
    task = get_task(options.file)
    model = build_noisy(task, options.state, options.noise)
    strings = [torch.randint(task.n_symbols, shape, generator=torch.Generator().manual_seed(1)) for shape in SHAPES]
    for tokens in strings:
        read_labels(model, tokens)  # compiles the kernels
    for every in options.every:
        start = perf_counter()
        snapped = snap(model, task, every=every)
        proof = perf_counter() - start
        check_long_strings(snapped.model, task, 1_000_000)
        for tokens in strings:
            # Beside each other, so that both meet the same load.
            without, blocks = best_time(read_labels, model, tokens), best_time(read_labels, snapped.model, tokens)
            symbols = best_time(read_by_symbols, snapped.model, tokens[:, :2_000]) * tokens.shape[1]
            symbols /= min(tokens.shape[1], 2_000)
            print(
                f"every {every}, {tokens.shape[0]} x {tokens.shape[1]:,}: without {without:.3f} s, with {blocks:.3f} s "
                f"({blocks / without:.2f}x), symbol by symbol {symbols:.3f} s ({symbols / without:.1f}x); "
                f"extraction and proof {proof:.2f} s"
            )


if __name__ == "__main__":
    main()
