"""Time the horizon search of a model: `python benchmarks/horizon.py [--run DIR] [--json]`.

The model is a scale-free SD-SSM with 64 entries on A5. 64 strings are evaluated at doubling lengths up to 1,000,000 on
the CPU. The baseline is the plain scan, one symbol at a time; it is timed up to a shorter length and extrapolated
linearly. Nothing is timed unless both give the same predictions for every string after each of the 64 symbols that
follow symbol 4,096.
"""

from __future__ import annotations

import argparse
import json
import platform
from pathlib import Path

import torch

import sdssm
from sdssm.exact import Horizon, horizon
from sdssm.exact.measurement.word_matrices import WordMatrices
from sdssm.runs import load
from sdssm.runs.schema import create_config, resolve_settings
from sdssm.training.engine import new_model

TASK = sdssm.task("a5")
STRINGS, CHECKED_LENGTH = 64, 4_096


def subject(run: Path | None) -> sdssm.Classifier:
    """Return the model of a run, or an untrained one, which takes the same time."""
    config = create_config(TASK, 0, resolve_settings("sd-ssm", "scale-free", "a5", {}), "scale-free")
    model = new_model(config) if run is None else load(run, device="cpu")
    assert isinstance(model, sdssm.Classifier)
    return model


@torch.inference_mode()
def check(model: sdssm.Classifier, length: int) -> None:
    """Exit unless both scans give the same predictions after `length` symbols.

    They are compared after each of the 64 symbols that follow.
    """
    table = WordMatrices.build(model)
    assert table is not None
    tokens = torch.randint(2, (STRINGS, length + 64), generator=torch.Generator().manual_seed(0))
    prefix, suffix = tokens[:, :length], tokens[:, length:]
    states = model.advance_state(prefix), (table.advance_state(prefix, model.initial_state.expand(STRINGS, -1)),)
    plain_labels, word_labels = (model.advance(suffix, state)[0].argmax(-1) for state in states)
    if not torch.equal(plain_labels, word_labels):
        raise SystemExit(f"the predictions of the two scans differ after {length:,} symbols; nothing is timed")


def measure(model: sdssm.Classifier, max_length: int, plain_length: int) -> list[dict[str, float | str]]:
    """Return the timings, with the plain scan timed up to `plain_length`."""
    check(model, min(CHECKED_LENGTH, max_length))

    def run_horizon(length: int, words: bool) -> Horizon:
        return horizon(model, task=TASK, max_length=length, strings=STRINGS, words=words)

    table = WordMatrices.build(model)
    assert table is not None
    plain_seconds = (
        run_horizon(min(plain_length, max_length), False).seconds * max_length / min(plain_length, max_length)
    )
    word_seconds = run_horizon(max_length, True).seconds
    description = f"horizon to {max_length:,}, {STRINGS} strings, words of {table.m}"
    return [
        {"what": description, "s": word_seconds, "baseline_s": plain_seconds, "ratio": plain_seconds / word_seconds}
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--run", type=Path, help="the folder of a run on A5; default: an untrained model")
    parser.add_argument("--quick", action="store_true", help="measure up to length 65,536 only")
    parser.add_argument("--json", action="store_true", help="print the results as JSON")
    arguments = parser.parse_args()
    max_length, plain_length = (1 << 16, 1 << 13) if arguments.quick else (1_000_000, 1 << 15)
    rows = measure(subject(arguments.run), max_length, plain_length)
    device = f"CPU, {torch.get_num_threads()} threads"
    versions = {"python": platform.python_version(), "torch": torch.__version__, "sdssm": sdssm.__version__}
    if arguments.json:
        print(json.dumps({"device": device, "versions": versions, "rows": rows}, indent=1))
        return
    print("  ".join(f"{name} {version}" for name, version in versions.items()), " ", device)
    print(f"{'':52s}{'s':>8s}{'plain scan, s':>15s}{'ratio':>8s}")
    for row in rows:
        print(f"{row['what']:52s}{row['s']:8.1f}{row['baseline_s']:15.1f}{row['ratio']:7.1f}x")


if __name__ == "__main__":
    main()
