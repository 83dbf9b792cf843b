/** A task: its automaton, its facts, and how far every training generalises. */
import { useMemo } from "preact/hooks";
import type { TaskData } from "../data";
import { describeTask } from "../player/text";
import { accuracyLevels, AccuracyPanel, trainingSeries } from "./AccuracyPanel";
import { Diagram } from "./Diagram";
import { Effort } from "./Effort";
import { chance, count } from "./format";
import { href } from "./router";
import { RunsTable } from "./RunsTable";
import { report, trainingsByTask } from "./store";

/** Facts that every reader needs; the others are folded. */
const FIRST_FACTS = new Set(["states", "symbols", "classes", "strings", "chance", "facts"]);

/** What facts quote from the paper, and where the paper is. */
const QUOTED = "Proposition 1";
const PAPER = "https://arxiv.org/abs/2412.19350";

export function TaskView({ task }: { task: TaskData }) {
  const data = report.value;
  const trainings = trainingsByTask.value.get(task.id) ?? [];
  const runs = useMemo(() => data.runs.filter((run) => run.task === task.id), [data, task.id]);
  const balanced = runs.find((run) => run.headline_name === "balanced accuracy")?.headline_chance ?? null;
  const series = useMemo(() => trainingSeries(trainings), [trainings]);
  const levels = useMemo(() => accuracyLevels(task.chance, trainings, balanced), [task.chance, trainings, balanced]);
  const shortFacts = task.facts.filter(([name]) => FIRST_FACTS.has(name));
  const longFacts = task.facts.filter(([name]) => !FIRST_FACTS.has(name));
  return (
    <>
      <TaskLinks current={task.id} />
      <h1 tabIndex={-1}>{task.name}</h1>
      <p class="lead">{describeTask(task)}</p>
      <div class="split">
        <section class="card" aria-labelledby="automaton-heading">
          <h2 id="automaton-heading">Automaton</h2>
          <Diagram machine={task.machine} name={task.name} />
        </section>
        <section aria-labelledby="facts-heading">
          <h2 id="facts-heading">Facts</h2>
          <dl class="facts">
            {!task.facts.some(([name]) => name === "chance") && (
              <Fact
                name="chance"
                text={`${chance(task.chance)}: a guess among ${count(task.machine.n_classes)} labels`}
              />
            )}
            <Fact name="trained on" text={`strings of up to ${count(task.train_length)} symbols`} />
            <Fact name="tested on" text={`strings of up to ${count(task.test_length)} symbols`} />
            {shortFacts.map(([name, text]) => (
              <Fact key={name} name={name} text={text} />
            ))}
          </dl>
          {longFacts.length > 0 && (
            <details class="more-facts">
              <summary>More facts: algebra, theory, training strings</summary>
              <dl class="facts">
                {longFacts.map(([name, text]) => (
                  <Fact key={name} name={name} text={text} />
                ))}
              </dl>
            </details>
          )}
        </section>
      </div>
      <section aria-labelledby="accuracy-heading">
        <h2 id="accuracy-heading">Accuracy against length</h2>
        <p class="fine">A band spans the worst to the best seed of a training; the line is their mean.</p>
        <AccuracyPanel name={task.name} series={series} levels={levels} trainLength={task.train_length} />
        <Effort trainings={trainings} />
      </section>
      <section aria-labelledby="runs-heading">
        <h2 id="runs-heading">Runs</h2>
        {runs.length ? (
          <RunsTable runs={runs} hasTask={false} />
        ) : (
          <p class="missing">There are no runs of this task.</p>
        )}
      </section>
    </>
  );
}

export function Fact({ name, text }: { name: string; text: string }) {
  return (
    <div>
      <dt>{name}</dt>
      <dd>
        <FactText text={text} />
      </dd>
    </div>
  );
}

/** The text of a fact; what it quotes from the paper leads there. */
function FactText({ text }: { text: string }) {
  const place = text.indexOf(QUOTED);
  if (place < 0) return <>{text}</>;
  return (
    <>
      {text.slice(0, place)}
      <a href={PAPER}>{QUOTED} of the paper, arXiv 2412.19350</a>
      {text.slice(place + QUOTED.length)}
    </>
  );
}

function TaskLinks({ current }: { current: string }) {
  const { tasks } = report.value;
  if (tasks.length < 2) return null;
  return (
    <nav class="chips" aria-label="Tasks">
      <ul>
        {tasks.map((task) => (
          <li key={task.id}>
            <a href={href("task", task.id)} aria-current={task.id === current ? "page" : undefined}>
              {task.name}
            </a>
          </li>
        ))}
      </ul>
    </nav>
  );
}
