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
from sdssm.evaluation import Evaluation, RunEvaluation, evaluate, lengths, records, spectral_radii
from sdssm.evaluation.statistics import band_of_each
from sdssm.evaluation.strings import TestStrings
from sdssm.layers import SelectiveDense
from sdssm.models import Classifier, ModelSettings, State
from sdssm.report import curves
from sdssm.report import differences as apart
from sdssm.runs import RunFolder, folder, load
from sdssm.runs.folder import Ended
from sdssm.runs.schema import configure, resolve
from sdssm.tasks import Task, get_task
from sdssm.training import train
from tests.evaluation.machines import exact, tiring_parity


def one(*arguments: Any, **options: Any) -> RunEvaluation:
    [found] = evaluate(*arguments, **options).runs
    return found


@pytest.mark.parametrize("name", ["a5", "d30", "arithmetic", "even_pairs", "cycle"])
@pytest.mark.parametrize("fresh", [False, True])
def test_an_exact_model_is_always_right(name: str, fresh: bool) -> None:
    found = one(exact(get_machine(name)), task=name, max_length=60, strings=64, fresh=fresh)
    assert found.accuracy == (100.0,) * 60
    assert found.mean == 100.0
    assert found.first_below_99 is None
    assert found.mean_band is not None and found.mean_band[1] == 100.0
    strings = 64 * 60 if fresh else 64  # the same 64 at all lengths say less
    assert found.mean_band[0] == pytest.approx(100 * band_of_each(np.array([strings]), strings)[0][0])
    assert found.read == ("fresh" if fresh else "prefixes")
    assert found.note is None


def test_with_a_query() -> None:
    assert one(exact(get_machine("cycle"), query=True), task="cycle", max_length=30, strings=64).mean == 100.0


def test_both_ways_agree_on_a_model_that_is_not_right() -> None:
    """By prefixes and with fresh strings: the same accuracy at each length within sampling error, and the same mean."""
    model = exact(tiring_parity(7))
    prefixes = one(model, task="parity", max_length=80, strings=1000)
    fresh = one(model, task="parity", max_length=80, strings=1000, fresh=True)
    a, b = np.array(prefixes.accuracy) / 100, np.array(fresh.accuracy) / 100
    error = np.sqrt((a * (1 - a) + b * (1 - b)) / 1000)
    assert (np.abs(a - b) <= 4 * error + 1e-9).all()
    assert prefixes.mean < 90
    assert prefixes.first_below_99 is not None and fresh.first_below_99 is not None
    assert 7 <= prefixes.first_below_99 <= 12 and 7 <= fresh.first_below_99 <= 12
    assert prefixes.mean_band is not None and fresh.mean_band is not None
    width, fresh_width = (band[1] - band[0] for band in (prefixes.mean_band, fresh.mean_band))
    assert abs(prefixes.mean - fresh.mean) < width
    assert width > 4 * fresh_width  # whole strings were drawn again
    assert prefixes.mean_band[0] < prefixes.mean < prefixes.mean_band[1]


def test_the_means() -> None:
    found = one(exact(tiring_parity(5)), task="parity", max_length=100, strings=128)
    accuracy = np.array(found.accuracy)
    assert found.mean == pytest.approx(accuracy.mean())
    assert found.mean_within == pytest.approx(accuracy[:40].mean())
    assert found.mean_beyond == pytest.approx(accuracy[40:].mean())
    for band, mean in ((found.within_band, found.mean_within), (found.beyond_band, found.mean_beyond)):
        assert band is not None and mean is not None
        assert band[0] < mean < band[1]
    for fresh in (False, True):
        short = one(exact(tiring_parity(5)), task="parity", max_length=40, strings=16, fresh=fresh)
        assert (short.mean_beyond, short.beyond_band) == (None, None)
        assert short.within_band == short.mean_band  # the very same lengths


def test_chosen_lengths() -> None:
    model = exact(tiring_parity(9))
    every = one(model, task="parity", max_length=1000)
    some = one(model, task="parity", lengths=[1000, 10, 500, 500])
    assert some.lengths == (10, 500, 1000)
    assert list(some.at) == [10, 500, 1000]
    assert some.accuracy == tuple(every.accuracy[k - 1] for k in some.lengths)
    assert some.mean == pytest.approx(np.mean(some.accuracy))
    assert some.mean_to == pytest.approx([np.mean(every.accuracy[:k]) for k in some.lengths])
    assert one(model, task="parity", lengths=[10, 20], fresh=True, strings=8).mean_to is None
    assert one(model, task="parity", lengths=500).accuracy == (every.accuracy[499],)


