"""Time of a proof on one core: extract the automaton of a model, and compare it with the language by their product.

    python -m benchmarks.proofs FOLDER --every 20

FOLDER holds automata as `.att` files, such as those of MLRegTest. The model of each is built from its automaton: a
random rotation of one-hot states, noise on the matrices, and a centre for each state in the readout, as models that
are trained on the states of an automaton have. A benchmark of trained models is `sdssm reproduce mlregtest`.
"""

from __future__ import annotations

import argparse
import platform
from pathlib import Path
from time import process_time

import numpy as np
import torch

from sdssm.experiments.mlregtest.proofs import prove_language
from sdssm.layers import SelectiveDenseSettings
from sdssm.models import Classifier, ModelSettings
from sdssm.models.names import load_tensors, tensors_for_file
from sdssm.tasks import Task, get_task


def build_noisy(task: Task, state: int, noise: float, *, centres: bool = True, rotate: bool = True) -> Classifier:
    """Return a model of the minimal automaton of a task, with noise of the given size on its matrices.

    Its states are one-hot vectors of size `state`, rotated at random. With `centres` the readout has a centre for each
    state of the automaton, otherwise a row for each label.
    """
    machine = task.minimal
    states, symbols = machine.n_states, machine.n_symbols
    generator = torch.Generator().manual_seed(0)
    rotation = torch.linalg.qr(torch.randn(state, state, generator=generator, dtype=torch.float64))[0]
    codes = (rotation if rotate else torch.eye(state, dtype=torch.float64))[:, :states]
    matrices = torch.stack([codes[:, torch.tensor(machine.table[:, v])] @ codes.mT for v in range(symbols)])
    matrices += noise * state**-0.5 * torch.randn(matrices.shape, generator=generator)
    labels = torch.tensor(machine.labels)
    mixer = SelectiveDenseSettings(state=state, dictionary=symbols, column_norm=None, input_matrix=False, rescale=True)
    settings = ModelSettings(
        mixer=mixer, norm="none", readout="cosine", projection=False, centres=states if centres else None
    )
    model = Classifier(settings, symbols, task.n_classes, generator=generator)
    rows = codes.T if centres else torch.stack([codes[:, labels == c].sum(1) for c in range(task.n_classes)])
    values = {
        "dictionary": matrices.float(),
        "selection.weight": 1000 * torch.eye(symbols),
        "selection.bias": torch.zeros(symbols),
        "initial_state": codes[:, machine.start].float(),
        "readout.weight": rows.float(),
    }
    if model.readout.centre_labels is not None:
        model.readout.assign_centres(labels)
    load_tensors(model, {**tensors_for_file(model), **values})
    return model.eval()


def describe_machine() -> str:
    """Return the processor and the versions, for the results."""
    versions = f"Python {platform.python_version()}, torch {torch.__version__}, numpy {np.__version__}"
    return f"{platform.machine()}, {torch.get_num_threads()} thread, {versions}"


def main() -> None:
    """Prove the languages of a folder, and print a line for each and the totals."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="a folder with .att files, or one such file")
    parser.add_argument("--every", type=int, default=1, help="take every n-th file")
    parser.add_argument("--noise", type=float, default=0.05)
    parser.add_argument("--no-centres", action="store_true", help="a row of the readout for each label")
    parser.add_argument("--limit", type=float, default=60.0, help="seconds for each proof")
    options = parser.parse_args()
    torch.set_num_threads(1)
    print(describe_machine())
    files = sorted(options.folder.glob("*.att"))[:: options.every] if options.folder.is_dir() else [options.folder]
    seconds, sizes = [], []
    for path in files:
        task = get_task(path)
        states = task.minimal.n_states
        state = 64 if states <= 51 else 128 if states <= 128 else -(-states // 64) * 64
        model = build_noisy(task, state, options.noise, centres=not options.no_centres)
        start = process_time()
        proof = prove_language(model, task, options.limit)
        seconds.append(process_time() - start)
        sizes.append(states)
        print(
            f"{path.stem}: {states} states, {task.n_symbols} symbols, {seconds[-1]:.2f} s: {proof.verdict}, "
            f"{'followed' if proof.is_followed else 'not followed'}"
        )
    small = [s for s, q in zip(seconds, sizes, strict=True) if q <= 50]
    print(
        f"{len(files)} languages; up to 50 states: {len(small)}, median {np.median(small or [0]):.2f} s, "
        f"slowest {max(small, default=0):.2f} s; slowest of all {max(seconds):.2f} s"
    )


if __name__ == "__main__":
    main()
