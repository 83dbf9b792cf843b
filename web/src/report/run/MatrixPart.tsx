/** The transition matrix of each symbol, the dictionary they are mixed from, and the weights of the mixture. */
import { axisX, cell, text, tip, pointer, type PlotOptions } from "@observablehq/plot";
import { useMemo, useState } from "preact/hooks";
import { Chart } from "../../charts/Chart";
import { heatMapPlot, largest } from "../../charts/heatmap";
import { isDark } from "../../charts/theme";
import type { MatrixData } from "../../data";
import { unpack } from "../../packed";
import { count, countOf, number } from "../format";

interface Matrix {
  name: string;
  values: Float32Array;
}

const MOST_LABELLED = 20; // entries of a dictionary whose weights fit as text

export function MatrixPart({ matrices, symbols }: { matrices: MatrixData; symbols: string[] }) {
  const [, size = 0] = matrices.symbols.shape;
  const ofSymbols = useMemo(() => split(matrices.symbols, (k) => `symbol ${symbols[k] ?? k}`), [matrices]);
  const ofDictionary = useMemo(
    () => (matrices.dictionary ? split(matrices.dictionary, (k) => `entry ${k}`) : []),
    [matrices],
  );
  const all = [...ofSymbols, ...ofDictionary];
  const [place, setPlace] = useState(0);
  const shown = all[place] ?? all[0];
  if (!shown) return null;
  return (
    <section aria-labelledby="matrices-heading">
      <h2 id="matrices-heading">Transition matrices</h2>
      <p class="fine">
        Each symbol has a matrix of {count(size)} × {count(size)}, a mixture of the{" "}
        {countOf(matrices.selection[0]?.length ?? 0, "entry", "entries")} of the dictionary. A step multiplies the state
        by the matrix of the symbol that is read.
      </p>
      <div class="matrices">
        <div class="panel">
          <h3>{shown.name}</h3>
          <BigMatrix matrix={shown} size={size} />
        </div>
        <div class="panel">
          <Thumbnails title="Symbols" matrices={ofSymbols} size={size} first={0} place={place} onChoose={setPlace} />
          {ofDictionary.length > 0 ? (
            <Thumbnails
              title="Dictionary"
              matrices={ofDictionary}
              size={size}
              first={ofSymbols.length}
              place={place}
              onChoose={setPlace}
            />
          ) : (
            <p class="fine">The dictionary was left out to keep the page small.</p>
          )}
          <h3>Selection weights</h3>
          <Selection selection={matrices.selection} symbols={symbols} />
        </div>
      </div>
    </section>
  );
}

function split(packed: MatrixData["symbols"], name: (k: number) => string): Matrix[] {
  const values = unpack(packed);
  const [amount = 0, rows = 0, columns = 0] = packed.shape;
  const area = rows * columns;
  return Array.from({ length: amount }, (_, k) => ({
    name: name(k),
    values: values.subarray(k * area, (k + 1) * area),
  }));
}

function BigMatrix({ matrix, size }: { matrix: Matrix; size: number }) {
  const range = largest(matrix.values);
  const draw = useMemo(
    () => (width: number) => heatMapPlot({ values: matrix.values, size, range, width, isThumbnail: false }),
    [matrix, size],
  );
  const large = matrix.values.filter((value) => Math.abs(value) > 0.1 * range).length;
  return (
    <Chart
      class="square"
      label={`Heat map of the matrix of ${matrix.name}: entries between ${number(-range)} and ${number(range)}, ${large} of ${size * size} above a tenth of the largest.`}
      draw={draw}
      height={420}
      caption={
        <span class="ramp">
          −{number(range)} <span class="ramp-bar" /> +{number(range)}
        </span>
      }
      table={() => ({
        caption: `Entries of ${matrix.name}`,
        columns: ["row", ...Array.from({ length: size }, (_, k) => `${k}`)],
        rows: Array.from({ length: size }, (_, row) => [
          `${row}`,
          ...Array.from(matrix.values.subarray(row * size, (row + 1) * size), (value) => value.toFixed(2)),
        ]),
      })}
    />
  );
}

