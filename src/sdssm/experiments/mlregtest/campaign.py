"""Train, measure and prove batches of languages, and write a record for each language.

While a batch trains on the device, worker processes draw the test strings of the next batch and prove the languages of
the batches before it. A campaign stops between batches if none of those that are left would end in time. Languages
without a record are trained again by the next campaign, as are those whose proof was not done when the time was up: the
weights of a thousand models are not kept.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from sdssm.devices import device_name
from sdssm.experiments.mlregtest.batches import LanguageBatch, model_state
from sdssm.experiments.mlregtest.configuration import Configuration
from sdssm.experiments.mlregtest.languages import Language
from sdssm.experiments.mlregtest.length_strings import LengthStrings, draw_test_strings
from sdssm.experiments.mlregtest.pools import call_on_one_core, open_pool
from sdssm.experiments.mlregtest.proofs import Proof, model_arrays, prove_arrays
from sdssm.experiments.mlregtest.readings import ModelReading, measure_models
from sdssm.experiments.mlregtest.records import UNPROVED, LanguageRecord, RecordStore
from sdssm.experiments.mlregtest.timing import Deadline, Timing
from sdssm.formatting import count_of
from sdssm.models import Classifier
from sdssm.progress import SILENT, ProgressReporter
from sdssm.runs.schema import RunConfig
from sdssm.tasks.identification import identifying_length
from sdssm.tasks.sampling import SAMPLINGS
from sdssm.training.engine import TrainingEngine
from sdssm.training.memory import empty_device_cache, keep_freed_memory
from sdssm.training.queue import out_of_memory_error

#: Seconds of training between two looks at the clock, at signals and at proofs that are done.
ROUND_SECONDS = 0.5
#: Steps of the first round, and steps that a round is a multiple of: a CUDA graph has as many.
ROUND_STEPS = 10
#: The share of the steps at the end over which the training accuracy is averaged.
LAST_SHARE = 0.05


class _TimeIsUpError(Exception):
    """The time is up while worker processes still work."""


@dataclass(frozen=True, eq=False)
class _Measured:
    """A language that is trained and measured; its proof is missing."""

    language: Language
    config: RunConfig
    reading: ModelReading
    train_accuracy: float
    is_alive: bool
    device_seconds: float


class Campaign:
    """Trains, measures and proves batches of languages until they are done, the time is up, or `stop` is true.

    Args:
        configuration: how languages are trained and measured.
        fingerprints: the fingerprint of each language, which its record gets.
        store: where records are written.
        device: where models are trained and measured.
        deadline: when it has to be over.
        stop: whether a signal was received.
        reporter: shows the progress.
        message: called with a line of text after each batch.
        weights: a folder for the weights of each model; None: they are not kept.
    """

    def __init__(
        self,
        configuration: Configuration,
        fingerprints: dict[str, str],
        store: RecordStore,
        device: torch.device,
        *,
        deadline: Deadline | None = None,
        stop: Callable[[], bool] = lambda: False,
        reporter: ProgressReporter = SILENT,
        message: Callable[[str], None] = lambda text: None,
        weights: Path | None = None,
    ) -> None:
        self.configuration, self.fingerprints, self.store, self.device = configuration, fingerprints, store, device
        self.deadline, self.stop = deadline or Deadline(None), stop
        self.reporter, self.message, self.weights = reporter, message, weights
        self._timing = Timing()
        self._proofs: dict[Future[Proof], _Measured] = {}
        self._strings: dict[str, Future[list[LengthStrings]]] = {}  # by the name of the language
        self._trained = self._written = 0  # languages whose training has ended, and whose records are written

    def run(self, batches: Sequence[LanguageBatch], workers: int = 0) -> int:
        """Run batches in order, and return for how many languages a record was written."""
        if self.device.type == "cpu":
            keep_freed_memory()
        with suppress(_TimeIsUpError), open_pool(workers) as pool:
            self._pool, self._workers = pool, workers
            waiting = deque(batches)
            while waiting:
                batch = self._next(waiting)
                if batch is None:
                    left = count_of(sum(map(len, waiting)), "language")
                    self.message(f"{left} left for the next command: the time for another batch is short")
                    break
                waiting.remove(batch)
                self._draw_strings([batch, *list(waiting)[:1]])
                try:
                    is_complete = self._run_batch(batch)
                except torch.OutOfMemoryError:
                    if len(batch) == 1:
                        raise out_of_memory_error(self.device) from None
                    self.message(f"{batch.describe()} do not fit into the memory of {self.device}; trying half of them")
                    waiting.extendleft(reversed(batch.halves()))
                    is_complete = True
                self._write_done_proofs()
                empty_device_cache(self.device)
                if not is_complete:
                    self.message(f"stopped within a batch; {batch.describe()} have no record")
                    break
            for future in self._strings.values():
                future.cancel()
            while self._proofs and self.deadline.remaining > 0 and not self.stop():
                wait(self._proofs, timeout=min(1.0, self.deadline.remaining), return_when=FIRST_COMPLETED)
                self._write_done_proofs()
            if self._proofs:
                self._write_unproved()
                raise _TimeIsUpError  # ends the worker processes at once
        return self._written

    def _next(self, waiting: Sequence[LanguageBatch]) -> LanguageBatch | None:
        """Return the first batch that is expected to end in time; None if there is none, or after a signal."""
        remaining = self.deadline.remaining
        if self.stop() or remaining <= 0:
            return None
        return next((batch for batch in waiting if self._timing.expected(batch, self._workers) <= remaining), None)

    def _draw_strings(self, batches: Sequence[LanguageBatch]) -> None:
        """Start to draw the test strings of batches, unless that was started already.

        Those of the next batch are started before the proofs of this one: the device would wait for them.
        """
        for batch in batches:
            for language in batch.languages:
                if language.name not in self._strings:
                    future = self._submit(draw_test_strings, language.task, self.configuration)
                    self._strings[language.name] = future

    # -- one batch ---------------------------------------------------------------------------------------------------

    def _run_batch(self, batch: LanguageBatch) -> bool:
        """Train and measure a batch, and start its proofs; return False if the time was up before."""
        clock, start = self.deadline.clock, self.deadline.clock()
        engine = TrainingEngine([language.task for language in batch.languages], batch.configs, self.device)
        window = self._train(engine, batch)
        if window is None:
            return False
        trained = clock()
        seconds = trained - start
        self._timing.step_seconds[batch.key] = seconds / batch.steps
        accuracy, alive = window
        models = [engine.model(replica) for replica in range(len(batch))]
        del engine
        strings = [self._strings.pop(language.name).result() for language in batch.languages]
        self._start_proofs(batch, models, strings, accuracy, alive, start)
        self._timing.measure_seconds = clock() - trained
        self._trained += len(batch)
        self.message(
            f"{batch.describe()}: {seconds:.0f} s of training ({batch.steps:,} steps), "
            f"{self._timing.measure_seconds:.1f} s of measuring"
        )
        return True

    def _train(self, engine: TrainingEngine, batch: LanguageBatch) -> tuple[list[float], list[bool]] | None:
        """Train all steps; return accuracy in percent and whether it is alive for each language; None if stopped."""
        steps, count, clock = batch.steps, ROUND_STEPS, self.deadline.clock
        last = steps - max(1, int(steps * LAST_SHARE))  # where the window of the training accuracy starts
        while engine.step < steps:
            if self.stop() or self.deadline.remaining <= 0:
                return None
            end = last if engine.step < last else steps
            start = clock()
            engine.advance(min(count, end - engine.step))
            engine.wait()
            seconds = max(clock() - start, 1e-3)
            count = max(ROUND_STEPS, min(2 * count, int(count * ROUND_SECONDS / seconds)) // ROUND_STEPS * ROUND_STEPS)
            if engine.step == last:
                engine.window()
            self._write_done_proofs()
            self.reporter.update(self._trained + len(batch) * engine.step / steps)
        window = engine.window()
        return window.accuracy.tolist(), window.alive.tolist()

    def _start_proofs(
        self,
        batch: LanguageBatch,
        models: Sequence[Any],
        strings: Sequence[Sequence[LengthStrings]],
        accuracy: Sequence[float],
        alive: Sequence[bool],
        start: float,
    ) -> None:
        """Measure the models of a batch, and start their proofs; `start` is when its training was started."""
        assert all(isinstance(model, Classifier) for model in models)
        readings = measure_models(models, strings)
        seconds = (self.deadline.clock() - start) / len(batch)
        for k, (language, config, model) in enumerate(zip(batch.languages, batch.configs, models, strict=True)):
            measured = _Measured(language, config, readings[k], accuracy[k], alive[k], seconds)
            if self.weights is not None:
                model.task = language.task
                model.save(self.weights / language.name, overwrite=True)
            arguments = config, model_arrays(model), language.task, self.configuration.proof_seconds
            self._proofs[self._submit(prove_arrays, *arguments, readings[k].misclassified)] = measured

    def _submit(self, function: Callable[..., Any], *arguments: Any) -> Future[Any]:
        if self._workers < 1:
            return self._pool.submit(function, *arguments)
        return self._pool.submit(call_on_one_core, function, *arguments)

    def _write_done_proofs(self) -> None:
        """Write the records of languages whose proof is done."""
        done = [future for future in self._proofs if future.done()]
        records = [self._record(self._proofs.pop(future), future.result()) for future in done]
        self.store.append(records)
        self._timing.proof_seconds += [record.proof_seconds for record in records]
        self._written += len(records)

    def _write_unproved(self) -> None:
        """Write the records of languages that are measured, but whose proof was not done in time."""
        proof = Proof(verdict=UNPROVED, note="the time was up before its automaton was known")
        count = count_of(len(self._proofs), "proof")
        self.message(f"{count} not done in time; the next command trains these languages again")
        self.store.append([self._record(measured, proof) for measured in self._proofs.values()])
        self._written += len(self._proofs)
        self._proofs.clear()

    def _record(self, measured: _Measured, proof: Proof) -> LanguageRecord:
        language, config, scores = measured.language, measured.config, measured.reading.scores
        names = language.task.machine.symbol_names
        string = proof.string
        if string is None and measured.reading.misclassified is not None:
            string = tuple(names[symbol] for symbol in measured.reading.misclassified)
        by_sampling = {name: tuple(entry.accuracy[name] for entry in scores) for name in SAMPLINGS}
        constants = {name: tuple(entry.best_constant[name] for entry in scores) for name in SAMPLINGS}
        return LanguageRecord(
            name=language.name,
            fingerprint=self.fingerprints[language.name],
            symbols=language.alphabet,
            states=language.task.machine.minimise().n_states,
            state=model_state(config),
            sampling=str(config.settings.values_by_name().get("sampling", "uniform")),
            train_length=config.train_length,
            identifying_length=identifying_length(language.task),
            steps=config.train.steps,
            seed=config.seed,
            is_alive=measured.is_alive,
            train_accuracy=measured.train_accuracy,
            lengths=tuple(entry.length for entry in scores),
            uniform=by_sampling["uniform"],
            uniform_constant=constants["uniform"],
            balanced=by_sampling["balanced"],
            balanced_constant=constants["balanced"],
            covering=by_sampling["covering"],
            covering_constant=constants["covering"],
            pairs=tuple(entry.pairs for entry in scores),
            n_pairs=tuple(entry.n_pairs for entry in scores),
            verdict=proof.verdict,
            is_followed=proof.is_followed and measured.reading.misclassified is None,
            is_snapped=proof.is_snapped,
            extracted_states=proof.states,
            string=string,
            is_shortest=proof.is_shortest,
            proof_seconds=proof.seconds,
            proof_note=proof.note,
            device_seconds=measured.device_seconds,
            device=device_name(self.device),
            commit=config.commit,
        )
