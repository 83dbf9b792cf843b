/** Matrices as heat maps: orange is negative, blue positive. */
import { pointer, raster, tip, type PlotOptions } from "@observablehq/plot";
import { isDark } from "./theme";

/** Colours from the most negative to the most positive entry. */
export function divergingColours(): string[] {
  return isDark.value ? ["#ff9d4d", "#20262d", "#6fc0f5"] : ["#c24e00", "#ffffff", "#005f96"];
}

/** The largest absolute entry; 1 for a matrix of zeros. */
export function largest(values: ArrayLike<number>): number {
  let most = 0;
  for (let k = 0; k < values.length; k++) most = Math.max(most, Math.abs(values[k]!));
  return most || 1;
}

interface HeatMapOptions {
  values: Float32Array; // (size, size), row by row
  size: number;
  range: number; // the colours span -range..range
  width: number;
  isThumbnail: boolean;
}

/** A square heat map. Row 0 is at the top. */
export function heatMapPlot({ values, size, range, width, isThumbnail }: HeatMapOptions): PlotOptions {
  const margins = isThumbnail
    ? { margin: 0, axis: null }
    : { marginLeft: 40, marginBottom: 34, marginTop: 22, marginRight: 8 };
  const side = isThumbnail ? width : width - 48;
  const image = raster(Array.from(values), {
    width: size,
    height: size,
    x1: 0,
    x2: size,
    y1: 0,
    y2: size,
    imageRendering: isThumbnail ? "auto" : "pixelated",
  });
  const entries = () => Array.from(values, (value, k) => ({ row: Math.floor(k / size), column: k % size, value }));
  const title = (entry: { row: number; column: number; value: number }) =>
    `row ${entry.row}, column ${entry.column}\n${entry.value.toFixed(3)}`;
  const hover = () =>
    tip(entries(), pointer({ x: (d) => d.column + 0.5, y: (d) => d.row + 0.5, title, maxRadius: 20 }));
  return {
    ...margins,
    height: isThumbnail ? width : side + 56,
    x: { domain: [0, size], label: isThumbnail ? null : "column (from) →" },
    y: { domain: [size, 0], label: isThumbnail ? null : "↓ row (to)", reverse: false },
    color: { type: "diverging", domain: [-range, range], pivot: 0, range: divergingColours() },
    marks: isThumbnail ? [image] : [image, hover()],
  };
}
