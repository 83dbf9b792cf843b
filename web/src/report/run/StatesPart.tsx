/** The states of the model after random strings, and how they drift with the length. */
import { dot, gridX, gridY, pointer, text, tip, type PlotOptions } from "@observablehq/plot";
import { useId, useMemo, useState } from "preact/hooks";
import { Chart } from "../../charts/Chart";
import { PALETTE, visible } from "../../charts/theme";
import type { MachineData, StateCloud, TaskData } from "../../data";
import { chance, count, countOf } from "../format";
import { Segmented } from "../Segmented";

interface StatesPartProps {
  cloud: StateCloud;
  task: TaskData;
}

interface Point {
  x: number;
  y: number;
  state: number;
  isCorrect: boolean;
}

export function StatesPart({ cloud, task }: StatesPartProps) {
  const { machine, train_length: trainLength } = task;
  const [place, setPlace] = useState(() => startPlace(cloud.lengths, trainLength));
  const [axes, setAxes] = useState<"fixed" | "fitted">("fixed");
  const id = useId();
  const points = useMemo(() => listPoints(cloud, place), [cloud, place]);
  const ranges = useMemo(() => (axes === "fixed" ? rangeOf(cloud) : null), [cloud, axes]);
  const draw = useMemo(
    () => (width: number) => statesPlot(points, machine, cloud, ranges, width),
    [points, machine, cloud, ranges],
  );
  const length = cloud.lengths[place] ?? 0;
  const wrong = points.filter((point) => !point.isCorrect).length;
  const result = `After ${countOf(length, "symbol")}: ${count(points.length - wrong)} of ${countOf(points.length, "string")} classified correctly (chance ${chance(task.chance)})`;
  return (
    <>
      <p class="fine">
        Each point is the state of the model after a random string, coloured by the state of the automaton. A cross is
        misclassified. A model that generalises keeps its clusters apart at any length.
      </p>
      <div class="panel">
        <div class="controls">
          <div class="field grow">
            <label for={id}>
              Length of the strings: <strong>{count(length)}</strong>{" "}
              {length > trainLength ? "(beyond training)" : "(seen in training)"}
            </label>
            <div class="steps">
              <button type="button" disabled={place === 0} onClick={() => setPlace(place - 1)}>
                Shorter
              </button>
              <input
                id={id}
                type="range"
                min={0}
                max={cloud.lengths.length - 1}
                value={place}
                aria-valuetext={`length ${length}`}
                onInput={(event) => setPlace(Number(event.currentTarget.value))}
              />
              <button type="button" disabled={place === cloud.lengths.length - 1} onClick={() => setPlace(place + 1)}>
                Longer
              </button>
            </div>
          </div>
          <Segmented
            legend="Axes"
            options={[
              ["fixed", "same for all lengths"],
              ["fitted", "fitted"],
            ]}
            value={axes}
            onChange={setAxes}
          />
        </div>
        <Chart
          label={`${result}. States of the model on their two principal axes.`}
          draw={draw}
          height={420}
          caption={`${result}. The axes hold ${share(cloud.explained[0])} and ${share(cloud.explained[1])} of the variance.`}
          table={() => ({
            caption: result,
            columns: ["state of the automaton", "first axis", "second axis", "prediction"],
            rows: points.map((point) => [
              machine.states[point.state] ?? `${point.state}`,
              point.x.toFixed(3),
              point.y.toFixed(3),
              point.isCorrect ? "correct" : "wrong",
            ]),
          })}
        />
      </div>
    </>
  );
}

const MOST_NAMED = 24; // states whose names fit beside their points

const share = (value: number) => `${Math.round(100 * value)} %`;

/** The longest length seen in training; the comparison with longer ones starts there. */
function startPlace(lengths: number[], trainLength: number): number {
  return Math.max(0, lengths.filter((length) => length <= trainLength).length - 1); // lengths rise
}

