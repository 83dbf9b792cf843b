/** Numbers as text, each with its unit. */

const THIN_SPACE = "\u202f";

/** Percent with one decimal; only exactly 100 reads "100 %". */
export function percent(value: number | null | undefined): string {
  return value === null || value === undefined ? "–" : `${percentNumber(value)}${THIN_SPACE}%`;
}

/** The same without the unit, for cells of a table whose head has it. */
export function percentNumber(value: number): string {
  if (value >= 100) return "100";
  if (value <= 0) return "0";
  if (value < 1) return value.toPrecision(2);
  const text = value.toFixed(1);
  return text === "100.0" ? (Math.floor(value * 1000) / 1000).toString() : text;
}

/** What chance gives: an exact level, so without decimals that mean nothing. */
export function chance(value: number | null | undefined): string {
  return value === null || value === undefined ? "–" : `${Number(value.toPrecision(3))}${THIN_SPACE}%`;
}

/** What a column or a label "best constant" is. */
export const BEST_CONSTANT =
  "Best constant: the accuracy, on the same strings, of always giving the most frequent label.";

/** A forecast or a rule of thumb: a whole number with two significant digits, "1,800,000". */
export function estimate(value: number | null | undefined): string {
  return value === null || value === undefined ? "–" : count(Number(value.toPrecision(2)));
}

/** A whole number with commas between groups of three digits, as the command line writes it: "10,000". */
export function count(value: number | null | undefined): string {
  if (value === null || value === undefined) return "–";
  return Math.round(value)
    .toString()
    .replace(/\B(?=(\d{3})+$)/g, ",");
}

/** "1 run", "2 runs". */
export function countOf(value: number, noun: string, plural = `${noun}s`): string {
  return `${count(value)} ${value === 1 ? noun : plural}`;
}

/** A number with three significant digits. */
export function number(value: number | null | undefined): string {
  if (value === null || value === undefined) return "–";
  if (value === 0) return "0";
  const size = Math.abs(value);
  return size >= 1e5 || size < 1e-3 ? value.toExponential(2) : Number(value.toPrecision(3)).toString();
}

/** Seconds as "8.4 s", "3 min 20 s" or "2 h 5 min". */
export function duration(seconds: number | null | undefined): string {
  if (seconds === null || seconds === undefined) return "–";
  if (seconds < 60) return `${seconds < 10 ? seconds.toFixed(1) : Math.round(seconds)} s`;
  const minutes = Math.floor(seconds / 60);
  if (minutes < 60) return `${minutes} min ${Math.round(seconds % 60)} s`;
  return `${Math.floor(minutes / 60)} h ${minutes % 60} min`;
}

/** A difference in percentage points, always with its sign. */
export function signed(value: number): string {
  const text = Math.abs(value).toFixed(1);
  if (text === "0.0") return "±0.0";
  return (value > 0 ? "+" : "−") + text;
}
