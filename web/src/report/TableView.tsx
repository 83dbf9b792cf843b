/** A table of the paper or of an experiment: our numbers beside the published ones. */
import { useState } from "preact/hooks";
import type { CellData, TableData } from "../data";
import { Copyable } from "./Copyable";
import { chance, count, countOf, percent, percentNumber, signed } from "./format";
import { href } from "./router";
import { Segmented } from "./Segmented";
import { report, runs } from "./store";

type Score = "best" | "average";

export function TableView({ table }: { table: TableData }) {
  const [score, setScore] = useState<Score>("best");
  const hasAverage = table.cells.some((cell) => cell.average !== null);
  const cells = new Map(table.cells.map((cell) => [JSON.stringify([cell.row, cell.column]), cell]));
  const columnChance = (column: string) =>
    table.cells.find((cell) => cell.column === column && cell.chance !== null)?.chance ?? null;
  return (
    <>
      <TableLinks current={table.id} />
      <h1 tabIndex={-1}>{table.title}</h1>
      <p class="lead">
        Accuracy in percent. Under each of our numbers: the difference from the published one, in percentage points, or
        the published number where we have none; then seeds × steps. A number links to its runs.
      </p>
      <div class="controls">
        {hasAverage && (
          <Segmented
            legend="Over seeds"
            options={[
              ["best", "best"],
              ["average", "average"],
            ]}
            value={score}
            onChange={setScore}
          />
        )}
        <ul class="key" aria-label="Colours">
          <li class="cell-better">better by 1 or more</li>
          <li class="cell-equal">within 1</li>
          <li class="cell-worse">worse by 1 or more</li>
        </ul>
      </div>
      <div class="scroll" tabIndex={0} role="region" aria-label={table.title}>
        <table class="results">
          <thead>
            <tr>
              <th scope="col">{table.corner}</th>
              {table.columns.map((column) => (
                <th scope="col" key={column}>
                  {column}
                </th>
              ))}
            </tr>
          </thead>
          <tbody>
            {table.rows.map((row) => (
              <tr key={row}>
                <th scope="row">{row}</th>
                {table.columns.map((column) => (
                  <Cell key={column} cell={cells.get(JSON.stringify([row, column]))} score={score} />
                ))}
              </tr>
            ))}
          </tbody>
          <tfoot>
            <tr>
              <th scope="row">chance</th>
              {table.columns.map((column) => (
                <td key={column}>{chance(columnChance(column))}</td>
              ))}
            </tr>
          </tfoot>
        </table>
      </div>
      {table.notes.length > 0 && (
        <ul class="notes">
          {table.notes.map((note) => (
            <li>{note}</li>
          ))}
        </ul>
      )}
      <Copyable label="Reproduce this table" text={table.command} />
    </>
  );
}

function Cell({ cell, score }: { cell: CellData | undefined; score: Score }) {
  if (!cell) return <td class="empty">–</td>;
  const ours = score === "best" ? cell.best : cell.average;
  const published = score === "best" ? cell.published_best : cell.published_average;
  const difference = ours !== null && published !== null ? ours - published : null;
  const made = `${countOf(cell.seeds, "seed")}${cell.steps === null ? "" : `, ${countOf(cell.steps, "step")}`}`;
  const tooltip = `ours ${percent(ours)} (${made}); published ${percent(published)}; chance ${chance(cell.chance)}`;
  const target = runsAddress(cell);
  return (
    <td class={verdictClass(difference)} title={tooltip}>
      {ours === null ? (
        <span class="ours">–</span>
      ) : target ? (
        <a class="ours" href={target}>
          {percentNumber(ours)}
        </a>
      ) : (
        <span class="ours">{percentNumber(ours)}</span>
      )}
      <span class="difference">
        {difference !== null
          ? `${signed(difference)} (${percentNumber(published!)})`
          : published !== null
            ? `published ${percentNumber(published)}`
            : "not published"}
      </span>
      {ours !== null && <span class="made">{compactMade(cell)}</span>}
    </td>
  );
}

/** Seeds and steps, as short as a cell needs. */
function compactMade(cell: CellData): string {
  return cell.steps === null ? countOf(cell.seeds, "seed") : `${count(cell.seeds)} × ${count(cell.steps)} steps`;
}

function verdictClass(difference: number | null): string {
  if (difference === null) return "cell-none";
  if (Math.abs(difference) < 1) return "cell-equal";
  return difference > 0 ? "cell-better" : "cell-worse";
}

/** One run has a view of its own; several are compared. */
function runsAddress(cell: CellData): string | null {
  const known = cell.runs.filter((id) => runs.value.has(id));
  if (known.length === 0) return null;
  return known.length === 1 ? href("run", known[0]!) : href("compare", known.join(","));
}

function TableLinks({ current }: { current: string }) {
  const { tables } = report.value;
  if (tables.length < 2) return null;
  const isUnique = new Set(tables.map((table) => table.name)).size === tables.length;
  return (
    <nav class="chips" aria-label="Tables">
      <ul>
        {tables.map((table) => (
          <li key={table.id}>
            <a href={href("table", table.id)} aria-current={table.id === current ? "page" : undefined}>
              {isUnique ? table.name : table.title}
            </a>
          </li>
        ))}
      </ul>
    </nav>
  );
}
