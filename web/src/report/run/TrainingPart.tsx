/** Loss and accuracy while models were trained: of one run, or of several on top of each other. */
import { useMemo } from "preact/hooks";
import type { Level } from "../../charts/levels";
import { Chart } from "../../charts/Chart";
import {
  lossPlot,
  trainingAccuracyPlot,
  TRAINING_HEIGHT,
  trainingTable,
  type TrainingLine,
} from "../../charts/training";
import { count, number, percent } from "../format";

export function TrainingPart({ lines, levels }: { lines: TrainingLine[]; levels: Level[] }) {
  const drawLoss = useMemo(() => (width: number) => lossPlot(lines, width), [lines]);
  const drawAccuracy = useMemo(() => (width: number) => trainingAccuracyPlot(lines, levels, width), [lines, levels]);
  if (!lines.some((line) => line.events.step.length > 0))
    return <p class="missing">No training log that could be shown is on this page.</p>;
  const [losses, accuracies] = (["loss", "accuracy"] as const).map((name) =>
    lines.slice(0, 8).map(({ label, events }) => {
      const value = events[name].at(-1);
      return `${label} ${name === "loss" ? number(value) : percent(value)} at step ${count(events.step.at(-1))}`;
    }),
  );
  return (
    <div class="pair">
      <div class="panel">
        <h3>Loss</h3>
        <Chart
          label={`Training loss: ${losses!.join(", ")}.`}
          draw={drawLoss}
          height={TRAINING_HEIGHT}
          caption="Logarithmic scale."
          table={() => trainingTable(lines)}
        />
      </div>
      <div class="panel">
        <h3>Training accuracy</h3>
        <Chart
          label={`Training accuracy: ${accuracies!.join(", ")}. ${levels.map((level) => level.label).join(", ")}.`}
          draw={drawAccuracy}
          height={TRAINING_HEIGHT}
          caption="On the strings of each batch, of training lengths only."
        />
      </div>
    </div>
  );
}
