/** Loss and accuracy against the step of training, for one run or several. */
import {
  axisY,
  dot,
  gridY,
  lineY,
  pointer,
  ruleY,
  text,
  tip,
  type Markish,
  type PlotOptions,
} from "@observablehq/plot";
import type { RunDetail } from "../data";
import { count, number, percent } from "../report/format";
import { joinNames, nameWidth, type Level } from "./levels";
import type { TableOf } from "./DataTable";
import { visible } from "./theme";

/** The logged values of one run, and the look of its line. */
export interface TrainingLine {
  label: string;
  colour: string;
  dashes: number[];
  events: NonNullable<RunDetail["events"]>;
}

export const TRAINING_HEIGHT = 230;

interface Point {
  step: number;
  value: number;
  title: string;
}

/** The options of Plot for the loss, on a logarithmic scale. */
export function lossPlot(lines: TrainingLine[], width: number): PlotOptions {
  const values = lines.flatMap((line) => listPoints(line, "loss")).map(({ value }) => value);
  const [least, most] = [Math.min(...values), Math.max(...values)];
  const domain: [number, number] = values.length ? [least / 1.1, most * 1.1] : [0.1, 1];
  const ticks = powerTicks(...domain);
  return {
    ...frame(width),
    y: { type: "log", label: "↑ loss", domain },
    marks: [
      gridY({ ticks, stroke: "var(--line)", strokeOpacity: 1 }),
      axisY({ ticks, text: (value: number) => number(value) }),
      ...lineMarks(lines, "loss"),
    ],
  };
}

/** The options of Plot for the accuracy, beside levels such as chance. */
export function trainingAccuracyPlot(lines: TrainingLine[], levels: Level[], width: number): PlotOptions {
  const last = Math.max(...lines.map((line) => line.events.step.at(-1) ?? 0));
  const names = joinNames(levels).map((level) =>
    text([0], {
      x: [last],
      y: [level.value as number],
      text: [level.label],
      textAnchor: "end",
      dy: -4,
      lineAnchor: "bottom",
      lineWidth: nameWidth(width),
      fill: "var(--muted)",
      stroke: "var(--surface)",
      strokeWidth: 4,
    }),
  );
  return {
    ...frame(width),
    y: { domain: [0, 100], label: "↑ accuracy (%)", ticks: [0, 25, 50, 75, 100] },
    marks: [
      gridY({ ticks: [0, 25, 50, 75, 100], stroke: "var(--line)", strokeOpacity: 1 }),
      ruleY(
        levels.map((level) => level.value as number),
        { stroke: "var(--muted)", strokeDasharray: "4 3" },
      ),
      ...lineMarks(lines, "accuracy"),
      ...names,
    ],
  };
}

/** The numbers of both charts. */
export function trainingTable(lines: TrainingLine[]): TableOf {
  const rows = lines.flatMap(({ label, events }) =>
    events.step.map((step, k) => [label, count(step), number(events.loss[k]), percent(events.accuracy[k])]),
  );
  return { caption: "Training by step", columns: ["run", "step", "loss", "accuracy"], rows };
}

/** Powers of ten in an interval; with their multiples by 2 and 5 if they are few. */
export function powerTicks(least: number, most: number): number[] {
  const ticks = [];
  const [first, last] = [Math.floor(Math.log10(least)), Math.ceil(Math.log10(most))];
  const factors = last - first <= 2 ? [1, 2, 5] : [1];
  for (let power = first; power <= last; power++)
    for (const factor of factors) ticks.push(Number(`${factor}e${power}`));
  return ticks.filter((tick) => tick >= least && tick <= most);
}

function frame(width: number): PlotOptions {
  return {
    height: TRAINING_HEIGHT,
    marginLeft: 52,
    marginRight: 14,
    marginTop: 22,
    marginBottom: 36,
    x: { label: "step →", ticks: width < 420 ? 3 : 5, tickFormat: (value: number) => count(value) },
  };
}

function lineMarks(lines: TrainingLine[], name: "loss" | "accuracy"): Markish[] {
  const all = lines.flatMap((line) => listPoints(line, name));
  const drawn = lines.map((line) =>
    lineY(listPoints(line, name), {
      x: "step",
      y: "value",
      stroke: visible(line.colour),
      strokeWidth: 1.6,
      strokeDasharray: line.dashes.map((dash) => 2 * dash).join(" "),
    }),
  );
  const nearest = pointer({ x: "step", y: "value", maxRadius: 60 } as const);
  return [
    ...drawn,
    dot(all, { ...nearest, r: 3, fill: "currentColor" }),
    tip(all, pointer({ x: "step", y: "value", title: "title", maxRadius: 60 })),
  ];
}

function listPoints({ label, events }: TrainingLine, name: "loss" | "accuracy"): Point[] {
  return events.step.flatMap((step, k) => {
    const value = events[name][k];
    if (value === null || value === undefined || (name === "loss" && value <= 0)) return [];
    const shown = name === "loss" ? `loss ${number(value)}` : percent(value);
    return [{ step, value, title: `${label}\nstep ${count(step)}: ${shown}` }];
  });
}
