/**
 * Models that run in the browser, from the tensors that `src/sdssm/report/page/player_models.py` packs.
 *
 * States and tensors are float32 as in Python; sums are computed in double precision and rounded once.
 */
import type { PlayerModel } from "../data";
import { unpack } from "../packed";
import { buildReadout, multiply, norm } from "./readout";

/** A model that reads a string symbol by symbol. A state is never changed in place. */
export interface Model {
  readonly stateSize: number;
  readonly classes: number;
  /** The state before the first symbol. */
  initial(): Float32Array;
  /** The state after one more symbol. */
  step(state: Float32Array, symbol: number): Float32Array;
  /** The logits of all classes in a state that was reached by `symbol`. */
  logits(state: Float32Array, symbol: number): Float32Array;
}

type Step = (state: Float32Array, input: number) => Float32Array;
type Features = (state: Float32Array, input: number) => Float32Array;

/** The recurrence of each kind of model: a step, and the features that the readout sees. */
const RECURRENCES: Record<string, (model: PlayerModel) => { step: Step; features: Features }> = {
  "sd-ssm": denseRecurrence,
  rnn: elmanRecurrence,
  lstm: lstmRecurrence,
  "complex-diagonal": diagonalRecurrence,
};

/** Build a model from its tensors. */
export function buildModel(model: PlayerModel): Model {
  if (model.kind === "machine") return machineModel(model);
  const recurrence = RECURRENCES[model.kind];
  if (!recurrence) throw new Error(`there is no model of kind ${model.kind}`);
  const { step, features } = recurrence(model);
  const readout = buildReadout(model);
  const start = tensorOf(model, "start");
  const query = model.options.query ? inputsOf(model) - 1 : null; // the last input; it is read after each prefix
  return {
    stateSize: start.length,
    classes: Number(model.options.classes),
    initial: () => start.slice(),
    step,
    logits: (state, symbol) =>
      readout(query === null ? features(state, symbol) : features(step(state, query), query)),
  };
}

function tensorOf(model: PlayerModel, name: string): Float32Array {
  const packed = model.tensors[name];
  if (!packed) throw new Error(`the model ${model.kind} has no tensor ${name}`);
  return unpack(packed);
}

function optionalTensor(model: PlayerModel, name: string): Float32Array | null {
  return model.tensors[name] ? unpack(model.tensors[name]) : null;
}

/** The number of inputs: symbols and, last, the query if there is one. */
function inputsOf(model: PlayerModel): number {
  return (model.tensors.A ?? model.tensors.a ?? model.tensors.drive)!.shape[0]!;
}

/** Row `index` of a matrix with rows of this length, without a copy. */
function rowOf(matrix: Float32Array, index: number, length: number): Float32Array {
  return matrix.subarray(index * length, (index + 1) * length);
}

/** SD-SSM: x = A[v] x + drive[v], divided by its norm if the model is rescaled. */
function denseRecurrence(model: PlayerModel) {
  const size = tensorOf(model, "start").length;
  const [A, drive, skip] = [tensorOf(model, "A"), optionalTensor(model, "drive"), optionalTensor(model, "skip")];
  const step: Step = (state, input) => {
    const next = new Float32Array(size);
    multiply(next, rowOf(A, input, size * size), state, drive ? rowOf(drive, input, size) : undefined);
    if (model.options.rescale) {
      const length = norm(next);
      if (length > 0) for (let i = 0; i < size; i++) next[i]! /= length; // a zero state stays zero
    }
    return next;
  };
  const features: Features = (state, input) =>
    skip ? state.map((value, i) => value + skip[input * size + i]!) : state;
  return { step, features };
}

/** Elman network: x = relu(W x + drive[v]). */
function elmanRecurrence(model: PlayerModel) {
  const [recurrent, drive] = [tensorOf(model, "recurrent"), tensorOf(model, "drive")];
  const size = tensorOf(model, "start").length;
  const step: Step = (state, input) => {
    const next = new Float32Array(size);
    multiply(next, recurrent, state, rowOf(drive, input, size));
    for (let i = 0; i < size; i++) next[i] = Math.max(0, next[i]!);
    return next;
  };
  return { step, features: (state: Float32Array) => state };
}

const sigmoid = (x: number) => 1 / (1 + Math.exp(-x));

/** LSTM: the state is h, then c; the gates are in the order of torch: input, forget, cell, output. */
function lstmRecurrence(model: PlayerModel) {
  const [recurrent, drive] = [tensorOf(model, "recurrent"), tensorOf(model, "drive")];
  const size = tensorOf(model, "start").length / 2;
  const gates = new Float32Array(4 * size);
  const step: Step = (state, symbol) => {
    const next = new Float32Array(2 * size);
    multiply(gates, recurrent, state.subarray(0, size), rowOf(drive, symbol, 4 * size));
    for (let i = 0; i < size; i++) {
      const [input, forget] = [sigmoid(gates[i]!), sigmoid(gates[size + i]!)];
      const cell = forget * state[size + i]! + input * Math.tanh(gates[2 * size + i]!);
      next[size + i] = cell;
      next[i] = sigmoid(gates[3 * size + i]!) * Math.tanh(cell);
    }
    return next;
  };
  return { step, features: (state: Float32Array) => state.subarray(0, size) };
}

/** Complex diagonal: x = a[v] x + drive[v], entrywise; a state is its real parts, then its imaginary parts. */
function diagonalRecurrence(model: PlayerModel) {
  const [a, drive] = [tensorOf(model, "a"), optionalTensor(model, "drive")];
  const width = tensorOf(model, "start").length;
  const size = width / 2;
  const step: Step = (state, symbol) => {
    const next = new Float32Array(width);
    const first = symbol * width;
    for (let i = 0; i < size; i++) {
      const [re, im] = [a[first + i]!, a[first + size + i]!];
      const [x, y] = [state[i]!, state[size + i]!];
      next[i] = re * x - im * y + (drive ? drive[first + i]! : 0);
      next[size + i] = re * y + im * x + (drive ? drive[first + size + i]! : 0);
    }
    return next;
  };
  return { step, features: (state: Float32Array) => state };
}

/**
 * The exact model of a machine, as `sdssm snap` compiles it: the state is one-hot, the matrix of a symbol has one 1 in
 * each column, and the logit of a class adds up the entries of its states.
 */
function machineModel({ options, tensors }: PlayerModel): Model {
  const [table, outputs] = [unpack(tensors.table!), unpack(tensors.outputs!)];
  const states = outputs.length;
  const symbols = tensors.table!.shape[1]!;
  const classes = Number(options.classes);
  return {
    stateSize: states,
    classes,
    initial: () => {
      const state = new Float32Array(states);
      state[Number(options.start)] = 1;
      return state;
    },
    step: (state, symbol) => {
      const next = new Float32Array(states);
      for (let q = 0; q < states; q++) next[table[q * symbols + symbol]!]! += state[q]!;
      return next;
    },
    logits: (state) => {
      const logits = new Float32Array(classes);
      for (let q = 0; q < states; q++) logits[outputs[q]!]! += state[q]!;
      return logits;
    },
  };
}
