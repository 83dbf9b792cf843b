import { chance } from "../report/format";
import { className, statesOfClass, UNLABELLED } from "./automaton";
import { Diagram } from "./Diagram";
import { count, percent } from "./numbers";
import type { Lane, Session } from "./session";
import { StateChart } from "./StateChart";
import { accuracyBetween, bestConstant, describeOutcome, describeRecovery, VARIANTS } from "./text";
import { Timeline } from "./Timeline";
import { softmax } from "./trace";

/** Classes that are listed with their probabilities. */
const MOST_CLASSES = 5;

/** One model: what it says now, where, how it has done, and what is inside it. */
export function Panel({ session, lane }: { session: Session; lane: Lane }) {
  const task = session.task.value;
  const { machine } = task;
  void session.progress.value; // the trace is changed in place
  const trace = lane.trace.value;
  const word = session.word.value;
  const position = Math.min(session.position.value, trace.done);
  const { state, logits } = trace.readingAt(position);
  const label = session.labels.value[position]!;
  const predicted = position === 0 ? null : trace.predicted[position]!;
  const isAsked = label !== UNLABELLED;
  const isCorrect = isAsked && predicted !== null ? predicted === label : null;
  const recovery = describeRecovery(lane, session.noise.value.kicks, word.length);
  return (
    <section class="player-panel" aria-label={lane.entry.label}>
      <header>
        <h2>{lane.entry.label}</h2>
        <Variants session={session} lane={lane} />
      </header>
      <div class={`player-verdict ${isCorrect === null ? "" : isCorrect ? "is-right" : "is-wrong"}`}>
        <Verdict
          predicted={predicted === null ? null : className(machine, predicted)}
          label={isAsked ? className(machine, label) : null}
          isCorrect={isCorrect}
        />
        <Score session={session} lane={lane} position={position} />
      </div>
      <Diagram
        machine={machine}
        name={task.name}
        state={session.states.value[position]!}
        previous={position === 0 ? null : session.states.value[position - 1]!}
        symbol={position === 0 ? null : word[position - 1]!}
        predicted={predicted === null || !isAsked ? [] : statesOfClass(machine, predicted)}
        isCorrect={isCorrect}
      />
      <div class="player-outcome" role="status">
        <p>
          {describeOutcome(lane, word.length, task)}
          {trace.firstWrong !== null && (
            <button
              type="button"
              onClick={() => {
                session.stop();
                session.moveTo(trace.firstWrong!);
              }}
            >
              Go to the first mistake
            </button>
          )}
        </p>
        {recovery && <p>{recovery}</p>}
      </div>
      <div>
        <h3>How clear is each prediction?</h3>
        <p class="player-note">
          Score of the correct answer minus the best other one. Below zero the prediction is wrong. The strip below is
          green where predictions are right and orange where they are wrong, and mixed for some of each. Click to go
          there.
        </p>
        <Timeline session={session} lane={lane} />
      </div>
      <div class="player-inside">
        <div>
          <h3>What it believes now</h3>
          <Probabilities
            shares={logits && shareOf(lane, logits)}
            names={(index) => className(machine, index)}
            label={isAsked ? label : null}
          />
        </div>
        <div>
          <h3>What it remembers: {count(state.length)} numbers</h3>
          <StateChart label={`The ${state.length} entries of the state of ${lane.entry.label}`} state={state} />
        </div>
      </div>
    </section>
  );
}

/** The exact model of a machine has logits 0 and 1, which are shares as they are. */
function shareOf(lane: Lane, logits: Float32Array): Float32Array {
  const { kind } = lane.entry.player.variants[lane.variant.value]!.model;
  return kind === "machine" ? logits : softmax(logits);
}

function Variants({ session, lane }: { session: Session; lane: Lane }) {
  const { variants } = lane.entry.player;
  if (variants.length < 2) return null;
  const others = variants.slice(1).flatMap(({ name }) => (VARIANTS[name] ? [`${name}: ${VARIANTS[name]}`] : []));
  return (
    <>
      <div class="player-buttons" role="group" aria-label="Weights">
        {variants.map(({ name }, i) => (
          <button
            type="button"
            key={name}
            aria-pressed={lane.variant.value === i}
            onClick={() => session.chooseVariant(lane, i)}
          >
            {name}
          </button>
        ))}
      </div>
      <p class="player-note">{others.join("; ")}</p>
    </>
  );
}

interface VerdictProps {
  predicted: string | null;
  label: string | null;
  isCorrect: boolean | null;
}

function Verdict({ predicted, label, isCorrect }: VerdictProps) {
  if (predicted === null) return <p>Nothing has been read yet.</p>;
  if (isCorrect === null) return <p>Not a complete string yet: the model is not asked.</p>;
  return (
    <p>
      <span class="player-stamp">{isCorrect ? "✓ right" : "✗ wrong"}</span> It says <strong>{predicted}</strong>
      {isCorrect ? "." : <>, and the truth is <strong>{label}</strong>.</>}
    </p>
  );
}

/** How often the model was right so far, up to its training length and beyond it. */
function Score({ session, lane, position }: { session: Session; lane: Lane; position: number }) {
  const task = session.task.value;
  const trace = lane.trace.value;
  const trained = lane.entry.player.train_length;
  const constant = bestConstant(session.labels.value, task.machine.n_classes);
  const share = (from: number, to: number) => {
    const accuracy = accuracyBetween(trace, from, to);
    return <strong>{accuracy === null ? "–" : percent(accuracy)}</strong>;
  };
  return (
    <ul class="player-score">
      <li>
        right beyond symbol {count(trained)}: {share(trained, position)} (a random guess: {chance(task.chance)}
        {constant !== null && constant > task.chance + 10 && `; always the same answer: ${percent(constant)}`})
      </li>
      <li>
        up to symbol {count(trained)}: {share(0, Math.min(position, trained))}
      </li>
    </ul>
  );
}

interface ProbabilitiesProps {
  shares: Float32Array | null;
  names: (index: number) => string;
  label: number | null;
}

function Probabilities({ shares, names, label }: ProbabilitiesProps) {
  if (!shares) return <p class="player-note">Nothing has been read yet.</p>;
  const order = Array.from(shares.keys()).sort((a, b) => shares[b]! - shares[a]!);
  const shown = order.slice(0, MOST_CLASSES);
  if (label !== null && !shown.includes(label)) shown[shown.length - 1] = label;
  return (
    <>
      <ul class="player-shares">
        {shown.map((index) => {
          const share = 100 * Math.max(0, Math.min(1, shares[index]!));
          return (
            <li key={index} class={index === label ? "is-true" : ""}>
              <span class="player-share-name">
                {names(index)}
                {index === label && <small> (true)</small>}
              </span>
              <span class="player-share-bar">
                <span style={{ width: `${share}%` }} />
              </span>
              <span class="player-share-value">{percent(share)}</span>
            </li>
          );
        })}
      </ul>
      {order.length > shown.length && (
        <p class="player-note">
          {shown.length} of {count(order.length)} possible answers.
        </p>
      )}
    </>
  );
}
