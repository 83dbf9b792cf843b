"""`make demo`: learn the smallest group that is not solvable from strings up to length 40, and test up to 500.

A5 has 60 states. The default recipe, shortened to 4,000 steps, which take about a minute on two CPU cores. Then the
automaton is read back from the weights, and it is proved up to which length no string at all is told wrong.
"""

from __future__ import annotations

from pathlib import Path
from time import perf_counter

import sdssm
from sdssm.report import curves, save_plot, terminal_plot
from sdssm.training import progress_for

FOLDER = Path("demo")
STEPS = 4_000
SHOWN = (1, 10, 20, 40, 41, 60, 100, 200, 300, 400, 500)


def demo() -> None:
    begin = perf_counter()
    print(f"Training on A5: 60 states, strings up to length 40, {STEPS:,} steps.\n")
    progress = progress_for(quiet=False)
    runs = sdssm.train("a5", steps=STEPS, out=FOLDER / "a5", overwrite=True, device="cpu", progress=progress)
    trained = perf_counter()

    found = sdssm.evaluate(runs, max_length=500, device="cpu")
    run, data = found.runs[0], found.to_json()
    print(f"\nTesting on {run.strings} strings of every length up to 500:\n")
    print("length     " + "".join(f"{length:>7}" for length in SHOWN))
    print("accuracy % " + "".join(f"{run.accuracy[length - 1]:>7.1f}" for length in SHOWN))
    print(f"\n{terminal_plot(curves(data)[0])}\n")
    print(f"Mean accuracy at lengths 1..40, as trained: {run.mean_within:.2f} %")
    print(f"             at 41..500, never seen before: {run.mean_beyond:.2f} %")

    save_plot(data, FOLDER / "a5.png")
    print(f"\nTraining took {trained - begin:.0f} s, testing {perf_counter() - trained:.1f} s; plot: {FOLDER}/a5.png")
    began = perf_counter()
    extraction = sdssm.extract(runs[0])
    same = "the same automaton as A5" if extraction.difference is None else "not the automaton of A5"
    print(f"\nRead back from the weights: {extraction.machine.n_states} states, {same} (proved by their product).")
    certificate = sdssm.certify(sdssm.load(runs[0].path), sdssm.machine("a5"))
    print(f"Proved: every string up to length {_length(certificate.horizon)} is told right in exact arithmetic,")
    print(f"        up to length {_length(certificate.float_horizon)} with the rounding of float32.")
    print(f"Both took {perf_counter() - began:.0f} s.")
    print(f"""
Next:
  sdssm evaluate {FOLDER}/a5 --lengths 500,5000,50000     # how long does it stay right?
  sdssm snap {FOLDER}/a5 --out {FOLDER}/exact                 # weights that are right at every length
  sdssm train d4 --seeds 3 --out runs/d4              # another group: the whole recipe, three seeds
  sdssm tasks                                         # what else there is to learn""")


def _length(horizon: int | None) -> str:
    return "infinity" if horizon is None else f"{horizon:,}"


if __name__ == "__main__":
    demo()
