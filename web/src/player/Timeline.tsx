import { useEffect, useMemo, useRef } from "preact/hooks";
import type uPlot from "uplot";
import { Chart, type Colours } from "./Chart";
import { count } from "./numbers";
import type { Lane, Session } from "./session";
import { accuracyBetween } from "./text";
import type { Kick, Trace } from "./trace";

const HEIGHT = 165;
/** Height of a line of text above the plot, which has two of them, in CSS pixels. */
const LINE = 15;
/** Height of the strip that shows which predictions are right and wrong, in CSS pixels. */
const STRIP = 9;

interface TimelineProps {
  session: Session;
  lane: Lane;
}

/** The margin of every prediction along the string, with right and wrong ones below it. */
export function Timeline({ session, lane }: TimelineProps) {
  const { entry } = lane;
  const trace = lane.trace.value;
  const length = session.word.value.length;
  const progress = session.progress.value;
  const data = useMemo<uPlot.AlignedData>(() => {
    const x = Array.from({ length: length + 1 }, (_, t) => t);
    const margin = x.map((t) => (t <= trace.done && Number.isFinite(trace.margin[t]) ? trace.margin[t]! : null));
    return [x, margin];
  }, [trace, progress, length]);

  const isTrained = entry.player.variants[lane.variant.value]?.name === "trained"; // the certificate is about it
  const certified = isTrained ? entry.player.certified : null;
  const shown = {
    trace,
    kicks: session.noise.value.kicks,
    proved: certified && (certified.float32 ?? Infinity), // null: every length
  };
  const marks = useRef(shown);
  marks.current = shown;

  const place = useRef(() => {}); // moves the cursor
  const options = (colours: Colours): Omit<uPlot.Options, "width" | "height"> => {
    const axis = {
      stroke: colours("muted"),
      grid: { stroke: colours("line"), width: 1 },
      ticks: { show: false },
      font: "12px system-ui, sans-serif",
    };
    return {
      padding: [2 * LINE + 4, 26, 0, 0], // the last label, "10,000", is centred at the end of the axis
      legend: { show: false },
      cursor: { drag: { x: false, y: false }, points: { show: false }, y: false },
      scales: {
        x: { time: false, range: (_, low, high) => [low, Math.max(high, 1)] },
        y: { range: (_, low, high) => padded(low ?? -1, high ?? 1) },
      },
      axes: [
        { ...axis, size: 28, grid: { show: false }, values: (_, ticks) => ticks.map(count) },
        { ...axis, size: 44 },
      ],
      series: [
        {},
        { stroke: colours("text"), width: 1.25, points: { show: false }, spanGaps: true },
      ],
      hooks: {
        init: [(chart) => (place.current = addCursor(chart, session))],
        drawClear: [(chart) => shadeLengths(chart, colours, entry.player.train_length, marks.current.proved)],
        draw: [
          (chart) => drawVerdicts(chart, colours, marks.current.trace, marks.current.kicks),
          () => place.current(), // the scale may have changed
        ],
      },
    };
  };

  useEffect(() => session.position.subscribe(() => place.current()), [session]);

  return (
    <Chart
      label={`Margin of each prediction of ${entry.label}, symbol by symbol`}
      height={HEIGHT}
      options={options}
      data={data}
      onPick={(value) => session.moveTo(value)}
    />
  );
}

/** Add a line to a chart, and return a function that moves it to the position. */
function addCursor(chart: uPlot, session: Session): () => void {
  const cursor = document.createElement("div");
  cursor.className = "player-cursor";
  chart.over.append(cursor);
  return () => {
    cursor.style.transform = `translateX(${chart.valToPos(session.position.peek(), "x")}px)`;
  };
}

/** A range around both numbers and zero, with space for the strip below. */
function padded(low: number, high: number): [number, number] {
  const [bottom, top] = [Math.min(low, 0), Math.max(high, 0)];
  const span = top - bottom || 1;
  return [bottom - 0.15 * span, top + 0.1 * span];
}

