/** How far a training is: a bar, the step, and the time that is left at its present speed. */
import type { RunData } from "../data";
import { count, duration, percent } from "./format";

export function Progress({ run }: { run: RunData }) {
  const left = secondsLeft(run);
  return (
    <div class="training-progress">
      <progress max={run.steps} value={run.step} aria-label="Steps of the training" />
      <p>
        step {count(run.step)} of {count(run.steps)}
        {left !== null && `, about ${duration(left)} left`}
        {run.accuracy !== null && `; training accuracy ${percent(run.accuracy)}`}
      </p>
    </div>
  );
}

/** The time that a training needs for the rest of its steps; null if it has none behind it. */
export function secondsLeft({ step, steps, seconds }: RunData): number | null {
  if (seconds === null || step <= 0) return null;
  const left = (seconds / step) * Math.max(0, steps - step);
  return left < 10 ? Math.ceil(left) : left;
}
