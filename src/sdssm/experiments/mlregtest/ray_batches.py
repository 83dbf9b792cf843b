"""The experiment on a Ray cluster: each batch of languages is one task, with a GPU of its own if there is one."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from pathlib import Path

from sdssm.devices import resolve_device
from sdssm.experiments.default_folders import RESULTS
from sdssm.experiments.execution.executors import get_executor
from sdssm.experiments.execution.ray_executor import RayExecutor
from sdssm.experiments.execution.ray_tasks import DeviceShare, TaskOutcome, check_shared, make_mark
from sdssm.experiments.mlregtest.batches import AT_ONCE, LanguageBatch, make_batches
from sdssm.experiments.mlregtest.campaign import Campaign
from sdssm.experiments.mlregtest.configuration import Configuration
from sdssm.experiments.mlregtest.languages import Language, read_language
from sdssm.experiments.mlregtest.records import RecordStore
from sdssm.experiments.mlregtest.reproduction import NAME, LanguagePlan, spare_cores


def run_languages_on_ray(
    plan: LanguagePlan,
    configuration: Configuration,
    engine: str = "ray",
    device: str = "auto",
    address: str | None = None,
    *,
    workers: int | None = None,
    at_once: int | None = None,
    results: Path | str = RESULTS,
    message: Callable[[str], None] = lambda text: None,
) -> LanguagePlan:
    """Train, measure and prove the languages of a plan on a Ray cluster; the arguments are those of `run_languages`.

    All nodes must see the results folder by the same path; each batch writes a file of its own into it. A batch whose
    node is lost is trained again on another.
    """
    folder = (Path(results) / NAME).absolute()
    missing = [read_language(path) for path in plan.missing]
    with get_executor(engine, device=device, address=address) as executor:
        assert isinstance(executor, RayExecutor)
        kind = executor.device
        batches = make_batches(missing, configuration, at_once or AT_ONCE[kind])
        mark = make_mark(folder)
        processes = workers if workers is not None else spare_cores() if kind == "cuda" else 0
        fingerprints = plan.fingerprints
        calls = [
            (batch.describe(), (folder, mark, batch.languages, configuration, fingerprints, processes))
            for batch in batches
        ]
        executor.run_calls(run_sent_batch, calls, message)
    return LanguagePlan(plan.paths, plan.fingerprints, RecordStore(folder).load(plan.fingerprints))


def run_sent_batch(
    folder: Path,
    mark: str,
    languages: Sequence[Language],
    configuration: Configuration,
    fingerprints: dict[str, str],
    workers: int,
    share: DeviceShare,
) -> TaskOutcome:
    """Run a batch on a node of the cluster; languages that a lost node has proved are not trained again."""
    check_shared(folder, mark)
    names = {language.name for language in languages}
    digest = hashlib.sha256(" ".join(sorted(names)).encode()).hexdigest()[:12]
    store = RecordStore(folder, f"records-batch-{digest}.jsonl")
    records = store.load({name: fingerprints[name] for name in names})
    done = {name for name, record in records.items() if record.is_final}
    left = [language for language in languages if language.name not in done]
    lines: list[str] = []
    if left:
        configs = tuple(configuration.run_config(language.task) for language in left)
        campaign = Campaign(configuration, fingerprints, store, resolve_device(share.device), message=lines.append)
        campaign.run([LanguageBatch(tuple(left), configs)], workers)
    return TaskOutcome(messages=tuple(lines))
