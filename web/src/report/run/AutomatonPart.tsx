/** The automaton that was read from the weights, beside that of the task. */
import type { ExtractionSummary, RunData, RunDetail, TaskData } from "../../data";
import { Diagram } from "../Diagram";
import { countOf } from "../format";
import { Missing } from "./Missing";

interface AutomatonPartProps {
  run: RunData;
  detail: RunDetail | null;
  task: TaskData | undefined;
}

export function AutomatonPart({ run, detail, task }: AutomatonPartProps) {
  const { extraction } = run;
  return (
    <section aria-labelledby="extracted-heading">
      <h2 id="extracted-heading">Automaton read from the weights</h2>
      {extraction ? (
        <>
          <Verdict extraction={extraction} />
          <div class="pair">
            <div class="panel">
              <h3>Read from the weights ({countOf(extraction.n_states, "state")})</h3>
              {detail?.extracted ? (
                <Diagram machine={detail.extracted} name="the extracted automaton" />
              ) : (
                <p class="missing">The automaton is not on this page.</p>
              )}
            </div>
            <div class="panel">
              <h3>The task{task ? ` (${countOf(task.machine.states.length, "state")})` : ""}</h3>
              {task && <Diagram machine={task.machine} name={task.name} />}
            </div>
          </div>
        </>
      ) : (
        <Missing what="No automaton was read from the weights of this run." command="extract" run={run} />
      )}
    </section>
  );
}

function Verdict({ extraction }: { extraction: ExtractionSummary }) {
  const { equals_task: isEqual, difference, faithful, note } = extraction;
  const look = !isEqual ? "verdict-open" : faithful ? "verdict-good" : "verdict-caution";
  return (
    <div class={`verdict ${look}`}>
      <p>
        <strong>
          {isEqual === null && "It was not compared with the task's automaton."}
          {isEqual === true &&
            faithful &&
            "✓ Equal: both give the same label to every valid string, of any length. This is proved."}
          {isEqual === true &&
            !faithful &&
            "The automaton read from the weights equals the task's (proved). The model itself drifts away from it on long strings."}
          {isEqual === false && "✗ Not equal to the task's automaton."}
        </strong>
        {difference !== null && (
          <>
            {" "}
            The shortest string on which they differ: <code>{difference}</code>
          </>
        )}
      </p>
      <p>
        {faithful
          ? "On random strings of several lengths the model gives the labels of its automaton at every symbol."
          : "On some random strings the model does not follow this automaton."}
        {note && ` ${note[0]!.toUpperCase()}${note.slice(1)}.`}
      </p>
    </div>
  );
}
