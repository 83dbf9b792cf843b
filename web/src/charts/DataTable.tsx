/** The numbers of a chart as a table, made when it is opened. */
import { useState } from "preact/hooks";

export interface TableOf {
  caption: string;
  columns: string[];
  rows: string[][];
}

export function DataTable({ of }: { of: () => TableOf }) {
  const [isOpen, setOpen] = useState(false);
  return (
    <details class="data" onToggle={(event) => setOpen(event.currentTarget.open)}>
      <summary>Numbers of this chart</summary>
      {isOpen && <OpenTable {...of()} />}
    </details>
  );
}

function OpenTable({ caption, columns, rows }: TableOf) {
  return (
    <div class="scroll tall" tabIndex={0} role="region" aria-label={caption}>
      <table class="numbers">
        <caption>{caption}</caption>
        <thead>
          <tr>
            {columns.map((column) => (
              <th scope="col">{column}</th>
            ))}
          </tr>
        </thead>
        <tbody>
          {rows.map((row) => (
            <tr>{row.map((text, k) => (k === 0 ? <th scope="row">{text}</th> : <td>{text}</td>))}</tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}