def test_memory_is_bounded_and_the_pieces_do_not_show(monkeypatch: pytest.MonkeyPatch) -> None:
    model = exact(tiring_parity(7))
    ways: list[dict[str, Any]] = [{"max_length": 700}, {"lengths": [3, 130], "fresh": True}]
    whole = [one(model, task="parity", strings=50, **way).accuracy for way in ways]
    monkeypatch.setitem(lengths.MOST_NUMBERS, "cpu", 50 * 16 * 9)
    widest = 0
    advance = Classifier.advance

    def watched(self: Classifier, tokens: Tensor, *rest: Any, **options: Any) -> tuple[Tensor, State]:
        nonlocal widest
        widest = max(widest, tokens.shape[-1])
        return advance(self, tokens, *rest, **options)

    monkeypatch.setattr(Classifier, "advance", watched)
    assert [one(model, task="parity", strings=50, **way).accuracy for way in ways] == whole
    assert widest == 9


def test_lengths_without_strings_are_scored_below() -> None:
    arithmetic = exact(replace_output(get_machine("arithmetic")))
    found = one(arithmetic, task="arithmetic", max_length=41, strings=128)
    assert found.accuracy[1::2] == found.accuracy[0:-1:2]  # an even length at the odd one below it
    assert found.mean == pytest.approx(np.mean(found.accuracy))
    assert found.mean_band is not None
    fresh = one(arithmetic, task="arithmetic", max_length=41, strings=128, fresh=True)
    assert fresh.accuracy[1::2] != fresh.accuracy[0:-1:2]  # with strings of its own
    # Lengths 3, 6, 9, ...: the first two have none below and are left out.
    third = Machine(table=[[1, 1], [2, 2], [3, 3], [1, 1]], outputs=[0, 0, 0, 1])
    of = Task(name="third", machine=get_machine("parity"), valid=third)
    for way in (False, True):
        found = one(exact(get_machine("parity")), task=of, max_length=8, strings=16, fresh=way)
        assert np.isnan(found.accuracy[:2]).all()
        assert found.accuracy[2:] == (100.0,) * 6
        assert found.mean == 100.0
        assert found.to_json()["accuracy"][:3] == [None, None, 100.0]
        nothing = one(exact(get_machine("parity")), task=of, max_length=2, strings=16, fresh=way)
        assert np.isnan(nothing.mean)
        assert json.loads(json.dumps(nothing.to_json(), allow_nan=False))["mean"] is None
        assert Evaluation((nothing,)).aggregate[0].max is None


def replace_output(machine: Machine) -> Machine:
    """A machine that is wrong about one of its states."""
    outputs = machine.outputs.copy()
    outputs[7] = (outputs[7] + 1) % machine.n_outputs
    return Machine(table=machine.table, start=machine.start, outputs=outputs)


def test_it_says_when_it_takes_fresh_strings() -> None:
    ends = Machine(table=[[0, 1], [0, 1]], outputs=[0, 1])
    found = one(
        exact(get_machine("parity")), task=Task(name="ends", machine=get_machine("parity"), valid=ends), max_length=9
    )
    assert found.read == "fresh"
    assert "prefixes of uniformly drawn valid strings are not uniformly drawn" in str(found.note)
    assert found.mean == 100.0


def test_a_model_that_looks_ahead_reads_fresh_strings(monkeypatch: pytest.MonkeyPatch) -> None:
    model = exact(get_machine("parity"))
    monkeypatch.setattr(SelectiveDense, "causal", False)
    found = one(model, task="parity", max_length=9, strings=16)
    assert (found.read, found.mean) == ("fresh", 100.0)
    assert "depends on what follows" in str(found.note)


