import { batch, computed, signal, type ReadonlySignal, type Signal } from "@preact/signals";
import type { PlaygroundData, TaskData } from "../data";
import { labelsAlong, statesAlong, type Word } from "./automaton";
import { buildModel } from "./models";
import { seededRandom } from "./random";
import { drawString, LONGEST } from "./strings";
import { SILENCE, Trace, type Noise } from "./trace";

/** A model, its task and the name under which it is offered. */
export type PlayerEntry = PlaygroundData["entries"][number];

/** Milliseconds of computation between two frames, so that the page stays fluid. */
const CHUNK = 8;
/** Milliseconds between two drawings of a string that is still being read. */
const REDRAW = 150;
/** Symbols per second of a short string; a longer one is played in about this many seconds. */
const [USUAL_SPEED, LONGEST_PLAY] = [20, 30];
/** Symbols of the string that is shown first. */
export const FIRST_LENGTH = 200;

/** One model in the playground. */
export interface Lane {
  entry: PlayerEntry;
  variant: Signal<number>;
  trace: Signal<Trace>;
  /** The same run without the kicks, to compare with; null if there are none. */
  unkicked: Trace | null;
}

/** Everything that the controls change: the string, the position in it, the models beside it, noise and playback. */
export class Session {
  readonly task: Signal<TaskData>;
  readonly lanes: Signal<Lane[]> = signal([]);
  readonly word: Signal<Word> = signal<Word>([]);
  /** How many symbols have been read: 0 to the length of the string. */
  readonly position = signal(0);
  readonly isPlaying = signal(false);
  /** Symbols per second that the reader chose; null: as fast as the length of the string asks for. */
  readonly chosenSpeed: Signal<number | null> = signal(null);
  readonly speed = computed(
    () => this.chosenSpeed.value ?? Math.max(USUAL_SPEED, Math.ceil(this.word.value.length / LONGEST_PLAY)),
  );
  readonly noise: Signal<Noise> = signal(SILENCE);
  /** Grows whenever a trace has got further. */
  readonly progress = signal(0);

  readonly states: ReadonlySignal<Int32Array> = computed(() => statesAlong(this.task.value.machine, this.word.value));
  readonly labels: ReadonlySignal<Int32Array> = computed(() => labelsAlong(this.task.value, this.word.value));
  /** The length beyond which none of the models was trained. */
  readonly trainLength = computed(() => Math.max(...this.lanes.value.map((lane) => lane.entry.player.train_length)));

  private seed = 1;
  private kickSeed = 1;
  private timer = 0;
  private drawn = 0;
  private frame = 0;

  constructor(readonly entries: PlayerEntry[], first: number, second: number | null) {
    const entry = entries[first]!;
    this.task = signal(entry.task);
    this.lanes.value = [first, second].flatMap((index) => (index === null ? [] : [makeLane(entries[index]!)]));
    this.drawRandom(FIRST_LENGTH);
  }

  /** Show a model in the first or the second place; null: leave the second place empty. */
  choose(place: number, entry: PlayerEntry | null): void {
    this.stop();
    batch(() => {
      const lanes = this.lanes.value.slice();
      if (entry) lanes[place] = makeLane(entry);
      else lanes.splice(place, 1);
      const task = lanes[0]!.entry.task;
      if (task.id !== this.task.value.id) {
        lanes.length = 1;
        const other = partnerOf(this.entries, lanes[0]!.entry);
        if (other) lanes.push(makeLane(other));
        this.task.value = task;
        this.lanes.value = lanes;
        this.drawRandom(FIRST_LENGTH);
      } else {
        this.lanes.value = lanes;
        this.restart();
      }
    });
  }

  /** Run another variant of a model: trained or snapped. */
  chooseVariant(lane: Lane, variant: number): void {
    lane.variant.value = variant;
    lane.trace.value = makeTrace(lane.entry, variant);
    lane.unkicked = null;
    this.restart();
  }

  /** Replace the string and go to its start, or to `position`. */
  setWord(word: Word, position = 0): void {
    batch(() => {
      this.word.value = word.slice(0, LONGEST);
      this.position.value = Math.min(position, word.length);
      this.restart();
    });
  }

  /** Draw a random valid string of this length, or of the nearest length that there is. */
  drawRandom(length: number): void {
    this.stop();
    const random = seededRandom(this.seed++);
    const clipped = Math.max(1, Math.min(LONGEST, Math.round(length)));
    batch(() => {
      this.noise.value = { ...this.noise.value, kicks: new Map() };
      this.setWord(drawString(this.task.value, clipped, random));
    });
  }

