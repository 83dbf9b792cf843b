/** Runs as a table to sort, to filter and to choose from. */
import { useMemo, useState } from "preact/hooks";
import type { RunData } from "../data";
import { BEST_CONSTANT, chance, count, countOf, duration, percent } from "./format";
import { href } from "./router";
import { certifiedText, certifiedValue } from "./certified";
import { chosen, taskName, toggleChosen, trainings } from "./store";
import { Status } from "./Status";

interface Column {
  key: string;
  label: string;
  isNumber: boolean;
  isLesser?: boolean; // a phone does not show it
  value: (run: RunData) => string | number | null;
}

const label = (run: RunData) => trainings.value.get(run.training)?.label ?? run.model;
const COLUMNS: Column[] = [
  { key: "task", label: "Task", isNumber: false, value: (run) => taskName(run.task) },
  { key: "model", label: "Model", isNumber: false, value: label },
  {
    key: "within",
    label: "Accuracy within training lengths",
    isNumber: true,
    isLesser: true,
    value: (run) => run.mean_within,
  },
  { key: "beyond", label: "Accuracy beyond them (best constant)", isNumber: true, value: (run) => run.mean_beyond },
  { key: "failure", label: "First length below 99 %", isNumber: true, value: (run) => failureValue(run) },
  { key: "certified", label: "Certified length", isNumber: true, value: (run) => certifiedValue(run.certified) },
  { key: "status", label: "Status", isNumber: false, value: (run) => run.status },
  { key: "seed", label: "Seed", isNumber: true, isLesser: true, value: (run) => run.seed },
  { key: "seconds", label: "Time", isNumber: true, isLesser: true, value: (run) => run.seconds },
];
const PAGE = 25;

export function RunsTable({ runs, hasTask = true }: { runs: RunData[]; hasTask?: boolean }) {
  const [words, setWords] = useState("");
  const [status, setStatus] = useState("");
  const [order, setOrder] = useState<{ key: string; isRising: boolean } | null>(null);
  const [isLong, setLong] = useState(false);
  const statuses = useMemo(() => [...new Set(runs.map((run) => run.status))].sort(), [runs]);
  const columns = COLUMNS.filter((column) => hasTask || column.key !== "task");
  const found = sortRuns(filterRuns(runs, words, status), order);
  const shown = isLong ? found : found.slice(0, PAGE);
  const sortBy = (key: string) => setOrder({ key, isRising: order?.key === key ? !order.isRising : true });
  return (
    <div class="runs">
      <div class="controls" role="search" aria-label="Filter runs">
        <label class="field">
          <span>Filter</span>
          <input
            type="search"
            value={words}
            placeholder="task, model, setting=value"
            onInput={(event) => setWords(event.currentTarget.value)}
          />
        </label>
        {statuses.length > 1 && (
          <label class="field">
            <span>Status</span>
            <select value={status} onChange={(event) => setStatus(event.currentTarget.value)}>
              <option value="">all</option>
              {statuses.map((name) => (
                <option value={name}>{name}</option>
              ))}
            </select>
          </label>
        )}
        <p class="fine found" role="status">
          {found.length === 0 ? "no run matches" : countOf(found.length, "run")}
        </p>
        <ChosenActions />
      </div>
      <p class="fine scroll-hint">The table has more columns: scroll it sideways.</p>
      <div class="scroll" tabIndex={0} role="region" aria-label="Table of runs">
        <table class="list">
          <thead>
            <tr>
              <th scope="col">
                <span class="visually-hidden">Choose to compare</span>
              </th>
              {columns.map(({ key, label: text, isNumber, isLesser }) => (
                <th scope="col" key={key} class={columnClass(isNumber, isLesser)} aria-sort={sortOf(order, key)}>
                  <button type="button" onClick={() => sortBy(key)}>
                    {text} <span aria-hidden="true">{order?.key === key ? (order.isRising ? "↑" : "↓") : ""}</span>
                  </button>
                </th>
              ))}
            </tr>
          </thead>
          <tbody>
            {shown.map((run) => (
              <Row key={run.id} run={run} hasTask={hasTask} />
            ))}
            {shown.length === 0 && (
              <tr>
                <td colSpan={columns.length + 1}>No run matches.</td>
              </tr>
            )}
          </tbody>
        </table>
      </div>
      <p class="fine">{BEST_CONSTANT}</p>
      {found.length > PAGE && (
        <button type="button" class="more" onClick={() => setLong(!isLong)}>
          {isLong ? "Show fewer" : `Show all ${count(found.length)} runs`}
        </button>
      )}
    </div>
  );
}

