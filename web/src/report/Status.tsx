/** The status of a run: a word, and how far it is. */
import type { RunData } from "../data";
import { count, duration } from "./format";
import { secondsLeft } from "./Progress";

/** With `hasBar`, a running training has a bar and the time that is left. */
export function Status({ run, hasBar = false }: { run: RunData; hasBar?: boolean }) {
  const share = run.steps > 0 ? run.step / run.steps : 1;
  const problems = run.problems.length ? `; ${run.problems.join("; ")}` : "";
  const left = hasBar && run.status === "running" ? secondsLeft(run) : null;
  return (
    <span
      class={`status status-${/^[a-z]+$/.test(run.status) ? run.status : "other"}`}
      title={`step ${count(run.step)} of ${count(run.steps)}${problems}`}
    >
      {run.status}
      {share < 1 && ` at ${Math.floor(100 * share)} %`}
      {left !== null && `, ${duration(left)} left`}
      {problems && " (problem)"}
      {hasBar && run.status === "running" && <progress max={run.steps} value={run.step} aria-hidden="true" />}
    </span>
  );
}
