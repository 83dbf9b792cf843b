/** Accuracy against length: lines with bands over seeds, the training range, chance. */
import {
  areaY,
  axisX,
  axisY,
  dot,
  gridX,
  gridY,
  lineY,
  pointerX,
  rect,
  ruleX,
  ruleY,
  text,
  tip,
  type Markish,
  type PlotOptions,
} from "@observablehq/plot";
import type { Curve } from "../data";
import { count, percent } from "../report/format";
import type { TableOf } from "./DataTable";
import { joinNames, nameWidth, type Level } from "./levels";
import { smoothCurve } from "./smoothing";
import { stripeDashes } from "./stripes";
import { visible } from "./theme";

export interface Series {
  key: string;
  label: string;
  colour: string;
  dashes: number[];
  curve: Curve;
}

export interface AccuracyOptions {
  series: Series[];
  levels: Level[];
  trainLength: number | null;
  lengthScale: "log" | "linear";
  /** Whether to show 100 - accuracy on a logarithmic scale. */
  errors: boolean;
  measure: string; // "accuracy", "balanced accuracy", ...
  height: number;
}

/** Curves of at most this many lengths have a dot on each. */
export const MOST_DOTS = 20;
/** A small multiple has no room for the names of lines and axes. */
const COMPACT_WIDTH = 420;

/** The options of Plot for a width in pixels. */
export function accuracyPlot(options: AccuracyOptions, width: number): PlotOptions {
  const { series, levels, trainLength, errors, height } = options;
  const isCompact = width < COMPACT_WIDTH;
  const lengths = allLengths(series);
  const [first, last] = [lengths[0] ?? 1, lengths.at(-1) ?? 1];
  const floor = errorFloor(options);
  const shown = (value: number | null) => (value === null ? NaN : errors ? Math.max(100 - value, floor) : value);
  const ticks = options.lengthScale === "log" ? logTicks(first, last, isCompact) : isCompact ? 4 : 8;
  const levelTicks = errors ? errorTicks(floor) : [0, 25, 50, 75, 100];
  const [bottom, top] = errors ? [floor, 100] : [0, 100];
  const marks: Markish[] = [];
  if (trainLength !== null && trainLength > first) {
    const end = Math.min(trainLength, last);
    marks.push(
      rect([0], { x1: [first], x2: [end], y1: [bottom], y2: [top], fill: "var(--train-range)" }),
      trainName(options, first, last, top, isCompact),
    );
  }
  marks.push(
    gridY({ ticks: levelTicks, stroke: "var(--line)", strokeOpacity: 1 }),
    gridX({ ticks, stroke: "var(--line)", strokeOpacity: 0.6 }),
  );
  for (const level of levels) marks.push(levelLine(level, shown));
  const dashes = stripeDashes(series);
  series.forEach((item, number) => {
    const stroke = visible(item.colour);
    const curve = smoothCurve(item.curve, options.lengthScale === "log");
    const common = { x: curve.lengths, clip: true } as const;
    if (item.curve.low.some((low, k) => low !== item.curve.high[k]))
      marks.push(
        areaY(curve.lengths, {
          ...common,
          y1: curve.low.map(shown),
          y2: curve.high.map(shown),
          fill: stroke,
          fillOpacity: 0.16,
        }),
      );
    marks.push(
      lineY(curve.lengths, { ...common, y: curve.mean.map(shown), stroke, strokeWidth: 2, ...dashes[number] }),
    );
    if (curve.lengths.length <= MOST_DOTS)
      marks.push(dot(curve.lengths, { x: curve.lengths, y: curve.mean.map(shown), fill: stroke, r: 3.5 }));
  });
  for (const level of joinNames(levels)) marks.push(levelName(level, first, last, shown, errors, width)); // above the lines
  const records = lengths.map((length) => ({ length, title: describe(options, length) }));
  marks.push(
    ruleX(records, pointerX({ x: "length", y1: () => bottom, y2: () => top, stroke: "var(--muted)", strokeWidth: 1 })),
    tip(
      records,
      pointerX({
        x: "length",
        y: () => (errors ? Math.sqrt(bottom * top) : 50),
        title: "title",
        lineWidth: 30,
        fontSize: 12,
        lineHeight: 1.25,
      }),
    ),
  );
  return {
    height,
    marginLeft: 46,
    marginRight: 12,
    marginTop: 24,
    marginBottom: 36,
    x: {
      type: options.lengthScale,
      domain: [first, Math.max(last, first + 1)],
      label: "length of the string (symbols) →",
      labelAnchor: "right",
    },
    y: errors
      ? { type: "log", domain: [bottom, top], label: "↑ error rate (%)" }
      : { domain: [0, 100], label: `↑ ${options.measure} (%)` },
    marks: [
      axisX({ ticks, text: count }), // `text`, since `tickFormat` leaves out labels of a logarithmic axis
      axisY({
        ticks: levelTicks,
        text: (value: number) => (errors && value === floor ? "0" : `${value}`),
      }),
      ...marks,
    ],
  };
}

/** The name of the training range, above its end: to the left of it, or to the right if the range is narrow. */
function trainName(
  { trainLength, lengthScale }: AccuracyOptions,
  first: number,
  last: number,
  top: number,
  isCompact: boolean,
): Markish {
  const end = Math.min(trainLength ?? last, last);
  const place = lengthScale === "log" ? Math.log(end / first) / Math.log(last / first) : (end - first) / (last - first);
  const isWide = place > 0.5;
  const name = `trained ${isCompact ? "" : "on lengths "}up to ${count(trainLength)}`;
  return text([0], {
    x: [end],
    y: [top],
    text: [isWide ? `${name} ` : ` ← ${name}`],
    textAnchor: isWide ? "end" : "start",
    dy: -9,
    fill: "var(--muted)",
  });
}

