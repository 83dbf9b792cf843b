"""Score the forecasts of a campaign: the share within a factor 2 of the measured failing length."""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median, quantiles
from typing import Any

from sdssm.checking.forecast import CALIBRATION
from sdssm.checking.forecast_measurement import LONGEST
from sdssm.extras import import_extra

#: The runs in compact form, from which the scores can be computed again.
RUNS_FILE = "runs.json"
#: A forecast is right if it is within this factor of the measured length.
FACTOR = 2.0
#: The longest strings that a Hyena of the catalogue reads, about.
LONGEST_READ = 600
#: What is kept of a run.
KEPT = ("model", "task", "seed", "steps", "role", "train_length", "failing_length", "longest", "forecast")


def write_results(files: Sequence[Path], folder: Path) -> str:
    """Write the runs of these files, the scores of each and a picture into a folder; return the table."""
    runs, campaigns = load_runs(files)
    folder.mkdir(parents=True, exist_ok=True)
    lines = ",\n".join(json.dumps(run, separators=(",", ":")) for run in runs)
    (folder / RUNS_FILE).write_text(f'{{"campaigns":{json.dumps(campaigns)},"runs":[\n{lines}\n]}}\n')
    write_csv(runs, folder / "forecast.csv")
    text = report(runs, campaigns)
    (folder / "README.md").write_text(text)
    draw(runs, folder / "forecast.png")
    return text


