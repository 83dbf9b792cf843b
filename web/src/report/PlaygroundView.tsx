/** The playground: pick a run, and step strings through it. */
import { useId, useMemo } from "preact/hooks";
import type { PlayerData, RunData, TaskData } from "../data";
import { Playground, type PlayerEntry } from "../player/Playground";
import { href } from "./router";
import { detailSignal, report, runName, tasks, trainings } from "./store";

const MOST_ENTRIES = 12; // models that can be compared at once

/** The playground as a view of its own. */
export function PlaygroundView({ id }: { id: string | null }) {
  const playable = report.value.runs.filter((run) => run.is_playable);
  const run = report.value.runs.find((item) => item.id === id) ?? playable[0];
  const task = run && tasks.value.get(run.task);
  return (
    <>
      <h1 tabIndex={-1}>Playground</h1>
      <p class="lead">
        Step a string through a trained model, symbol by symbol, and see where its prediction leaves the automaton. The
        model runs in this page, from its own weights.
      </p>
      {playable.length === 0 ? (
        <p class="missing">No run of this page can be played.</p>
      ) : (
        <PickRun playable={playable} run={run} />
      )}
      {run && task && <PlaygroundBox key={run.id} run={run} task={task} hasPartner />}
    </>
  );
}

function PickRun({ playable, run }: { playable: RunData[]; run: RunData | undefined }) {
  const id = useId();
  const others = report.value.runs.filter((item) => !item.is_playable && item.folder !== null);
  return (
    <p class="field">
      <label for={id}>Pick a run</label>
      <select
        id={id}
        value={run?.id}
        onChange={(event) => (location.hash = href("playground", event.currentTarget.value))}
      >
        {playable.map((item) => (
          <option key={item.id} value={item.id}>
            {runName(item)}
          </option>
        ))}
        {others.map((item) => (
          <option key={item.id} value={item.id} disabled>
            {runName(item)}: {item.not_playable ?? "its model does not run in a browser"}
          </option>
        ))}
      </select>
    </p>
  );
}

interface PlaygroundBoxProps {
  run: RunData;
  task: TaskData;
  /** Whether another model of the task is shown beside it from the start. */
  hasPartner?: boolean;
}

/** The playground of a run; other models of its task can be put beside it. */
export function PlaygroundBox({ run, task, hasPartner = false }: PlaygroundBoxProps) {
  const offered = offeredRuns(run);
  const details = offered.map((item) => detailSignal(item.id).value);
  const players = details.map((detail) => detail?.player ?? null);
  const entries = useMemo(() => listEntries(offered, players, task), [task, ...pad(players)]);
  if (!run.is_playable)
    return (
      <p class="missing">This run cannot be played: {run.not_playable ?? "its model does not run in a browser"}.</p>
    );
  if (details.includes(undefined)) return <p class="missing">Reading the weights …</p>;
  if (!players[0]) return <p class="missing">The weights of this run are not on this page.</p>;
  return <Playground entries={entries} first={0} {...(hasPartner ? {} : { second: null })} />;
}

/** The run, and the first playable seed of every other training of its task. */
function offeredRuns(run: RunData): RunData[] {
  const { trainings: all, runs } = report.value;
  const others = all
    .filter((training) => training.task === run.task && training.id !== run.training)
    .flatMap((training) => runs.find((item) => item.training === training.id && item.is_playable) ?? []);
  return [run, ...others].slice(0, MOST_ENTRIES);
}

function listEntries(offered: RunData[], players: (PlayerData | null)[], task: TaskData): PlayerEntry[] {
  return offered.flatMap((item, k) => {
    const player = players[k];
    return player ? [{ label: entryLabel(item), task, player }] : [];
  });
}

function entryLabel(run: RunData): string {
  return `${trainings.value.get(run.training)?.label ?? run.model}${run.seed === null ? "" : `, seed ${run.seed}`}`;
}

/** A hook's list of dependencies keeps its length. */
function pad(players: (PlayerData | null)[]): (PlayerData | null)[] {
  return Array.from({ length: MOST_ENTRIES }, (_, k) => players[k] ?? null);
}
