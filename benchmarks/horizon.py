"""How fast the horizon of a model is found: `python benchmarks/horizon.py [--run DIR] [--json]`.

A scale-free SD-SSM with 64 entries on A5, 64 strings, read at doubling lengths up to 1,000,000 on the CPU. The baseline
is the plain scan, one symbol at a time, from one length to the next. It is timed up to a shorter length, and its time
grows in a straight line from there. Nothing is timed unless both ways tell the same labels, string by string, at the
64 places after symbol 4,096.
"""

from __future__ import annotations

import argparse
import json
import platform
from pathlib import Path

import torch

import sdssm
from sdssm.exact import Horizon, horizon
from sdssm.exact.measurement import WordMatrices
from sdssm.runs import load
from sdssm.runs.schema import create_config, resolve_settings
from sdssm.training.engine import new_model

TASK = sdssm.task("a5")
STRINGS, CHECKED = 64, 4_096


def subject(run: Path | None) -> sdssm.Classifier:
    """The model of a run, or one as it is before training: the time is the same."""
    if run is not None:
        return load(run, device="cpu")
    return new_model(create_config(TASK, 0, resolve_settings("sd-ssm", "scale-free", "a5", {}), "scale-free"))


@torch.inference_mode()
def check(model: sdssm.Classifier, length: int) -> None:
    """After so many symbols both ways tell the same label of every string, at each of the next 64 places."""
    table = WordMatrices.build(model)
    assert table is not None
    tokens = torch.randint(2, (STRINGS, length + 64), generator=torch.Generator().manual_seed(0))
    before, after = tokens[:, :length], tokens[:, length:]
    states = model.advance_state(before), (table.advance_state(before, model.initial_state.expand(STRINGS, -1)),)
    one, other = (model.advance(after, state)[0].argmax(-1) for state in states)
    if not torch.equal(one, other):
        raise SystemExit(f"the labels of the two ways differ after {length:,} symbols: nothing is timed")


def measure(model: sdssm.Classifier, longest: int, plain: int) -> list[dict[str, float | str]]:
    check(model, min(CHECKED, longest))

    def timed(length: int, words: bool) -> Horizon:
        return horizon(model, task=TASK, max_length=length, strings=STRINGS, words=words)

    table = WordMatrices.build(model)
    assert table is not None
    slow = timed(min(plain, longest), False).seconds * longest / min(plain, longest)
    fast = timed(longest, True).seconds
    what = f"horizon to {longest:,}, {STRINGS} strings, words of {table.m}"
    return [{"what": what, "s": fast, "baseline_s": slow, "ratio": slow / fast}]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--run", type=Path, help="a run on A5; without it a model that was not trained")
    parser.add_argument("--quick", action="store_true", help="up to 65,536")
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")
    arguments = parser.parse_args()
    longest, plain = (1 << 16, 1 << 13) if arguments.quick else (1_000_000, 1 << 15)
    rows = measure(subject(arguments.run), longest, plain)
    where = f"CPU, {torch.get_num_threads()} threads"
    versions = {"python": platform.python_version(), "torch": torch.__version__, "sdssm": sdssm.__version__}
    if arguments.json:
        print(json.dumps({"device": where, "versions": versions, "rows": rows}, indent=1))
        return
    print("  ".join(f"{name} {version}" for name, version in versions.items()), " ", where)
    print(f"{'':52s}{'s':>8s}{'plain scan, s':>15s}{'ratio':>8s}")
    for row in rows:
        print(f"{row['what']:52s}{row['s']:8.1f}{row['baseline_s']:15.1f}{row['ratio']:7.1f}x")


if __name__ == "__main__":
    main()
