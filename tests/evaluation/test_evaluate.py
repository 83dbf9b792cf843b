"""`evaluate`: accuracies, notes, files and invalid requests."""

from __future__ import annotations

import json
from dataclasses import replace
from errno import ENOSPC
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from sdssm.automata import Machine, get_machine
from sdssm.errors import RunWarning, SdssmError
from sdssm.evaluation import Evaluation, RunEvaluation, correct_counts, evaluate, records, spectral_radii
from sdssm.evaluation.statistics import wilson_intervals
from sdssm.layers import SelectiveDense
from sdssm.models import Classifier, ModelSettings, State
from sdssm.models.names import load_tensors, tensors_for_file
from sdssm.progress import ProgressEvent
from sdssm.report import differences, make_curves
from sdssm.runs import RunFolder, folder, load
from sdssm.runs.folder import EndStatus
from sdssm.runs.schema import create_config, resolve_settings
from sdssm.tasks import Task, get_task
from sdssm.tasks.evaluation_strings import EvaluationStrings
from sdssm.training import train
from tests.evaluation.machines import exact, tiring_parity


def evaluate_one(*arguments: Any, **options: Any) -> RunEvaluation:
    """Evaluate a single model or run."""
    [run] = evaluate(*arguments, **options).runs
    return run


@pytest.mark.parametrize("name", ["a5", "d30", "arithmetic", "even_pairs", "cycle"])
@pytest.mark.parametrize("fresh", [False, True])
def test_exact_model_has_full_accuracy(name: str, fresh: bool) -> None:
    result = evaluate_one(exact(get_machine(name)), task=name, max_length=60, strings=64, fresh=fresh)
    assert result.accuracy == (100.0,) * 60
    assert result.mean == 100.0
    assert result.first_below_99 is None
    assert result.mean_band is not None and result.mean_band[1] == 100.0
    strings = 64 * 60 if fresh else 64  # prefixes: the same 64 strings at all lengths
    assert result.mean_band[0] == pytest.approx(100 * wilson_intervals(np.array([strings]), strings)[0][0])
    assert result.read == ("fresh" if fresh else "prefixes")
    assert result.note is None


def test_model_with_a_query() -> None:
    assert evaluate_one(exact(get_machine("cycle"), query=True), task="cycle", max_length=30, strings=64).mean == 100.0


def test_prefixes_and_fresh_strings_agree_on_an_imperfect_model() -> None:
    """Accuracy at each length and the mean agree within sampling error."""
    model = exact(tiring_parity(7))
    prefixes = evaluate_one(model, task="parity", max_length=80, strings=1000)
    fresh = evaluate_one(model, task="parity", max_length=80, strings=1000, fresh=True)
    a, b = np.array(prefixes.accuracy) / 100, np.array(fresh.accuracy) / 100
    error = np.sqrt((a * (1 - a) + b * (1 - b)) / 1000)
    assert (np.abs(a - b) <= 4 * error + 1e-9).all()
    assert prefixes.mean < 90
    assert prefixes.first_below_99 is not None and fresh.first_below_99 is not None
    assert 7 <= prefixes.first_below_99 <= 12 and 7 <= fresh.first_below_99 <= 12
    assert prefixes.mean_band is not None and fresh.mean_band is not None
    width, fresh_width = (band[1] - band[0] for band in (prefixes.mean_band, fresh.mean_band))
    assert abs(prefixes.mean - fresh.mean) < width
    assert width > 4 * fresh_width  # whole strings were resampled
    assert prefixes.mean_band[0] < prefixes.mean < prefixes.mean_band[1]


def test_means() -> None:
    result = evaluate_one(exact(tiring_parity(5)), task="parity", max_length=100, strings=128)
    accuracy = np.array(result.accuracy)
    assert result.mean == pytest.approx(accuracy.mean())
    assert result.mean_within == pytest.approx(accuracy[:40].mean())
    assert result.mean_beyond == pytest.approx(accuracy[40:].mean())
    for band, mean in ((result.within_band, result.mean_within), (result.beyond_band, result.mean_beyond)):
        assert band is not None and mean is not None
        assert band[0] < mean < band[1]
    for fresh in (False, True):
        short = evaluate_one(exact(tiring_parity(5)), task="parity", max_length=40, strings=16, fresh=fresh)
        assert (short.mean_beyond, short.beyond_band) == (None, None)
        assert short.within_band == short.mean_band  # the same lengths


