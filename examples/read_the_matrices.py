"""Read the matrices of a trained model, find the group in them, and draw them.

A small SD-SSM learns S3, the six permutations of three things, from strings of up to 16 symbols. Each symbol is one
matrix, `model.symbol_matrices()`, which maps the state to the next one, up to a factor. The entries look like noise.
But the states that the model visits form six clusters, and the matrices permute the clusters: that is the group. With
six of six seeds the clusters lay in a plane, as corners of a hexagon: one symbol reflects it, the other rotates it.

Prints the dimension that the states span, the permutation of each symbol, and whether the group is S3. With matplotlib
(`pip install 'sdssm[plots]'`) it draws the matrices and the clusters. The accuracy of guessing is 16.7 %.

    python examples/read_the_matrices.py                    # trains 1,200 steps: 8 seconds on one core
    python examples/read_the_matrices.py --task d4 --out d4.png
"""

from __future__ import annotations

import argparse
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
from torch import Tensor

import sdssm

SETTINGS = {"state": 16, "dictionary": 4, "batch": 32, "train_length": 16, "lr": 1e-2}
OUT = Path("examples-output/matrices.png")


def train(task: str, steps: int) -> sdssm.TokenModel:
    """Train a small model and print its accuracy."""
    with TemporaryDirectory() as folder:
        runs = sdssm.train(task, steps=steps, settings=SETTINGS, out=folder, overwrite=True, device="cpu")
        accuracy = sdssm.evaluate(runs, max_length=100, device="cpu").runs[0]
        print(
            f"Accuracy on {task}: {accuracy.mean_within:.1f} % up to length 16, as in training, and "
            f"{accuracy.mean_beyond:.1f} % from 17 to 100; chance is {sdssm.task(task).chance_accuracy:.1f} %"
        )
        return sdssm.load(runs[0].path)


def mean_states(matrices: Tensor, start: Tensor, task: sdssm.Task) -> Tensor:
    """Return the mean state of each class after random strings, (N, C): x_t = A x_{t-1}, divided by its norm."""
    batch = task.sample(512, 20, generator=torch.Generator().manual_seed(0))
    x, states = start.expand(512, -1), []
    for tokens in batch.tokens.T:
        x = torch.einsum("bij,bj->bi", matrices[tokens], x)
        x = x / x.norm(dim=-1, keepdim=True)
        states.append(x)
    visited, labels = torch.stack(states, 1).flatten(0, 1), batch.labels.flatten()
    return torch.stack([visited[labels == label].mean(0) for label in range(task.n_classes)], 1)


def find_permutations(matrices: Tensor, centres: Tensor) -> list[list[int]]:
    """Return for each symbol where its matrix moves each centre: the number of the nearest one."""
    moved = matrices @ centres  # (V, N, C)
    moved = moved / moved.norm(dim=1, keepdim=True)
    return [torch.cdist(images.T, centres.T).argmin(1).tolist() for images in moved]


def coordinates(centres: Tensor) -> tuple[Tensor, Tensor]:
    """Return axes (N, k) of the space that the centres span, and the way back (k, N).

    In these coordinates the centres are spread equally in all directions, and the matrices of a group are orthogonal.
    """
    left, values, _ = torch.linalg.svd(centres, full_matrices=False)
    k = int((values > 0.1 * values[0]).sum())
    return left[:, :k] * values[:k], (left[:, :k] / values[:k]).T


def describe(matrix: Tensor) -> str:
    """Describe a 2 x 2 matrix that is orthogonal up to a factor."""
    if torch.det(matrix) < 0:
        return "a reflection"
    angle = torch.rad2deg(torch.atan2(matrix[1, 0] - matrix[0, 1], matrix[0, 0] + matrix[1, 1]))
    return f"a rotation by {angle:.0f} degrees"


def draw(matrices: Tensor, centres: Tensor, permutations: list[list[int]], names: tuple[str, ...], path: Path) -> None:
    """Draw each symbol's matrix, and below it where it moves the centres, seen along the first two axes."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(2, len(matrices), figsize=(3.6 * len(matrices), 7), squeeze=False)
    limit = matrices.abs().max().item()
    corners = (coordinates(centres)[1] @ centres)[:2].T.tolist()
    for symbol, name in enumerate(names):
        above, below = axes[:, symbol]
        above.imshow(matrices[symbol].numpy(), cmap="RdBu", vmin=-limit, vmax=limit)
        above.set(title=f"matrix of symbol {name}", xticks=[], yticks=[])
        for state, image in enumerate(permutations[symbol]):
            below.annotate(
                "",
                corners[image],
                corners[state],
                arrowprops={"arrowstyle": "-|>", "color": "tab:gray", "shrinkA": 12, "shrinkB": 12},
            )
            below.text(*corners[state], str(state), ha="center", va="center", bbox={"boxstyle": "circle", "fc": "w"})
        below.set(title="what it does to the states", xticks=[], yticks=[], aspect="equal")
        below.margins(0.2)
        below.update_datalim(corners)
        below.autoscale_view()
    figure.tight_layout()
    figure.savefig(path, dpi=120)
    pyplot.close(figure)


def main() -> None:
    parser = argparse.ArgumentParser(description="Find the group in the matrices of a trained model.")
    parser.add_argument("--task", default="s3", help="a group, such as s3, d4 or z7 (default: %(default)s)")
    parser.add_argument("--steps", type=int, default=1_200, help="training steps (default: %(default)s)")
    parser.add_argument("--out", type=Path, default=OUT, help="the picture (default: %(default)s)")
    arguments = parser.parse_args()
    task, model = sdssm.task(arguments.task), train(arguments.task, arguments.steps)
    matrices = model.symbol_matrices()
    assert matrices is not None, "a single-layer SD-SSM has one matrix for each symbol"
    matrices = matrices.detach().double()  # (V, N, N)
    centres = mean_states(matrices, model.initial_state.detach().double(), task)  # (N, C)
    forward, back = coordinates(centres)
    print(f"The mean states of the {task.n_classes} classes span {len(back)} of {len(centres)} dimensions.\n")
    permutations = find_permutations(matrices, centres)
    for name, permutation, matrix in zip(
        task.machine.symbol_names, permutations, back @ matrices @ forward, strict=True
    ):
        seen = f", in the plane of the states {describe(matrix)}" if len(back) == 2 else ""
        print(f"symbol {name} moves state 0, 1, 2, ... to {permutation}{seen}")
    table = torch.tensor(permutations).T.tolist()
    machine = sdssm.Machine(table=table, start=task.machine.start, outputs=task.machine.outputs)
    print(f"\nTogether the symbols generate {machine.algebra.monoid_size} maps: a group: {machine.is_group}, ", end="")
    print(
        f"commutative: {machine.is_commutative}, the same as {task.name}: {machine.distinguish(task.machine) is None}"
    )
    if find_spec("matplotlib"):
        arguments.out.parent.mkdir(parents=True, exist_ok=True)
        draw(matrices, centres, permutations, task.machine.symbol_names, arguments.out)
        print(f"The matrices are drawn in {arguments.out}.")


if __name__ == "__main__":
    main()
