import { UNLABELLED, type Word } from "./automaton";
import type { Model } from "./models";
import { gaussian, seededRandom } from "./random";
import { norm } from "./readout";
import { LONGEST } from "./strings";

/** A state is kept after every so many symbols; the states between them are computed again when they are shown. */
const KEEP_EVERY = 32;

/** Noise that is added to the state once. */
export interface Kick {
  /** Relative to the norm of the state. */
  size: number;
  /** Two kicks at the same place differ in it. */
  seed: number;
}

/** Disturbances of a model's state. */
export interface Noise {
  /** Size of what is added after every symbol, relative to the norm of the state. */
  level: number;
  /** By the number of symbols after which they are added. */
  kicks: ReadonlyMap<number, Kick>;
  seed: number;
}

export const SILENCE: Noise = { level: 0, kicks: new Map(), seed: 1 };

/** What a model does after some number of symbols. */
export interface Reading {
  state: Float32Array;
  logits: Float32Array | null; // null before the first symbol
}

/** A model's run over a string, computed in pieces. Index t of an array stands for the first t symbols. */
export class Trace {
  readonly predicted = new Int16Array(LONGEST + 1);
  /** Logit of the label minus the largest other logit; below zero the prediction is wrong. NaN without a label. */
  readonly margin = new Float32Array(LONGEST + 1).fill(NaN);
  /** Counts up to t: prefixes with a label, and correct predictions. */
  readonly asked = new Int32Array(LONGEST + 1);
  readonly correct = new Int32Array(LONGEST + 1);
  /** How many symbols have been read. */
  done = 0;
  /** The number of symbols after which the first prediction is wrong; null: none so far. */
  firstWrong: number | null = null;

  private word: Word = [];
  private labels: Int32Array = new Int32Array(1);
  private kept: Float32Array[] = [];
  private state: Float32Array;

  constructor(
    private readonly model: Model,
    private noise: Noise = SILENCE,
  ) {
    this.state = model.initial();
    this.kept.push(this.state);
  }

  /** Whether all symbols have been read. */
  get isDone(): boolean {
    return this.done === this.word.length;
  }

  /** Continue with another string; what both strings begin with is not computed again. */
  setWord(word: Word, labels: Int32Array): void {
    let same = 0;
    const end = Math.min(this.done, word.length);
    while (same < end && word[same] === this.word[same]) same++;
    this.word = word;
    this.labels = labels;
    if (same < this.done) this.rewind(same);
  }

  /** Disturb the state differently; only what comes after the first difference is computed again. */
  setNoise(noise: Noise): void {
    const before = this.noise;
    this.noise = noise;
    if (before.level !== noise.level || before.seed !== noise.seed) return this.rewind(0);
    const changed = [...new Set([...before.kicks.keys(), ...noise.kicks.keys()])].filter(
      (t) => before.kicks.get(t) !== noise.kicks.get(t),
    );
    const first = Math.min(...changed);
    if (first <= this.done) this.rewind(Math.max(0, first - 1));
  }

  /** Read symbols until the string ends or the time is up; return whether it is done. */
  advance(milliseconds: number): boolean {
    const end = performance.now() + milliseconds;
    while (this.done < this.word.length) {
      this.readNext();
      if (this.done % 16 === 0 && performance.now() > end) break;
    }
    return this.isDone;
  }

  /** State and logits after t symbols, t at most `done`. */
  readingAt(t: number): Reading {
    let at = Math.floor(t / KEEP_EVERY) * KEEP_EVERY;
    let state = this.kept[at / KEEP_EVERY]!;
    while (at < t) state = this.stateAfter(state, at++);
    return { state, logits: t === 0 ? null : this.model.logits(state, this.word[t - 1]!) };
  }

  private rewind(t: number): void {
    this.done = Math.floor(t / KEEP_EVERY) * KEEP_EVERY;
    this.kept.length = this.done / KEEP_EVERY + 1;
    this.state = this.kept[this.kept.length - 1]!;
    if (this.firstWrong !== null && this.firstWrong > this.done) this.firstWrong = null;
  }

  private stateAfter(state: Float32Array, t: number): Float32Array {
    const next = this.model.step(state, this.word[t]!);
    const { level, kicks, seed } = this.noise;
    const kick = kicks.get(t + 1);
    const amount = level + (kick?.size ?? 0);
    return amount > 0 ? disturb(next, amount, (seed + (kick?.seed ?? 0)) * (LONGEST + 1) + t) : next;
  }

  private readNext(): void {
    this.state = this.stateAfter(this.state, this.done);
    const t = ++this.done;
    if (t % KEEP_EVERY === 0) this.kept.push(this.state);
    const logits = this.model.logits(this.state, this.word[t - 1]!);
    const label = this.labels[t]!;
    const isAsked = label !== UNLABELLED;
    const predicted = argmax(logits);
    const isCorrect = isAsked && predicted === label;
    this.predicted[t] = predicted;
    this.margin[t] = isAsked ? marginOf(logits, label) : NaN;
    this.asked[t] = this.asked[t - 1]! + Number(isAsked);
    this.correct[t] = this.correct[t - 1]! + Number(isCorrect);
    if (isAsked && !isCorrect) this.firstWrong ??= t;
  }
}

/** The first index of the largest number. */
export function argmax(values: Float32Array): number {
  let best = 0;
  for (let i = 1; i < values.length; i++) if (values[i]! > values[best]!) best = i;
  return best;
}

function marginOf(logits: Float32Array, label: number): number {
  let other = -Infinity;
  logits.forEach((logit, i) => i !== label && logit > other && (other = logit));
  return logits[label]! - other;
}

/** Add normal noise whose expected norm is `amount` times that of the state. */
function disturb(state: Float32Array, amount: number, seed: number): Float32Array {
  const random = seededRandom(seed);
  const size = (amount * norm(state)) / Math.sqrt(state.length);
  return state.map((value) => value + size * gaussian(random));
}

/** Shares that sum to 1, from logits. */
export function softmax(logits: Float32Array): Float32Array {
  const largest = logits.reduce((a, b) => Math.max(a, b), -Infinity);
  const powers = logits.map((logit) => Math.exp(logit - largest));
  const total = powers.reduce((sum, power) => sum + power, 0);
  return powers.map((power) => power / total);
}
