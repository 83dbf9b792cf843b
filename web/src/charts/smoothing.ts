/** Means and ranges over neighbouring lengths, for curves with more lengths than a picture can show. */
import type { Curve } from "../data";

const MOST_POINTS = 150; // curves with at most this many lengths are drawn as they are
const POINTS = 250; // of a curve that was smoothed
const REACH = 0.008; // how far a point looks to each side, as a part of the axis

/**
 * A curve of at most 250 points, each the mean and range over the lengths near it on the axis.
 *
 * On some tasks even and odd lengths alternate, and curves drawn as they are fill an area. The mean is by the trapezoid
 * rule, which cancels such alternation for any number of neighbours. `report/smoothing.py` does the same for pictures.
 */
export function smoothCurve(curve: Curve, isLogarithmic: boolean): Curve {
  const known = curve.lengths.flatMap((_, k) => (curve.mean[k] === null ? [] : [k]));
  if (known.length <= MOST_POINTS) return curve;
  const pick = (values: (number | null)[]) => known.map((k) => values[k] ?? NaN);
  const [lengths, mean, low, high] = [pick(curve.lengths), pick(curve.mean), pick(curve.low), pick(curve.high)];
  const axis = lengths.map((length) => (isLogarithmic ? Math.log(length) : length));
  const [start, end] = [axis[0]!, axis.at(-1)!];
  const place = axis.map((value) => (value - start) / (end - start));
  const windows = place.map(
    (value) => [firstFrom(place, value - REACH), firstFrom(place, value + REACH + 1e-12) - 1] as const,
  );
  const ranges = windows.map(
    ([i, j]) => [Math.min(...low.slice(i, j + 1)), Math.max(...high.slice(i, j + 1))] as const,
  );
  const wanted = Array.from({ length: POINTS }, (_, k) =>
    Math.min(firstFrom(place, k / (POINTS - 1)), lengths.length - 1),
  );
  const points = [...new Set(wanted)];
  const average = (values: number[]) => points.map((k) => trapezoid(values, ...windows[k]!, k));
  return {
    lengths: points.map((k) => lengths[k]!),
    mean: average(mean),
    low: average(ranges.map(([lowest]) => lowest)),
    high: average(ranges.map(([, highest]) => highest)),
  };
}

/** The mean of values between two indices by the trapezoid rule. */
function trapezoid(values: number[], first: number, last: number, at: number): number {
  if (first >= last) return values[at]!;
  let total = 0;
  for (let k = first; k < last; k++) total += (values[k]! + values[k + 1]!) / 2;
  return Math.min(Math.max(total / (last - first), 0), 100);
}

/** The first index whose value is at least `least`, in rising values. */
function firstFrom(values: number[], least: number): number {
  const index = values.findIndex((value) => value >= least);
  return index < 0 ? values.length : index;
}