def test_listed_lengths() -> None:
    model = exact(tiring_parity(9))
    every = evaluate_one(model, task="parity", max_length=1000)
    listed = evaluate_one(model, task="parity", lengths=[1000, 10, 500, 500])
    assert listed.lengths == (10, 500, 1000)
    assert list(listed.evaluated_lengths) == [10, 500, 1000]
    assert listed.accuracy == tuple(every.accuracy[k - 1] for k in listed.lengths)
    assert listed.mean == pytest.approx(np.mean(listed.accuracy))
    assert listed.mean_to == pytest.approx([np.mean(every.accuracy[:k]) for k in listed.lengths])
    assert evaluate_one(model, task="parity", lengths=[10, 20], fresh=True, strings=8).mean_to is None
    assert evaluate_one(model, task="parity", lengths=500).accuracy == (every.accuracy[499],)


def test_splitting_to_bound_memory_does_not_change_the_result(monkeypatch: pytest.MonkeyPatch) -> None:
    model = exact(tiring_parity(7))
    requests: list[dict[str, Any]] = [{"max_length": 700}, {"lengths": [3, 130], "fresh": True}]
    expected = [evaluate_one(model, task="parity", strings=50, **request).accuracy for request in requests]
    monkeypatch.setitem(correct_counts.MOST_NUMBERS, "cpu", 50 * 16 * 9)
    widest = 0
    advance = Classifier.advance

    def watched(self: Classifier, tokens: Tensor, *rest: Any, **options: Any) -> tuple[Tensor, State]:
        nonlocal widest
        widest = max(widest, tokens.shape[-1])
        return advance(self, tokens, *rest, **options)

    monkeypatch.setattr(Classifier, "advance", watched)
    assert [evaluate_one(model, task="parity", strings=50, **request).accuracy for request in requests] == expected
    assert widest == 9


def test_lengths_without_strings_are_scored_at_the_next_shorter_one() -> None:
    arithmetic = exact(replace_output(get_machine("arithmetic")))
    result = evaluate_one(arithmetic, task="arithmetic", max_length=41, strings=128)
    assert result.accuracy[1::2] == result.accuracy[0:-1:2]  # an even length is scored at the odd one below it
    assert result.mean == pytest.approx(np.mean(result.accuracy))
    assert result.mean_band is not None
    fresh = evaluate_one(arithmetic, task="arithmetic", max_length=41, strings=128, fresh=True)
    assert fresh.accuracy[1::2] != fresh.accuracy[0:-1:2]  # fresh strings are drawn for each length
    # Only lengths 3, 6, 9, ... have strings: lengths 1 and 2 cannot be scored.
    third = Machine(table=[[1, 1], [2, 2], [3, 3], [1, 1]], outputs=[0, 0, 0, 1])
    task = Task(name="third", machine=get_machine("parity"), valid=third)
    for fresh_strings in (False, True):
        result = evaluate_one(exact(get_machine("parity")), task=task, max_length=8, strings=16, fresh=fresh_strings)
        assert np.isnan(result.accuracy[:2]).all()
        assert result.accuracy[2:] == (100.0,) * 6
        assert result.mean == 100.0
        assert result.to_json()["accuracy"][:3] == [None, None, 100.0]
        nothing = evaluate_one(exact(get_machine("parity")), task=task, max_length=2, strings=16, fresh=fresh_strings)
        assert np.isnan(nothing.mean)
        assert json.loads(json.dumps(nothing.to_json(), allow_nan=False))["mean"] is None
        assert Evaluation((nothing,)).aggregate[0].max is None


