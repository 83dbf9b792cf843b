import { useEffect, useLayoutEffect, useRef } from "preact/hooks";
import uPlot from "uplot";
import "uplot/dist/uPlot.min.css";

/** Colours of the style sheet, by the names of its variables without the leading dashes. */
export type Colours = (name: string) => string;

interface ChartProps {
  /** What the chart shows, for those who do not see it. */
  label: string;
  height: number;
  /** Called once, and again when the reader switches between light and dark. */
  options: (colours: Colours) => Omit<uPlot.Options, "width" | "height">;
  data: uPlot.AlignedData;
  /** Called with the position under the pointer while its button is down. */
  onPick?: (value: number) => void;
}

/** A uPlot chart that is as wide as its container. */
export function Chart({ label, height, options, data, onPick }: ChartProps) {
  const box = useRef<HTMLDivElement>(null);
  const chart = useRef<uPlot | null>(null);
  const current = useRef({ data, onPick });
  current.current = { data, onPick };

  useEffect(() => {
    const element = box.current!;
    const make = () => {
      chart.current?.destroy();
      const style = getComputedStyle(element);
      const colours: Colours = (name) => style.getPropertyValue(`--${name}`).trim() || "gray";
      const size = { width: element.clientWidth || 300, height };
      chart.current = new uPlot({ ...options(colours), ...size }, current.current.data, element);
      addPicking(chart.current, (value) => current.current.onPick?.(value));
    };
    make();
    const resizing = new ResizeObserver(() => {
      const width = element.clientWidth;
      if (width && width !== chart.current?.width) chart.current?.setSize({ width, height });
    });
    resizing.observe(element);
    const scheme = matchMedia("(prefers-color-scheme: dark)");
    scheme.addEventListener("change", make);
    return () => {
      resizing.disconnect();
      scheme.removeEventListener("change", make);
      chart.current?.destroy();
      chart.current = null;
    };
  }, []);

  useLayoutEffect(() => {
    if (chart.current && chart.current.data !== data) chart.current.setData(data);
  }, [data]);

  return <div ref={box} class="player-chart" role="img" aria-label={label} />;
}

function addPicking(chart: uPlot, pick: (value: number) => void): void {
  const report = (event: PointerEvent) => {
    if (event.buttons !== 1) return;
    pick(chart.posToVal(event.clientX - chart.over.getBoundingClientRect().left, "x"));
  };
  chart.over.addEventListener("pointerdown", report);
  chart.over.addEventListener("pointermove", report);
}