@pytest.mark.parametrize(
    ("name", "changed"), [("hyena", {}), ("transformer", {"causal_mask": True, "layers": 1}), ("lstm", {"state": 8})]
)
@pytest.mark.parametrize("query", [False, True])
def test_memory_does_not_change_what_is_read(
    name: str, changed: dict[str, Any], query: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = resolve(name, "default", "cycle", {**changed, "query": query}).model
    model = Classifier(settings, 3, 5, generator=torch.Generator().manual_seed(0))
    wanted = one(model, task="cycle", max_length=9, strings=16)
    assert wanted.read == ("fresh" if name == "transformer" else "prefixes")
    monkeypatch.setitem(lengths.MOST_NUMBERS, "cpu", 1)
    assert one(model, task="cycle", max_length=9, strings=16).accuracy == wanted.accuracy


@pytest.mark.parametrize("query", [False, True])
def test_prefixes_of_whole_strings_are_strings(query: bool) -> None:
    settings = resolve("hyena", "default", "cycle", {"query": query, "layers": 2}).model
    model = Classifier(settings, 3, 5, generator=torch.Generator().manual_seed(0)).double()
    strings = TestStrings(get_task("cycle"), 16, 1, torch.device("cpu"))
    (tokens, labels), *_ = strings.blocks(9)
    right = [(model.last(tokens[:, :end]).argmax(-1) == labels[:, end - 1]).sum() for end in range(1, 10)]
    reading = lengths.read_prefixes(model, strings, np.arange(1, 10), np.ones((1, 9), bool))
    assert reading.correct.tolist() == right
    assert reading.scores is not None and reading.scores.sum() == sum(right)


def test_a_folder_is_read_but_for_what_cannot_be(tmp_path: Path) -> None:
    tiny = {"steps": 2, "batch": 2, "train_length": 3}
    train("parity", model="hyena", settings={**tiny, "longest": 8}, out=tmp_path / "hyena", device="cpu")
    train("parity", model="rnn", settings={**tiny, "state": 4}, out=tmp_path / "rnn", device="cpu")
    with pytest.warns(RunWarning, match="hyena was made for strings of at most 7 symbols"):
        found = evaluate(tmp_path, max_length=20, strings=8, device="cpu")
    assert [run.model for run in found.runs] == ["rnn"]


def test_a_model_that_overflows_is_wrong() -> None:
    model = exact(get_machine("parity"))
    assert model.readout.bias is not None
    with torch.no_grad():
        model.readout.bias[0] = torch.nan
    assert one(model, task="parity", max_length=5, strings=64).mean == 0.0


def test_a_state_given_with_each_string() -> None:
    settings = resolve("sd-ssm", "length-efficiency-4", "a5", {"state": 60, "state_embedding": 60, "norm": "none"})
    model = Classifier(settings.model, 2, 60, generator=torch.Generator().manual_seed(0))
    plain = exact(get_machine("a5"))
    assert model.start is not None
    values = {
        "vectors": torch.eye(60),
        "start.weight": torch.eye(60),
        "dictionary": torch.cat([plain.state_dict()["dictionary"], torch.zeros(4, 60, 60)]),
        "selection.weight": 1000 * torch.eye(6)[:, :2],
        "selection.bias": torch.zeros(6),
        "input_matrix": torch.zeros(60, 2),
        "readout.weight": torch.eye(60),
    }
    model.load_state_dict({**model.state_dict(), **values})
    for fresh in (False, True):
        assert one(model, task="a5", max_length=30, strings=100, fresh=fresh).mean == 100.0


def test_gradients_and_modes_are_left_as_they_were() -> None:
    model = exact(get_machine("parity")).train()
    evaluate(model, task="parity", max_length=5, strings=8)
    assert model.training
    assert all(parameter.grad is None for parameter in model.parameters())
    assert model(torch.zeros(1, 3, dtype=torch.long)).requires_grad


def test_spectral_radii() -> None:
    assert one(exact(get_machine("d4")), task="d4", max_length=5).spectral_radius == pytest.approx((1.0, 1.0))
    assert np.isnan(spectral_radii(torch.tensor([[[torch.inf]], [[2.0]]]))).tolist() == [True, False]


def test_several_and_the_aggregate() -> None:
    models = [exact(tiring_parity(k, states=20)) for k in (5, 7, 9)]
    found = evaluate(models, task="parity", max_length=50, strings=64)
    means = [run.mean for run in found]
    [summary] = found.aggregate
    assert (summary.task, summary.model, summary.seeds) == ("parity", "sd-ssm", 3)
    assert (summary.max, summary.min) == (max(means), min(means))
    assert summary.mean == pytest.approx(np.mean(means))
    value = json.loads(json.dumps(found.to_json(), allow_nan=False))
    keys = ["task", "model", "seed", "train_length", "max_length", "mean", "mean_within", "mean_beyond"]
    assert list(value["runs"][0])[:10] == [*keys, "first_below_99", "accuracy"]
    assert value["aggregate"] == [summary.to_json()]
    assert list(value["aggregate"][0])[:6] == ["task", "model", "seeds", "max", "mean", "min"]


def test_models_of_other_settings_are_no_seeds_of_one() -> None:
    found = evaluate([exact(tiring_parity(k)) for k in (5, 7)], task="parity", max_length=9, strings=8)
    assert [(one.seeds, one.settings["state"]) for one in found.aggregate] == [(1, 12), (1, 16)]


# -- run folders -------------------------------------------------------------------------------------------------------


def run_of(
    path: Path,
    machine: Machine,
    seed: int = 0,
    ended: Ended | None = "finished",
    of: str | Task = "parity",
    preset: str = "scale-free",
    **changed: Any,
) -> RunFolder:
    """A run folder that holds a machine's exact model."""
    model, of = exact(machine), get_task(of) if isinstance(of, str) else of
    settings = replace(resolve("sd-ssm", preset, of.name, changed), model=model.settings)
    run = RunFolder.create(path, configure(of, seed, settings, preset))
    run.write_model(model.packed())
    if ended is not None:
        run.finish(ended)
    return run


def test_runs_on_disk(tmp_path: Path) -> None:
    runs = [run_of(tmp_path / f"seed-{seed}", tiring_parity(7), seed) for seed in range(2)]
    seen: list[RunEvaluation] = []
    found = evaluate([tmp_path, str(tmp_path / "seed-0"), runs[1]], max_length=20, found=seen.append)
    assert [run.seed for run in found] == [0, 1]  # each once
    assert seen == list(found)
    assert (found.runs[0].train_length, found.runs[0].folder) == (40, str(tmp_path / "seed-0"))
    assert runs[0].read_json("evaluation.json") == found.runs[0].to_json()
    assert len(evaluate(runs[0], max_length=3).runs[0].accuracy) == 3
    evaluate(runs[0], lengths=[2, 4])
    curve, listed = (runs[0].read_json(name) for name in ("evaluation.json", "evaluation-lengths.json"))
    assert curve is not None and listed is not None
    assert (curve["max_length"], listed["lengths"]) == (3, [2, 4])  # one does not replace the other


def test_a_run_that_goes_on_is_read_but_nothing_is_written(tmp_path: Path) -> None:
    run = run_of(tmp_path / "seed-0", get_machine("parity"), ended=None)
    assert "not finished" in str(one(run, max_length=3).note)
    assert run.read_json("evaluation.json") is None


def test_among_several_a_run_without_weights_is_left_out(tmp_path: Path) -> None:
    run_of(tmp_path / "seed-0", get_machine("parity"))
    without = run_of(tmp_path / "seed-1", get_machine("parity"), seed=1)
    (without.path / "model.safetensors").unlink()
    with pytest.warns(RunWarning, match="left out"):
        assert [run.seed for run in evaluate(tmp_path, max_length=3)] == [0]
    with pytest.raises(SdssmError):
        evaluate(without, max_length=3)


def test_only_seeds_of_one_training_are_averaged(tmp_path: Path) -> None:
    """Another preset, rate, training length, task of that name or test length is another training."""
    machine = tiring_parity(7)
    for seed in range(2):
        run_of(tmp_path / f"plain/seed-{seed}", machine, seed)
    run_of(tmp_path / "plain/seed-2", machine, 2, log_every=7, checkpoint_every=9, train_length=40)  # nothing else
    run_of(tmp_path / "paper/seed-0", machine, preset="paper")
    run_of(tmp_path / "rate/seed-0", machine, lr=0.01)
    run_of(tmp_path / "short/seed-0", machine, train_length=20)
    run_of(tmp_path / "task/seed-0", machine, of=Task(name="parity", machine=machine))
    run_of(tmp_path / "test/seed-0", machine, of=replace(get_task("parity"), test_length=33))
    found = evaluate(tmp_path, strings=8)
    assert {run.model for run in found} == {"sd-ssm"}
    told = {Path(str(run.folder)).parent.name: run for run in found}
    assert [one.seeds for one in found.aggregate] == [1, 3, 1, 1, 1, 1]
    plain, rate = told["plain"], told["rate"]
    assert (plain.preset, told["paper"].preset, told["short"].train_length) == ("scale-free", "paper", 20)
    assert dict(rate.settings) == {**plain.settings, "lr": 0.01}
    by_preset = {one["preset"]: one["seeds"] for one in found.to_json()["aggregate"] if one["preset"] == "paper"}
    assert by_preset == {"paper": 1}
    assert told["task"].digest != plain.digest
    # The report, which reads the JSON alone, draws the same groups.
    assert sorted(curve.seeds for curve in curves(found.to_json())) == sorted(one.seeds for one in found.aggregate)
    assert records.TELLING == apart.TELLING


def test_the_spelling_of_a_task_makes_no_other(tmp_path: Path) -> None:
    for seed, name in enumerate(("even_pairs", "even-pairs", " Even_Pairs")):
        run_of(tmp_path / f"seed-{seed}", get_machine("even_pairs"), seed, of=name)
    [summary] = evaluate(tmp_path, max_length=5, strings=8).aggregate
    assert (summary.task, summary.seeds) == ("even_pairs", 3)


def test_a_run_that_diverged_is_read_but_not_averaged(tmp_path: Path) -> None:
    for seed in range(2):
        run_of(tmp_path / f"seed-{seed}", tiring_parity(5), seed)
    alone = run_of(tmp_path / "seed-2", tiring_parity(5), 2, ended="diverged")
    found = evaluate(tmp_path, max_length=50, strings=8)
    assert [run.note for run in found.runs[:2]] == [None, None]
    assert "diverged: read as it was at step 0" in str(found.runs[2].note)
    [summary] = found.aggregate
    assert (summary.seeds, summary.diverged) == (2, 1)
    assert [(one.name, one.seeds) for one in curves(found.to_json())] == [
        ("parity, sd-ssm", 2),
        ("parity, sd-ssm, diverged", 1),
    ]
    [nothing] = evaluate(alone, max_length=3).aggregate
    assert (nothing.seeds, nothing.mean) == (0, None)


def test_a_result_that_cannot_be_written_is_not_lost(tmp_path: Path) -> None:
    run = run_of(tmp_path / "seed-0", get_machine("parity"))
    (run.path / "evaluation.json").mkdir()
    with pytest.warns(RunWarning, match=r"evaluation.json cannot be written: Is a directory; this result is not kept"):
        assert one(run, max_length=3).mean == 100.0


def test_a_full_disk_is_no_reason_to_resume(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = run_of(tmp_path / "seed-0", get_machine("parity"))

    def full(path: Path, data: bytes) -> None:
        raise OSError(ENOSPC, "No space left on device")

    monkeypatch.setattr(folder, "write_whole", full)
    with pytest.warns(RunWarning, match="the disk is full; this result is not kept") as caught:
        assert one(run, max_length=3).mean == 100.0
    assert "resume" not in str(caught[0].message)


def test_a_saved_model_is_no_run_but_can_be_evaluated(tmp_path: Path) -> None:
    exact(get_machine("parity")).save(tmp_path / "model")
    with pytest.raises(SdssmError) as caught:
        evaluate(tmp_path / "model")
    assert f"sdssm.evaluate(sdssm.load({str(tmp_path / 'model')!r}), task=" in str(caught.value)
    assert "\n" not in str(caught.value)
    assert one(load(tmp_path / "model"), task="parity", max_length=5).mean == 100.0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "pass task="),
        ({"task": "a5"}, "the model reads 2 symbols and tells 2 classes, but a5 has 2 and 60"),
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
def test_bad_input(options: dict[str, Any], message: str) -> None:
    with pytest.raises(SdssmError) as caught:
        evaluate(exact(get_machine("parity")), **options)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_what_cannot_be_evaluated(tmp_path: Path) -> None:
    for what in (3, [3], []):
        with pytest.raises(SdssmError, match=r"evaluate"):
            evaluate(what)  # type: ignore[arg-type]  # that is the point
    with pytest.raises(SdssmError, match="a run knows its own task"):
        evaluate(run_of(tmp_path / "seed-0", get_machine("parity")), task="parity")
    with pytest.raises(SdssmError, match="there is no run folder"):
        (tmp_path / "empty").mkdir()
        evaluate(tmp_path / "empty")


def test_ordinary_models_too() -> None:
    """What the settings start from, and a stack of two layers."""
    for settings in (ModelSettings(), ModelSettings(layers=2)):
        model = Classifier(settings, 2, 2, generator=torch.Generator().manual_seed(0))
        found = one(model, task="parity", max_length=600, strings=32)
        assert 30 < found.mean < 70
        assert (found.spectral_radius is None) == (settings.layers == 2)
