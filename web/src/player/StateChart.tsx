import { useMemo, useRef } from "preact/hooks";
import uPlot from "uplot";
import { Chart, type Colours } from "./Chart";
import { count } from "./numbers";

const HEIGHT = 110;

interface StateChartProps {
  label: string;
  state: Float32Array;
}

/** How much smaller the entries must be before the scale follows them. */
const SHRINK = 0.4;

/** The entries of a model's state as bars. The scale changes rarely, so that bars can be compared between symbols. */
export function StateChart({ label, state }: StateChartProps) {
  const largest = useRef(0);
  const data = useMemo<uPlot.AlignedData>(() => {
    const values = Array.from(state, (value) => (Number.isFinite(value) ? value : null));
    const size = values.reduce<number>((most, value) => Math.max(most, Math.abs(value ?? 0)), 0);
    if (size > largest.current || size < SHRINK * largest.current) largest.current = 1.2 * size;
    return [values.map((_, i) => i + 1), values];
  }, [state]);
  const options = (colours: Colours): Omit<uPlot.Options, "width" | "height"> => {
    const axis = { stroke: colours("muted"), ticks: { show: false }, font: "12px system-ui, sans-serif" };
    return {
      padding: [8, 18, 0, 0],
      legend: { show: false },
      cursor: { show: false },
      scales: {
        x: { time: false, range: (_, low, high) => [low - 1, high + 1] },
        y: { range: () => [-1.05 * (largest.current || 1), 1.05 * (largest.current || 1)] },
      },
      axes: [
        { ...axis, size: 28, grid: { show: false }, values: (_, ticks) => ticks.map(count) },
        { ...axis, size: 44, grid: { stroke: colours("line"), width: 1 }, space: 28 },
      ],
      series: [
        {},
        {
          fill: colours("accent"),
          stroke: colours("accent"),
          width: 0,
          points: { show: false },
          paths: uPlot.paths.bars!({ size: [0.8, 24] }),
        },
      ],
    };
  };
  return <Chart label={label} height={HEIGHT} options={options} data={data} />;
}
