/** Numbers as the playground writes them, in text and on the axes of charts. */
import { percentNumber } from "../report/format";

export { count, countOf } from "../report/format";

/** Percent with one decimal; only exactly 100 reads "100 %". */
export function percent(value: number): string {
  return value > 0 && value < 0.01 ? "<\u202f0.01\u202f%" : `${percentNumber(value)}\u202f%`;
}
