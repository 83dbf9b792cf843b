/** A chart of Observable Plot in a Preact page: sized to its box, drawn when it comes near the screen, with a text. */
import { plot, type PlotOptions } from "@observablehq/plot";
import type { ComponentChildren } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import { DataTable, type TableOf } from "./DataTable";
import { isDark } from "./theme";

export interface ChartProps {
  /** One sentence with the result, for readers who do not see the picture. */
  label: string;
  /** The chart for a width in pixels. A new function draws the chart again: keep it with `useMemo`. */
  draw: (width: number) => PlotOptions;
  /** The numbers of the chart; shown on demand. */
  table?: () => TableOf;
  /** Height kept free until the chart is drawn, in pixels. */
  height?: number;
  caption?: ComponentChildren;
  class?: string;
}

export function Chart({ label, draw, table, height = 280, caption, class: className = "" }: ChartProps) {
  const box = useRef<HTMLDivElement>(null);
  const width = useWidth(box);
  const dark = isDark.value;
  useEffect(() => {
    if (!box.current || width === 0) return;
    const options = draw(width);
    if (width <= horizontalMargins(options)) return; // no room: the window is being resized, or printed
    const style = { background: "transparent", fontFamily: "inherit", fontSize: "12px", overflow: "visible" };
    const picture = plot({ ...options, width, style });
    picture.setAttribute("aria-hidden", "true"); // the box has the text
    box.current.replaceChildren(picture);
  }, [draw, width, dark]);
  return (
    <figure class={`chart ${className}`}>
      <div
        ref={box}
        class="chart-box"
        role="img"
        aria-label={label}
        style={{ minHeight: width === 0 ? `${height}px` : undefined }}
      />
      {caption && <figcaption>{caption}</figcaption>}
      {table && <DataTable of={table} />}
    </figure>
  );
}

/** The space that a chart keeps free at both sides, in pixels; what is not given is as in Plot. */
function horizontalMargins({ margin, marginLeft = margin ?? 40, marginRight = margin ?? 20 }: PlotOptions): number {
  return marginLeft + marginRight;
}

/** Call a function when the browser has nothing else to do; returns what cancels it. Safari has no such event. */
function whenIdle(call: () => void): () => void {
  if ("requestIdleCallback" in window) {
    const handle = requestIdleCallback(call);
    return () => cancelIdleCallback(handle);
  }
  const timer = setTimeout(call, 1000);
  return () => clearTimeout(timer);
}

/**
 * The width of an element once it is near the screen, and after each change; 0 before.
 * Elements far from the screen follow when the browser is idle, so that prints and pictures of the whole page have all.
 */
function useWidth(box: { current: HTMLElement | null }): number {
  const [width, setWidth] = useState(0);
  useEffect(() => {
    const element = box.current;
    if (!element) return;
    const sizes = new ResizeObserver(() => setWidth(Math.floor(element.clientWidth)));
    const start = () => {
      stopWaiting();
      sizes.observe(element);
    };
    const nearness = new IntersectionObserver(
      (entries) => {
        if (entries.some((entry) => entry.isIntersecting)) start();
      },
      { rootMargin: "400px" },
    );
    const cancelIdle = whenIdle(start);
    const stopWaiting = () => {
      nearness.disconnect();
      cancelIdle();
      removeEventListener("beforeprint", start);
    };
    nearness.observe(element);
    addEventListener("beforeprint", start);
    return () => {
      stopWaiting();
      sizes.disconnect();
    };
  }, []);
  return width;
}
