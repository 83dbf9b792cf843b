"""How fast models train and are evaluated: `python benchmarks/train.py [--device cpu|cuda] [--json]`.

The setting is the paper's on A5: batch 128, n 64, k 6, lengths uniform on 1..40. The baseline is the published way,
rebuilt here: strings labelled one by one in Python, an eager loop over time that mixes and normalises a matrix for
every string and step, torch's Adam; and for the evaluation fresh strings for each length, 8 batches of 64. Both
run in the same process, and nothing is timed unless both give the same loss on the same strings.
"""

from __future__ import annotations

import argparse
import json
import platform
import random
import time

import torch
from torch import Tensor, nn

import sdssm
from benchmarks.tasks import baseline as sampled
from sdssm.runs.schema import RunConfig, create_config, resolve_settings
from sdssm.training.engine import TrainingEngine, new_model

TASK = sdssm.task("a5")
NUMBER = {tuple(map(int, name)): q for q, name in enumerate(TASK.machine.state_names)}
LENGTH, BATCH = 40, 128


class PublishedWay(nn.Module):
    """The same model as it is usually written: a Python loop over time, a matrix for every string and step."""

    def __init__(self, model: sdssm.Classifier) -> None:
        super().__init__()
        self.model = model

    def forward(self, inputs: Tensor) -> Tensor:
        """One-hot (B, L, V) -> logits after the last symbol (B, C)."""
        model, p = self.model, self.model.settings.mixer.column_norm
        x = inputs.new_zeros(len(inputs), model.settings.mixer.state)
        for u in inputs.unbind(1):
            weights = torch.softmax(model.selection(u), dim=-1)
            A = torch.einsum("bk,kij->bij", weights, model.dictionary)
            A = A / torch.linalg.vector_norm(A, ord=p, dim=1, keepdim=True)
            x = torch.einsum("bij,bj->bi", A, x) + u @ model.input_matrix.T
        return model.logits(x)


def config(seed: int, **settings: object) -> RunConfig:
    return create_config(TASK, seed, resolve_settings("sd-ssm", "paper", "a5", settings), "paper")


def check(device: torch.device) -> None:
    """Both ways give the same loss and the same gradient on the same strings."""
    model = new_model(config(0)).to(device)
    strings, labels = sampled(BATCH, 20, NUMBER, random.Random(0))
    tokens, wanted = torch.tensor(strings, device=device), torch.tensor(labels, device=device)
    loss, _ = model.loss(tokens, wanted)
    inputs = nn.functional.one_hot(tokens, 2).float()
    other = nn.functional.cross_entropy(PublishedWay(model)(inputs), wanted)
    for a, b in zip(*(torch.autograd.grad(one, list(model.parameters())) for one in (loss, other)), strict=True):
        if not torch.allclose(a, b, rtol=1e-3, atol=1e-6):
            raise SystemExit("the gradients of the two ways differ: nothing is timed")
    if abs(loss.item() - other.item()) > 1e-5:
        raise SystemExit("the losses of the two ways differ: nothing is timed")


def published_step(device: torch.device, steps: int) -> float:
    """Seconds a step of the published way, strings included, for lengths that average 20.5."""
    model = new_model(config(0)).to(device)
    way, rng = PublishedWay(model), random.Random(0)
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-5)
    lengths = [round(1 + (LENGTH - 1) * i / (steps - 1)) for i in range(steps)]  # evenly, so that a few steps tell

    def step(length: int) -> None:
        strings, labels = sampled(BATCH, length, NUMBER, rng)
        inputs = nn.functional.one_hot(torch.tensor(strings), 2).float().to(device)
        loss = nn.functional.cross_entropy(way(inputs), torch.tensor(labels, device=device))
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]  # torch's own
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()

    step(3)
    begin = now(device)
    for length in lengths:
        step(length)
    return (now(device) - begin) / steps


def our_step(device: torch.device, replicas: int, steps: int, repeat: int, **settings: object) -> float:
    """Seconds a step of the engine with so many replicas: the best of some repeats."""
    engine = TrainingEngine(TASK, [config(seed, **settings) for seed in range(replicas)], device)
    engine.advance(64)  # kernels are compiled, graphs captured
    times = []
    for _ in range(repeat):
        engine.wait()
        begin = now(device)
        engine.advance(steps)
        engine.wait()
        times.append((now(device) - begin) / steps)
    return min(times)


def published_evaluation(device: torch.device) -> float:
    """Seconds to score all lengths 1..500 the published way, from the cost of a few: it grows in a straight line."""
    way, rng = PublishedWay(new_model(config(0)).to(device)), random.Random(0)
    marks = (1, 125, 250)
    costs = []
    for length in marks:
        begin = now(device)
        for _ in range(8):
            strings, labels = sampled(64, length, NUMBER, rng)
            inputs = nn.functional.one_hot(torch.tensor(strings), 2).float().to(device)
            (way(inputs).argmax(-1).cpu() == torch.tensor(labels)).float().mean()  # with gradients, as published
        costs.append(now(device) - begin)
    slope = (costs[2] - costs[0]) / (marks[2] - marks[0])
    return sum(costs[0] + slope * (length - 1) for length in range(1, 501))


def our_evaluation(device: torch.device, repeat: int) -> float:
    model = new_model(config(0))
    times = []
    for _ in range(repeat + 1):  # the first one warms up
        begin = now(device)
        sdssm.evaluate(model, task=TASK, max_length=500, device=device)
        times.append(now(device) - begin)
    return min(times[1:])


def now(device: torch.device) -> float:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter()


def measure(device: torch.device, quick: bool) -> list[dict[str, float | str]]:
    check(device)
    gpu = device.type == "cuda"
    steps = 2000 if gpu else 64 if quick else 256
    base = published_step(device, 5 if quick else 10 if not gpu else 40)
    rows: list[dict[str, float | str]] = []

    def add(what: str, seconds: float, baseline: float | None = None, replicas: int = 1) -> None:
        row: dict[str, float | str] = {"what": what, "us": seconds * 1e6, "us_a_model": seconds * 1e6 / replicas}
        rows.append(row if baseline is None else {**row, "baseline_us": baseline * 1e6, "ratio": baseline / seconds})

    add("paper's A5, one model, a step", our_step(device, 1, steps, 3), base)
    for replicas in (3, 16, 64) if gpu else (3,):
        name = f"paper's A5, {replicas} replicas, a step"
        add(name, our_step(device, replicas, steps, 3), base * replicas, replicas)
    add("evaluation, lengths 1..500, 512 strings", our_evaluation(device, 2), published_evaluation(device))
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--quick", action="store_true", help="fewer steps")
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")
    arguments = parser.parse_args()
    device = torch.device(arguments.device)
    rows = measure(device, arguments.quick)
    where = torch.cuda.get_device_name(device) if device.type == "cuda" else f"CPU, {torch.get_num_threads()} threads"
    versions = {"python": platform.python_version(), "torch": torch.__version__, "sdssm": sdssm.__version__}
    if arguments.json:
        print(json.dumps({"device": where, "versions": versions, "rows": rows}, indent=1))
        return
    print("  ".join(f"{name} {version}" for name, version in versions.items()), " ", where)
    print(f"{'':44s}{'us':>12s}{'us a model':>12s}{'published way, us':>19s}{'ratio':>8s}")
    for row in rows:
        line = f"{row['what']:44s}{row['us']:12.1f}{row['us_a_model']:12.1f}"
        if "ratio" in row:
            line += f"{row['baseline_us']:19.0f}{row['ratio']:7.0f}x"
        print(line)


if __name__ == "__main__":
    main()
