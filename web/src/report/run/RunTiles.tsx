/** The numbers of a run that matter most. */
import type { ExtractionSummary, RunData } from "../../data";
import { certifiedText } from "../certified";
import { BEST_CONSTANT, chance, count, countOf, percent } from "../format";
import { failureText } from "../RunsTable";
import { Tiles, type Tile } from "../Tiles";

interface RunTilesProps {
  run: RunData;
  trainLength: number | null;
}

export function RunTiles({ run, trainLength }: RunTilesProps) {
  const tiles = [...accuracyTiles(run, trainLength), ...provedTiles(run)];
  if (tiles.length === 0) return null; // the next section says how to get them
  return (
    <>
      <Tiles tiles={tiles} />
      {run.headline !== null && <p class="fine">{headlineText(run)}</p>}
    </>
  );
}

/** What was measured on random strings, within the training lengths and beyond them. */
function accuracyTiles(run: RunData, trainLength: number | null): Tile[] {
  const beside = (constant: number | null) => (constant === null ? "" : `; best constant ${chance(constant)}`);
  const tiles: Tile[] = [];
  if (run.mean_within !== null)
    tiles.push({
      value: percent(run.mean_within),
      text: `accuracy on random strings of the training lengths, up to ${count(trainLength)}${beside(run.constant_within)}`,
    });
  if (run.mean_beyond !== null)
    tiles.push({
      value: percent(run.mean_beyond),
      text: `accuracy on random strings beyond them, up to length ${count(run.max_length)}${beside(run.constant_beyond)}`,
    });
  if (run.headline !== null)
    tiles.push({ value: failureText(run), text: "first length with an accuracy below 99 %, on random strings" });
  return tiles;
}

/** What is known about all strings: proofs, a counterexample, the automaton. */
function provedTiles({ certified, extraction }: RunData): Tile[] {
  const tiles: Tile[] = [];
  if (certified) tiles.push({ value: certifiedText(certified), text: "certified length: proved, not measured" });
  if (certified?.misclassified_symbols)
    tiles.push({
      value: countOf(certified.misclassified_symbols.length, "symbol"),
      text: "a known string of this length is misclassified",
      more: <SectionButton section="certificate-heading" name="Show the string" />,
    });
  if (extraction) tiles.push(extractionTile(extraction));
  return tiles;
}

function extractionTile({ equals_task: isEqual, n_states: states, faithful }: ExtractionSummary): Tile {
  const value = isEqual === null ? "not compared with the task" : isEqual ? "equal to the task" : "not the task's";
  const drift = faithful ? "" : `; the model ${isEqual ? "drifts away from it on long strings" : "does not follow it on some strings"}`;
  return { value, text: `automaton read from the weights, ${countOf(states, "state")}${drift}` };
}

/** Go to a part of this view; the address names the view, so it cannot name the part. */
function SectionButton({ section, name }: { section: string; name: string }) {
  return (
    <button type="button" class="small" onClick={() => document.getElementById(section)?.scrollIntoView()}>
      {name}
    </button>
  );
}

/** The number that tables quote, with the lengths that it is the mean of. */
function headlineText(run: RunData): string {
  const { headline_lengths: lengths } = run;
  const over = lengths
    ? `mean of ${countOf(lengths.length, "length")}: ${lengths.map(count).join(", ")}`
    : `mean over all lengths up to ${count(run.max_length)}`;
  const constant = run.headline_chance === null ? "" : `; a constant answer has ${chance(run.headline_chance)}`;
  const name = run.headline_name.slice(0, 1).toUpperCase() + run.headline_name.slice(1);
  return `${name} ${percent(run.headline)} (${over}${constant}). ${BEST_CONSTANT}`;
}
