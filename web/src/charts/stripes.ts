/** Dashes of lines, such that lines which lie on each other all stay visible. */
import type { Series } from "./accuracy";

const STRIPE = 12; // pixels
const SAME = 0.5; // percentage points

/** The dashes of each series: its own, or its share of the stripes of a group that has the same curve. */
export function stripeDashes(series: Series[]): { strokeDasharray?: string; strokeDashoffset?: number }[] {
  const groups: Series[][] = [];
  for (const item of series) {
    const group = groups.find(([first]) => first !== undefined && isSame(first, item));
    if (group) group.push(item);
    else groups.push([item]);
  }
  return series.map((item) => {
    const group = groups.find((members) => members.includes(item))!;
    if (group.length === 1)
      return item.dashes.length ? { strokeDasharray: item.dashes.map((dash) => dash * 2).join(" ") } : {};
    const gap = STRIPE * (group.length - 1);
    return { strokeDasharray: `${STRIPE} ${gap}`, strokeDashoffset: -STRIPE * group.indexOf(item) };
  });
}

function isSame(one: Series, other: Series): boolean {
  const [a, b] = [one.curve, other.curve];
  return (
    a.lengths.length === b.lengths.length &&
    a.lengths.every((length, k) => length === b.lengths[k]) &&
    a.mean.every((mean, k) => Math.abs((mean ?? -1e3) - (b.mean[k] ?? -1e3)) < SAME)
  );
}