def load_runs(files: Sequence[Path]) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Return the runs that learned the training lengths and were forecast, and a description of each campaign."""
    runs: list[dict[str, Any]] = []
    campaigns: list[dict[str, Any]] = []
    for file in files:
        data = json.loads(file.read_text())
        campaigns += data.get("campaigns") or [{name: value for name, value in data.items() if name != "runs"}]
        runs += [run for run in data["runs"] if run.get("learned", True) and "forecast" in run]
    kept = [{name: run[name] for name in KEPT} for run in runs]
    for run in kept:
        run["failing_length"] = run["failing_length"] and round(run["failing_length"], 1)
    return sorted(kept, key=lambda run: tuple(str(run[name]) for name in ("model", "role", "task", "seed"))), campaigns


def forecast_length(run: Mapping[str, Any], factor: float = CALIBRATION.factor) -> float:
    """Return the forecast of a run; infinity if no failure is expected before length 50,000."""
    return _length(run, run["forecast"]["crossing"], factor)


def length_without_rule(run: Mapping[str, Any]) -> float:
    """Return the forecast of a run without the rule about models that forget; the same if it does not apply."""
    forecast = run["forecast"]
    return _length(run, forecast.get("without_rule", forecast["crossing"]), CALIBRATION.factor)


def _length(run: Mapping[str, Any], crossing: float | None, factor: float) -> float:
    if crossing is None:
        return math.inf
    length: float = crossing * (CALIBRATION.unseen if run["forecast"]["cause"] == "unseen positions" else factor)
    return length if length < LONGEST else math.inf


def fails(run: Mapping[str, Any]) -> bool:
    """Whether a run fails beyond its training length and before length 50,000."""
    return not run["forecast"]["reason"] and (run["failing_length"] or 0.0) > run["train_length"]


def lasts(run: Mapping[str, Any]) -> bool:
    """Whether a run was measured as far as its forecasts go, or as its model can read, and does not fail."""
    is_long = run["longest"] >= (LONGEST_READ if run["forecast"]["cause"] == "unseen positions" else LONGEST)
    return run["failing_length"] is None and not run["forecast"]["reason"] and is_long


def share_within(runs: Sequence[Mapping[str, Any]], lengths: Sequence[float]) -> float:
    """Return the share of failing runs of which the length is within a factor 2, in percent; NaN without runs."""
    hits = [abs(math.log(y / run["failing_length"])) <= math.log(FACTOR) for run, y in zip(runs, lengths, strict=True)]
    return 100 * sum(hits) / len(hits) if hits else math.nan


def measured_over_crossing(runs: Sequence[Mapping[str, Any]], *, has_state: bool) -> list[float]:
    """Return the measured length over what the factors of the calibration are applied to, for runs that fail."""
    return [
        run["failing_length"] / run["forecast"]["crossing"]
        for run in runs
        if fails(run)
        and run["forecast"]["crossing"] is not None
        and has_state == (run["forecast"]["cause"] != "unseen positions")
    ]


def calibrate(runs: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """Return the factors of `Calibration` that follow from the calibration runs."""
    chosen = [run for run in runs if run["role"] == "calibration"]
    ratios, unseen = (measured_over_crossing(chosen, has_state=has_state) for has_state in (True, False))
    factor = median(ratios)
    tenths = quantiles([ratio / factor for ratio in ratios], n=10)
    return {"factor": factor, "unseen": median(unseen), "lower": tenths[0], "upper": tenths[-1]}


def report(runs: Sequence[Mapping[str, Any]], campaigns: Sequence[Mapping[str, Any]]) -> str:
    """Return the scores as Markdown."""
    by_role = {role: [run for run in runs if run["role"] == role] for role in ("calibration", "scored")}
    calibration, scored = ([run for run in by_role[role] if fails(run)] for role in ("calibration", "scored"))
    constant = median(run["failing_length"] for run in calibration)
    lines = [
        "# Forecast of the failing length",
        "",
        "Written by `python -m benchmarks.forecast --score`; [how it is made](../../docs/explanation/forecast.md).",
        "A run fails where its accuracy falls below 90 %, beyond the training length and before length 50,000. A",
        "forecast counts if it is within a factor 2 of the measured length.",
        "",
        *(f"- {data['device']}, {data['seconds']} s: `{data['command']}`" for data in campaigns if "device" in data),
        "",
        "| runs | failing | forecast | constant | without the model's own runs |",
        "|---|---:|---:|---:|---:|",
    ]
    for name, chosen in (("calibration", calibration), ("scored", scored)):
        held_out = [forecast_length(run, _factor_without(calibration, run["model"])) for run in chosen]
        lines.append(
            f"| {name} | {len(chosen)} | {share_within(chosen, [forecast_length(run) for run in chosen]):.0f} % "
            f"| {share_within(chosen, [constant] * len(chosen)):.0f} % | {share_within(chosen, held_out):.0f} % |"
        )
    lines += [
        "",
        f"The constant is {constant:.0f}, the median of the calibration runs. In the last column the factor is chosen",
        "from the calibration runs of all other models.",
        "",
        "Scored runs by model. Runs that do not fail are counted apart; `alarms` are those with a forecast of failure.",
        "",
        "| model | failing | within a factor 2 | constant | median of forecast / measured | do not fail | alarms |",
        "|---|---:|---:|---:|---:|---:|---:|",
    ]
    for model in sorted({run["model"] for run in by_role["scored"]}):
        own = [run for run in by_role["scored"] if run["model"] == model]
        failing = [run for run in own if fails(run)]
        lasting = [run for run in own if lasts(run)]
        forecasts = [forecast_length(run) for run in failing]
        ratios = [length / run["failing_length"] for length, run in zip(forecasts, failing, strict=True)]
        hits = round(share_within(failing, forecasts) * len(failing) / 100) if failing else 0
        constant_hits = round(share_within(failing, [constant] * len(failing)) * len(failing) / 100) if failing else 0
        alarms = sum(math.isfinite(forecast_length(run)) for run in lasting)
        middle = f"{median(ratios):.2f}" if ratios else "-"
        lines.append(f"| {model} | {len(failing)} | {hits} | {constant_hits} | {middle} | {len(lasting)} | {alarms} |")
    early = [run for run in by_role["scored"] if not fails(run) and run["failing_length"] is not None]
    lines += ["", f"{len(early)} scored runs are left out: they misclassify strings within the training length.", ""]
    lines += report_rule(runs)
    return "\n".join(lines)


def report_rule(runs: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return what the rule about models that forget changes; nothing if no run is fresh."""
    if not any(run["role"] == "fresh" for run in runs):
        return []
    lines = [
        "## Models that forget: a rule that was added later",
        "",
        f"The tables above use the rule: if a model keeps less than {100 * CALIBRATION.forgets:.0f} % of the distances",
        "within its classes while it reads a fifth of the training length, only the size of its states is continued.",
        "The rule was made **after the scored runs had been seen**, because of their false alarms. Its threshold was",
        "chosen on the calibration runs. Fresh runs are those of the [report cards](../report-cards/README.md) that",
        "learned the training lengths: another seed, more steps, and one new task beside a5 and parity. Nothing was",
        "chosen on them, and the rule was applied to them once, after it was fixed.",
        "",
        "| runs | failing | within a factor 2, no rule | with rule | do not fail | alarms, no rule | with rule |",
        "|---|---:|---:|---:|---:|---:|---:|",
    ]
    for role in ("calibration", "scored", "fresh"):
        failing, lasting = ([run for run in runs if run["role"] == role and kind(run)] for kind in (fails, lasts))
        laws = (length_without_rule, forecast_length)
        hits = [f"{share_within(failing, [law(run) for run in failing]):.0f} %" for law in laws]
        alarms = [str(sum(math.isfinite(law(run)) for run in lasting)) for law in laws]
        lines.append(f"| {role} | {len(failing)} | {' | '.join(hits)} | {len(lasting)} | {' | '.join(alarms)} |")
    fresh = [run for run in runs if run["role"] == "fresh"]
    missed = [run for run in fresh if fails(run) and math.isinf(forecast_length(run))]
    unknown = [f"{run['model']} on `{run['task']}`" for run in fresh if not fails(run) and not lasts(run)]
    lines += ["", f"Fresh runs that fail although no failure is forecast: {len(missed)}."]
    if unknown:
        lines += [f"Left out, since they were not measured far enough: {', '.join(unknown)}."]
    return [*lines, ""]


