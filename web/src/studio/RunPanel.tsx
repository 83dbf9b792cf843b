/** At the top of a run's view in the studio: how far its training is, and the commands that can be started on it. */
import { useState } from "preact/hooks";
import type { RunData } from "../data";
import { Progress } from "../report/Progress";
import { actions, connection, mayAct, startAction, type StartedAction } from "./live";

/** The commands, and what each one finds out. */
const COMMANDS: [action: string, label: string, purpose: string][] = [
  ["evaluate", "Evaluate", "measure the accuracy at every length"],
  ["extract", "Extract", "read the automaton from the weights"],
  ["certify", "Certify", "prove up to which length it makes no error"],
  ["horizon", "Horizon", "measure up to which length it makes no error"],
];

export function RunPanel({ run }: { run: RunData }) {
  return (
    <>
      {run.status === "running" && <Progress run={run} />}
      {mayAct() && run.folder !== null && <Commands run={run} />}
    </>
  );
}

function Commands({ run }: { run: RunData }) {
  const [refusal, setRefusal] = useState<string | null>(null);
  const started = actions.value.filter((action) => action.run === run.id);
  const pending = new Set(started.filter(isPending).map((action) => action.action));
  const start = (action: string) => {
    setRefusal(null);
    startAction(run.id, action).catch((error: unknown) => setRefusal(error instanceof Error ? error.message : String(error)));
  };
  return (
    <section class="commands" aria-label="Commands on this run">
      <div class="command-buttons">
        {COMMANDS.map(([action, label, purpose]) => (
          <button
            type="button"
            key={action}
            title={purpose}
            disabled={run.status === "running" || pending.has(action) || connection.value === "lost"}
            onClick={() => start(action)}
          >
            {label}
          </button>
        ))}
        {run.status === "running" && <span class="fine">Commands can be started when the training has ended.</span>}
      </div>
      <p class="refusal" role="alert">
        {refusal}
      </p>
      <p class="visually-hidden" role="status">
        {started[0] && `${started[0].action} ${describe(started[0])}`}
      </p>
      {newestOfEach(started).map((action) => (
        <Started key={action.action} action={action} />
      ))}
    </section>
  );
}

/** One command: its state, and the end of what it printed. Open while it runs and if it failed. */
function Started({ action }: { action: StartedAction }) {
  return (
    <details class={`started started-${action.state}`} open={isPending(action) || action.state === "failed"}>
      <summary>
        <code>{action.command}</code> {describe(action)}
      </summary>
      <pre tabIndex={0}>{action.output || "It has printed nothing yet."}</pre>
    </details>
  );
}

function describe({ state, exit_code }: StartedAction): string {
  if (state === "waiting") return "waits for the command before it";
  if (state === "running") return "is running …";
  if (state === "finished") return "has finished";
  if (state === "stopped") return "was stopped with the studio";
  return exit_code === null ? "failed" : `failed with exit code ${exit_code}`;
}

function isPending(action: StartedAction): boolean {
  return action.state === "waiting" || action.state === "running";
}

/** The newest of the commands of each name; the list has the newest first. */
function newestOfEach(started: StartedAction[]): StartedAction[] {
  return started.filter((action, place) => started.findIndex((other) => other.action === action.action) === place);
}
