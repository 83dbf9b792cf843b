"""Time training and evaluation: `python -m benchmarks.train [--device cpu|cuda] [--json]`.

The settings are the paper's for A5: batch 128, n 64, k 6, lengths uniform on 1..40. The baseline rebuilds the published
implementation: strings labelled one by one in Python, an eager loop over time that mixes and normalises a matrix for
every string and step, and torch's Adam; its evaluation samples new strings for each length, 8 batches of 64. Both run
in the same process. Nothing is timed unless both give the same loss and gradients on the same strings.
"""

from __future__ import annotations

import argparse
import json
import platform
import random

import torch
from torch import Tensor, nn

import sdssm
from benchmarks.models import synchronized_time
from benchmarks.tasks import sample_in_python
from sdssm.runs.schema import RunConfig, create_config, resolve_settings
from sdssm.training.engine import TrainingEngine, new_model

TASK = sdssm.task("a5")
STATE_INDEX = {tuple(map(int, name)): q for q, name in enumerate(TASK.machine.state_names)}
LENGTH, BATCH = 40, 128


class PublishedModel(nn.Module):
    """The same model as published: a Python loop over time, with a matrix for every string and step."""

    def __init__(self, model: sdssm.TokenModel) -> None:
        super().__init__()
        self.model = model

    def forward(self, inputs: Tensor) -> Tensor:
        """Return the logits after the last symbol: one-hot (B, L, V) -> (B, C)."""
        model, p = self.model, self.model.settings.mixer.column_norm
        x = inputs.new_zeros(len(inputs), model.settings.mixer.state)
        for u in inputs.unbind(1):
            weights = torch.softmax(model.selection(u), dim=-1)
            A = torch.einsum("bk,kij->bij", weights, model.dictionary)
            A = A / torch.linalg.vector_norm(A, ord=p, dim=1, keepdim=True)
            x = torch.einsum("bij,bj->bi", A, x) + u @ model.input_matrix.T
        logits: Tensor = model.logits(x)
        return logits


def paper_config(seed: int, **settings: object) -> RunConfig:
    """Return the paper's configuration for A5."""
    return create_config(TASK, seed, resolve_settings("sd-ssm", "paper", "a5", settings), "paper")


def check(device: torch.device) -> None:
    """Exit unless both implementations give the same loss and gradients on the same strings."""
    model = new_model(paper_config(0)).to(device)
    strings, labels = sample_in_python(BATCH, 20, STATE_INDEX, random.Random(0))
    tokens, targets = torch.tensor(strings, device=device), torch.tensor(labels, device=device)
    loss, _ = model.loss(tokens, targets)
    inputs = nn.functional.one_hot(tokens, 2).float()
    baseline_loss = nn.functional.cross_entropy(PublishedModel(model)(inputs), targets)
    for a, b in zip(
        *(torch.autograd.grad(value, list(model.parameters())) for value in (loss, baseline_loss)), strict=True
    ):
        if not torch.allclose(a, b, rtol=1e-3, atol=1e-6):
            raise SystemExit("the gradients of the two implementations differ; nothing is timed")
    if abs(loss.item() - baseline_loss.item()) > 1e-5:
        raise SystemExit("the losses of the two implementations differ; nothing is timed")


def published_step(device: torch.device, steps: int) -> float:
    """Return the seconds per step of the published implementation, sampling included.

    The lengths have a mean of 20.5.
    """
    model = new_model(paper_config(0)).to(device)
    model_loop, rng = PublishedModel(model), random.Random(0)
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-5)
    # Evenly spaced lengths, so that few steps suffice.
    lengths = [round(1 + (LENGTH - 1) * i / (steps - 1)) for i in range(steps)]

    def step(length: int) -> None:
        strings, labels = sample_in_python(BATCH, length, STATE_INDEX, rng)
        inputs = nn.functional.one_hot(torch.tensor(strings), 2).float().to(device)
        loss = nn.functional.cross_entropy(model_loop(inputs), torch.tensor(labels, device=device))
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]  # untyped in torch
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()

    step(3)
    start = synchronized_time(device)
    for length in lengths:
        step(length)
    return (synchronized_time(device) - start) / steps


