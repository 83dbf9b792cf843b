/** Time, settings and versions of a run. */
import type { RunData, TaskData, TrainingData } from "../../data";
import { chance, count, countOf, duration, number, percent } from "../format";
import { Fact } from "../TaskView";

export function RunFacts({
  run,
  task,
  training,
}: {
  run: RunData;
  task: TaskData | undefined;
  training: TrainingData | undefined;
}) {
  const beside = (value: number | null, constant: number | null) =>
    value === null ? "–" : `${percent(value)} (best constant ${chance(constant)})`;
  const trainingAccuracy =
    run.accuracy === null ? "–" : `${percent(run.accuracy)} (chance of a random guess ${chance(task?.chance)})`;
  const settings = { ...(run.preset ? { preset: run.preset } : {}), ...run.settings };
  return (
    <>
      <div class="columns">
        <div>
          <h3>Run</h3>
          <dl class="facts">
            <Fact name="source" text={run.folder ?? run.source} />
            <Fact name="steps" text={`${count(run.step)} of ${count(run.steps)}`} />
            <Fact name="time" text={`${duration(run.seconds)}${run.device ? ` on ${run.device}` : ""}`} />
            <Fact name="training accuracy" text={trainingAccuracy} />
            <Fact name="training loss" text={number(run.loss)} />
            <Fact name="accuracy within the training lengths" text={beside(run.mean_within, run.constant_within)} />
            <Fact name="accuracy beyond them" text={beside(run.mean_beyond, run.constant_beyond)} />
          </dl>
        </div>
        <FactList title="Settings that differ between the runs of this page" facts={training?.differing ?? {}} />
        <FactList title="Versions" facts={run.versions} />
      </div>
      <details class="more-facts">
        <summary>All {countOf(Object.keys(settings).length, "setting")}</summary>
        <dl class="facts facts-long">
          {Object.entries(settings).map(([name, text]) => (
            <Fact key={name} name={name} text={text} />
          ))}
        </dl>
      </details>
    </>
  );
}

function FactList({ title, facts }: { title: string; facts: Record<string, string> }) {
  const entries = Object.entries(facts);
  if (entries.length === 0) return null;
  return (
    <div>
      <h3>{title}</h3>
      <dl class="facts">
        {entries.map(([name, text]) => (
          <Fact key={name} name={name} text={text} />
        ))}
      </dl>
    </div>
  );
}
