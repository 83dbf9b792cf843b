/** Chosen runs side by side: results, settings and versions that differ, and curves on top of each other. */
import { useEffect, useMemo } from "preact/hooks";
import { Legend } from "../charts/Legend";
import type { Series } from "../charts/accuracy";
import type { TrainingLine } from "../charts/training";
import type { Curve, RunData, RunDetail } from "../data";
import { AccuracyPanel, type Measure } from "./AccuracyPanel";
import { certifiedText } from "./certified";
import { trainedText } from "./Effort";
import { BEST_CONSTANT, chance, count, countOf, duration, percent } from "./format";
import { href } from "./router";
import { Beyond, failureText, RunsTable } from "./RunsTable";
import { TrainingPart } from "./run/TrainingPart";
import { Status } from "./Status";
import { chosen, detailSignal, report, runName, runs, tasks, trainings } from "./store";

/** Line styles of runs that have the colour of the same model. */
const DASHES = [[], [5, 1.5], [7, 1.5, 1.5, 1.5], [1.5, 1.2]];

interface Look {
  key: string;
  label: string;
  colour: string;
  dashes: number[];
}

/** The runs of an address. Without one, runs are offered to choose from. */
export function Compare({ ids }: { ids: string[] | null }) {
  const wanted = ids ?? [];
  const key = wanted.join(",");
  useEffect(() => {
    if (ids) chosen.value = ids.filter((id) => runs.value.has(id));
  }, [key]);
  const compared = wanted.flatMap((id) => runs.value.get(id) ?? []);
  const details = compared.map((run) => detailSignal(run.id).value);
  const looks = useMemo(() => listLooks(compared), [key, trainings.value]);
  const series = useMemo(() => listSeries(compared, details, looks), [looks, ...details.slice(0, 40)]);
  const lines = useMemo(() => listLines(details, looks), [looks, ...details.slice(0, 40)]);
  const levels = useMemo(() => listLevels(compared), [key, tasks.value]);
  return (
    <>
      <h1 tabIndex={-1}>Compare runs</h1>
      {compared.length === 0 ? (
        <Choices />
      ) : (
        <>
          <Results compared={compared} />
          <p class="fine">{BEST_CONSTANT}</p>
          <section aria-labelledby="accuracy-heading">
            <h2 id="accuracy-heading">Accuracy against length</h2>
            <AccuracyPanel
              name={countOf(compared.length, "run")}
              series={series}
              levels={levels}
              trainLength={sameTrainLength(compared)}
            />
          </section>
          <section aria-labelledby="training-heading">
            <h2 id="training-heading">Training</h2>
            <TrainingPart lines={lines} levels={levels.accuracy} />
            {lines.length > 1 && <Legend entries={looks.filter((_, k) => details[k]?.events)} />}
          </section>
          <Differences
            title="Settings that differ"
            noun="setting"
            compared={compared}
            pick={(run) => ({ model: run.model, preset: run.preset ?? "none", ...run.settings })}
          />
          <Differences title="Versions that differ" noun="version" compared={compared} pick={(run) => run.versions} />
        </>
      )}
    </>
  );
}

/** What to compare, if nothing is chosen: the models of a task, or any runs. */
function Choices() {
  const data = report.value;
  const groups = data.tasks.flatMap((task) => {
    const found = data.trainings.filter((training) => training.task === task.id);
    const first = found.flatMap((training) => training.runs.slice(0, 1)); // one seed of each
    return first.length > 1 ? [{ task, ids: first }] : [];
  });
  return (
    <>
      <p class="lead">No run is chosen. {groups.length > 0 && "Compare the models of a task, or tick any runs below."}</p>
      {groups.length > 0 && (
        <nav class="chips" aria-label="Compare the models of a task">
          <ul>
            {groups.map(({ task, ids }) => (
              <li key={task.id}>
                <a href={href("compare", ids.join(","))}>
                  Compare the {count(ids.length)} models of {task.name}
                </a>
              </li>
            ))}
          </ul>
        </nav>
      )}
      <RunsTable runs={data.runs} />
    </>
  );
}