def replace_output(machine: Machine) -> Machine:
    """A machine with a wrong output at one of its states."""
    outputs = machine.outputs.copy()
    outputs[7] = (outputs[7] + 1) % machine.n_outputs
    return Machine(table=machine.table, start=machine.start, outputs=outputs)


def test_note_explains_why_fresh_strings_were_used() -> None:
    ends = Machine(table=[[0, 1], [0, 1]], outputs=[0, 1])
    result = evaluate_one(
        exact(get_machine("parity")), task=Task(name="ends", machine=get_machine("parity"), valid=ends), max_length=9
    )
    assert result.read == "fresh"
    assert "prefixes of uniformly drawn valid strings are not uniformly drawn" in str(result.note)
    assert result.mean == 100.0


def test_non_causal_model_reads_fresh_strings(monkeypatch: pytest.MonkeyPatch) -> None:
    model = exact(get_machine("parity"))
    monkeypatch.setattr(SelectiveDense, "is_causal", False)
    result = evaluate_one(model, task="parity", max_length=9, strings=16)
    assert (result.read, result.mean) == ("fresh", 100.0)
    assert "depends on the symbols after it" in str(result.note)


@pytest.mark.parametrize(
    ("name", "changed"), [("hyena", {}), ("transformer", {"causal_mask": True, "layers": 1}), ("lstm", {"state": 8})]
)
@pytest.mark.parametrize("query", [False, True])
def test_memory_limit_does_not_change_the_result(
    name: str, changed: dict[str, Any], query: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = resolve_settings(name, "default", "cycle", {**changed, "query": query}).model
    model = Classifier(settings, 3, 5, generator=torch.Generator().manual_seed(0))
    expected = evaluate_one(model, task="cycle", max_length=9, strings=16)
    assert expected.read == ("fresh" if name == "transformer" else "prefixes")
    monkeypatch.setitem(correct_counts.MOST_NUMBERS, "cpu", 1)
    assert evaluate_one(model, task="cycle", max_length=9, strings=16).accuracy == expected.accuracy


@pytest.mark.parametrize("query", [False, True])
def test_counts_on_prefixes_match_separate_strings(query: bool) -> None:
    settings = resolve_settings("hyena", "default", "cycle", {"query": query, "layers": 2}).model
    model = Classifier(settings, 3, 5, generator=torch.Generator().manual_seed(0)).double()
    strings = EvaluationStrings(get_task("cycle"), 16, 1, torch.device("cpu"))
    (tokens, labels), *_ = strings.blocks(9)
    correct = [(model.last_logits(tokens[:, :end]).argmax(-1) == labels[:, end - 1]).sum() for end in range(1, 10)]
    [counts] = correct_counts.count_models_on_prefixes([model], strings, np.arange(1, 10), np.ones((1, 9), bool))
    assert counts.correct.tolist() == correct
    assert counts.scores is not None and counts.scores.sum() == sum(correct)


def test_runs_that_cannot_be_evaluated_are_skipped_with_a_warning(tmp_path: Path) -> None:
    tiny = {"steps": 2, "batch": 2, "train_length": 3}
    train("parity", model="hyena", settings={**tiny, "longest": 8}, out=tmp_path / "hyena", device="cpu")
    train("parity", model="rnn", settings={**tiny, "state": 4}, out=tmp_path / "rnn", device="cpu")
    with pytest.warns(RunWarning, match="hyena was built for strings of at most 7 symbols"):
        result = evaluate(tmp_path, max_length=20, strings=8, device="cpu")
    assert [run.model for run in result.runs] == ["rnn"]


def test_overflow_counts_as_misclassified() -> None:
    model = exact(get_machine("parity"))
    assert model.readout.bias is not None
    with torch.no_grad():
        model.readout.bias[0] = torch.nan
    assert evaluate_one(model, task="parity", max_length=5, strings=64).mean == 0.0


def test_random_start_states() -> None:
    settings = resolve_settings(
        "sd-ssm", "length-efficiency-4", "a5", {"state": 60, "state_embedding": 60, "norm": "none"}
    )
    model = Classifier(settings.model, 2, 60, generator=torch.Generator().manual_seed(0))
    plain = exact(get_machine("a5"))
    assert model.start is not None
    values = {
        "vectors": torch.eye(60),
        "start.weight": torch.eye(60),
        "dictionary": torch.cat([plain.dictionary, torch.zeros(4, 60, 60)]),
        "selection.weight": 1000 * torch.eye(6)[:, :2],
        "selection.bias": torch.zeros(6),
        "input_matrix": torch.zeros(60, 2),
        "readout.weight": torch.eye(60),
    }
    load_tensors(model, {**tensors_for_file(model), **values})
    for fresh in (False, True):
        assert evaluate_one(model, task="a5", max_length=30, strings=100, fresh=fresh).mean == 100.0


def test_evaluation_leaves_gradients_and_training_mode_unchanged() -> None:
    model = exact(get_machine("parity")).train()
    evaluate(model, task="parity", max_length=5, strings=8)
    assert model.training
    assert all(parameter.grad is None for parameter in model.parameters())
    assert model(torch.zeros(1, 3, dtype=torch.long)).requires_grad


def test_spectral_radii() -> None:
    assert evaluate_one(exact(get_machine("d4")), task="d4", max_length=5).spectral_radius == pytest.approx((1.0, 1.0))
    assert np.isnan(spectral_radii(torch.tensor([[[torch.inf]], [[2.0]]]))).tolist() == [True, False]


def test_aggregate_of_several_models() -> None:
    models = [exact(tiring_parity(k, states=20)) for k in (5, 7, 9)]
    result = evaluate(models, task="parity", max_length=50, strings=64)
    means = [run.mean for run in result]
    [summary] = result.aggregate
    assert (summary.task, summary.model, summary.seeds) == ("parity", "sd-ssm", 3)
    assert (summary.max, summary.min) == (max(means), min(means))
    assert summary.mean == pytest.approx(np.mean(means))
    value = json.loads(json.dumps(result.to_json(), allow_nan=False))
    keys = ["task", "model", "seed", "train_length", "max_length", "mean", "mean_within", "mean_beyond"]
    assert list(value["runs"][0])[:10] == [*keys, "first_below_99", "accuracy"]
    assert value["aggregate"] == [summary.to_json()]
    assert value["runs"][0]["chance"] == 50.0
    assert list(value["aggregate"][0])[:6] == ["task", "model", "seeds", "max", "mean", "min"]


def test_models_with_different_settings_are_not_aggregated() -> None:
    result = evaluate([exact(tiring_parity(k)) for k in (5, 7)], task="parity", max_length=9, strings=8)
    assert [(summary.seeds, summary.settings["state"]) for summary in result.aggregate] == [(1, 12), (1, 16)]


# -- run folders -------------------------------------------------------------------------------------------------------


def create_run(
    path: Path,
    machine: Machine,
    seed: int = 0,
    ended: EndStatus | None = "finished",
    task: str | Task = "parity",
    preset: str = "scale-free",
    **changed: Any,
) -> RunFolder:
    """Create a run folder with an exact model of the machine."""
    model, task = exact(machine), get_task(task) if isinstance(task, str) else task
    settings = replace(resolve_settings("sd-ssm", preset, task.name, changed), model=model.settings)
    run = RunFolder.create(path, create_config(task, seed, settings, preset))
    run.write_model(model.to_safetensors())
    if ended is not None:
        run.finish(ended)
    return run


def test_runs_on_disk(tmp_path: Path) -> None:
    runs = [create_run(tmp_path / f"seed-{seed}", tiring_parity(7), seed) for seed in range(2)]
    reported: list[RunEvaluation] = []
    result = evaluate([tmp_path, str(tmp_path / "seed-0"), runs[1]], max_length=20, on_result=reported.append)
    assert [run.seed for run in result] == [0, 1]  # each once
    assert reported == list(result)
    assert (result.runs[0].train_length, result.runs[0].folder) == (40, str(tmp_path / "seed-0"))
    assert runs[0].read_json("evaluation.json") == result.runs[0].to_json()
    assert len(evaluate(runs[0], max_length=3).runs[0].accuracy) == 3
    evaluate(runs[0], lengths=[2, 4])
    curve, listed = (runs[0].read_json(name) for name in ("evaluation.json", "evaluation-lengths.json"))
    assert curve is not None and listed is not None
    assert (curve["max_length"], listed["lengths"]) == (
        20,
        [2, 4],
    )  # neither file replaces the other, and the longer one is kept


def test_running_training_is_evaluated_but_nothing_is_written(tmp_path: Path) -> None:
    run = create_run(tmp_path / "seed-0", get_machine("parity"), ended=None)
    assert "not finished" in str(evaluate_one(run, max_length=3).note)
    assert run.read_json("evaluation.json") is None


def test_run_without_weights_is_left_out_of_several(tmp_path: Path) -> None:
    create_run(tmp_path / "seed-0", get_machine("parity"))
    without = create_run(tmp_path / "seed-1", get_machine("parity"), seed=1)
    (without.path / "model.safetensors").unlink()
    with pytest.warns(RunWarning, match="left out"):
        assert [run.seed for run in evaluate(tmp_path, max_length=3)] == [0]
    with pytest.raises(SdssmError):
        evaluate(without, max_length=3)


def test_only_seeds_of_the_same_training_are_averaged(tmp_path: Path) -> None:
    """A different preset, learning rate, training length, machine or test length makes a different training."""
    machine = tiring_parity(7)
    for seed in range(2):
        create_run(tmp_path / f"plain/seed-{seed}", machine, seed)
    create_run(tmp_path / "plain/seed-2", machine, 2, log_every=7, checkpoint_every=9, train_length=40)  # not compared
    create_run(tmp_path / "paper/seed-0", machine, preset="paper")
    create_run(tmp_path / "rate/seed-0", machine, lr=0.01)
    create_run(tmp_path / "short/seed-0", machine, train_length=20)
    create_run(tmp_path / "task/seed-0", machine, task=Task(name="parity", machine=machine))
    create_run(tmp_path / "test/seed-0", machine, task=replace(get_task("parity"), test_length=33))
    result = evaluate(tmp_path, strings=8)
    assert {run.model for run in result} == {"sd-ssm"}
    by_folder = {Path(str(run.folder)).parent.name: run for run in result}
    assert [summary.seeds for summary in result.aggregate] == [1, 3, 1, 1, 1, 1]
    plain, rate = by_folder["plain"], by_folder["rate"]
    assert (plain.preset, by_folder["paper"].preset, by_folder["short"].train_length) == ("scale-free", "paper", 20)
    assert dict(rate.settings) == {**plain.settings, "lr": 0.01}
    by_preset = {
        summary["preset"]: summary["seeds"] for summary in result.to_json()["aggregate"] if summary["preset"] == "paper"
    }
    assert by_preset == {"paper": 1}
    assert by_folder["task"].digest != plain.digest
    # The report reads only the JSON, and finds the same groups.
    assert sorted(curve.seeds for curve in make_curves(result.to_json())) == sorted(
        summary.seeds for summary in result.aggregate
    )
    assert records.TRAINING_FIELDS == differences.TRAINING_KEYS


def test_spelling_of_a_task_does_not_matter(tmp_path: Path) -> None:
    for seed, name in enumerate(("even_pairs", "even-pairs", " Even_Pairs")):
        create_run(tmp_path / f"seed-{seed}", get_machine("even_pairs"), seed, task=name)
    [summary] = evaluate(tmp_path, max_length=5, strings=8).aggregate
    assert (summary.task, summary.seeds) == ("even_pairs", 3)


def test_diverged_run_is_evaluated_but_not_averaged(tmp_path: Path) -> None:
    for seed in range(2):
        create_run(tmp_path / f"seed-{seed}", tiring_parity(5), seed)
    diverged = create_run(tmp_path / "seed-2", tiring_parity(5), 2, ended="diverged")
    result = evaluate(tmp_path, max_length=50, strings=8)
    assert [run.note for run in result.runs[:2]] == [None, None]
    assert "diverged: read as it was at step 0" in str(result.runs[2].note)
    [summary] = result.aggregate
    assert (summary.seeds, summary.diverged) == (2, 1)
    assert [(curve.name, curve.seeds) for curve in make_curves(result.to_json())] == [
        ("parity, sd-ssm", 2),
        ("parity, sd-ssm, diverged", 1),
    ]
    [nothing] = evaluate(diverged, max_length=3).aggregate
    assert (nothing.seeds, nothing.mean) == (0, None)


def test_result_that_cannot_be_written_is_still_returned(tmp_path: Path) -> None:
    run = create_run(tmp_path / "seed-0", get_machine("parity"))
    (run.path / "evaluation.json").mkdir()
    with pytest.warns(RunWarning, match=r"evaluation.json cannot be written: Is a directory; this result is not kept"):
        assert evaluate_one(run, max_length=3).mean == 100.0


def test_warning_about_a_full_disk_does_not_mention_resuming(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = create_run(tmp_path / "seed-0", get_machine("parity"))

    def full(path: Path, data: bytes) -> None:
        raise OSError(ENOSPC, "No space left on device")

    monkeypatch.setattr(folder, "write_atomic", full)
    with pytest.warns(RunWarning, match="the disk is full; this result is not kept") as caught:
        assert evaluate_one(run, max_length=3).mean == 100.0
    assert "resume" not in str(caught[0].message)


def test_a_saved_model_is_evaluated_with_its_task(tmp_path: Path) -> None:
    model = exact(get_machine("parity"))
    model.save(tmp_path / "model")
    with pytest.raises(SdssmError) as caught:
        evaluate(tmp_path / "model")
    assert f"sdssm.evaluate({str(tmp_path / 'model')!r}, task=" in str(caught.value)
    assert "\n" not in str(caught.value)
    with pytest.raises(SdssmError, match="holds a model without its task"):  # it is not left out with a warning
        evaluate([tmp_path / "model", create_run(tmp_path / "seed-0", get_machine("parity"))])
    for source in (load(tmp_path / "model"), tmp_path / "model", str(tmp_path / "model")):
        result = evaluate_one(source, task="parity", max_length=5)
        assert (result.mean, result.seed) == (100.0, None)
        assert result.folder == (None if isinstance(source, Classifier) else str(tmp_path / "model"))
    model.task = get_task("parity")  # a model may carry its task
    assert evaluate_one(model, max_length=5).mean == 100.0


def test_a_stored_evaluation_that_covers_more_is_kept(tmp_path: Path) -> None:
    run = create_run(tmp_path / "seed-0", get_machine("parity"))

    def stored(name: str) -> Any:
        content = run.read_json(name)
        assert content is not None
        return content["max_length"], content["strings"], len(content["accuracy"])

    assert evaluate_one(run, max_length=20, strings=32).note is None
    for request in ({"max_length": 9, "strings": 64}, {"max_length": 20, "strings": 16}):
        kept = evaluate_one(run, **request)
        assert (kept.max_length, kept.strings) == (request["max_length"], request["strings"])  # what was asked for
        assert kept.note == (
            "evaluation.json is kept, because it has 32 strings for 20 lengths up to 20; "
            "overwrite=True or --overwrite replaces it"
        )
        assert stored("evaluation.json") == (20, 32, 20)
    assert evaluate_one(run, max_length=20, strings=32, seed=5).note is None  # it covers as much
    assert run.read_json("evaluation.json")["string_seed"] == 5  # type: ignore[index]  # it exists
    evaluate_one(run, max_length=9, strings=16, overwrite=True)
    assert stored("evaluation.json") == (9, 16, 9)
    evaluate_one(run, lengths=[3, 30], strings=16)
    evaluate_one(run, lengths=[30], strings=16)
    assert stored("evaluation-lengths.json") == (30, 16, 2)
    evaluate_one(run, lengths=[40], strings=16)
    assert stored("evaluation-lengths.json") == (40, 16, 1)


@pytest.mark.parametrize(
    "options", [{"max_length": 600}, {"max_length": 9, "fresh": True}, {"lengths": [7, 600], "fresh": True}]
)
def test_progress_counts_the_symbols_of_all_runs(tmp_path: Path, options: dict[str, Any]) -> None:
    for seed in range(2):
        create_run(tmp_path / f"seed-{seed}", tiring_parity(7), seed)
    events: list[ProgressEvent] = []
    evaluate(tmp_path, strings=16, progress=events.append, **options)
    assert {event.title for event in events} == {f"evaluate {tmp_path / 'seed-0'} and 1 more (runs 1 to 2 of 2)"}
    done = [event.done for event in events]
    assert done == sorted(done)
    assert events[-1].done == events[-1].total
    assert events[0].done == 0 and events[0].unit == "symbols"
    assert len(events) > 4  # not only at the start of each run


def test_progress_of_a_model_that_is_not_recurrent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(correct_counts.MOST_NUMBERS, "cpu", 1 << 14)
    for name in ("hyena", "transformer"):
        settings = resolve_settings(name, "default", "parity", {"layers": 1}).model
        model = Classifier(settings, 2, 2, generator=torch.Generator().manual_seed(0))
        events: list[ProgressEvent] = []
        evaluate(model, task="parity", lengths=[20, 30], strings=16, measures=(), progress=events.append)
        assert {event.title for event in events} == {f"evaluate {name}"}
        assert events[-1].done == events[-1].total == 16 * (30 if name == "hyena" else 50)
        assert len(events) > 4


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "pass task="),
        ({"task": "a5"}, "the model has 2 symbols and 2 classes, but a5 has 2 and 60"),
        ({"task": "parity", "max_length": 0}, "max_length is 0; it must be a whole number from 1 to 1,000,000"),
        ({"task": "parity", "max_length": 1.5}, "max_length is 1.5"),
        ({"task": "parity", "lengths": []}, "lengths is empty"),
        ({"task": "parity", "lengths": [1_000_001]}, "a length is 1000001"),
        ({"task": "parity", "lengths": 5.5}, "a length is 5.5; it must be a whole number"),
        ({"task": "parity", "lengths": "500"}, "a length is '500'"),
        ({"task": "parity", "lengths": [1], "max_length": 3}, "leave one out"),
        ({"task": "parity", "strings": 0}, "strings is 0"),
        ({"task": "parity", "seed": -1}, "seed is -1"),
        ({"task": "parety"}, "did you mean 'parity'?"),
        ({"task": "parity", "device": "gpu"}, "there is no device 'gpu'"),
    ],
)
def test_invalid_arguments(options: dict[str, Any], message: str) -> None:
    with pytest.raises(SdssmError) as caught:
        evaluate(exact(get_machine("parity")), **options)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_subjects_that_cannot_be_evaluated(tmp_path: Path) -> None:
    for subject in (3, [3], []):
        with pytest.raises(SdssmError, match=r"evaluate"):
            evaluate(subject)  # type: ignore[arg-type]  # the wrong type is what is tested
    with pytest.raises(SdssmError, match="is a run and knows its own task"):
        evaluate(create_run(tmp_path / "seed-0", get_machine("parity")), task="d4")
    with pytest.raises(SdssmError, match="the path is empty"):
        evaluate("")  # not all runs below this folder
    with pytest.raises(SdssmError, match="there is no run folder"):
        (tmp_path / "empty").mkdir()
        evaluate(tmp_path / "empty")


def test_untrained_models_are_near_chance() -> None:
    """The default settings, and a stack of two layers. Chance is 50 %."""
    for settings in (ModelSettings(), ModelSettings(layers=2)):
        model = Classifier(settings, 2, 2, generator=torch.Generator().manual_seed(0))
        result = evaluate_one(model, task="parity", max_length=600, strings=32)
        assert 30 < result.mean < 70
        assert (result.spectral_radius is None) == (settings.layers == 2)
