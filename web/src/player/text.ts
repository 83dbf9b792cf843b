/** What the playground says in sentences. */
import type { TaskData } from "../data";
import { chance } from "../report/format";
import { hasStateLabels, UNLABELLED } from "./automaton";
import { count, countOf, percent } from "./numbers";
import type { Lane } from "./session";
import type { Kick, Trace } from "./trace";

/** The question that the automaton of a known task answers, in plain words. */
const QUESTIONS: Record<string, string> = {
  parity: "Is the number of 1s so far even or odd?",
  even_pairs: "Is the first symbol equal to the last one?",
  cycle: "Walk around a ring of five places: where are you now?",
  arithmetic: "Compute with the numbers 0 to 4, modulo 5: what is the result so far?",
  c2xc4: "A switch and a ring of four places: in which position are both?",
  c2xc30: "A switch and a ring of thirty places: in which position are both?",
  d4: "Turn and flip a square: how does it lie now?",
  d30: "Turn and flip a polygon with thirty corners: how does it lie now?",
  a5: "Five cards are moved around: in which order are they now?",
};

/** What the task asks for. */
export function describeTask(task: TaskData): string {
  const { machine } = task;
  const question = QUESTIONS[task.name];
  const asked = hasStateLabels(machine)
    ? "in which state the automaton is"
    : machine.n_classes === 2
      ? "whether the automaton accepts what it has read"
      : "the output of the automaton's state";
  const rule =
    `The automaton starts in the state “${machine.states[machine.start]}”, and each symbol moves it along an arrow. ` +
    `The model does not know the automaton: it sees the symbols alone and must say, after each one, ${asked}.`;
  return question ? `${question} ${rule}` : rule;
}

/** What to look at, before anything is played. */
export function describeTraining(lanes: Lane[]): string {
  const lengths = lanes.map((lane) => lane.entry.player.train_length);
  const [first, second] = lengths;
  const who =
    second === undefined
      ? `This model was trained on strings of up to ${countOf(first!, "symbol")}.`
      : first === second
        ? `Both models were trained on strings of up to ${countOf(first!, "symbol")}.`
        : `The models were trained on strings of up to ${count(first!)} and ${countOf(second, "symbol")}.`;
  return (
    `${who} A model generalises if it stays right on strings longer than those it was trained on: ` +
    "press play, and see what happens."
  );
}

/** How a model does on the whole string. */
export function describeOutcome(lane: Lane, length: number, task: TaskData): string {
  const trace = lane.trace.value;
  if (length === 0) return "The string is empty.";
  if (!trace.isDone) return `Reading: ${count(trace.done)} of ${countOf(length, "symbol")} …`;
  if (trace.asked[length] === 0) return "No part of this string is valid, so the model is not asked.";
  if (trace.firstWrong === null) return `No mistake in ${countOf(length, "symbol")}.`;
  const first = trace.firstWrong;
  const later = accuracyBetween(trace, first - 1, length) ?? 0;
  return (
    `First mistake at symbol ${count(first)}; from there on ${percent(later)} of its predictions are right ` +
    `(a random guess: ${chance(task.chance)}).${describeOpposite(lane, length, task)}`
  );
}

/** Percentage points below chance from which a model is said to give the opposite answer. */
const BELOW_CHANCE = 5;
/** Mistakes in a row that a random guess between two classes hardly makes. */
const LONG_STRETCH = 20;

/** Why a model is right less often than chance; empty if it is not, or if a mistake has no opposite. */
function describeOpposite(lane: Lane, length: number, task: TaskData): string {
  const trace = lane.trace.value;
  const beyond = accuracyBetween(trace, lane.entry.player.train_length, length);
  const isBelow = beyond !== null && beyond < task.chance - BELOW_CHANCE;
  if (task.machine.n_classes !== 2 || !isBelow || longestStretch(trace, length) < LONG_STRETCH) return "";
  return " It has lost count and gives the opposite answer for long stretches.";
}

