/** Levels to compare accuracies with, such as chance. */
import type { Curve } from "../data";

/** A level: the same at all lengths, or a curve. */
export interface Level {
  label: string;
  value: number | Curve;
}

const NEAR = 9; // percentage points between levels whose names have room one above the other

/** The levels to write names at: levels near each other share one name, at the highest of them. */
export function joinNames(levels: Level[]): Level[] {
  const curves = levels.filter((level) => typeof level.value !== "number");
  const flat = levels.filter((level) => typeof level.value === "number").sort((a, b) => valueOf(a) - valueOf(b));
  const groups: Level[][] = [];
  for (const level of flat) {
    const group = groups.at(-1);
    if (group && valueOf(level) - valueOf(group[0]!) < NEAR) group.push(level);
    else groups.push([level]);
  }
  const names = groups.map((group) => ({
    label: group.map((level) => level.label).join("; "),
    value: valueOf(group.at(-1)!),
  }));
  return [...names, ...curves];
}

/** The width of a name before it is broken into lines, in the ems of Plot, on a chart of this width in pixels. */
export function nameWidth(width: number): number {
  return Math.max(8, (width - 70) / 12);
}

function valueOf(level: Level): number {
  return level.value as number;
}