function ChosenActions() {
  const number = chosen.value.length;
  if (number === 0) return null;
  return (
    <p class="chosen">
      <a class="button" href={href("compare", chosen.value.join(","))}>
        Compare {countOf(number, "run")}
      </a>
      <button type="button" onClick={() => (chosen.value = [])}>
        Clear
      </button>
    </p>
  );
}

function Row({ run, hasTask }: { run: RunData; hasTask: boolean }) {
  const name = `${taskName(run.task)}, ${label(run)}, seed ${run.seed ?? "unknown"}`;
  return (
    <tr>
      <td>
        <input
          type="checkbox"
          aria-label={`Compare ${name}`}
          checked={chosen.value.includes(run.id)}
          onChange={() => toggleChosen(run.id)}
        />
      </td>
      {hasTask && (
        <td>
          <a href={href("task", run.task)}>{taskName(run.task)}</a>
        </td>
      )}
      <th scope="row">
        <a href={href("run", run.id)} aria-label={`Run: ${name}`}>
          {label(run)}
        </a>
      </th>
      <td class="number lesser">{percent(run.mean_within)}</td>
      <td class="number">
        <Beyond run={run} />
      </td>
      <td class="number">{failureText(run)}</td>
      <td class="number">{certifiedText(run.certified)}</td>
      <td>
        <Status run={run} hasBar />
      </td>
      <td class="number lesser">{run.seed ?? "–"}</td>
      <td class="number lesser">{duration(run.seconds)}</td>
    </tr>
  );
}

function columnClass(isNumber: boolean, isLesser = false): string {
  return `${isNumber ? "number" : ""} ${isLesser ? "lesser" : ""}`.trim();
}

/** The accuracy beyond the training lengths, beside that of the best constant answer at the same lengths. */
export function Beyond({ run }: { run: RunData }) {
  return (
    <>
      {percent(run.mean_beyond)} <span class="beside">({chance(run.constant_beyond)})</span>
    </>
  );
}

/** The first length at which a run fails, in words. */
export function failureText(run: RunData): string {
  if (run.first_failure !== null) return count(run.first_failure);
  return run.headline === null ? "–" : `none to ${count(run.max_length)}`;
}

function failureValue(run: RunData): number | null {
  return run.first_failure ?? (run.headline === null ? null : Infinity);
}

function sortOf(order: { key: string; isRising: boolean } | null, key: string): "ascending" | "descending" | "none" {
  if (order?.key !== key) return "none";
  return order.isRising ? "ascending" : "descending";
}

/** The runs that contain all words in their names, or `setting=value` among their settings. */
export function filterRuns(runs: RunData[], words: string, status: string): RunData[] {
  const parts = words.toLowerCase().split(/\s+/).filter(Boolean);
  return runs.filter((run) => {
    const settings = Object.entries(run.settings).map(([name, value]) => `${name}=${value}`);
    const text = [taskName(run.task), label(run), run.model, run.preset, run.source, `seed=${run.seed}`, ...settings]
      .join("\n")
      .toLowerCase();
    return (status === "" || run.status === status) && parts.every((part) => text.includes(part));
  });
}

/** Runs in the order of a column; runs without a value come last. */
function sortRuns(runs: RunData[], order: { key: string; isRising: boolean } | null): RunData[] {
  const column = COLUMNS.find((item) => item.key === order?.key);
  if (!order || !column) return runs;
  const sign = order.isRising ? 1 : -1;
  return [...runs].sort((one, other) => {
    const [a, b] = [column.value(one), column.value(other)];
    if (a === null || b === null) return a === b ? 0 : a === null ? 1 : -1;
    if (a === b) return 0;
    return typeof a === "string"
      ? sign * a.localeCompare(String(b), "en", { numeric: true })
      : sign * (a < Number(b) ? -1 : 1);
  });
}