def our_step(device: torch.device, replicas: int, steps: int, repeat: int, **settings: object) -> float:
    """Return the seconds per step of the engine: the best of `repeat` measurements."""
    engine = TrainingEngine(TASK, [paper_config(seed, **settings) for seed in range(replicas)], device)
    engine.advance(64)  # compiles the kernels and captures the graphs
    times = []
    for _ in range(repeat):
        engine.wait()
        start = synchronized_time(device)
        engine.advance(steps)
        engine.wait()
        times.append((synchronized_time(device) - start) / steps)
    return min(times)


def published_evaluation(device: torch.device) -> float:
    """Return the seconds to evaluate lengths 1..500 as published.

    Three lengths are measured; the time grows linearly with the length.
    """
    model_loop, rng = PublishedModel(new_model(paper_config(0)).to(device)), random.Random(0)
    measured_lengths = (1, 125, 250)
    costs = []
    for length in measured_lengths:
        start = synchronized_time(device)
        for _ in range(8):
            strings, labels = sample_in_python(64, length, STATE_INDEX, rng)
            inputs = nn.functional.one_hot(torch.tensor(strings), 2).float().to(device)
            # Gradients are recorded, as published.
            (model_loop(inputs).argmax(-1).cpu() == torch.tensor(labels)).float().mean()
        costs.append(synchronized_time(device) - start)
    slope = (costs[2] - costs[0]) / (measured_lengths[2] - measured_lengths[0])
    return sum(costs[0] + slope * (length - 1) for length in range(1, 501))


def our_evaluation(device: torch.device, repeat: int) -> float:
    """Return the seconds to evaluate lengths 1..500: the best of `repeat` measurements."""
    model = new_model(paper_config(0))
    times = []
    for _ in range(repeat + 1):  # the first is a warm-up
        start = synchronized_time(device)
        sdssm.evaluate(model, task=TASK, max_length=500, device=device)
        times.append(synchronized_time(device) - start)
    return min(times[1:])


def measure(device: torch.device, quick: bool) -> list[dict[str, float | str]]:
    """Return the timings of training steps and of the evaluation."""
    check(device)
    on_gpu = device.type == "cuda"
    steps = 2000 if on_gpu else 64 if quick else 256
    published_seconds = published_step(device, 5 if quick else 10 if not on_gpu else 40)
    rows: list[dict[str, float | str]] = []

    def add(description: str, seconds: float, baseline: float | None = None, replicas: int = 1) -> None:
        row: dict[str, float | str] = {"what": description, "us": seconds * 1e6, "us_a_model": seconds * 1e6 / replicas}
        rows.append(row if baseline is None else {**row, "baseline_us": baseline * 1e6, "ratio": baseline / seconds})

    add("paper's A5, one model, a step", our_step(device, 1, steps, 3), published_seconds)
    for replicas in (3, 16, 64) if on_gpu else (3,):
        name = f"paper's A5, {replicas} replicas, a step"
        add(name, our_step(device, replicas, steps, 3), published_seconds * replicas, replicas)
    add("evaluation, lengths 1..500, 512 strings", our_evaluation(device, 2), published_evaluation(device))
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--quick", action="store_true", help="fewer steps")
    parser.add_argument("--json", action="store_true", help="print the results as JSON")
    arguments = parser.parse_args()
    device = torch.device(arguments.device)
    rows = measure(device, arguments.quick)
    device_name = (
        torch.cuda.get_device_name(device) if device.type == "cuda" else f"CPU, {torch.get_num_threads()} threads"
    )
    versions = {"python": platform.python_version(), "torch": torch.__version__, "sdssm": sdssm.__version__}
    if arguments.json:
        print(json.dumps({"device": device_name, "versions": versions, "rows": rows}, indent=1))
        return
    print("  ".join(f"{name} {version}" for name, version in versions.items()), " ", device_name)
    print(f"{'':44s}{'us':>12s}{'us per model':>14s}{'published, us':>17s}{'ratio':>8s}")
    for row in rows:
        line = f"{row['what']:44s}{row['us']:12.1f}{row['us_a_model']:14.1f}"
        if "ratio" in row:
            line += f"{row['baseline_us']:17.0f}{row['ratio']:7.0f}x"
        print(line)


if __name__ == "__main__":
    main()
