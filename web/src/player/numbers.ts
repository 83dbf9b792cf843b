/** Numbers as the playground writes them, in text and on the axes of charts. */
import { percentNumber } from "../report/format";

/** A whole number with commas between groups of three digits: "10,000". */
export function count(value: number): string {
  return Math.round(value)
    .toString()
    .replace(/\B(?=(\d{3})+$)/g, ",");
}

/** "1 symbol", "2 symbols". */
export function countOf(value: number, noun: string): string {
  return `${count(value)} ${noun}${value === 1 ? "" : "s"}`;
}

/** Percent with one decimal; only exactly 100 reads "100 %". */
export function percent(value: number): string {
  return value > 0 && value < 0.01 ? "<\u202f0.01\u202f%" : `${percentNumber(value)}\u202f%`;
}
