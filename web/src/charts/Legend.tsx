/** The names of lines; each is a button that hides its line or shows it again. */
import { visible } from "./theme";

export interface LegendEntry {
  key: string;
  label: string;
  colour: string;
  dashes: number[];
}

interface LegendProps {
  entries: LegendEntry[];
  hidden?: Set<string>;
  onToggle?: (key: string) => void;
}

export function Legend({ entries, hidden, onToggle }: LegendProps) {
  return (
    <ul class="legend" aria-label="Lines of the chart">
      {entries.map((entry) => (
        <li key={entry.key}>
          {onToggle ? (
            <button type="button" aria-pressed={!hidden?.has(entry.key)} onClick={() => onToggle(entry.key)}>
              <Swatch {...entry} /> {entry.label}
            </button>
          ) : (
            <span>
              <Swatch {...entry} /> {entry.label}
            </span>
          )}
        </li>
      ))}
    </ul>
  );
}

function Swatch({ colour, dashes }: LegendEntry) {
  return (
    <svg class="swatch" width="26" height="8" aria-hidden="true">
      <line
        x1="1"
        x2="25"
        y1="4"
        y2="4"
        stroke={visible(colour)}
        stroke-width="3"
        stroke-dasharray={dashes.map((d) => d * 2).join(" ")}
      />
    </svg>
  );
}
