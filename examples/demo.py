"""`make demo`: train on strings up to length 40, test up to length 500, prove a certified length, and look at it.

The task is A5, the alternating group on five letters and the smallest group that is not solvable: an automaton with 60
states and two symbols. The default recipe, shortened to 4,000 steps, trains in one to two minutes on two CPU cores.
Then the automaton is extracted from the weights and compared with A5, and the certified length is computed: up to it,
every string is provably classified correctly.

Beside it two small models train on parity in seconds: SD-SSM, and a complex diagonal model, which learns the training
lengths as well and fails beyond them. A page in `demo/report.html` shows all three and lets you play with them.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from time import perf_counter

import sdssm
from sdssm.exact import horizon, store_result
from sdssm.report import make_curves, terminal_plot, write_report
from sdssm.runs import RunFolder
from sdssm.training import progress_for

FOLDER = Path("demo")
STEPS = 4_000
SHOWN_LENGTHS = (1, 10, 20, 40, 41, 60, 100, 200, 300, 400, 500)
#: The models on parity with their steps, and the greatest length at which the models are measured.
PARITY_STEPS = {"sd-ssm": 1_500, "complex-diagonal": 1_500}
LONGEST = 5_000


def demo() -> None:
    machine = sdssm.machine("a5")
    chance = 100 / machine.n_outputs
    print(
        f"The task: A5, an automaton with {machine.n_states} states. The model reads a string over two symbols\n"
        f"and predicts the state of the automaton after it. Guessing is correct in {chance:.1f} % of cases.\n"
    )
    print(f"1. Train on strings up to length 40, for {STEPS:,} steps\n")
    started = perf_counter()
    progress = progress_for(quiet=False)
    runs = sdssm.train("a5", steps=STEPS, out=FOLDER / "a5", overwrite=True, device="cpu", progress=progress)
    print(f"\nTraining took {perf_counter() - started:.0f} s. The run is in {FOLDER}/a5.")

    _test(runs, chance)
    _extract(runs)
    _certify(runs)
    parity = _contrast()
    _report([*parity[::-1], *runs])  # the page starts with the model that fails


def _test(runs: sdssm.Runs, chance: float) -> None:
    started = perf_counter()
    evaluation = sdssm.evaluate(runs, max_length=500, device="cpu")
    run = evaluation.runs[0]
    print(f"\n2. Test on {run.strings} random strings of every length up to 500\n")
    _print_row("length", SHOWN_LENGTHS)
    _print_row("accuracy %", [f"{run.accuracy[length - 1]:.1f}" for length in SHOWN_LENGTHS])
    print(f"\n{terminal_plot(make_curves(evaluation.to_json())[0])}\n")
    print("Mean accuracy")
    print(f"  at lengths 1 to 40, as in training:     {run.mean_within:6.2f} %")
    print(f"  at lengths 41 to 500, never trained on: {run.mean_beyond:6.2f} %")
    print(f"  by guessing:                            {chance:6.2f} %")
    print(f"\nTesting took {perf_counter() - started:.0f} s.")


def _extract(runs: sdssm.Runs) -> None:
    print("\n3. Extract the automaton from the weights\n")
    started = perf_counter()
    extraction = sdssm.extract(runs[0])
    store_result(runs[0], extraction)
    word = extraction.difference
    if word is None:
        comparison = "It equals A5: their outputs agree on every non-empty string (proved)."
    else:
        comparison = f"It is not A5: their outputs differ on a string of length {len(word)}."
    print(f"The extracted automaton has {extraction.machine.n_states} states. {comparison}")
    print("That the model agrees with its automaton is measured on random strings, not proved.")
    print("The next step proves that it agrees with A5, up to some length.")
    print(f"\nExtraction took {perf_counter() - started:.0f} s.")


def _certify(runs: sdssm.Runs) -> None:
    print("\n4. Prove a length up to which the model is always correct\n")
    started = perf_counter()
    certificate = sdssm.certify(runs[0])
    store_result(runs[0], certificate)
    print("Certified length: every string up to this length is provably classified correctly.")
    print(f"  if the model is computed exactly:               {_format_length(certificate.horizon)}")
    print(f"  if it is computed in float32, step by step:     {_format_length(certificate.float_horizon)}")
    print("""
Guaranteed:     with the weights of this run, no string up to the certified length is misclassified.
Not guaranteed: anything about longer strings. The test above measures them, on a sample.

The certified length depends on the exact weights: another seed, or another processor, which rounds differently, gives
another one (62 and 439 were seen).""")
    print(f"\nThe proof took {perf_counter() - started:.0f} s.")


def _contrast() -> list[RunFolder]:
    """Train two models on parity that both learn the training lengths, and return their runs."""
    print("\n5. Two models that learn the same training lengths: parity, an automaton with two states\n")
    started = perf_counter()
    runs = []
    _print_row("length", SHOWN_LENGTHS)
    for model, steps in PARITY_STEPS.items():
        out = FOLDER / f"parity-{model}"
        [run] = sdssm.train("parity", model=model, steps=steps, out=out, overwrite=True, device="cpu", progress=False)
        [measured] = sdssm.evaluate(run, max_length=500, device="cpu")
        _print_row(model, [f"{measured.accuracy[length - 1]:.1f}" for length in SHOWN_LENGTHS])
        runs.append(run)
    _print_row("chance", ["50.0"] * len(SHOWN_LENGTHS))
    store_result(runs[0], sdssm.extract(runs[0]))
    certificate = sdssm.certify(runs[0])
    store_result(runs[0], certificate)
    print(f"\nCertified length of this sd-ssm: {_format_length(certificate.horizon)}.")
    print(f"\nTraining and testing them took {perf_counter() - started:.0f} s.")
    return runs


def _report(runs: list[RunFolder]) -> None:
    for run in runs:
        store_result(run, horizon(run, max_length=LONGEST))
    page = FOLDER / "report.html"
    write_report([run.path for run in runs], page, title="make demo")
    print(f"""
6. Look at it: open this file in a browser. It needs no network.

  {page.resolve()}

First: "Playground", Play. Two models that learned the training lengths read the same string. Beyond these lengths
complex-diagonal loses the automaton, and its first mistake is marked; sd-ssm follows it. "Tasks" has their curves.
Then the run on a5: its matrices, its states at growing lengths, the extracted automaton, the certified length.

Next, after `source .venv/bin/activate`:
  sdssm evaluate {FOLDER}/a5 --lengths 500,5000,50000     # how far does it stay correct? two minutes
  sdssm snap {FOLDER}/a5 --out {FOLDER}/exact                 # an exact model: correct at every length, proved; seconds
  sdssm train d4 --seeds 3 --out runs/d4              # another group, the full recipe, three seeds; minutes
  sdssm tasks                                         # all other tasks""")


def _print_row(name: str, cells: Sequence[int | str]) -> None:
    print(f"{name:<17}" + "".join(f"{cell:>7}" for cell in cells))


def _format_length(length: int | None) -> str:
    return "every length" if length is None else f"{length:,}"


if __name__ == "__main__":
    demo()
