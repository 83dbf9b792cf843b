/** Numbers that matter most, each with what it means. */
import type { ComponentChildren } from "preact";

export interface Tile {
  value: string;
  text: string;
  more?: ComponentChildren;
}

export function Tiles({ tiles }: { tiles: Tile[] }) {
  return (
    <ul class="tiles">
      {tiles.map(({ value, text, more }) => (
        <li key={text}>
          <strong>{value}</strong>
          <span>{text}</span>
          {more}
        </li>
      ))}
    </ul>
  );
}
