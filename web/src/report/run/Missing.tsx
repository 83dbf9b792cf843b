/** A part that is not there, and the command that makes it. */
import type { RunData } from "../../data";
import { Copyable } from "../Copyable";

interface MissingProps {
  what: string;
  command: "evaluate" | "extract" | "certify" | "horizon";
  run: RunData;
}

export function Missing({ what, command, run }: MissingProps) {
  if (run.folder === null)
    return <p class="missing">{what} The run is known from a results file only; its folder is not here.</p>;
  if (run.status === "running") return <p class="missing">{what} It will be possible when the training has ended.</p>;
  return (
    <div class="missing">
      <p>{what}</p>
      <Copyable label="Make it with" text={`sdssm ${command} ${quote(run.folder)}`} />
    </div>
  );
}

/** A path for a shell. */
export function quote(path: string): string {
  return /^[\w./+@%:,=-]+$/.test(path) ? path : `'${path.replaceAll("'", `'\\''`)}'`;
}