function listPoints(cloud: StateCloud, place: number): Point[] {
  return (cloud.x[place] ?? []).map((x, k) => ({
    x,
    y: cloud.y[place]?.[k] ?? 0,
    state: cloud.state[place]?.[k] ?? 0,
    isCorrect: cloud.correct[place]?.[k] ?? true,
  }));
}

type Ranges = [x: [number, number], y: [number, number]];

function rangeOf(cloud: StateCloud): Ranges {
  const around = (rows: number[][]): [number, number] => {
    let [low, high] = [Infinity, -Infinity];
    for (const row of rows) for (const value of row) [low, high] = [Math.min(low, value), Math.max(high, value)];
    const space = 0.05 * (high - low) || 1;
    return [low - space, high + space];
  };
  return [around(cloud.x), around(cloud.y)];
}

/** A colour for each state: six that any colour vision distinguishes, or a rainbow for more; the name is on hover. */
function stateColours(n: number): string[] {
  if (n <= PALETTE.length) return PALETTE.slice(0, n).map(visible);
  return Array.from({ length: n }, (_, k) => `hsl(${Math.round((360 * k) / n)} 70% ${45 + 12 * (k % 3)}%)`);
}

function statesPlot(
  points: Point[],
  machine: MachineData,
  cloud: StateCloud,
  ranges: Ranges | null,
  width: number,
): PlotOptions {
  const colours = stateColours(machine.states.length);
  const [xs, ys] = ranges ?? rangeOf({ ...cloud, x: [points.map(({ x }) => x)], y: [points.map(({ y }) => y)] });
  const title = (point: Point) =>
    `state ${machine.states[point.state] ?? point.state}\n${point.isCorrect ? "classified correctly" : "misclassified"}`;
  const colour = (point: Point) => colours[point.state] ?? "currentColor";
  const right = points.filter((point) => point.isCorrect);
  const wrong = points.filter((point) => !point.isCorrect);
  return {
    height: Math.min(width, 460),
    margin: 36,
    marginTop: 22,
    x: { domain: xs, label: "first principal axis →", ticks: 5 },
    y: { domain: ys, label: "↑ second principal axis", ticks: 5 },
    color: { type: "identity" },
    marks: [
      gridX({ stroke: "var(--line)", strokeOpacity: 1 }),
      gridY({ stroke: "var(--line)", strokeOpacity: 1 }),
      dot(right, {
        x: "x",
        y: "y",
        fill: colour,
        fillOpacity: 0.75,
        stroke: "var(--surface)",
        strokeWidth: 0.5,
        r: 4.5,
      }),
      dot(wrong, { x: "x", y: "y", stroke: colour, symbol: "times", r: 5.5, strokeWidth: 2 }),
      ...(machine.states.length <= MOST_NAMED ? clusterNames(points, machine, xs) : []),
      tip(points, pointer({ x: "x", y: "y", title })),
    ],
  };
}

/**
 * The name of each state at the median of its points: colours alone do not distinguish many states.
 * Names near the sides of the chart extend inwards.
 */
function clusterNames(points: Point[], machine: MachineData, [low, high]: [number, number]) {
  const median = (values: number[]) => values.sort((a, b) => a - b)[Math.floor(values.length / 2)] ?? 0;
  const names = machine.states.flatMap((name, state) => {
    const members = points.filter((point) => point.state === state);
    return members.length ? [{ name, x: median(members.map(({ x }) => x)), y: median(members.map(({ y }) => y)) }] : [];
  });
  const anchorOf = ({ x }: { x: number }) =>
    x < low + 0.2 * (high - low) ? "start" : x > high - 0.2 * (high - low) ? "end" : "middle";
  return (["start", "middle", "end"] as const).map((textAnchor) =>
    text(
      names.filter((name) => anchorOf(name) === textAnchor),
      {
        x: "x",
        y: "y",
        text: "name",
        textAnchor,
        dy: -14,
        fontWeight: 600,
        fill: "var(--text)",
        stroke: "var(--surface)",
        strokeWidth: 4,
      },
    ),
  );
}
