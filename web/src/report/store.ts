/**
 * All data of the page, as signals.
 *
 * A report reads both from the page itself. The studio calls `setDetailSource` and assigns `report` when files change;
 * no view knows the difference.
 */
import { computed, signal, type Signal } from "@preact/signals";
import type { ComponentType } from "preact";
import type { ReportData, RunData, RunDetail, TableData, TaskData, TrainingData } from "../data";

const EMPTY: ReportData = {
  format: 1,
  title: "sdssm",
  version: "",
  created: "",
  command: "",
  tasks: [],
  trainings: [],
  runs: [],
  tables: [],
  problems: [],
  notes: [],
};

/** What a page shows. Assign a new value, and every view follows. */
export const report = signal<ReportData>(EMPTY);

/** Where the heavy parts of a run come from; null: there are none. */
export type DetailSource = (id: string) => Promise<RunDetail | null>;

let source: DetailSource = async (id) => readEmbedded<RunDetail>(`sdssm-run-${id}`);
const details = new Map<string, Signal<RunDetail | null | undefined>>();

/** Replace the source of details; those that are shown are loaded again. */
export function setDetailSource(next: DetailSource): void {
  source = next;
  for (const id of details.keys()) void reloadDetail(id);
}

/** Load the heavy parts of a run. Rejects if the source does. */
export async function runDetail(id: string): Promise<RunDetail | null> {
  return (await source(id)) ?? null;
}

/** The heavy parts of a run for a view: undefined while they are loaded, null if there are none. */
export function detailSignal(id: string): Signal<RunDetail | null | undefined> {
  let detail = details.get(id);
  if (!detail) {
    detail = signal<RunDetail | null | undefined>(undefined);
    details.set(id, detail);
    void reloadDetail(id);
  }
  return detail;
}

/** Load the heavy parts of a run again, if a view has asked for them. A source that fails counts as empty. */
export async function reloadDetail(id: string): Promise<void> {
  const detail = details.get(id);
  if (detail) detail.value = await runDetail(id).catch(() => null);
}

/** A component at the top of a run's view, such as the buttons of the studio. */
export const runActions = signal<ComponentType<{ run: RunData }> | null>(null);
/** Whether a studio serves the page, and keeps it up to date. */
export const isServed = signal(false);
/** A component at the top of the overview, such as the trainings that run in the studio. */
export const overviewTop = signal<ComponentType | null>(null);
/** What the overview shows if there are no runs. */
export const emptyNotice = signal<ComponentType | null>(null);
/** A component in the header of the page, such as whether the studio is connected. */
export const pageStatus = signal<ComponentType | null>(null);

const byId = <T extends { id: string }>(items: T[]): Map<string, T> => new Map(items.map((item) => [item.id, item]));

export const tasks = computed<Map<string, TaskData>>(() => byId(report.value.tasks));
export const trainings = computed<Map<string, TrainingData>>(() => byId(report.value.trainings));
export const runs = computed<Map<string, RunData>>(() => byId(report.value.runs));
export const tables = computed<Map<string, TableData>>(() => byId(report.value.tables));

/** The trainings of each task. They stay the same object as long as none of them changes. */
export const trainingsByTask = computed<Map<string, TrainingData[]>>(() => {
  const before = keptTrainings;
  keptTrainings = new Map();
  for (const { id } of report.value.tasks) {
    const found = report.value.trainings.filter((training) => training.task === id);
    const known = before.get(id);
    const isSame = known?.length === found.length && found.every((training, place) => training === known[place]);
    keptTrainings.set(id, isSame ? known : found);
  }
  return keptTrainings;
});
let keptTrainings = new Map<string, TrainingData[]>();

/** The ids of the runs that are chosen for the comparison, in the order of choice. */
export const chosen = signal<string[]>([]);

/** Add a run to the comparison, or remove it. */
export function toggleChosen(id: string): void {
  chosen.value = chosen.value.includes(id) ? chosen.value.filter((other) => other !== id) : [...chosen.value, id];
}

/** Parse JSON that Python put into the page; null if the element is missing. */
export function readEmbedded<T>(elementId: string): T | null {
  const text = document.getElementById(elementId)?.textContent;
  return text ? (JSON.parse(text) as T) : null;
}

/** The name of a task; its id if the page does not have it. */
export function taskName(id: string): string {
  return tasks.value.get(id)?.name ?? id;
}

/** The name of a run on the page: task, training and seed. */
export function runName(run: RunData): string {
  const label = trainings.value.get(run.training)?.label ?? run.model;
  return `${taskName(run.task)} · ${label}${run.seed === null ? "" : ` · seed ${run.seed}`}`;
}