/** A dashed line for a level, a dotted one for a level that depends on the length. */
function levelLine({ value }: Level, shown: (value: number | null) => number): Markish {
  const stroke = "var(--muted)";
  if (typeof value === "number") return ruleY([shown(value)], { stroke, strokeDasharray: "4 3" });
  const y = value.mean.map(shown);
  return lineY(value.lengths, {
    x: value.lengths,
    y,
    stroke,
    strokeDasharray: "1 4",
    strokeWidth: 1.5,
    strokeLinecap: "round",
  });
}

/** The name of a level: at the left, where few lines are low; that of a curve at its end. */
function levelName(
  { label, value }: Level,
  first: number,
  last: number,
  shown: (value: number | null) => number,
  errors: boolean,
  width: number,
): Markish {
  const isCurve = typeof value !== "number";
  return text([0], {
    x: [isCurve ? last : first],
    y: [shown(isCurve ? (value.mean.at(-1) ?? null) : value)],
    text: [label],
    textAnchor: isCurve ? "end" : "start",
    dx: isCurve ? -3 : 5,
    dy: errors ? 4 : -4,
    lineAnchor: errors ? "top" : "bottom",
    lineWidth: nameWidth(width),
    fill: "var(--muted)",
    stroke: "var(--surface)",
    strokeOpacity: 0.8,
    strokeWidth: 4,
    paintOrder: "stroke",
  });
}

/** What all series and levels are at a length, the best first. */
function describe({ series, levels, errors }: AccuracyOptions, length: number): string {
  const show = (value: number) => percent(errors ? 100 - value : value);
  const lines = series
    .map((item) => ({ item, at: item.curve.lengths.indexOf(length) }))
    .filter(({ item, at }) => at >= 0 && item.curve.mean[at] !== null)
    .map(({ item, at }) => ({ item, mean: item.curve.mean[at]!, low: item.curve.low[at], high: item.curve.high[at] }))
    .sort((a, b) => b.mean - a.mean)
    .map(({ item, mean, low, high }) => {
      const hasBand = low !== null && high !== null && low !== undefined && high !== undefined && low !== high;
      const band = hasBand ? (errors ? ` (${show(high)} to ${show(low)})` : ` (${show(low)} to ${show(high)})`) : "";
      return `${item.label}  ${show(mean)}${band}`;
    });
  const constant = levels.filter((level) => typeof level.value === "number");
  return [
    `length ${count(length)}${errors ? ", error rate" : ""}`,
    ...lines,
    ...constant.map((level) =>
      errors ? `${level.label}, that is ${show(level.value as number)} errors` : level.label,
    ),
  ].join("\n");
}

/** The numbers of the chart. */
export function accuracyTable({ series, measure, errors }: AccuracyOptions): TableOf {
  const rows = allLengths(series).map((length) => [
    count(length),
    ...series.map(({ curve }) => {
      const value = curve.mean[curve.lengths.indexOf(length)] ?? null;
      return percent(value === null ? null : errors ? 100 - value : value);
    }),
  ]);
  const what = errors ? `100 % minus ${measure}` : measure;
  return { caption: `Mean ${what} by length`, columns: ["length", ...series.map((item) => item.label)], rows };
}

/** One sentence with the result of the chart. */
export function accuracySentence(options: AccuracyOptions, task: string): string {
  const { series, levels, measure } = options;
  if (series.length === 0) return `No ${measure} was measured on ${task}.`;
  const parts = series.slice(0, 8).map(({ label, curve }) => {
    return `${label} ${percent(curve.mean.at(-1) ?? null)} at length ${count(curve.lengths.at(-1) ?? null)}`;
  });
  const more = series.length > 8 ? `, and ${series.length - 8} more` : "";
  const beside = levels.map((level) => level.label).join(", ");
  return `${measure[0]!.toUpperCase()}${measure.slice(1)} on ${task}: ${parts.join(", ")}${more}. ${beside}.`;
}

/** The lengths of all series, rising. */
export function allLengths(series: Series[]): number[] {
  return [...new Set(series.flatMap((item) => item.curve.lengths))].sort((a, b) => a - b);
}

/** A position on the logarithmic axis for "no error": half of the smallest error that was seen. */
function errorFloor({ series }: AccuracyOptions): number {
  const errors = series.flatMap((item) => item.curve.mean.map((value) => (value === null ? 0 : 100 - value)));
  const least = Math.min(...errors.filter((error) => error > 1e-6), 1);
  return 10 ** Math.floor(Math.log10(least / 2));
}

function errorTicks(floor: number): number[] {
  const ticks = [];
  for (let tick = floor; tick < 101; tick *= 10) ticks.push(Number(tick.toPrecision(3)));
  return ticks;
}

function logTicks(first: number, last: number, isCompact: boolean): number[] {
  const ticks = [];
  for (let power = 1; power <= last; power *= 10)
    for (const factor of isCompact ? [1] : [1, 2, 5]) ticks.push(power * factor);
  return ticks.filter((tick) => tick >= first && tick <= last);
}
