import { useLayoutEffect, useMemo, useRef } from "preact/hooks";
import type { MachineData } from "../data";
import { hasStateLabels } from "./automaton";

const SVG = "http://www.w3.org/2000/svg";
/** Space beside the diagram for the marks of the outermost states, and below it for two tags. */
const [MARGIN, BELOW] = [16, 36];
/** Height of the heading that Python draws, which the playground leaves out. */
const HEADING = 30;
/** A small diagram is drawn larger than Python draws it, so that it can be seen from afar. */
const ENLARGED = 1.35;

interface DiagramProps {
  machine: MachineData;
  name: string;
  /** The state of the automaton, and the one before the last symbol. */
  state: number;
  previous: number | null;
  symbol: number | null;
  /** The states with the predicted output; empty before the first symbol. */
  predicted: number[];
  isCorrect: boolean | null;
}

/** The state diagram that Python drew, with marks on the true state and on the predicted one. */
export function Diagram(props: DiagramProps) {
  const { machine, name, state, predicted, isCorrect } = props;
  const box = useRef<HTMLDivElement>(null);
  const picture = useMemo(() => (machine.diagram === null ? null : parseDiagram(machine.diagram)), [machine]);
  useLayoutEffect(() => {
    box.current?.replaceChildren(...(picture ? [picture] : []));
  }, [picture]);
  useLayoutEffect(() => {
    // in the same frame as the tape and the verdict
    if (picture) mark(picture, props);
  }, [picture, state, props.previous, props.symbol, predicted.join(), isCorrect]);
  if (!picture) {
    const reason = machine.diagram_note?.replace(/^no diagram: /, "") ?? "it was not drawn";
    return <p class="player-note">No diagram: {reason}.</p>;
  }
  return (
    <figure class="player-diagram">
      <div ref={box} role="img" aria-label={`State diagram of ${name}`} />
      <figcaption>
        <span class="player-key player-key-true">true state</span>
        <span class="player-key player-key-model">
          {hasStateLabels(machine) ? "what the model says" : "states with the output that the model says"}
        </span>
        <span class="player-key player-key-wrong">the model is wrong</span>
        {picture.querySelector(".state circle + circle") && <span>double circle: accepted (output 1)</span>}
      </figcaption>
    </figure>
  );
}

/** Parse a diagram as XML, where no text becomes a script, and make room for the marks; null if it is no picture. */
function parseDiagram(text: string): SVGSVGElement | null {
  const root = new DOMParser().parseFromString(text, "image/svg+xml").documentElement;
  if (root.nodeName !== "svg") return null;
  const top = root.querySelector(".heading") ? HEADING : 0;
  root.querySelectorAll("script, foreignObject, .heading, :scope > title").forEach((element) => element.remove());
  const svg = document.importNode(root, true) as unknown as SVGSVGElement;
  const [x = 0, y = 0, width = 0, height = 0] = (svg.getAttribute("viewBox") ?? "").split(/\s+/).map(Number);
  const box = [x - MARGIN, y + top, width + 2 * MARGIN, height - top + BELOW];
  svg.setAttribute("viewBox", box.join(" "));
  svg.setAttribute("width", String(ENLARGED * box[2]!));
  svg.removeAttribute("height");
  svg.removeAttribute("role");
  return svg;
}

/** Move the marks, and light the arrow of the last symbol. */
function mark(svg: SVGSVGElement, { state, previous, symbol, predicted, isCorrect }: DiagramProps): void {
  svg.querySelectorAll(".player-mark").forEach((element) => element.remove());
  svg.querySelectorAll(".is-lit").forEach((element) => element.classList.remove("is-lit"));
  const under = svg.querySelector("[data-state]");
  const unit = Math.max(1, svg.viewBox.baseVal.width / (svg.clientWidth || Infinity)); // marks of a large diagram stay legible
  const place = (marked: number, kind: "true" | "model") => {
    const circle = svg.querySelector(`[data-state="${marked}"] circle`);
    if (!circle) return;
    const [x = 0, y = 0, radius = 0] = ["cx", "cy", "r"].map((name) => Number(circle.getAttribute(name)));
    const group = kind === "true"
        ? trueMark(x, y, radius, unit)
        : modelMark(x, y, radius, unit, isCorrect, predicted.length > 1 ? null : marked === state ? 1 : 0);
    if (kind === "true") {
      under?.before(group);
      svg.append(trueTag(x, y, radius, unit));
    } else svg.append(group);
  };
  place(state, "true");
  for (const one of predicted) place(one, "model");
  if (previous === null || symbol === null) return;
  for (const part of svg.querySelectorAll<SVGElement>("[data-source]")) {
    const { source, target, symbols = "", both } = part.dataset;
    const isForward = Number(source) === previous && Number(target) === state;
    const isBackward = both !== undefined && Number(source) === state && Number(target) === previous;
    if ((isForward || isBackward) && symbols.split(" ").includes(String(symbol))) part.classList.add("is-lit");
  }
}

function element(name: string, attributes: Record<string, string | number>, text?: string): SVGElement {
  const made = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, String(value));
  if (text !== undefined) made.textContent = text;
  return made;
}

/** A filled disc behind the state. `unit` is the size of a pixel of the page. */
function trueMark(x: number, y: number, radius: number, unit: number): SVGElement {
  const group = element("g", { class: "player-mark player-mark-true" });
  group.append(element("circle", { cx: x, cy: y, r: radius + 7 * unit, "stroke-width": 3 * unit }));
  return group;
}

/** The tag below the disc; it is in front of other states. */
function trueTag(x: number, y: number, radius: number, unit: number): SVGElement {
  const group = element("g", { class: "player-mark player-mark-true" });
  group.append(tag(x, y + radius + 20 * unit, unit, "true"));
  return group;
}

/** A square around the state, with its tag in this line below it; null: without a tag. */
function modelMark(
  x: number,
  y: number,
  radius: number,
  unit: number,
  isCorrect: boolean | null,
  line: number | null,
): SVGElement {
  const verdict = isCorrect === null ? "is-unknown" : isCorrect ? "is-right" : "is-wrong";
  const group = element("g", { class: `player-mark player-mark-model ${verdict}` });
  const side = radius + 9 * unit;
  const corner = { x: x - side, y: y - side, width: 2 * side, height: 2 * side, rx: 5 * unit };
  const dashes: Record<string, string> = isCorrect === false ? { "stroke-dasharray": `${7 * unit} ${4 * unit}` } : {};
  group.append(element("rect", { ...corner, "stroke-width": 3 * unit, ...dashes }));
  if (line !== null) {
    group.append(tag(x, y + radius + (20 + 17 * line) * unit, unit, isCorrect === false ? "model ✗" : "model ✓"));
  }
  return group;
}

/** A short text on a label. */
function tag(x: number, y: number, unit: number, text: string): SVGElement {
  const group = element("g", { transform: `translate(${x} ${y}) scale(${unit})` });
  const width = 7.2 * text.length + 8;
  group.append(
    element("rect", { class: "player-tag", x: -width / 2, y: -8, width, height: 16, rx: 4 }),
    element("text", { y: 4, "text-anchor": "middle", "font-size": 12 }, text),
  );
  return group;
}
