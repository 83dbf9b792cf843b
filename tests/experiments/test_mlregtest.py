"""The whole experiment on tiny languages: training, stopping, resuming, tables and bad input."""

from __future__ import annotations

import csv
import re
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from itertools import count
from pathlib import Path
from shutil import copytree
from typing import Any

import pytest
import torch

from sdssm.automata.att import from_att
from sdssm.cli import main
from sdssm.exact import compile as compile_machine
from sdssm.experiments.execution.ray_tasks import DeviceShare, make_mark
from sdssm.experiments.mlregtest.batches import make_batches
from sdssm.experiments.mlregtest.campaign import Campaign
from sdssm.experiments.mlregtest.configuration import Configuration
from sdssm.experiments.mlregtest.languages import STUDIED_COUNT, read_language, studied_names
from sdssm.experiments.mlregtest.length_strings import draw_test_strings
from sdssm.experiments.mlregtest.proofs import prove_language
from sdssm.experiments.mlregtest.ray_batches import run_languages_on_ray, run_sent_batch
from sdssm.experiments.mlregtest.records import FILE, UNPROVED, LanguageRecord, RecordStore
from sdssm.experiments.mlregtest.reproduction import LanguagePlan, plan_languages, run_languages
from sdssm.experiments.mlregtest.summary import describe_targets, describe_unnamed, summarise_classes
from sdssm.experiments.mlregtest.tables import split_parts, write_results
from sdssm.experiments.mlregtest.timing import Deadline
from sdssm.tasks import Task
from sdssm.training.engine import TrainingEngine
from tests.experiments.test_ray_executor import FakeRay

#: An even number of a; at least one b; both symbols in turn; no c after a.
AUTOMATA = {
    "02.02.Zp.2.1.0": "0 1 a a\n0 0 b b\n1 0 a a\n1 1 b b\n0\n",
    "02.02.SP.1.1.0": "0 0 a a\n0 1 b b\n1 1 a a\n1 1 b b\n1\n",
    "02.02.SL.2.1.0": "0 1 a a\n1 2 b b\n2 1 a a\n2\n1\n",
    "mine": "0 1 a a\n0 0 b b\n0 0 c c\n1 1 a a\n1 0 b b\n0\n1\n",
}
SETTINGS = {"steps": 20, "state": 6, "dictionary": 3, "batch": 8, "train_length": 6}
TINY = Configuration(settings=SETTINGS, lengths=(3, 6, 12), strings=16, pairs=4, proof_seconds=0.05)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("att")
    for name, text in AUTOMATA.items():
        (folder / f"{name}.att").write_text(text)
    return folder


def run(plan: LanguagePlan, results: Path, **options: Any) -> LanguagePlan:
    return run_languages(plan, TINY, device="cpu", workers=0, results=results, **options)


@pytest.fixture(scope="module")
def trained(data: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, LanguagePlan]:
    results = tmp_path_factory.mktemp("results")
    return results, run(plan_languages(data, TINY, results=results, languages=["all"]), results)


def without_times(records: dict[str, LanguageRecord]) -> dict[str, LanguageRecord]:
    changes: dict[str, Any] = {
        "device_seconds": 0.0,
        "proof_seconds": 0.0,
        "proof_note": None,
        "verdict": "",
        "string": None,
    }
    return {
        name: replace(record, **changes, extracted_states=None, is_followed=False, is_shortest=False)
        for name, record in sorted(records.items())
    }


def test_every_language_gets_a_record(trained: tuple[Path, LanguagePlan]) -> None:
    plan = trained[1]
    assert set(plan.records) == set(AUTOMATA) and not plan.missing
    for record in plan.records.values():
        assert record.lengths == (3, 6, 12) and record.steps == 20 and record.state == 6
        assert LanguageRecord.from_line(record.to_line()) == record
    assert plan.records["mine"].symbols == 3 and plan.records["mine"].kind == "other"


