/** The eigenvalues of each symbol's matrix on the complex plane. */
import { dot, gridX, gridY, line, pointer, ruleX, ruleY, tip, type PlotOptions } from "@observablehq/plot";
import { useMemo } from "preact/hooks";
import { Chart } from "../../charts/Chart";
import { PALETTE, visible } from "../../charts/theme";
import type { MatrixData } from "../../data";
import { number } from "../format";

const SHAPES = ["circle", "triangle", "square", "diamond", "star", "cross"] as const;
const CIRCLE = Array.from({ length: 181 }, (_, k): [number, number] => [
  Math.cos((k * Math.PI) / 90),
  Math.sin((k * Math.PI) / 90),
]);

interface Eigenvalue {
  symbol: number;
  re: number;
  im: number;
}

interface EigenvaluePartProps {
  matrices: MatrixData;
  symbols: string[];
  /** Whether the model divides its state by its norm after each symbol: then only relative sizes matter. */
  isRescaled: boolean;
}

export function EigenvaluePart({ matrices, symbols, isRescaled }: EigenvaluePartProps) {
  const values = useMemo(() => listEigenvalues(matrices, isRescaled), [matrices, isRescaled]);
  const draw = useMemo(
    () => (width: number) => eigenvaluePlot(values, symbols, isRescaled, width),
    [values, symbols, isRescaled],
  );
  const radius = (v: number) => spectralRadius(matrices, v);
  const largest = matrices.eigenvalues.map((_, v) => `${symbols[v] ?? v} ${number(radius(v))}`);
  return (
    <section aria-labelledby="eigenvalues-heading">
      <h2 id="eigenvalues-heading">Eigenvalues</h2>
      <p class="fine">
        {isRescaled
          ? "Of the matrix of each symbol, divided by the largest of them in absolute value: the model divides its state by its norm after each symbol, so only relative sizes matter. If the symbol is repeated, an eigenvalue on the unit circle keeps its part of the state, and one inside forgets it. The legend has the divisor, the spectral radius."
          : "Of the matrix of each symbol, beside the unit circle. If the symbol is repeated, an eigenvalue on the circle keeps its part of the state for ever; one inside forgets it; one outside lets it grow."}
      </p>
      <div class="panel">
        <Chart
          class="square"
          label={`Eigenvalues on the complex plane. Largest absolute value by symbol: ${largest.slice(0, 8).join(", ")}.`}
          draw={draw}
          height={420}
          table={() => ({
            caption: isRescaled ? "Eigenvalues, divided by the largest of their symbol" : "Eigenvalues",
            columns: ["symbol", "real part", "imaginary part", "absolute value"],
            rows: values.map((value) => [
              symbols[value.symbol] ?? `${value.symbol}`,
              value.re.toFixed(3),
              value.im.toFixed(3),
              size(value).toFixed(3),
            ]),
          })}
        />
        <ul class="legend" aria-label="Symbols">
          {matrices.eigenvalues.map((_, v) => (
            <li key={v}>
              <span
                class={`shape shape-${SHAPES[v % SHAPES.length]}`}
                style={{ color: visible(PALETTE[v % PALETTE.length]!) }}
                aria-hidden="true"
              />
              {symbols[v] ?? v}: spectral radius {number(radius(v))}
            </li>
          ))}
        </ul>
      </div>
    </section>
  );
}

function listEigenvalues(matrices: MatrixData, isRescaled: boolean): Eigenvalue[] {
  return matrices.eigenvalues.flatMap(({ re, im }, symbol) => {
    const unit = isRescaled ? spectralRadius(matrices, symbol) || 1 : 1;
    return re.map((value, k) => ({ symbol, re: value / unit, im: (im[k] ?? 0) / unit }));
  });
}

/** The largest absolute value of a symbol's eigenvalues, as they are. */
function spectralRadius(matrices: MatrixData, symbol: number): number {
  const { re, im } = matrices.eigenvalues[symbol] ?? { re: [], im: [] };
  return Math.max(0, ...re.map((value, k) => Math.hypot(value, im[k] ?? 0)));
}

function size({ re, im }: Eigenvalue): number {
  return Math.hypot(re, im);
}

function eigenvaluePlot(values: Eigenvalue[], symbols: string[], isRescaled: boolean, width: number): PlotOptions {
  const relative = isRescaled ? " ÷ largest" : "";
  const reach = Math.max(1.12, 1.05 * Math.max(0, ...values.map(size)));
  const title = (value: Eigenvalue) =>
    `symbol ${symbols[value.symbol] ?? value.symbol}\n${value.re.toFixed(3)} ${value.im < 0 ? "−" : "+"} ${Math.abs(value.im).toFixed(3)} i\nabsolute value ${size(value).toFixed(3)}`;
  const present = [...new Set(values.map((value) => value.symbol))];
  return {
    height: width,
    margin: 36,
    marginTop: 24,
    x: { domain: [-reach, reach], label: `real part${relative} →`, ticks: 5 },
    y: { domain: [-reach, reach], label: `↑ imaginary part${relative}`, ticks: 5 },
    color: { type: "ordinal", domain: present, range: present.map((v) => visible(PALETTE[v % PALETTE.length]!)) },
    symbol: { type: "ordinal", domain: present, range: present.map((v) => SHAPES[v % SHAPES.length]!) },
    marks: [
      gridX({ stroke: "var(--line)", strokeOpacity: 1 }),
      gridY({ stroke: "var(--line)", strokeOpacity: 1 }),
      ruleX([0], { stroke: "var(--border)" }),
      ruleY([0], { stroke: "var(--border)" }),
      line(CIRCLE, { stroke: "var(--muted)", strokeDasharray: "4 3" }),
      dot(values, { x: "re", y: "im", stroke: "symbol", symbol: "symbol", r: 4.5, strokeWidth: 1.8 }),
      tip(values, pointer({ x: "re", y: "im", title })),
    ],
  };
}
