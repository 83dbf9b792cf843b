/**
 * What Python puts into a page: the only place where both sides meet.
 *
 * `src/sdssm/report/page/` writes these values; nothing else in `web/` reads files or knows a path.
 * Accuracies are in percent. `null` stands for "not known" and for numbers that are not finite.
 */

/** Everything but the heavy parts of each run. In the page: `<script type="application/json" id="sdssm-report">`. */
export interface ReportData {
  format: 1;
  title: string;
  version: string; // of sdssm
  created: string; // ISO 8601
  command: string; // the command that writes this page again
  tasks: TaskData[];
  trainings: TrainingData[];
  runs: RunData[];
  tables: TableData[];
  problems: Problem[];
  notes: string[]; // what was left out, and why
}

/** A folder or file that could not be read. The rest of the page does not depend on it. */
export interface Problem {
  path: string;
  message: string;
}

export interface TaskData {
  id: string; // unique within the page; safe in URLs and element ids
  name: string;
  machine: MachineData;
  facts: [name: string, text: string][];
  chance: number;
  train_length: number;
  test_length: number;
  /** The machine of valid strings; null if every string is valid. Output 1 of its state: the string so far is valid. */
  valid: MachineData | null;
}

export interface MachineData {
  start: number;
  symbols: string[];
  states: string[]; // their names
  outputs: number[];
  table: number[][]; // table[state][symbol]
  n_classes: number;
  /**
   * SVG text with `data-state="q"` on each state and `data-source`, `data-target`, `data-symbols="0 2"` on each arrow
   * (`g.arrow`) and its label (`g.label`). With `data-both` the same symbols lead back from target to source.
   */
  diagram: string | null;
  diagram_note: string | null; // why there is none
}

/** Accuracy against length, over the seeds of a training. `low` and `high` are the worst and the best seed. */
export interface Curve {
  lengths: number[];
  mean: (number | null)[];
  low: (number | null)[];
  high: (number | null)[];
}

/** Runs that differ in their seeds only. */
export interface TrainingData {
  id: string;
  task: string; // TaskData.id
  model: string;
  label: string; // short, unique among the trainings of the task
  preset: string | null;
  colour: string; // "#0072b2", as in every picture of sdssm
  dashes: number[]; // stroke-dasharray; empty: solid
  differing: Record<string, string>; // settings in which trainings of the page differ
  train_length: number;
  runs: string[]; // RunData.id
  accuracy: Curve | null; // on uniform strings
  balanced: Curve | null;
  covering: Curve | null;
  best_constant: Curve | null; // on uniform strings; low = mean = high
}

export interface RunData {
  id: string;
  folder: string | null; // null: known from a results file only
  source: string; // the folder or results file as the user named it
  task: string;
  training: string;
  model: string;
  preset: string | null;
  seed: number | null;
  status: string; // finished, stopped, diverged, running, interrupted
  step: number;
  steps: number;
  seconds: number | null;
  device: string | null;
  accuracy: number | null; // of the last training steps
  loss: number | null;
  headline: number | null; // mean balanced accuracy over `headline_lengths`, or mean accuracy
  headline_name: string; // "balanced accuracy" or "accuracy"
  headline_chance: number | null; // of the best constant answer
  headline_lengths: number[] | null; // null: every length up to `max_length`
  mean_within: number | null; // accuracy on uniform strings of the training lengths
  mean_beyond: number | null; // and of greater lengths
  constant_within: number | null; // of the best constant answer on the strings of `mean_within`
  constant_beyond: number | null; // and on those of `mean_beyond`
  max_length: number | null;
  first_failure: number | null; // the first length below 99 %
  certified: Certified | null;
  horizon: HorizonSummary | null;
  extraction: ExtractionSummary | null;
  settings: Record<string, string>;
  versions: Record<string, string>;
  command: string; // repeats the run
  problems: string[];
  has_detail: boolean;
  is_playable: boolean;
  not_playable: string | null; // why not
}

export interface Certified {
  /** null: every length */
  exact: number | null;
  float32: number | null;
  reason: string;
  misclassified: string | null; // a known string, shortened
  misclassified_symbols: number[] | null; // all of its symbols
}

export interface HorizonSummary {
  longest: number;
  max_length: number;
  reached: boolean;
  predicted: number | null;
  lengths: number[];
  accuracy: number[];
  distance: (number | null)[]; // between states of the same class
}

export interface ExtractionSummary {
  n_states: number;
  equals_task: boolean | null;
  faithful: boolean;
  difference: string | null; // the shortest string on which automaton and task differ
  note: string | null;
}

/**
 * The heavy parts of one run, parsed when they are shown.
 * In the page: `<script type="application/json" id="sdssm-run-ID">`; in the studio: GET api/runs/ID.
 */
export interface RunDetail {
  id: string;
  evaluation: RunCurves | null;
  events: { step: number[]; loss: (number | null)[]; accuracy: (number | null)[] } | null;
  matrices: MatrixData | null; // of an SD-SSM with one layer
  states: StateCloud | null;
  extracted: MachineData | null;
  player: PlayerData | null;
  /** Why a part is null, by its name ("dictionary" is that of `matrices`); the text may name a command. */
  missing: Record<string, string>;
}

export interface RunCurves {
  strings: number;
  accuracy: { lengths: number[]; value: (number | null)[]; low: (number | null)[]; high: (number | null)[] };
  balanced: { lengths: number[]; value: (number | null)[] } | null;
  covering: { lengths: number[]; value: (number | null)[] } | null;
}

/** A tensor, little endian, in row-major order. uint8 stands for scale * (value - 128). */
export interface Packed {
  dtype: "float32" | "uint8" | "int32";
  shape: number[];
  data: string; // base64
  scale?: number;
}

export interface MatrixData {
  symbols: Packed; // (V, N, N): the matrix of each symbol, uint8
  dictionary: Packed | null; // (K, N, N), uint8; null if left out to keep the page small
  selection: number[][]; // (V, K): the weights of the softmax
  eigenvalues: { re: number[]; im: number[] }[]; // of each symbol
}

/** States of the model in two dimensions after random strings of several lengths. */
export interface StateCloud {
  lengths: number[];
  explained: [number, number]; // share of the variance along both axes
  x: number[][]; // [length][string]
  y: number[][];
  state: number[][]; // of the automaton
  correct: boolean[][];
}

/** A model that the browser can run. `variants` are "trained" and, if it was extracted, "snapped". */
export interface PlayerData {
  train_length: number;
  certified: Certified | null;
  variants: { name: string; model: PlayerModel }[];
}

/** One layer; the tensors by their names in the documentation of the player (`web/src/player/`). */
export interface PlayerModel {
  kind: string; // "sd-ssm", "rnn", "lstm", ...
  options: Record<string, string | number | boolean | null>;
  tensors: Record<string, Packed>;
}

/** A table of the paper or of an experiment. */
export interface TableData {
  id: string;
  name: string;
  title: string;
  corner: string;
  rows: string[];
  columns: string[];
  cells: CellData[];
  notes: string[];
  command: string;
}

export interface CellData {
  row: string;
  column: string;
  best: number | null;
  average: number | null;
  seeds: number;
  steps: number | null;
  published_best: number | null;
  published_average: number | null;
  chance: number | null;
  runs: string[]; // RunData.id
}

/** A page of `sdssm playground`: `<script type="application/json" id="sdssm-playground">`. */
export interface PlaygroundData {
  format: 1;
  title: string;
  version: string;
  entries: { label: string; task: TaskData; player: PlayerData }[];
}