interface ThumbnailsProps {
  title: string;
  matrices: Matrix[];
  size: number;
  first: number; // the place of the first one among all
  place: number;
  onChoose: (place: number) => void;
}

function Thumbnails({ title, matrices, size, first, place, onChoose }: ThumbnailsProps) {
  return (
    <>
      <h3>{title}</h3>
      <ul class="thumbnails">
        {matrices.map((matrix, k) => (
          <li key={matrix.name}>
            <button type="button" aria-pressed={place === first + k} onClick={() => onChoose(first + k)}>
              <Thumbnail matrix={matrix} size={size} />
              <span>{matrix.name.replace(/^(symbol|entry) /, "")}</span>
            </button>
          </li>
        ))}
      </ul>
    </>
  );
}

function Thumbnail({ matrix, size }: { matrix: Matrix; size: number }) {
  const draw = useMemo(
    () => (width: number) =>
      heatMapPlot({ values: matrix.values, size, range: largest(matrix.values), width, isThumbnail: true }),
    [matrix, size],
  );
  return <Chart label={`Heat map of ${matrix.name}`} draw={draw} height={56} />;
}

/** Which entries of the dictionary each symbol selects. */
function Selection({ selection, symbols }: { selection: number[][]; symbols: string[] }) {
  const entries = selection.flatMap((row, v) =>
    row.map((weight, k) => ({ symbol: symbols[v] ?? `${v}`, entry: k, weight })),
  );
  const amount = selection[0]?.length ?? 0;
  const draw = useMemo(
    () => (width: number) => selectionPlot(entries, amount, selection.length, width),
    [selection, symbols],
  );
  const best = selection.map(
    (row, v) => `${symbols[v] ?? v} selects entry ${row.indexOf(Math.max(...row))} most (${number(Math.max(...row))})`,
  );
  return (
    <Chart
      label={`Weights of the dictionary: ${best.slice(0, 6).join("; ")}.`}
      draw={draw}
      height={selection.length * 26 + 60}
      caption="The weights of the softmax: those of one symbol sum to 1."
      table={() => ({
        caption: "Selection weights",
        columns: ["symbol", ...Array.from({ length: amount }, (_, k) => `entry ${k}`)],
        rows: selection.map((row, v) => [symbols[v] ?? `${v}`, ...row.map((weight) => number(weight))]),
      })}
    />
  );
}

function selectionPlot(
  entries: { symbol: string; entry: number; weight: number }[],
  amount: number,
  rows: number,
  width: number,
): PlotOptions {
  const hasText = amount <= MOST_LABELLED && width / amount > 24;
  const longest = Math.max(...entries.map(({ symbol }) => symbol.length));
  const title = (d: { symbol: string; entry: number; weight: number }) =>
    `symbol ${d.symbol}, entry ${d.entry}\n${number(d.weight)}`;
  const [empty, full] = isDark.value ? ["#20262d", "#6fc0f5"] : ["#f2f5f7", "#005f96"];
  const isStrong = (d: { weight: number }) => d.weight > 0.5;
  return {
    height: rows * 26 + 60,
    marginLeft: Math.min(20 + 7 * longest, 110),
    marginBottom: 36,
    marginTop: 20,
    x: { type: "band", label: "entry of the dictionary", padding: 0.06 },
    y: { type: "band", label: null, padding: 0.1, domain: [...new Set(entries.map(({ symbol }) => symbol))] },
    color: { type: "linear", domain: [0, 1], range: [empty!, full!] },
    marks: [
      axisX({
        tickSize: 0,
        ticks: Array.from({ length: amount }, (_, k) => k).filter(
          (k) => hasText || k % Math.ceil((amount * 24) / width) === 0,
        ),
      }),
      cell(entries, { x: "entry", y: "symbol", fill: "weight", rx: 2 }),
      ...(hasText
        ? [
            text(entries, {
              x: "entry",
              y: "symbol",
              text: (d) => d.weight.toFixed(2).replace(/^0/, ""),
              fill: (d) => (isStrong(d) ? "var(--on-accent)" : "var(--text)"),
              fontSize: 10,
            }),
          ]
        : []),
      tip(entries, pointer({ x: "entry", y: "symbol", title })),
    ],
  };
}
