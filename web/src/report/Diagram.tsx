/** The state diagram of an automaton, from the SVG text that Python drew. */
import { useEffect, useRef } from "preact/hooks";
import type { MachineData } from "../data";
import { countOf } from "./format";

interface DiagramProps {
  machine: MachineData;
  name: string;
}

export function Diagram({ machine, name }: DiagramProps) {
  const box = useRef<HTMLDivElement>(null);
  useEffect(() => {
    const picture = machine.diagram === null ? null : parseSvg(machine.diagram);
    box.current?.replaceChildren(...(picture ? [picture] : []));
  }, [machine.diagram]);
  if (machine.diagram === null) return <p class="missing">No diagram: {machine.diagram_note ?? "it was not drawn"}.</p>;
  const size = `${countOf(machine.states.length, "state")}, ${countOf(machine.symbols.length, "symbol")}`;
  return <div ref={box} class="diagram" role="img" aria-label={`State diagram of ${name}: ${size}`} />;
}

/** Parse a picture as XML, where no text becomes a script; null if it is not SVG. */
export function parseSvg(text: string): SVGElement | null {
  const root = new DOMParser().parseFromString(text, "image/svg+xml").documentElement;
  if (root.nodeName !== "svg") return null;
  root.querySelectorAll("script, foreignObject, .heading, :scope > title").forEach((element) => element.remove());
  root.removeAttribute("role"); // the box has the text
  return document.importNode(root, true) as unknown as SVGElement;
}
