/** What is proved about a run, and what was measured at long lengths. */
import { axisX, axisY, dot, gridY, line, pointerX, ruleX, tip, type PlotOptions } from "@observablehq/plot";
import { useMemo } from "preact/hooks";
import { Chart } from "../../charts/Chart";
import { powerTicks } from "../../charts/training";
import { visible } from "../../charts/theme";
import type { Certified, HorizonSummary, MachineData, RunData, TaskData } from "../../data";
import { formatString } from "../../player/strings";
import { Copyable } from "../Copyable";
import { chance, count, countOf, estimate, number, percent } from "../format";
import { Missing } from "./Missing";

export function CertificatePart({ run, task }: { run: RunData; task: TaskData | undefined }) {
  return (
    <section aria-labelledby="certificate-heading">
      <h2 id="certificate-heading">How long can strings be?</h2>
      <div class="pair">
        <div class="panel">
          <h3>Proved: certificate</h3>
          {run.certified ? (
            <CertificateText certified={run.certified} machine={task?.machine} />
          ) : (
            <Missing what="No length was certified for this run." command="certify" run={run} />
          )}
        </div>
        <div class="panel">
          <h3>Measured: horizon</h3>
          {run.horizon ? (
            <Horizon horizon={run.horizon} level={task?.chance ?? null} />
          ) : (
            <Missing what="Long strings were not measured for this run." command="horizon" run={run} />
          )}
        </div>
      </div>
    </section>
  );
}

function CertificateText({ certified, machine }: { certified: Certified; machine: MachineData | undefined }) {
  const { exact, float32, reason, misclassified_symbols } = certified;
  return (
    <div class="certificate">
      <p class="claim">
        {exact === null ? (
          <>Every valid string, of any length, is provably classified correctly.</>
        ) : exact > 0 ? (
          <>
            Every valid string up to length <strong>{count(exact)}</strong> is provably classified correctly.
          </>
        ) : (
          <>No length could be certified.</>
        )}
      </p>
      <p>
        This holds for exact arithmetic; in float32, with all rounding errors,{" "}
        {float32 === null ? "for every length too" : `up to length ${count(float32)}`}.
      </p>
      {exact !== null && reason && <p class="fine">Why not further: {reason}.</p>}
      {misclassified_symbols && machine && (
        <Copyable
          noun="string"
          label={`A misclassified string of ${countOf(misclassified_symbols.length, "symbol")}; paste it into the playground`}
          text={formatString(machine, misclassified_symbols)}
        />
      )}
    </div>
  );
}

function Horizon({ horizon, level }: { horizon: HorizonSummary; level: number | null }) {
  const drawAccuracy = useMemo(() => (width: number) => horizonPlot(horizon, width), [horizon]);
  const hasDistance = horizon.distance.some((value) => value !== null && value > 0);
  const drawDistance = useMemo(() => (width: number) => distancePlot(horizon, width), [horizon]);
  const claim = horizon.reached
    ? `At least 99.9 % correct up to length ${count(horizon.longest)}, the longest that was read`
    : horizon.longest > 0
      ? `At least 99.9 % correct up to length ${count(horizon.longest)}, and less beyond`
      : "Less than 99.9 % correct at the shortest length that was read";
  const predicted =
    horizon.predicted === null ? "" : ` By a rule of thumb it fails near length ${estimate(horizon.predicted)}.`;
  return (
    <>
      <p>
        {claim} (chance of a random guess {chance(level)}).{predicted}
      </p>
      <Chart
        label={`${claim}.`}
        draw={drawAccuracy}
        height={190}
        table={() => ({
          caption: "Measured at long lengths",
          columns: ["length", "accuracy", "distance between states of the same class"],
          rows: horizon.lengths.map((length, k) => [
            count(length),
            percent(horizon.accuracy[k]),
            number(horizon.distance[k]),
          ]),
        })}
      />
      {hasDistance && (
        <Chart
          label={`Distance between states of the same class: ${number(horizon.distance.at(-1))} at length ${count(horizon.lengths.at(-1))}.`}
          draw={drawDistance}
          height={190}
          caption="Distance between states of the same class: the drift. Both axes are logarithmic."
        />
      )}
    </>
  );
}

interface Reading {
  length: number;
  value: number;
}

function readingPlot(
  readings: Reading[],
  width: number,
  y: PlotOptions["y"],
  ticks: number[],
  show: (value: number) => string,
): PlotOptions {
  const lengths = readings.map(({ length }) => length);
  const [first, last] = [Math.min(...lengths), Math.max(...lengths)];
  const powers = thinTicks(
    powerTicks(first, last).filter((tick) => tick >= 1),
    width,
  );
  return {
    height: 190,
    marginLeft: 54,
    marginRight: 14,
    marginTop: 22,
    marginBottom: 34,
    x: { type: "log", domain: [first, Math.max(last, first + 1)], label: "length (symbols) →" },
    y,
    marks: [
      gridY({ ticks, stroke: "var(--line)", strokeOpacity: 1 }),
      axisY({ ticks, text: (value: number) => number(value) }),
      axisX({ ticks: powers, text: count }),
      line(readings, { x: "length", y: "value", stroke: visible("#0072b2"), strokeWidth: 1.8 }),
      dot(readings, { x: "length", y: "value", fill: visible("#0072b2"), r: 3 }),
      ruleX(readings, pointerX({ x: "length", stroke: "var(--muted)" })),
      tip(
        readings,
        pointerX({ x: "length", y: "value", title: (d: Reading) => `length ${count(d.length)}\n${show(d.value)}` }),
      ),
    ],
  };
}

/** As many ticks as have room for their labels, the last one among them. */
function thinTicks(ticks: number[], width: number): number[] {
  const step = Math.ceil((ticks.length * 64) / width);
  return ticks.filter((_, k) => (ticks.length - 1 - k) % step === 0);
}

function horizonPlot(horizon: HorizonSummary, width: number): PlotOptions {
  const readings = horizon.lengths.map((length, k) => ({ length, value: horizon.accuracy[k] ?? 0 }));
  return readingPlot(readings, width, { domain: [0, 100], label: "↑ accuracy (%)" }, [0, 50, 100], percent);
}

function distancePlot(horizon: HorizonSummary, width: number): PlotOptions {
  const readings = horizon.lengths.flatMap((length, k) => {
    const value = horizon.distance[k];
    return value === null || value === undefined || value <= 0 ? [] : [{ length, value }];
  });
  const values = readings.map(({ value }) => value);
  const [least, most] = [Math.min(...values), Math.max(...values)];
  const domain: [number, number] = [10 ** Math.floor(Math.log10(least)), 10 ** Math.ceil(Math.log10(most * 1.01))];
  return readingPlot(readings, width, { type: "log", domain, label: "↑ distance" }, powerTicks(...domain), number);
}