/** The largest number of wrong predictions in a row. */
function longestStretch(trace: Trace, length: number): number {
  let [longest, current] = [0, 0];
  for (let t = 1; t <= length; t++) {
    if (trace.correct[t]! > trace.correct[t - 1]!) current = 0;
    else if (trace.asked[t]! > trace.asked[t - 1]!) longest = Math.max(longest, ++current);
  }
  return longest;
}

/** What to conclude when the string has been played: a sentence for each model. */
export function describeConclusion(lanes: Lane[], length: number): string {
  const sentences = lanes.map((lane) => {
    const trace = lane.trace.value;
    const trained = Math.min(length, lane.entry.player.train_length);
    const noun = trace.asked[length] === length ? "symbol" : "prediction";
    const [within, beyond] = [countWrong(trace, 0, trained), countWrong(trace, trained, length)];
    const later = `${countOf(beyond.asked, noun)} beyond its training lengths`;
    if (within.wrong + beyond.wrong === 0) {
      return `${laneName(lane)} made no mistake in ${countOf(within.asked + beyond.asked, noun)}.`;
    }
    const early = `${countOf(within.wrong, "time")} in the first ${countOf(within.asked, noun)}`;
    if (beyond.asked === 0) return `${laneName(lane)} was wrong ${early}.`;
    if (within.wrong === 0) return `${laneName(lane)} was wrong ${countOf(beyond.wrong, "time")} in the ${later}.`;
    return `${laneName(lane)} was wrong ${early}, and ${countOf(beyond.wrong, "time")} in the ${later}.`;
  });
  return sentences.join(" ");
}

/** The name of a model, with its variant if it is not the trained one. */
export function laneName(lane: Lane): string {
  const { name } = lane.entry.player.variants[lane.variant.value]!;
  return name === "trained" ? lane.entry.label : `${lane.entry.label} (${name})`;
}

/** Wrong predictions, and all that are asked, after more than `from` and at most `to` symbols. */
function countWrong(trace: Trace, from: number, to: number): { asked: number; wrong: number } {
  const asked = trace.asked[to]! - trace.asked[from]!;
  return { asked, wrong: asked - (trace.correct[to]! - trace.correct[from]!) };
}

/** Percentage of correct predictions after more than `from` and at most `to` symbols; null if none is asked. */
export function accuracyBetween(trace: Trace, from: number, to: number): number | null {
  const end = Math.min(to, trace.done);
  if (end <= from) return null;
  const asked = trace.asked[end]! - trace.asked[from]!;
  return asked === 0 ? null : (100 * (trace.correct[end]! - trace.correct[from]!)) / asked;
}

/** Percentage of the most frequent label of a string: what a constant answer scores. */
export function bestConstant(labels: Int32Array, classes: number): number | null {
  const counts = new Float64Array(classes);
  let asked = 0;
  for (const label of labels) {
    if (label === UNLABELLED) continue;
    counts[label]!++;
    asked++;
  }
  return asked === 0 ? null : (100 * Math.max(...counts)) / asked;
}

/** What the kicks changed, against the same run without them; null without a kick. */
export function describeRecovery(lane: Lane, kicks: ReadonlyMap<number, Kick>, length: number): string | null {
  const { unkicked } = lane;
  const trace = lane.trace.value;
  const first = Math.min(...kicks.keys());
  if (first > length || !unkicked?.isDone || !trace.isDone) return null;
  const { asked, wrong } = countWrong(trace, first - 1, length);
  if (asked === 0) return null;
  const before = countWrong(unkicked, first - 1, length).wrong;
  const which = kicks.size === 1 ? "the kick" : `the first of ${kicks.size} kicks,`;
  const what = wrong === 0 ? "it stays right" : `${count(wrong)} wrong`;
  const without = `without ${kicks.size === 1 ? "the kick" : "the kicks"}: ${count(before)} wrong`;
  return `After ${which} at symbol ${count(first)}: ${what} in ${countOf(asked, "prediction")} (${without}).`;
}

/** What the variants of a model are, besides the trained one. */
export const VARIANTS: Record<string, string> = {
  snapped: "the network is replaced by the exact automaton that was read from its weights",
};
