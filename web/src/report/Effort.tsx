/** How much went into each training of a comparison: a reader must know before judging which is better. */
import type { RunData, TrainingData } from "../data";
import { count, countOf } from "./format";
import { runs } from "./store";

/** A line such as "sd-ssm: 6 000 steps, preset scale-free, 1 seed; rnn: ..."; nothing for a single training. */
export function Effort({ trainings }: { trainings: TrainingData[] }) {
  if (trainings.length < 2) return null;
  const parts = trainings.map((training) => {
    const members = training.runs.flatMap((id) => runs.value.get(id) ?? []);
    return `${training.label}: ${trainedText(members)}, ${countOf(training.runs.length, "seed")}`;
  });
  return <p class="fine">{parts.join("; ")}.</p>;
}

/** Steps and preset of the runs of one training. */
export function trainedText(members: RunData[]): string {
  const steps = members.map((run) => run.step);
  const [least, most] = [Math.min(...steps), Math.max(...steps)];
  const preset = members[0]?.preset ? `, preset ${members[0].preset}` : "";
  return `${least === most ? count(most) : `${count(least)} to ${count(most)}`} steps${preset}`;
}
