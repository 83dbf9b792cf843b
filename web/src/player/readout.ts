import type { PlayerModel } from "../data";
import { unpack } from "../packed";

/** Maps features to logits. */
export type Readout = (features: Float32Array) => Float32Array;

/** `output = matrix input + bias`; the matrix has a row for each output. Four sums side by side are twice as fast. */
export function multiply(output: Float32Array, matrix: Float32Array, input: Float32Array, bias?: Float32Array): void {
  const width = input.length;
  const blocks = width - (width % 4);
  for (let row = 0, at = 0; row < output.length; row++) {
    let [a, b, c, d] = [bias ? bias[row]! : 0, 0, 0, 0];
    let column = 0;
    for (; column < blocks; column += 4, at += 4) {
      a += matrix[at]! * input[column]!;
      b += matrix[at + 1]! * input[column + 1]!;
      c += matrix[at + 2]! * input[column + 2]!;
      d += matrix[at + 3]! * input[column + 3]!;
    }
    for (; column < width; column++, at++) a += matrix[at]! * input[column]!;
    output[row] = a + b + (c + d);
  }
}

/** The l2 norm; the squares of float32 numbers stay within the range of a double. */
export function norm(vector: Float32Array): number {
  let sum = 0;
  for (const value of vector) sum += value * value;
  return Math.sqrt(sum);
}

/** LayerNorm and readout of a model: linear, with a hidden layer, or by cosine similarity (`models/readout.py`). */
export function buildReadout({ options, tensors }: PlayerModel): Readout {
  const tensor = (name: string) => (tensors[name] ? unpack(tensors[name]) : undefined);
  const weight = tensor("readout.weight");
  if (!weight) throw new Error("the model has no tensor readout.weight");
  const rows = tensors["readout.weight"]!.shape[0]!;
  const [gain, shift, bias] = [tensor("norm.weight"), tensor("norm.bias"), tensor("readout.bias")];
  const [hiddenWeight, hiddenBias] = [tensor("readout.hidden.weight"), tensor("readout.hidden.bias")];
  const [projection, scale] = [tensor("readout.projection"), tensor("readout.scale")];
  const labels = tensor("readout.centre_labels");
  const classes = Number(options.classes);
  const epsilon = Number(options.epsilon);

  return (features) => {
    let h = options.norm ? layerNorm(features, epsilon, gain, shift) : features;
    if (hiddenWeight && hiddenBias) {
      const hidden = new Float32Array(hiddenBias.length);
      multiply(hidden, hiddenWeight, h, hiddenBias);
      h = hidden.map((value) => Math.max(0, value));
    }
    if (options.readout === "cosine") h = unitLength(projection ? product(projection, h) : h);
    const logits = new Float32Array(rows);
    multiply(logits, weight, h, bias);
    if (scale) for (let i = 0; i < rows; i++) logits[i]! *= scale[0]!;
    return labels ? bestOfLabels(logits, labels, classes, -scale![0]!) : logits;
  };
}

function layerNorm(x: Float32Array, epsilon: number, gain?: Float32Array, shift?: Float32Array): Float32Array {
  let mean = 0;
  for (const value of x) mean += value;
  mean /= x.length;
  let variance = 0;
  for (const value of x) variance += (value - mean) ** 2;
  const factor = 1 / Math.sqrt(variance / x.length + epsilon);
  return x.map((value, i) => (value - mean) * factor * (gain ? gain[i]! : 1) + (shift ? shift[i]! : 0));
}

function product(matrix: Float32Array, vector: Float32Array): Float32Array {
  const output = new Float32Array(matrix.length / vector.length);
  multiply(output, matrix, vector);
  return output;
}

function unitLength(h: Float32Array): Float32Array {
  const size = Math.max(norm(h), 1e-12); // as torch.nn.functional.normalize
  return h.map((value) => value / size);
}

/** The logit of each class is that of its nearest centre. */
function bestOfLabels(logits: Float32Array, labels: Float32Array, classes: number, lowest: number): Float32Array {
  const best = new Float32Array(classes).fill(lowest);
  labels.forEach((label, i) => (best[label] = Math.max(best[label]!, logits[i]!)));
  return best;
}