def _factor_without(calibration: Sequence[Mapping[str, Any]], model: str) -> float:
    others = [run for run in calibration if run["model"] != model]
    return median(measured_over_crossing(others, has_state=True))


def write_csv(runs: Sequence[Mapping[str, Any]], path: Path) -> None:
    """Write a row for each run."""
    with path.open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["model", "task", "seed", "steps", "role", "measured", "forecast", "ratio", "cause"])
        for run in runs:
            length = forecast_length(run)
            writer.writerow(
                [run[name] for name in ("model", "task", "seed", "steps", "role")]
                + [run["failing_length"] or "", round(length, 1) if math.isfinite(length) else ""]
                + [run["forecast"]["ratio"], run["forecast"]["cause"]]
            )


def draw(runs: Sequence[Mapping[str, Any]], path: Path) -> None:
    """Draw the measured against the forecast length of the scored runs that fail, if matplotlib is installed."""
    try:
        plt = import_extra("matplotlib.pyplot", "draw the forecasts")
    except Exception as error:
        print(f"no picture: {error}")
        return
    figure, axes = plt.subplots(figsize=(5, 4.5), layout="constrained")
    failing = [run for run in runs if run["role"] == "scored" and fails(run)]
    for model in sorted({run["model"] for run in failing}):
        own = [run for run in failing if run["model"] == model]
        lengths = [min(forecast_length(run), LONGEST) for run in own]
        axes.loglog([run["failing_length"] for run in own], lengths, "o", ms=4, label=model)
    line = [40.0, float(LONGEST)]
    axes.fill_between(line, [x / 2 for x in line], [2 * x for x in line], color="0.9", zorder=0)
    axes.loglog(line, line, color="0.6", lw=1, zorder=1)
    axes.set(xlabel="measured failing length", ylabel="forecast", title="Scored runs; grey: within a factor 2")
    axes.legend(fontsize=7)
    figure.savefig(path, dpi=110)
    plt.close(figure)