def test_a_campaign_stops_between_batches_and_resumes(
    data: Path, tmp_path: Path, trained: tuple[Path, LanguagePlan]
) -> None:
    plan = plan_languages(data, TINY, results=tmp_path, languages=["all"])
    ticks = count()
    store, lines = RecordStore(tmp_path / "mlregtest"), list[str]()
    batches = make_batches([read_language(path) for path in plan.missing], TINY, 2)
    assert sorted(map(len, batches)) == [1, 1, 2]  # of three symbols, and of two
    # Each look at the clock takes a second: the time is over within the second or third batch.
    deadline = Deadline(30.0, lambda: float(next(ticks)))
    options: dict[str, Any] = {"deadline": deadline, "message": lines.append}
    Campaign(TINY, plan.fingerprints, store, torch.device("cpu"), **options).run(batches)
    stopped = plan_languages(data, TINY, results=tmp_path, languages=["all"])
    assert 0 < len(stopped.records) < len(AUTOMATA), lines
    assert "next command" in lines[-1] or "no record" in lines[-1]
    resumed = run(stopped, tmp_path, at_once=2)
    assert not resumed.missing
    fresh = run(
        plan_languages(data, TINY, results=tmp_path / "fresh", languages=["all"]), tmp_path / "fresh", at_once=2
    )
    shared = [name for name in resumed.records if name in stopped.records]
    assert {name: stopped.records[name] for name in shared} == {name: resumed.records[name] for name in shared}
    alone = {"mine"}  # the batches of two symbols may differ, and with them the last bits
    expected, found = without_times(fresh.records), without_times(resumed.records)
    assert {name: found[name] for name in alone} == {name: expected[name] for name in alone}


class NeverDone:
    """A pool that draws strings, but whose proofs never end."""

    def submit(self, function: Callable[..., Any], /, *arguments: Any) -> Future[Any]:
        future: Future[Any] = Future()
        if function is draw_test_strings:
            future.set_result(function(*arguments))
        return future


