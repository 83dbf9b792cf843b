/** Everything about one run. */
import { useMemo } from "preact/hooks";
import type { RunData, RunDetail, TaskData, TrainingData } from "../../data";
import { Copyable } from "../Copyable";
import { chance } from "../format";
import { PlaygroundBox } from "../PlaygroundView";
import { href } from "../router";
import { Status } from "../Status";
import { chosen, detailSignal, runActions, runName, runs, taskName, tasks, toggleChosen, trainings } from "../store";
import { AutomatonPart } from "./AutomatonPart";
import { CertificatePart } from "./CertificatePart";
import { EigenvaluePart } from "./EigenvaluePart";
import { MatrixPart } from "./MatrixPart";
import { Missing } from "./Missing";
import { RunAccuracy } from "./RunAccuracy";
import { RunFacts } from "./RunFacts";
import { RunTiles } from "./RunTiles";
import { StatesPart } from "./StatesPart";
import { TrainingPart } from "./TrainingPart";

export function RunView({ run }: { run: RunData }) {
  const Actions = runActions.value;
  const task = tasks.value.get(run.task);
  const training = trainings.value.get(run.training);
  const detail = detailSignal(run.id).value;
  const isChosen = chosen.value.includes(run.id);
  return (
    <>
      <nav class="crumbs" aria-label="Where this run belongs">
        <a href={href("")}>All runs</a> / <a href={href("task", run.task)}>{taskName(run.task)}</a>
      </nav>
      <h1 tabIndex={-1}>{runName(run)}</h1>
      <p class="summary">
        <Status run={run} />
        <button type="button" onClick={() => toggleChosen(run.id)}>
          {isChosen ? "Remove from the comparison" : "Add to the comparison"}
        </button>
      </p>
      {Actions && <Actions run={run} />}
      {run.problems.map((problem) => (
        <p class="problems">{problem}</p>
      ))}
      <RunTiles run={run} trainLength={training?.train_length ?? null} />
      <Siblings run={run} training={training} />
      {run.status === "running" && detail && <TrainingSection run={run} detail={detail} task={task} />}
      <section aria-labelledby="accuracy-heading">
        <h2 id="accuracy-heading">Accuracy against length</h2>
        <RunAccuracy run={run} detail={detail} task={task} training={training} />
      </section>
      {detail === undefined ? (
        <p class="missing">Reading the run …</p>
      ) : (
        <RunParts run={run} detail={detail} task={task} />
      )}
      <section aria-labelledby="settings-heading">
        <h2 id="settings-heading">Settings, versions, command</h2>
        <Copyable label="Repeat this run" text={run.command} />
        <RunFacts run={run} task={task} training={training} />
      </section>
    </>
  );
}

/** The parts that need the heavy data of a run. */
function RunParts({ run, detail, task }: { run: RunData; detail: RunDetail | null; task: TaskData | undefined }) {
  const isDense = run.model === "sd-ssm";
  const symbols = task?.machine.symbols ?? [];
  return (
    <>
      {task && (
        <section aria-labelledby="playground-heading">
          <h2 id="playground-heading">Playground</h2>
          <PlaygroundBox run={run} task={task} />
        </section>
      )}
      {run.status !== "running" && <TrainingSection run={run} detail={detail} task={task} />}
      {(isDense || run.certified || run.horizon) && <CertificatePart run={run} task={task} />}
      {(isDense || run.extraction) && <AutomatonPart run={run} detail={detail} task={task} />}
      {detail?.matrices ? (
        <>
          <MatrixPart matrices={detail.matrices} symbols={symbols} />
          <EigenvaluePart
            matrices={detail.matrices}
            symbols={symbols}
            isRescaled={run.settings["rescale"] === "true"}
          />
        </>
      ) : (
        isDense && (
          <section aria-labelledby="matrices-heading">
            <h2 id="matrices-heading">Transition matrices</h2>
            <p class="missing">
              {run.folder === null
                ? "The weights of this run are not here: it is known from a results file only."
                : "The matrices could not be read from the weights of this run, or the model has several layers."}
            </p>
          </section>
        )
      )}
      {(isDense || detail?.states) && (
        <section aria-labelledby="states-heading">
          <h2 id="states-heading">States in two dimensions</h2>
          {detail?.states && task ? (
            <StatesPart cloud={detail.states} task={task} />
          ) : (
            <Missing what="The states of the model were not stored." command="evaluate" run={run} />
          )}
        </section>
      )}
    </>
  );
}

/** The curves of the training; they come first while it runs. */
function TrainingSection({
  run,
  detail,
  task,
}: {
  run: RunData;
  detail: RunDetail | null;
  task: TaskData | undefined;
}) {
  const events = detail?.events ?? null;
  const training = trainings.value.get(run.training);
  const lines = useMemo(() => {
    const look = { label: training?.label ?? run.model, colour: training?.colour ?? "#0072b2", dashes: [] };
    return events ? [{ ...look, events }] : [];
  }, [events, training]);
  const levels = useMemo(() => (task ? [{ label: `chance ${chance(task.chance)}`, value: task.chance }] : []), [task]);
  return (
    <section aria-labelledby="training-heading">
      <h2 id="training-heading">Training</h2>
      <TrainingPart lines={lines} levels={levels} />
    </section>
  );
}

/** The other seeds of the same training. */
function Siblings({ run, training }: { run: RunData; training: TrainingData | undefined }) {
  if (!training || training.runs.length < 2) return null;
  return (
    <nav class="chips" aria-label="Seeds of the same training">
      <ul>
        {training.runs.map((id, place) => (
          <li key={id}>
            <a href={href("run", id)} aria-current={id === run.id ? "page" : undefined}>
              seed {runs.value.get(id)?.seed ?? place}
            </a>
          </li>
        ))}
      </ul>
    </nav>
  );
}
