/**
 * The page of `sdssm studio`: asks the server for the runs every two seconds, and assigns what has changed.
 *
 * The page of a report has no server; `isLive` tells the two apart.
 */
import { signal } from "@preact/signals";
import type { ReportData, RunDetail } from "../data";
import { reloadDetail, report, setDetailSource } from "../report/store";
import { reconcile } from "./reconcile";

/** Milliseconds between two questions: while the page is seen, and while it is in the background. */
const SEEN_INTERVAL = 2000;
const HIDDEN_INTERVAL = 15000;
/** Milliseconds after which an unanswered question counts as a lost connection. */
const PATIENCE = 10000;

/** GET api/report. A run whose version differs from the last one has new heavy parts. */
interface LiveReport {
  folder: string; // as the user named it
  report: ReportData;
  versions: Record<string, string>;
}

/** A command that the page has started, as GET api/actions lists them, the newest first. */
export interface StartedAction {
  id: number;
  run: string;
  action: string;
  command: string;
  state: "waiting" | "running" | "finished" | "failed" | "stopped";
  exit_code: number | null;
  output: string;
}

/** How the last question was answered: not yet, well, not at all, or with an error of the server. */
export const connection = signal<"waiting" | "live" | "lost" | "failing">("waiting");
export const actions = signal<StartedAction[]>([]);
export const folder = signal("runs");

const token = document.querySelector<HTMLMetaElement>('meta[name="sdssm-token"]')?.content ?? "";

/** Whether this is the page of a studio. */
export function isLive(): boolean {
  return document.querySelector('meta[name="sdssm-live"]') !== null;
}

/** Whether the studio was started with `--allow-actions`. */
export function mayAct(): boolean {
  return token !== "";
}

let tag: string | null = null;
let versions: Record<string, string> = {};
let timer = 0;

/** Ask the server from now on. */
export function startLive(): void {
  const details = new Map<string, RunDetail | null>();
  setDetailSource(async (id) => {
    try {
      const detail = await getJson<RunDetail>(`api/runs/${encodeURIComponent(id)}`);
      details.set(id, detail === null ? null : reconcile(details.get(id), detail));
    } catch {
      versions = { ...versions, [id]: "" }; // ask again with the next report
    }
    return details.get(id) ?? null;
  });
  document.addEventListener("visibilitychange", () => void ask());
  void ask();
}

/** Ask once, and again after a while. */
async function ask(): Promise<void> {
  clearTimeout(timer);
  try {
    await askReport();
    if (mayAct()) actions.value = reconcile(actions.peek(), (await getJson<StartedAction[]>("api/actions")) ?? []);
    connection.value = "live";
  } catch (error) {
    connection.value = error instanceof ServerError ? "failing" : "lost";
    tag = null; // the server may be another one when it answers again
  }
  clearTimeout(timer); // of a question in between
  timer = window.setTimeout(() => void ask(), document.hidden ? HIDDEN_INTERVAL : SEEN_INTERVAL);
}

async function askReport(): Promise<void> {
  const response = await request("api/report", tag === null ? {} : { headers: { "If-None-Match": tag } });
  if (response.status === 304) return;
  if (!response.ok) throw new ServerError(response.statusText);
  const live = (await response.json()) as LiveReport;
  tag = response.headers.get("ETag");
  const before = versions;
  versions = live.versions;
  folder.value = live.folder;
  report.value = reconcile(report.peek(), live.report);
  await Promise.all(Object.keys(versions).filter((id) => versions[id] !== before[id]).map(reloadDetail));
}

/** The server has answered, with an error. */
class ServerError extends Error {}

/** Start a command on a run. Rejects with a line for the reader if the server refuses. */
export async function startAction(run: string, action: string): Promise<void> {
  const response = await request("api/actions", {
    method: "POST",
    headers: { "Content-Type": "application/json", "X-Sdssm-Token": token },
    body: JSON.stringify({ run, action }),
  });
  if (!response.ok) {
    const answer = (await response.json().catch(() => ({}))) as { error?: string };
    throw new Error(answer.error ?? response.statusText);
  }
  void ask();
}

async function getJson<T>(path: string): Promise<T | null> {
  const response = await request(path);
  if (response.status === 404) return null;
  if (!response.ok) throw new ServerError(response.statusText);
  return (await response.json()) as T;
}

function request(path: string, options: RequestInit = {}): Promise<Response> {
  return fetch(path, { cache: "no-store", signal: AbortSignal.timeout(PATIENCE), ...options });
}