def test_languages_whose_proof_is_not_done_are_recorded_and_trained_again(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sdssm.experiments.mlregtest.campaign.open_pool", lambda workers: nullcontext(NeverDone()))
    monkeypatch.setattr("sdssm.experiments.mlregtest.campaign.wait", lambda proofs, timeout, return_when: None)
    plan = plan_languages(data, TINY, results=tmp_path, languages=["mine"])
    batches = make_batches([read_language(path) for path in plan.missing], TINY, 2)
    store, lines = RecordStore(tmp_path / "mlregtest"), list[str]()
    # Each look at the clock takes a second: the batch ends in time, the wait for its proof does not.
    deadline = Deadline(60.0, partial(next, map(float, count())))
    options: dict[str, Any] = {"deadline": deadline, "message": lines.append}
    assert Campaign(TINY, plan.fingerprints, store, torch.device("cpu"), **options).run(batches) == 1
    assert "1 proof not done in time" in lines[-1]
    stopped = plan_languages(data, TINY, results=tmp_path, languages=["mine"])
    record = stopped.records["mine"]
    assert not record.is_final and record.verdict == "not yet proved" and stopped.missing
    assert record.balanced and not record.is_followed and record.reason is not None
    monkeypatch.undo()
    resumed = run(stopped, tmp_path)
    assert not resumed.missing and resumed.records["mine"].is_final
    assert resumed.records["mine"].balanced == record.balanced


def test_a_model_with_an_error_is_not_said_to_follow_its_automaton() -> None:
    parity = read_language_text(AUTOMATA["02.02.Zp.2.1.0"])
    exact = compile_machine(parity.machine)
    assert prove_language(exact, parity, 10.0).is_followed
    doubted = prove_language(exact, parity, 10.0, misclassified=(0, 1))
    assert doubted.verdict == "equal" and not doubted.is_followed
    other = prove_language(exact, read_language_text(AUTOMATA["02.02.SP.1.1.0"]), 10.0, misclassified=(0, 0, 0))
    assert other.verdict == "different" and other.string == ("a", "a")


def read_language_text(text: str) -> Task:
    return Task(name="language", machine=from_att(text))


def test_a_batch_that_does_not_fit_is_split(data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = plan_languages(data, TINY, results=tmp_path, languages=["all"])
    sizes = list[int]()

    class SmallDevice(TrainingEngine):
        def __init__(self, tasks: Any, configs: Any, device: torch.device) -> None:
            sizes.append(len(configs))
            if len(configs) > 1:
                raise torch.OutOfMemoryError
            super().__init__(tasks, configs, device)

    monkeypatch.setattr("sdssm.experiments.mlregtest.campaign.TrainingEngine", SmallDevice)
    lines = list[str]()
    assert not run(plan, tmp_path, message=lines.append).missing
    assert sorted(sizes) == [1, 1, 1, 1, 2, 3] and "trying half of them" in " ".join(lines)


def test_records_of_other_configurations_and_half_lines_are_ignored(
    data: Path, tmp_path: Path, trained: tuple[Path, LanguagePlan]
) -> None:
    store = RecordStore(tmp_path / "mlregtest")
    record = trained[1].records["mine"]
    store.append([record])
    with store.path.open("a") as file:
        file.write('{"name": "02.02')  # a killed command
    store.append([replace(record, name="02.02.SL.2.1.0", fingerprint="another")])
    plan = plan_languages(data, TINY, results=tmp_path, languages=["all"])
    assert list(plan.records) == ["mine"] and len(plan.missing) == 3
    other = plan_languages(data, replace(TINY, seed=1), results=tmp_path, languages=["all"])
    assert not other.records


def test_a_proof_counts_whatever_the_name_of_its_file(tmp_path: Path, trained: tuple[Path, LanguagePlan]) -> None:
    """A command with --part has a file of its own, which may be read before that of an earlier command."""
    proved, folder = trained[1].records["mine"], tmp_path / "mlregtest"
    assert proved.is_final
    RecordStore(folder).append([replace(proved, verdict=UNPROVED)])
    RecordStore(folder, "records-part-1-of-2.jsonl").append([proved])
    assert RecordStore(folder).load(trained[1].fingerprints)["mine"].is_final
    [record] = RecordStore(folder).load_all(TINY.fingerprint).values()
    assert record.is_final


def test_parts_are_disjoint_and_complete(data: Path, tmp_path: Path) -> None:
    parts = [plan_languages(data, TINY, part=(k, 3), results=tmp_path, languages=["all"]).paths for k in (1, 2, 3)]
    assert sorted(name for part in parts for name in part) == sorted(AUTOMATA)


def test_results_are_computed_from_records(trained: tuple[Path, LanguagePlan], tmp_path: Path) -> None:
    records = list(trained[1].records.values())
    good = replace(records[0], name="04.04.LT.2.1.9", verdict="equal", covering=(100.0,) * 3, balanced=(100.0,) * 3)
    good = replace(good, is_followed=True)
    assert good.reason is None
    lines = describe_targets([good, *records[1:2]], "held-out")
    assert "1 of 2, 50.0 %" in lines[0] and "1 of 2, 50.0 %" in lines[1]
    rows = summarise_classes([good, *records])
    assert [(row.kind, row.symbols) for row in rows][-1] == ("all", "all") and rows[-1].languages == 5
    write_results([good, *records], tmp_path, command="sdssm reproduce mlregtest", settings=SETTINGS)
    summary = (tmp_path / "summary.md").read_text()
    assert "sdssm reproduce mlregtest" in summary and "steps=20" in summary and "arXiv 2304.07687" in summary
    with (tmp_path / "failures.csv").open() as file:
        failures = {line["language"]: line["reason"] for line in csv.DictReader(file)}
    assert failures == {record.name: record.reason for record in records if record.reason is not None}
    with (tmp_path / "languages.csv").open() as file:
        languages = {line["language"]: line for line in csv.DictReader(file)}
    assert float(languages["mine"]["balanced_12"]) == pytest.approx(trained[1].records["mine"].balanced[-1], abs=1e-4)


def test_studied_languages_are_reported_apart(trained: tuple[Path, LanguagePlan], tmp_path: Path) -> None:
    record = next(iter(trained[1].records.values()))
    seen = min(studied_names())
    parts = split_parts([replace(record, name=name) for name in ("16.16.LT.2.1.0", seen)])
    assert {name: [entry.name for entry in part] for name, part in parts.items()} == {
        "held-out": ["16.16.LT.2.1.0"],
        "studied": [seen],
        "tuning": [],
    }
    write_results(parts["held-out"] + parts["studied"], tmp_path, command="sdssm", settings=SETTINGS)
    summary = (tmp_path / "summary.md").read_text()
    assert "studied languages whose automaton is proved equal" in summary and "## Studied languages" in summary
    with (tmp_path / "languages.csv").open() as file:
        assert {line["language"]: line["chosen"] for line in csv.DictReader(file)}[seen] == "studied"


def test_the_share_of_languages_never_looked_at_is_a_lower_bound(trained: tuple[Path, LanguagePlan]) -> None:
    """Without the studied languages of unknown names, which may all have reached the targets, 4 of 10 are left."""
    unnamed = STUDIED_COUNT - len(studied_names())
    record = replace(trained[1].records["mine"], verdict="different", balanced=(50.0,) * 3, name="16.16.LT.2.1.0")
    good = replace(record, verdict="equal", balanced=(100.0,) * 3)
    lines = describe_unnamed([good] * (unnamed + 4) + [record] * 6)
    assert len(lines) == 1
    assert f"{unnamed} more languages" in lines[0] and "of the 10 others at least 40.0 %" in lines[0]
    assert describe_unnamed([good] * unnamed) == []
    assert describe_unnamed([replace(good, name="mine")] * (unnamed + 4)) == []


def test_readme_has_the_shares_of_the_stored_records() -> None:
    root = Path(__file__).parents[2]
    bound = re.search(
        r"of the (\d+) others at least ([\d.]+) % reach the first target, and at least ([\d.]+) %",
        (root / "results/mlregtest/summary.md").read_text(),
    )
    assert bound is not None
    readme = " ".join((root / "README.md").read_text().split())
    assert f"Of {bound[1]} languages of MLRegTest" in readme and f"at least {bound[2]} % are at 99.9 %" in readme
    assert f"for at least {bound[3]} % the automaton" in readme
    held_out = split_parts(list(RecordStore(root / "results/mlregtest").load_all(Configuration().fingerprint).values()))
    assert describe_unnamed(held_out["held-out"])[0] in (root / "results/mlregtest/summary.md").read_text()


def test_reasons_of_failures(trained: tuple[Path, LanguagePlan]) -> None:
    good = replace(
        trained[1].records["mine"], covering=(100.0,) * 3, balanced=(100.0,) * 3, verdict="equal", is_alive=True
    )
    good = replace(good, is_followed=True)
    assert good.reason is None
    cases: tuple[tuple[dict[str, Any], str], ...] = (
        ({"covering": (100.0, 99.0, 100.0)}, "not learned at training lengths"),
        ({"balanced": (100.0, 100.0, 99.0)}, "wrong on longer strings"),
        ({"balanced": (100.0, 100.0, 99.0)}, "its automaton is equal"),
        ({"verdict": "different"}, "its automaton differs"),
        ({"is_followed": False}, "misclassifies some test strings"),
        ({"verdict": "no result", "proof_note": "30 s"}, "not proved: 30 s"),
        ({"verdict": "different", "identifying_length": 9}, "not identified by strings of up to 6"),
        ({"is_alive": False}, "diverged"),
    )
    for changes, reason in cases:
        assert reason in str(replace(good, **changes).reason)


def test_a_batch_on_a_node_writes_a_file_of_its_own_and_resumes(data: Path, tmp_path: Path) -> None:
    plan = plan_languages(data, TINY, languages=["mine"], results=tmp_path)
    folder, languages = tmp_path / "mlregtest", [read_language(path) for path in plan.missing]
    arguments = folder, make_mark(folder), languages, TINY, plan.fingerprints, 0, DeviceShare(device="cpu")
    assert run_sent_batch(*arguments).ended == "done"
    assert not (folder / FILE).exists()
    before = [path.read_bytes() for path in folder.glob("records*.jsonl")]
    assert run_sent_batch(*arguments).messages == ()
    assert [path.read_bytes() for path in folder.glob("records*.jsonl")] == before and len(before) == 1


def test_a_batch_of_a_cluster_trains_languages_again_whose_proof_had_not_ended(
    data: Path, tmp_path: Path, trained: tuple[Path, LanguagePlan]
) -> None:
    folder = tmp_path / "mlregtest"
    RecordStore(folder).append([replace(trained[1].records["mine"], verdict=UNPROVED)])
    plan = plan_languages(data, TINY, languages=["mine"], results=tmp_path)
    languages = [read_language(path) for path in plan.missing]
    share = DeviceShare(device="cpu")
    assert run_sent_batch(folder, make_mark(folder), languages, TINY, plan.fingerprints, 0, share).messages
    assert not plan_languages(data, TINY, languages=["mine"], results=tmp_path).missing


def test_a_cluster_gets_a_task_for_each_batch(data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ray = FakeRay()
    monkeypatch.setattr("sdssm.experiments.execution.ray_executor.ray_module", lambda: ray)
    monkeypatch.setattr("sdssm.experiments.execution.ray_executor.join", lambda address: False)
    plan = plan_languages(data, TINY, results=tmp_path, languages=["all"])
    plan = run_languages_on_ray(plan, TINY, device="cpu", results=tmp_path)
    assert set(plan.records) == set(AUTOMATA)
    assert len(ray.called) == 2  # of two symbols, and of three


# -- command line ------------------------------------------------------------------------------------------------------


def command(data: Path, results: Path, *words: str) -> list[str]:
    return ["reproduce", "mlregtest", "--data", str(data), "--results", str(results), "--device", "cpu", *words]


def test_the_command_trains_tabulates_and_shows_stored_results(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    small = partial(Configuration, lengths=TINY.lengths, strings=16, pairs=4, proof_seconds=0.05)
    monkeypatch.setattr("sdssm.experiments.mlregtest.configuration.Configuration", small)
    settings = [f"{name}={value}" for name, value in SETTINGS.items()]
    words = ["--languages", "mine", "--set", *settings, "--quiet"]
    monkeypatch.setattr("sdssm.experiments.mlregtest.reproduction.spare_cores", lambda: 0)
    assert main([*command(data, tmp_path, *words), "--dry-run"]) == 0
    assert "1 language of 1 would be trained" in capsys.readouterr().out
    assert main(command(data, tmp_path, *words)) == 0
    printed = capsys.readouterr().out
    assert "held-out languages whose automaton is proved equal" in printed and "chance" in printed
    assert {path.name for path in (tmp_path / "mlregtest").iterdir()} >= {"summary.md", "languages.csv", FILE}
    files = {path.name: path.read_bytes() for path in (tmp_path / "mlregtest").iterdir()}
    assert main([*command(data, tmp_path, *words), "--no-train"]) == 0
    assert capsys.readouterr().out == printed
    # Copied elsewhere, the records give the same tables without the automata.
    copy = tmp_path / "copy"
    copytree(tmp_path / "mlregtest", copy / "mlregtest")
    without_data = ["reproduce", "mlregtest", "--results", str(copy), *words[2:], "--no-train"]
    assert main(without_data) == 0
    assert capsys.readouterr().out == printed.replace(str(tmp_path), str(copy))
    assert {path.name: path.read_bytes() for path in (copy / "mlregtest").iterdir()} == files


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["--languages", "mien"], "did you mean 'mine'?"),
        (["--seeds", "3"], "trains one seed"),
        (["--models", "lstm"], "has no --models"),
        (["--no-train"], "leave out --no-train"),
        (["--set", "steps"], "has no value"),
        (["--set", "steps=1", "steps=2"], "steps is set twice"),
        (["--engine", "ray", "--max-seconds", "5"], "leave it out"),
        (["--engine", "ray", "--keep-weights"], "--keep-weights is for this machine"),
    ],
)
def test_bad_options(
    data: Path, tmp_path: Path, words: list[str], problem: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(command(data, tmp_path, *words)) == 2
    error = capsys.readouterr().err
    assert problem in error and error.count("\n") == 1


def test_a_part_that_does_not_exist(data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(command(data, tmp_path, "--part", "5/4"))
    assert "'5/4' is not a part" in capsys.readouterr().err


def test_bad_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(command(tmp_path, tmp_path)) == 2
    (tmp_path / "broken.att").write_text("0 1\n")
    assert main(command(tmp_path, tmp_path / "results")) == 2
    errors = capsys.readouterr().err.splitlines()
    assert len(errors) == 2 and "no .att files" in errors[0] and "broken.att" in errors[1]
    (tmp_path / "broken.att").write_text("0 0 a a\n0 0 b b\n0\n")
    assert main(command(tmp_path, tmp_path / "results")) == 2
    (tmp_path / "broken.att").write_text("0 0 a a\n0 0 b b\n")
    assert main(command(tmp_path, tmp_path / "results")) == 2
    errors = capsys.readouterr().err.splitlines()
    assert len(errors) == 2 and all("broken.att: the language" in error for error in errors)
    assert "has all strings" in errors[0] and "is empty" in errors[1]
    assert main(["reproduce", "mlregtest"]) == 2
    assert main(["reproduce", "table1", "--data", str(tmp_path)]) == 2


def test_the_fingerprint_covers_the_settings_of_the_preset(monkeypatch: pytest.MonkeyPatch) -> None:
    before = Configuration().fingerprint
    monkeypatch.setattr("sdssm.models.catalogue.get_preset", lambda *names: {"steps": 1})
    assert Configuration().fingerprint != before
