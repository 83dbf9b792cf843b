import type { MachineData, TaskData } from "../data";

/** The label of a prefix that is not a valid string: no prediction is expected there. */
export const UNLABELLED = -1;

/** Strings of symbol numbers. */
export type Word = readonly number[];

/** The states of an automaton along a string: before the first symbol and after each one. */
export function statesAlong(machine: MachineData, word: Word): Int32Array {
  const states = new Int32Array(word.length + 1);
  states[0] = machine.start;
  word.forEach((symbol, i) => (states[i + 1] = machine.table[states[i]!]![symbol]!));
  return states;
}

/** The label after each number of symbols; `UNLABELLED` before the first symbol and after invalid prefixes. */
export function labelsAlong(task: TaskData, word: Word): Int32Array {
  const labels = statesAlong(task.machine, word).map((state) => task.machine.outputs[state]!);
  if (task.valid) {
    const { outputs } = task.valid;
    statesAlong(task.valid, word).forEach((state, i) => {
      if (outputs[state] === 0) labels[i] = UNLABELLED;
    });
  }
  labels[0] = UNLABELLED;
  return labels;
}

/** The states with this output, in their order. */
export function statesOfClass(machine: MachineData, label: number): number[] {
  return machine.outputs.flatMap((output, state) => (output === label ? [state] : []));
}

/** Whether each state has an output of its own, so that a prediction names a state. */
export function hasStateLabels(machine: MachineData): boolean {
  return new Set(machine.outputs).size === machine.outputs.length;
}

/** The name of a class: that of its state if it has one state only, accept and reject, or its number. */
export function className(machine: MachineData, label: number): string {
  const states = statesOfClass(machine, label);
  if (hasStateLabels(machine) && states.length === 1) return machine.states[states[0]!]!;
  if (machine.n_classes === 2) return label === 1 ? "accept" : "reject";
  return String(label);
}