function Results({ compared }: { compared: RunData[] }) {
  const remove = (id: string) => {
    const rest = compared.map((run) => run.id).filter((other) => other !== id);
    chosen.value = rest;
    location.hash = rest.length ? href("compare", rest.join(",")) : href("compare");
  };
  return (
    <div class="scroll" tabIndex={0} role="region" aria-label="Results of the runs">
      <table class="list">
        <thead>
          <tr>
            <th scope="col">Run</th>
            <th scope="col">Status</th>
            <th scope="col" class="number">
              Accuracy within training lengths
            </th>
            <th scope="col" class="number">
              Accuracy beyond them (best constant)
            </th>
            <th scope="col" class="number">
              First length below 99 %
            </th>
            <th scope="col" class="number">
              Certified length
            </th>
            <th scope="col" class="number">
              Trained
            </th>
            <th scope="col" class="number">
              Time
            </th>
            <th scope="col">
              <span class="visually-hidden">Remove</span>
            </th>
          </tr>
        </thead>
        <tbody>
          {compared.map((run) => (
            <tr key={run.id}>
              <th scope="row">
                <a href={href("run", run.id)}>{runName(run)}</a>
              </th>
              <td>
                <Status run={run} />
              </td>
              <td class="number">{percent(run.mean_within)}</td>
              <td class="number">
                <Beyond run={run} />
              </td>
              <td class="number">{failureText(run)}</td>
              <td class="number wraps">{certifiedText(run.certified)}</td>
              <td class="number wraps">{trainedText([run])}</td>
              <td class="number">{duration(run.seconds)}</td>
              <td>
                <button
                  type="button"
                  class="small"
                  onClick={() => remove(run.id)}
                  aria-label={`Remove ${runName(run)}`}
                >
                  Remove
                </button>
              </td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

interface DifferencesProps {
  title: string;
  noun: string;
  compared: RunData[];
  pick: (run: RunData) => Record<string, string>;
}

/** The names whose values are not the same for all runs. */
function Differences({ title, noun, compared, pick }: DifferencesProps) {
  const values = compared.map(pick);
  const names = [...new Set(values.flatMap((value) => Object.keys(value)))];
  const differing = names.filter((name) => new Set(values.map((value) => value[name])).size > 1);
  const id = `${noun}-heading`;
  const equal = names.length - differing.length;
  return (
    <section aria-labelledby={id}>
      <h2 id={id}>{title}</h2>
      {differing.length === 0 ? (
        <p class="missing">None: {names.length ? `all ${countOf(names.length, noun)} are equal` : "none is known"}.</p>
      ) : (
        <>
          <div class="scroll" tabIndex={0} role="region" aria-label={`Table: ${title}`}>
            <table class="list">
              <thead>
                <tr>
                  <th scope="col">{noun}</th>
                  {compared.map((run) => (
                    <th scope="col" key={run.id}>
                      {runName(run)}
                    </th>
                  ))}
                </tr>
              </thead>
              <tbody>
                {differing.map((name) => (
                  <tr key={name}>
                    <th scope="row">{name}</th>
                    {values.map((value, k) => (
                      <td key={k}>{value[name] ?? "–"}</td>
                    ))}
                  </tr>
                ))}
              </tbody>
            </table>
          </div>
          {equal > 0 && <p class="fine">{equal === 1 ? "One other is" : `${equal} others are`} equal.</p>}
        </>
      )}
    </section>
  );
}

/** The colour of each run's model, with dashes of its own where the colour was used before. */
function listLooks(compared: RunData[]): Look[] {
  const used = new Map<string, number>();
  return compared.map((run) => {
    const colour = trainings.value.get(run.training)?.colour ?? "#0072b2";
    const number = used.get(colour) ?? 0;
    used.set(colour, number + 1);
    return { key: run.id, label: runName(run), colour, dashes: DASHES[number % DASHES.length]! };
  });
}

function listSeries(
  compared: RunData[],
  details: (RunDetail | null | undefined)[],
  looks: Look[],
): Record<Measure, Series[]> {
  const curve = (k: number, measure: Measure): Curve | null => {
    const measured = details[k]?.evaluation?.[measure];
    if (measured) return { lengths: measured.lengths, mean: measured.value, low: measured.value, high: measured.value };
    const training = trainings.value.get(compared[k]!.training);
    return training?.runs.length === 1 ? training[measure] : null; // the curve of several seeds is not that of a run
  };
  const pick = (measure: Measure) =>
    looks.flatMap((look, k) => {
      const found = curve(k, measure);
      return found ? [{ ...look, curve: found }] : [];
    });
  return { accuracy: pick("accuracy"), balanced: pick("balanced"), covering: pick("covering") };
}

function listLines(details: (RunDetail | null | undefined)[], looks: Look[]): TrainingLine[] {
  return looks.flatMap((look, k) => {
    const events = details[k]?.events;
    return events ? [{ ...look, events }] : [];
  });
}

/** Chance of each task among the runs; tasks with the same chance share a level. */
function listLevels(compared: RunData[]) {
  const found = [...new Set(compared.map((run) => run.task))].flatMap((id) => tasks.value.get(id) ?? []);
  const values = [...new Set(found.map((task) => task.chance))];
  const levels = values.map((value) => {
    const names = found.filter((task) => task.chance === value).map((task) => task.name);
    return { label: `chance${values.length === 1 ? "" : ` on ${names.join(", ")}`} ${chance(value)}`, value };
  });
  return { accuracy: levels, balanced: levels, covering: levels };
}

function sameTrainLength(compared: RunData[]): number | null {
  const lengths = new Set(compared.map((run) => trainings.value.get(run.training)?.train_length));
  return lengths.size === 1 ? ([...lengths][0] ?? null) : null;
}
