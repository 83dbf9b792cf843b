/** Accuracy against length of some trainings, with switches for the measure and the scales. */
import { useMemo, useState } from "preact/hooks";
import {
  accuracyPlot,
  accuracySentence,
  accuracyTable,
  allLengths,
  MOST_DOTS,
  type AccuracyOptions,
  type Series,
} from "../charts/accuracy";
import { Chart } from "../charts/Chart";
import type { Level } from "../charts/levels";
import { Legend } from "../charts/Legend";
import type { TrainingData } from "../data";
import { BEST_CONSTANT, chance as chanceText, count, countOf } from "./format";
import { Segmented } from "./Segmented";

export type Measure = "accuracy" | "balanced" | "covering";
/** Each measure and its name in sentences and on axes. */
export const MEASURES: [Measure, string][] = [
  ["accuracy", "accuracy"],
  ["balanced", "balanced accuracy"],
  ["covering", "covering accuracy"],
];
const EXPLAINED: Record<Measure, string> = {
  accuracy: "on strings drawn uniformly",
  balanced: "on strings drawn so that every label is equally frequent",
  covering: "on strings drawn so that every transition of the automaton occurs",
};

interface AccuracyPanelProps {
  name: string; // of what the lines belong to, for the text of the chart
  /** The series of each measure; empty where nothing was measured. */
  series: Record<Measure, Series[]>;
  levels: Record<Measure, Level[]>;
  trainLength: number | null;
  height?: number;
}

export function AccuracyPanel({ name, series, levels, trainLength, height = 360 }: AccuracyPanelProps) {
  const measured = MEASURES.filter(([key]) => series[key].length > 0);
  const [wanted, setMeasure] = useState<Measure>("accuracy");
  const [lengthScale, setLengthScale] = useState<"log" | "linear">("log");
  const [vertical, setVertical] = useState<"accuracy" | "errors">("accuracy");
  const [hidden, setHidden] = useState<Set<string>>(new Set());
  const measure = measured.some(([key]) => key === wanted) ? wanted : (measured[0]?.[0] ?? "accuracy");
  const measureName = MEASURES.find(([key]) => key === measure)![1];
  const options = useMemo<AccuracyOptions>(
    () => ({
      series: series[measure].filter((item) => !hidden.has(item.key)),
      levels: levels[measure],
      trainLength,
      lengthScale,
      errors: vertical === "errors",
      measure: measureName,
      height,
    }),
    [series, levels, trainLength, lengthScale, vertical, measure, hidden, height],
  );
  const draw = useMemo(() => (width: number) => accuracyPlot(options, width), [options]);
  if (measured.length === 0) return <p class="missing">Nothing was measured yet.</p>;
  const definition = options.levels.some(({ label }) => label.includes("best constant")) ? ` ${BEST_CONSTANT}` : "";
  const toggle = (key: string) => {
    const next = new Set(hidden);
    if (!next.delete(key)) next.add(key);
    setHidden(next);
  };
  return (
    <div class="panel">
      <div class="controls">
        {measured.length > 1 && (
          <Segmented
            legend="Measure"
            options={measured.map(([key]) => [key, key])}
            value={measure}
            onChange={setMeasure}
          />
        )}
        <Segmented
          legend="Length"
          options={[
            ["log", "logarithmic"],
            ["linear", "linear"],
          ]}
          value={lengthScale}
          onChange={setLengthScale}
        />
        <Segmented
          legend="Show"
          options={[
            ["accuracy", "accuracy"],
            ["errors", "errors (log)"],
          ]}
          value={vertical}
          onChange={setVertical}
        />
      </div>
      <Chart
        label={accuracySentence(options, name)}
        draw={draw}
        table={() => accuracyTable(options)}
        height={height}
        caption={`${options.errors ? `100 % minus ${measureName}` : capitalise(measureName)} ${EXPLAINED[measure]}, in percent.${measuredText(series[measure])}${definition}`}
      />
      {series[measure].length > 1 && <Legend entries={series[measure]} hidden={hidden} onToggle={toggle} />}
    </div>
  );
}

function capitalise(text: string): string {
  return text.slice(0, 1).toUpperCase() + text.slice(1);
}

/** How many lengths the lines have, if they are few. */
function measuredText(series: Series[]): string {
  const lengths = allLengths(series);
  return lengths.length > MOST_DOTS ? "" : ` ${countOf(lengths.length, "length")} measured: ${lengths.map(count).join(", ")}.`;
}

/** The lines of trainings, for each measure that was taken. */
export function trainingSeries(trainings: TrainingData[]): Record<Measure, Series[]> {
  const lines = (measure: Measure) =>
    trainings.flatMap((training) => {
      const curve = training[measure];
      return curve
        ? [{ key: training.id, label: training.label, colour: training.colour, dashes: training.dashes, curve }]
        : [];
    });
  return { accuracy: lines("accuracy"), balanced: lines("balanced"), covering: lines("covering") };
}

/** Chance and the best constant answer, for each measure. */
export function accuracyLevels(
  chance: number,
  trainings: TrainingData[],
  balancedChance: number | null,
): Record<Measure, Level[]> {
  const constant = trainings.find((training) => training.best_constant)?.best_constant ?? null;
  const guess = { label: `chance ${chanceText(chance)}`, value: chance };
  const constantLevel: Level[] = constant ? [{ label: "best constant answer", value: constant }] : [];
  const isSame = constant?.mean.every((value) => value !== null && Math.abs(value - chance) < 0.5);
  return {
    accuracy: isSame
      ? [{ ...guess, label: `chance and best constant answer ${chanceText(chance)}` }]
      : [guess, ...constantLevel],
    balanced: [
      balancedChance === null
        ? guess
        : { label: `best constant answer ${chanceText(balancedChance)}`, value: balancedChance },
    ],
    covering: [guess],
  };
}