  /** Append a symbol to the string and go to the end. */
  append(symbol: number): void {
    this.stop();
    if (this.word.value.length < LONGEST) this.setWord([...this.word.value, symbol], this.word.value.length + 1);
  }

  /** Remove the last symbol of the string. */
  removeLast(): void {
    this.stop();
    const word = this.word.value.slice(0, -1);
    this.setWord(word, word.length);
  }

  /** Go to a position, as far as the models have been run. */
  moveTo(position: number): void {
    this.position.value = Math.max(0, Math.min(this.word.value.length, Math.round(position)));
  }

  /** Disturb the state after every symbol. */
  setNoiseLevel(level: number): void {
    this.noise.value = { ...this.noise.value, level };
    this.restart();
  }

  /** Disturb the state once, at the current position. Another kick at the same place replaces the first one. */
  kick(size: number): void {
    const place = Math.max(1, this.position.value);
    const kicks = new Map(this.noise.value.kicks).set(place, { size, seed: this.kickSeed++ });
    batch(() => {
      if (this.position.value === 0) this.moveTo(1);
      this.noise.value = { ...this.noise.value, kicks };
      this.restart();
    });
  }

  /** Change the size of all noise that there is. */
  resizeNoise(size: number): void {
    const { level, kicks, seed } = this.noise.value;
    const resized = new Map([...kicks].map(([place, kick]) => [place, { ...kick, size }]));
    this.noise.value = { level: level > 0 ? size : 0, kicks: resized, seed };
    this.restart();
  }

  /** Remove all noise. */
  quieten(): void {
    this.noise.value = SILENCE;
    this.restart();
  }

  play(): void {
    if (this.isPlaying.value) return this.stop();
    if (this.position.value >= this.word.value.length) this.position.value = 0;
    this.isPlaying.value = true;
    let [last, rest] = [performance.now(), 0];
    const tick = (now: number) => {
      rest += (Math.max(0, now - last) / 1000) * this.speed.value;
      last = now;
      const steps = Math.min(Math.floor(rest), this.reached() - this.position.value);
      rest = Math.min(rest - steps, 1 + this.speed.value / 60); // do not catch up on what was not computed in time
      if (steps > 0) this.moveTo(this.position.value + steps);
      if (this.position.value >= this.word.value.length) this.isPlaying.value = false;
      else this.frame = requestAnimationFrame(tick);
    };
    this.frame = requestAnimationFrame(tick);
  }

  stop(): void {
    cancelAnimationFrame(this.frame);
    this.isPlaying.value = false;
  }

  /** Stop all timers: the page no longer shows this session. */
  dispose(): void {
    this.stop();
    clearTimeout(this.timer);
  }

  /** How many symbols all models have read. */
  reached(): number {
    return Math.min(this.word.value.length, ...this.lanes.value.map((lane) => lane.trace.value.done));
  }

  /** Run the models over the current string with the current noise, as far as what they have read is not valid. */
  private restart(): void {
    const noise = this.noise.value;
    for (const lane of this.lanes.value) {
      lane.trace.value.setNoise(noise);
      lane.trace.value.setWord(this.word.value, this.labels.value);
      lane.unkicked = noise.kicks.size === 0 ? null : (lane.unkicked ?? makeTrace(lane.entry, lane.variant.value));
      lane.unkicked?.setNoise({ ...noise, kicks: SILENCE.kicks });
      lane.unkicked?.setWord(this.word.value, this.labels.value);
    }
    clearTimeout(this.timer);
    this.drawn = 0;
    this.compute();
  }

  private compute(): void {
    const traces = this.lanes.value.flatMap(({ trace, unkicked }) => [trace.value, ...(unkicked ? [unkicked] : [])]);
    for (const trace of traces) trace.advance(CHUNK / traces.length);
    const isDone = traces.every((trace) => trace.isDone);
    const now = performance.now();
    if (isDone || now - this.drawn > REDRAW) {
      this.progress.value++;
      this.drawn = now;
    }
    if (!isDone) this.timer = window.setTimeout(() => this.compute());
  }
}

/** Another model of the same task, to be shown beside this one. */
export function partnerOf(entries: PlayerEntry[], entry: PlayerEntry): PlayerEntry | null {
  return entries.find((other) => other !== entry && other.task.id === entry.task.id) ?? null;
}

function makeLane(entry: PlayerEntry): Lane {
  return { entry, variant: signal(0), trace: signal(makeTrace(entry, 0)), unkicked: null };
}

function makeTrace(entry: PlayerEntry, variant: number): Trace {
  return new Trace(buildModel(entry.player.variants[variant]!.model));
}
