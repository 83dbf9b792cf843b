import { useId } from "preact/hooks";
import { UNLABELLED } from "./automaton";
import { count } from "./numbers";
import type { Session } from "./session";
import { describeConclusion, laneName } from "./text";

/** Symbols per second at the ends of the slider. */
const [SLOWEST, FASTEST] = [1, 1000];
const STEPS = 60;

const [FORWARD, BACK] = ["M4 2l8 6-8 6z", "M12 2L4 8l8 6z"];
const PAUSE = "M3 2h4v12H3z M9 2h4v12H9z";

function Icon({ path }: { path: string }) {
  return (
    <svg class="player-icon" viewBox="0 0 16 16" aria-hidden="true">
      <path d={path} />
    </svg>
  );
}

/** Play, step, scrub and speed. */
export function Transport({ session }: { session: Session }) {
  const position = session.position.value;
  const length = session.word.value.length;
  const isPlaying = session.isPlaying.value;
  const speed = session.speed.value;
  const trained = session.trainLength.value;
  const [scrub, rate] = [useId(), useId()];
  const step = (by: number) => {
    session.stop();
    session.moveTo(position + by);
  };
  const slide = Math.round((STEPS * Math.log(speed / SLOWEST)) / Math.log(FASTEST / SLOWEST));
  return (
    <div class="player-transport">
      <div class="player-buttons">
        <button type="button" class="is-primary" onClick={() => session.play()} disabled={length === 0}>
          <Icon path={isPlaying ? PAUSE : FORWARD} />
          {isPlaying ? "Pause" : position >= length && length > 0 ? "Play again" : "Play"}
        </button>
        <button type="button" aria-label="Go to the start" onClick={() => step(-Infinity)}>
          <Icon path={`M2 2h2v12H2z ${BACK}`} />
        </button>
        <button type="button" aria-label="One symbol back" onClick={() => step(-1)}>
          <Icon path={BACK} />
        </button>
        <button type="button" aria-label="One symbol forward" onClick={() => step(1)}>
          <Icon path={FORWARD} />
        </button>
        <button type="button" aria-label="Go to the end" onClick={() => step(Infinity)}>
          <Icon path={`${FORWARD} M12 2h2v12h-2z`} />
        </button>
      </div>
      <div class="player-slider is-wide">
        <label for={scrub}>
          symbol {count(position)} of {count(length)}
        </label>
        <span class="player-scrub">
          <input
            id={scrub}
            type="range"
            min={0}
            max={length}
            value={position}
            onInput={(event) => {
              session.stop();
              session.moveTo(Number(event.currentTarget.value));
            }}
          />
          {trained < length && (
            <span class="player-tick" style={{ "--share": trained / length }} title="the models were trained up to here" />
          )}
        </span>
      </div>
      <div class="player-slider">
        <label for={rate}>
          speed: {count(speed)} a second
        </label>
        <input
          id={rate}
          type="range"
          min={0}
          max={STEPS}
          value={slide}
          aria-valuetext={`${count(speed)} symbols a second`}
          onInput={(event) => {
            const share = Number(event.currentTarget.value) / STEPS;
            session.chosenSpeed.value = Math.round(SLOWEST * (FASTEST / SLOWEST) ** share);
          }}
        />
      </div>
      <ShortVerdicts session={session} />
      <NoiseBadge session={session} />
    </div>
  );
}

/** Whether each model is right now: for narrow screens, where the panels are far below. */
function ShortVerdicts({ session }: { session: Session }) {
  const position = session.position.value;
  const label = session.labels.value[position]!;
  void session.progress.value; // the traces are changed in place
  return (
    <p class="player-short" aria-hidden="true">
      {session.lanes.value.map((lane, place) => {
        const trace = lane.trace.value;
        const isKnown = label !== UNLABELLED && position <= trace.done;
        const isRight = trace.predicted[position] === label;
        return (
          <span key={place} class={isKnown ? (isRight ? "is-right" : "is-wrong") : ""}>
            <span class="player-stamp">{isKnown ? (isRight ? "✓" : "✗") : "·"}</span>
            {laneName(lane)}
          </span>
        );
      })}
    </p>
  );
}

function NoiseBadge({ session }: { session: Session }) {
  const { level, kicks } = session.noise.value;
  if (level === 0 && kicks.size === 0) return null;
  const places = [...kicks.keys()].sort((a, b) => a - b).slice(0, 3).map(count);
  const more = kicks.size > places.length ? ", …" : "";
  const kinds = [
    ...(level > 0 ? ["after every symbol"] : []),
    ...(kicks.size > 0 ? [`kick at symbol ${places.join(", ")}${more}`] : []),
  ];
  return (
    <p class="player-badge">
      noise on: {kinds.join("; ")}
      <button type="button" aria-label="Remove all noise" onClick={() => session.quieten()}>
        remove
      </button>
    </p>
  );
}

/** What to conclude, once the string has been played to its end. */
export function Conclusion({ session }: { session: Session }) {
  void session.progress.value;
  const length = session.word.value.length;
  const lanes = session.lanes.value;
  const isOver = length > 0 && session.position.value === length && lanes.every((lane) => lane.trace.value.isDone);
  return (
    <p class="player-conclusion" role="status">
      {isOver && lanes.some((lane) => lane.trace.value.asked[length]! > 0) && describeConclusion(lanes, length)}
    </p>
  );
}
