/** The trainings that are running, at the top of the overview: how far each seed is, and their curves. */
import { useMemo } from "preact/hooks";
import type { Level } from "../charts/levels";
import { Legend } from "../charts/Legend";
import type { TrainingLine } from "../charts/training";
import type { RunData, TrainingData } from "../data";
import { chance } from "../report/format";
import { Progress } from "../report/Progress";
import { href } from "../report/router";
import { TrainingPart } from "../report/run/TrainingPart";
import { detailSignal, report, runs, taskName, tasks } from "../report/store";

/** Trainings and seeds that are shown here; the table below has the others. */
const MOST_TRAININGS = 4;
const MOST_SEEDS = 5;
/** The seeds of one training have its colour, and differ in their dashes. */
const DASHES = [[], [6, 3], [2, 3], [8, 3, 2, 3], [4, 2]];

export function RunningNow() {
  const running = report.value.trainings.filter((training) => listRunning(training).length > 0);
  if (running.length === 0) return null;
  return (
    <section aria-labelledby="running-heading">
      <h2 id="running-heading">Training now</h2>
      {running.slice(0, MOST_TRAININGS).map((training) => (
        <RunningCard key={training.id} training={training} />
      ))}
      {running.length > MOST_TRAININGS && <p class="fine">{running.length - MOST_TRAININGS} more are in the table below.</p>}
    </section>
  );
}

function listRunning(training: TrainingData): RunData[] {
  return training.runs.flatMap((id) => runs.value.get(id) ?? []).filter((run) => run.status === "running");
}

function RunningCard({ training }: { training: TrainingData }) {
  const running = listRunning(training);
  const shown = running.slice(0, MOST_SEEDS);
  const events = shown.map((run) => detailSignal(run.id).value?.events ?? null);
  const { colour } = training;
  const labels = shown.map((run) => `seed ${run.seed ?? "unknown"}`);
  const lines = useMemo<TrainingLine[]>(
    () => events.flatMap((values, k) => (values ? [{ label: labels[k]!, colour, dashes: DASHES[k]!, events: values }] : [])),
    [colour, labels.join(), ...Array.from({ length: MOST_SEEDS }, (_, k) => events[k])],
  );
  const level = tasks.value.get(training.task)?.chance;
  const levels = useMemo<Level[]>(() => (level === undefined ? [] : [{ label: `chance ${chance(level)}`, value: level }]), [level]);
  return (
    <article class="card running">
      <h3>
        {taskName(training.task)} · {training.label}
      </h3>
      <ul class="running-seeds">
        {shown.map((run, k) => (
          <li key={run.id}>
            <a href={href("run", run.id)}>{labels[k]}</a>
            <Progress run={run} />
          </li>
        ))}
      </ul>
      {running.length > MOST_SEEDS && <p class="fine">{running.length - MOST_SEEDS} more seeds are in the table below.</p>}
      {lines.length > 0 ? <TrainingPart lines={lines} levels={levels} /> : <p class="missing">The first steps are not logged yet.</p>}
      {lines.length > 1 && <Legend entries={lines.map((line) => ({ key: line.label, ...line }))} />}
    </article>
  );
}