/** Shade the lengths of training, and mark the certified length; Infinity is every length, null is none. */
function shadeLengths(chart: uPlot, colours: Colours, trained: number, proved: number | null): void {
  const { ctx, bbox } = chart;
  const end = (length: number) => Math.min(chart.valToPos(length, "x", true), bbox.left + bbox.width);
  ctx.save();
  ctx.fillStyle = colours("train-range");
  ctx.fillRect(bbox.left, bbox.top, Math.max(0, end(trained) - bbox.left), bbox.height);
  ctx.fillStyle = ctx.strokeStyle = colours("muted");
  ctx.lineWidth = devicePixelRatio;
  ctx.font = `${12 * devicePixelRatio}px system-ui, sans-serif`;
  writeAbove(chart, end(trained), `trained on lengths up to ${count(trained)}`, 0);
  if (proved === Infinity) writeAbove(chart, end(trained), "proved right for every length, in float32", 1);
  else if (proved !== null) {
    ctx.setLineDash([4 * devicePixelRatio, 3 * devicePixelRatio]);
    ctx.beginPath();
    ctx.moveTo(end(proved), bbox.top);
    ctx.lineTo(end(proved), bbox.top + bbox.height);
    ctx.stroke();
    writeAbove(chart, end(proved), `proved right up to ${count(proved)}, in float32 as here`, 1);
  }
  const zero = chart.valToPos(0, "y", true);
  ctx.setLineDash([]);
  ctx.beginPath();
  ctx.moveTo(bbox.left, zero);
  ctx.lineTo(bbox.left + bbox.width, zero);
  ctx.stroke();
  ctx.restore();
}

/** Write a text above the plot that starts at x, or as far to the right as it fits. */
function writeAbove(chart: uPlot, x: number, text: string, line: number): void {
  const { ctx, bbox } = chart;
  const last = bbox.left + bbox.width - ctx.measureText(text).width;
  ctx.textAlign = "left";
  ctx.textBaseline = "top";
  ctx.fillText(text, Math.max(bbox.left, Math.min(x, last)), (1 + LINE * line) * devicePixelRatio);
}

/** Draw a strip of right and wrong predictions at the bottom, and a triangle at each kick. */
function drawVerdicts(
  chart: uPlot,
  colours: Colours,
  trace: Trace,
  kicks: ReadonlyMap<number, Kick>,
): void {
  const { ctx, bbox } = chart;
  const at = (t: number) => chart.valToPos(t, "x", true);
  ctx.save();
  ctx.beginPath();
  ctx.rect(bbox.left, bbox.top, bbox.width, bbox.height);
  ctx.clip();
  drawStrip(chart, colours, trace);
  ctx.fillStyle = colours("kick");
  for (const t of kicks.keys()) {
    const side = 6 * devicePixelRatio;
    ctx.beginPath();
    ctx.moveTo(at(t) - side, bbox.top);
    ctx.lineTo(at(t) + side, bbox.top);
    ctx.lineTo(at(t), bbox.top + 1.6 * side);
    ctx.fill();
  }
  ctx.restore();
}

/** One bin for each symbol, or for as many as two pixels hold; its colour is mixed by the share of mistakes. */
function drawStrip(chart: uPlot, colours: Colours, trace: Trace): void {
  const { ctx, bbox } = chart;
  const height = STRIP * devicePixelRatio;
  const at = (t: number) => chart.valToPos(t, "x", true);
  const size = Math.max(1, Math.ceil((2 * devicePixelRatio) / (at(1) - at(0))));
  for (let from = 0; from < trace.done; from += size) {
    const to = Math.min(from + size, trace.done);
    const accuracy = accuracyBetween(trace, from, to);
    if (accuracy === null) continue;
    const [left, right] = [at(from + 0.5), at(to + 0.5)];
    for (const [colour, share] of [["good", accuracy / 100], ["bad", 1 - accuracy / 100]] as const) {
      ctx.fillStyle = colours(colour);
      ctx.globalAlpha = share;
      ctx.fillRect(left, bbox.top + bbox.height - height, right - left, height);
    }
  }
  ctx.globalAlpha = 1;
}
