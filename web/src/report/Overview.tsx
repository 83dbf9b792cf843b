/** The first view: what the page is, the numbers that matter, a chart for each task, all runs. */
import { useMemo } from "preact/hooks";
import { accuracyPlot, accuracySentence, type AccuracyOptions } from "../charts/accuracy";
import { Chart } from "../charts/Chart";
import { Legend } from "../charts/Legend";
import type { RunData, TaskData, TrainingData } from "../data";
import { accuracyLevels, trainingSeries } from "./AccuracyPanel";
import { certifiedText, certifiedValue } from "./certified";
import { Effort } from "./Effort";
import { chance, count, countOf } from "./format";
import { href } from "./router";
import { RunsTable } from "./RunsTable";
import { Tiles, type Tile } from "./Tiles";
import { emptyNotice, overviewTop, report, taskName, trainingsByTask } from "./store";

export function Overview() {
  const data = report.value;
  const [NoRuns, Top] = [emptyNotice.value, overviewTop.value];
  return (
    <>
      <h1 tabIndex={-1}>{data.title}</h1>
      <p class="lead">
        Each model was trained on short strings of an automaton and tested on longer ones. Does it still give the right
        label where it has never trained? Beside an accuracy stands what a model without any memory reaches: <em>chance</em> by a random
        guess, <em>best constant</em> by always giving the most frequent label. <em>Certified</em> means proved, not
        measured.
      </p>
      {data.runs.length > 0 && <Headlines runs={data.runs} />}
      {Top && <Top />}
      {data.problems.length > 0 && <Problems />}
      {data.tasks.length > 0 && (
        <section aria-labelledby="tasks-heading">
          <h2 id="tasks-heading">Accuracy against length</h2>
          <div class="multiples">
            {data.tasks.map((task) => (
              <TaskCard key={task.id} task={task} trainings={trainingsByTask.value.get(task.id) ?? []} />
            ))}
          </div>
        </section>
      )}
      <section aria-labelledby="runs-heading">
        <h2 id="runs-heading">Runs</h2>
        {data.runs.length > 0 ? (
          <RunsTable runs={data.runs} />
        ) : NoRuns ? (
          <NoRuns />
        ) : (
          <p class="missing">There are no runs.</p>
        )}
      </section>
      {data.tables.length > 0 && (
        <section aria-labelledby="tables-heading">
          <h2 id="tables-heading">Tables</h2>
          <ul class="links">
            {data.tables.map((table) => (
              <li key={table.id}>
                <a href={href("table", table.id)}>{table.title}</a>
              </li>
            ))}
          </ul>
        </section>
      )}
      {data.notes.length > 0 && (
        <section aria-labelledby="notes-heading">
          <h2 id="notes-heading">Notes</h2>
          <ul>
            {data.notes.map((note) => (
              <li>{note}</li>
            ))}
          </ul>
        </section>
      )}
    </>
  );
}

/** Counts over all runs, each with what it is counted among. */
function Headlines({ runs }: { runs: RunData[] }) {
  const evaluated = runs.filter((run) => run.headline !== null);
  const perfect = evaluated.filter((run) => run.first_failure === null);
  const certified = runs.filter((run) => run.certified);
  const extracted = runs.filter((run) => run.extraction);
  const equal = extracted.filter((run) => run.extraction?.equals_task);
  const faithful = extracted.filter((run) => run.extraction?.faithful);
  const longest = Math.max(0, ...evaluated.map((run) => run.max_length ?? 0));
  const finished = runs.filter((run) => run.status === "finished").length;
  const tiles: Tile[] = [
    {
      value: count(runs.length),
      text: finished === runs.length ? "runs, all finished" : `runs, ${count(finished)} finished`,
    },
  ];
  if (evaluated.length)
    tiles.push({
      value: `${count(perfect.length)} of ${count(evaluated.length)}`,
      text: `evaluated runs at 99 % or more at every length, up to ${count(longest)} symbols, on random strings`,
    });
  if (certified.length) tiles.push(certificateTile(certified));
  if (extracted.length)
    tiles.push({
      value: `${count(equal.length)} of ${count(extracted.length)}`,
      text: `automata read from the weights equal the task's; ${countOf(faithful.length, "model follows its automaton", "models follow theirs")} on every string tried`,
    });
  return <Tiles tiles={tiles} />;
}

function certificateTile(certified: RunData[]): Tile {
  const length = (run: RunData) => certifiedValue(run.certified) ?? 0;
  const best = certified.reduce((a, b) => (length(b) > length(a) ? b : a));
  return {
    value: countOf(certified.length, "run"),
    text: `${certified.length === 1 ? "has" : "have"} a certificate; the longest: ${certifiedText(best.certified)} (${taskName(best.task)})`,
  };
}

function Problems() {
  const { problems } = report.value;
  return (
    <section class="problems" aria-labelledby="problems-heading">
      <h2 id="problems-heading">{countOf(problems.length, "folder or file", "folders or files")} could not be read</h2>
      <ul>
        {problems.map((problem) => (
          <li>
            <code>{problem.path}</code> {problem.message}
          </li>
        ))}
      </ul>
    </section>
  );
}

/** A small multiple: the curves of one task, and its best run beside chance and the best constant answer. */
function TaskCard({ task, trainings }: { task: TaskData; trainings: TrainingData[] }) {
  const options = useMemo<AccuracyOptions>(() => {
    const series = trainingSeries(trainings).accuracy;
    const levels = accuracyLevels(task.chance, trainings, null).accuracy;
    const { train_length: trainLength } = task;
    return { series, levels, trainLength, lengthScale: "log", errors: false, measure: "accuracy", height: 210 };
  }, [task, trainings]);
  const draw = useMemo(() => (width: number) => accuracyPlot(options, width), [options]);
  return (
    <article class="card">
      <h3>
        <a href={href("task", task.id)}>{task.name}</a>
      </h3>
      <p class="fine">
        {countOf(task.machine.states.length, "state")} · chance {chance(task.chance)}
      </p>
      {options.series.length ? (
        <>
          <Chart label={accuracySentence(options, task.name)} draw={draw} height={210} />
          <Legend entries={options.series} />
          <Effort trainings={trainings} />
        </>
      ) : (
        <p class="missing">No run of this task has been evaluated.</p>
      )}
    </article>
  );
}
