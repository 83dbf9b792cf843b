import type { MachineData, TaskData } from "../data";
import type { Word } from "./automaton";
import { count } from "./numbers";
import type { Random } from "./random";

/** The longest string of the playground. */
export const LONGEST = 10_000;

/** Draw a valid string of this length, or of the next shorter length that has one, uniformly at random. */
export function drawString(task: TaskData, length: number, random: Random): number[] {
  const { symbols } = task.machine;
  if (!task.valid) return Array.from({ length }, () => Math.floor(random() * symbols.length));
  const completions = countCompletions(task.valid, length);
  let rest = length;
  while (rest > 0 && completions[rest]![task.valid.start] === 0) rest--;
  const word: number[] = [];
  for (let state = task.valid.start; rest > 0; rest--) {
    const row = task.valid.table[state]!;
    const weights = row.map((next) => completions[rest - 1]![next]!);
    let mark = random() * weights.reduce((sum, weight) => sum + weight, 0);
    let symbol = weights.findIndex((weight) => (mark -= weight) < 0);
    if (symbol < 0) symbol = weights.findIndex((weight) => weight > 0); // the range ends a rounding error too early
    word.push(symbol);
    state = row[symbol]!;
  }
  return word;
}

/**
 * For each length and state, a number in proportion to the count of valid strings of this length from the state.
 * The counts of one length are divided by their largest, so that they stay finite.
 */
function countCompletions(valid: MachineData, length: number): Float64Array[] {
  const counts = [Float64Array.from(valid.outputs, (output) => (output === 0 ? 0 : 1))];
  for (let rest = 1; rest <= length; rest++) {
    const before = counts[rest - 1]!;
    const row = Float64Array.from(valid.table, (nexts) => nexts.reduce((sum, next) => sum + before[next]!, 0));
    const largest = row.reduce((a, b) => Math.max(a, b), 0);
    counts.push(largest > 0 ? row.map((count) => count / largest) : row);
  }
  return counts;
}

/** The states from which a valid string can still be reached; null if every string is valid. */
export function liveStates(valid: MachineData | null): Set<number> | null {
  if (!valid) return null;
  const live = new Set(valid.outputs.flatMap((output, state) => (output === 0 ? [] : [state])));
  for (let size = -1; size !== live.size; ) {
    size = live.size;
    valid.table.forEach((row, state) => row.some((next) => live.has(next)) && live.add(state));
  }
  return live;
}

/** Text that `parseString` reads back. */
export function formatString(machine: MachineData, word: Word): string {
  return word.map((symbol) => machine.symbols[symbol]!).join(hasLetters(machine) ? "" : " ");
}

/** The symbols of a text, or a sentence that says what is wrong with it. */
export function parseString(machine: MachineData, text: string): number[] | string {
  const separators = machine.symbols.includes(",") ? /\s+/ : /[\s,]+/;
  const pieces = text.split(separators).filter(Boolean);
  const parts = hasLetters(machine) ? [...pieces.join("")] : pieces;
  if (parts.length > LONGEST) {
    return `The string has ${count(parts.length)} symbols; the longest here is ${count(LONGEST)}.`;
  }
  const numbers = new Map(machine.symbols.map((name, symbol) => [name, symbol]));
  const unknown = parts.find((part) => !numbers.has(part));
  if (unknown !== undefined) return `“${unknown}” is not a symbol; the symbols are ${machine.symbols.join(", ")}.`;
  return parts.map((part) => numbers.get(part)!);
}

/** Whether each symbol is a single character, so that a string needs no spaces. */
export function hasLetters(machine: MachineData): boolean {
  return machine.symbols.every((name) => [...name].length === 1 && name.trim() !== "");
}
