/** Colours of charts in light and dark mode. */
import { signal } from "@preact/signals";

const query = matchMedia("(prefers-color-scheme: dark)");

/** Whether the reader prefers dark pages. */
export const isDark = signal(query.matches);
query.addEventListener("change", () => (isDark.value = query.matches));

/** Colours that can be distinguished with any colour vision (Okabe and Ito), as in every picture of sdssm. */
export const PALETTE = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9"];

/** A colour as Python gave it, made lighter on a dark page or darker on a light one until it can be seen. */
export function visible(colour: string): string {
  if (!/^#[0-9a-f]{6}$/i.test(colour)) return "currentColor";
  let parts = [1, 3, 5].map((start) => parseInt(colour.slice(start, start + 2), 16));
  const towards = isDark.value ? 255 : 0;
  const isSeen = () => (isDark.value ? luminance(parts) > 0.2 : luminance(parts) < 0.45);
  for (let step = 0; step < 20 && !isSeen(); step++) parts = parts.map((part) => part + 0.1 * (towards - part));
  return `#${parts.map((part) => Math.round(part).toString(16).padStart(2, "0")).join("")}`;
}

/** Relative luminance of a colour, as the contrast rules of WCAG define it. */
function luminance(parts: number[]): number {
  const [red = 0, green = 0, blue = 0] = parts.map((part) => {
    const share = part / 255;
    return share <= 0.03928 ? share / 12.92 : ((share + 0.055) / 1.055) ** 2.4;
  });
  return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
}
