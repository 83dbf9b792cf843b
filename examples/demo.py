"""`make demo`: train on strings up to length 40, test up to length 500, prove a certified length.

The task is A5, the alternating group on five letters and the smallest group that is not solvable: an automaton with 60
states and two symbols. The default recipe, shortened to 4,000 steps, trains in one to two minutes on two CPU cores.
Then the automaton is extracted from the weights and compared with A5, and the certified length is computed: up to it,
every string is provably classified correctly.
"""

from __future__ import annotations

from pathlib import Path
from time import perf_counter

import sdssm
from sdssm.report import make_curves, save_plot, terminal_plot
from sdssm.training import progress_for

FOLDER = Path("demo")
STEPS = 4_000
SHOWN_LENGTHS = (1, 10, 20, 40, 41, 60, 100, 200, 300, 400, 500)


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
    _certify(runs, machine)
    print(f"""
Next, after `source .venv/bin/activate`:
  sdssm evaluate {FOLDER}/a5 --lengths 500,5000,50000     # how far does the model stay correct?
  sdssm snap {FOLDER}/a5 --out {FOLDER}/exact                 # an exact model: correct at every length, proved
  sdssm train d4 --seeds 3 --out runs/d4              # another group, with the full recipe and three seeds
  sdssm tasks                                         # all other tasks""")


def _test(runs: sdssm.Runs, chance: float) -> None:
    started = perf_counter()
    evaluation = sdssm.evaluate(runs, max_length=500, device="cpu")
    run, data = evaluation.runs[0], evaluation.to_json()
    print(f"\n2. Test on {run.strings} random strings of every length up to 500\n")
    print("length     " + "".join(f"{length:>7}" for length in SHOWN_LENGTHS))
    print("accuracy % " + "".join(f"{run.accuracy[length - 1]:>7.1f}" for length in SHOWN_LENGTHS))
    print(f"\n{terminal_plot(make_curves(data)[0])}\n")
    print("Mean accuracy")
    print(f"  at lengths 1 to 40, as in training:     {run.mean_within:6.2f} %")
    print(f"  at lengths 41 to 500, never trained on: {run.mean_beyond:6.2f} %")
    print(f"  by guessing:                            {chance:6.2f} %")
    save_plot(data, FOLDER / "a5.png")
    print(f"\nTesting took {perf_counter() - started:.0f} s. The plot is in {FOLDER}/a5.png.")


def _extract(runs: sdssm.Runs) -> None:
    print("\n3. Extract the automaton from the weights\n")
    started = perf_counter()
    extraction = sdssm.extract(runs[0])
    word = extraction.difference
    if word is None:
        comparison = "It equals A5: their outputs agree on every non-empty string (proved)."
    else:
        comparison = f"It is not A5: their outputs differ on a string of length {len(word)}."
    print(f"The extracted automaton has {extraction.machine.n_states} states. {comparison}")
    print("That the model agrees with its automaton is measured on random strings, not proved.")
    print("The next step proves that it agrees with A5, up to some length.")
    print(f"\nExtraction took {perf_counter() - started:.0f} s.")


def _certify(runs: sdssm.Runs, machine: sdssm.Machine) -> None:
    print("\n4. Prove a length up to which the model is always correct\n")
    started = perf_counter()
    certificate = sdssm.certify(sdssm.load(runs[0].path), machine)
    print("Certified length: every string up to this length is provably classified correctly.")
    print(f"  if the model is computed exactly:               {_format_length(certificate.horizon)}")
    print(f"  if it is computed in float32, step by step:     {_format_length(certificate.float_horizon)}")
    print("""
Guaranteed:     with the weights of this run, no string up to the certified length is misclassified.
Not guaranteed: anything about longer strings. The test above measures them, on a sample.

The certified length varies, so yours may differ from the one in a report: 62 on one machine and 439 on another were
seen. It depends on the exact weights. Another seed trains other weights, and so does the same seed on another machine,
because processors round differently and the differences grow during training.""")
    print(f"\nThe proof took {perf_counter() - started:.0f} s.")


def _format_length(length: int | None) -> str:
    return "every length" if length is None else f"{length:,}"


if __name__ == "__main__":
    demo()
