import { useEffect, useId, useLayoutEffect, useMemo } from "preact/hooks";
import { NoiseControls } from "./NoiseControls";
import { Panel } from "./Panel";
import "./panel.css";
import "./diagram.css";
import "./player.css"; // last: it has the rules for phones
import { partnerOf, Session, type PlayerEntry } from "./session";
import { StringControls } from "./StringControls";
import { hasLetters } from "./strings";
import { Tape } from "./Tape";
import { describeTask, describeTraining } from "./text";
import { Conclusion, Transport } from "./Transport";

export type { PlayerEntry };

export interface PlaygroundProps {
  /** Models to choose from; of any tasks. Two models can be compared if their tasks have the same id. */
  entries: PlayerEntry[];
  /** The entry that is shown first: an index into `entries`. */
  first?: number;
  /** The entry beside it. Default: another one of the same task if there is one; null: none. */
  second?: number | null;
  /** Whether it is all of the page: then its keys work before anything in it has the focus. */
  isPage?: boolean;
}

/** Step strings through trained models and watch their predictions beside the automaton. */
export function Playground({ entries, first = 0, second, isPage = false }: PlaygroundProps) {
  const session = useMemo(() => {
    const entry = entries[first];
    if (!entry) return null;
    const partner = partnerOf(entries, entry);
    return new Session(entries, first, second !== undefined ? second : partner && entries.indexOf(partner));
  }, [entries, first, second]);
  useEffect(() => () => session?.dispose(), [session]);
  if (!session) return <p>There is no model to play with.</p>;
  return <Player session={session} isPage={isPage} />;
}

function Player({ session, isPage }: { session: Session; isPage: boolean }) {
  useLayoutEffect(() => { // before the first frame: no key is lost
    if (!isPage) return;
    const listen = (event: KeyboardEvent) => handleKey(session, event);
    document.addEventListener("keydown", listen);
    return () => document.removeEventListener("keydown", listen);
  }, [session, isPage]);
  const task = session.task.value;
  const lanes = session.lanes.value;
  return (
    <div class="player" onKeyDown={(event) => isPage || handleKey(session, event)}>
      <Choices session={session} />
      <div class="player-intro">
        <p>{describeTask(task)}</p>
        <p>
          <strong>{describeTraining(lanes)}</strong>
        </p>
      </div>
      <div class="player-controls">
        <StringControls session={session} />
        <Tape session={session} />
      </div>
      <Transport session={session} />
      <Conclusion session={session} />
      <div class={`player-panels ${lanes.length > 1 ? "is-pair" : ""}`}>
        {lanes.map((lane, place) => (
          <Panel key={`${place} ${session.entries.indexOf(lane.entry)}`} session={session} lane={lane} />
        ))}
      </div>
      <NoiseControls session={session} />
      <p class="player-note">
        Keys: arrows step, space plays, Home and End jump
        {hasLetters(task.machine) ? `, ${task.machine.symbols.slice(0, 4).join(" ")} append symbols` : ""}.
      </p>
    </div>
  );
}

function Choices({ session }: { session: Session }) {
  const { entries } = session;
  const lanes = session.lanes.value;
  const ids = [useId(), useId()] as const;
  if (entries.length < 2) return null;
  const tasks = new Set(entries.map((entry) => entry.task.id)).size;
  const nameOf = (entry: PlayerEntry) => (tasks > 1 ? `${entry.task.name}: ${entry.label}` : entry.label);
  const partners = entries.filter((entry) => entry.task.id === session.task.value.id);
  return (
    <div class="player-choices">
      <span>
        <label for={ids[0]}>Model</label>{" "}
        <select
          id={ids[0]}
          value={entries.indexOf(lanes[0]!.entry)}
          onChange={(event) => session.choose(0, entries[Number(event.currentTarget.value)]!)}
        >
          {entries.map((entry, index) => (
            <option key={index} value={index}>
              {nameOf(entry)}
            </option>
          ))}
        </select>
      </span>
      {partners.length > 1 && (
        <span>
          <label for={ids[1]}>beside</label>{" "}
          <select
            id={ids[1]}
            value={lanes[1] ? entries.indexOf(lanes[1].entry) : ""}
            onChange={(event) => {
              const { value } = event.currentTarget;
              session.choose(1, value === "" ? null : entries[Number(value)]!);
            }}
          >
            <option value="">no other model</option>
            {partners.map((entry) => (
              <option key={entries.indexOf(entry)} value={entries.indexOf(entry)}>
                {entry.label}
              </option>
            ))}
          </select>
        </span>
      )}
    </div>
  );
}

/** Controls that take all keys, those that take the keys of a slider, and those that take the space bar. */
const TEXT = "textarea, select, input:not([type=range], [type=checkbox])";
const SLIDER_KEYS = ["ArrowRight", "ArrowLeft", "Home", "End"];
const PRESSED = "button, summary, input[type=checkbox]";

/** Step with the arrow keys, play with the space bar, append symbols by their letters. */
function handleKey(session: Session, event: KeyboardEvent): void {
  const target = event.target as HTMLElement;
  if (event.ctrlKey || event.metaKey || event.altKey || target.closest(TEXT)) return;
  if (SLIDER_KEYS.includes(event.key) && target.closest("input[type=range]")) return;
  if (event.key === " " && target.closest(PRESSED)) return;
  const { machine } = session.task.value;
  const step = (position: number) => {
    session.stop();
    session.moveTo(position);
  };
  const position = session.position.value;
  const actions: Record<string, () => void> = {
    ArrowRight: () => step(position + (event.shiftKey ? 10 : 1)),
    ArrowLeft: () => step(position - (event.shiftKey ? 10 : 1)),
    Home: () => step(0),
    End: () => step(Infinity),
    Backspace: () => session.removeLast(),
    " ": () => session.play(),
  };
  const symbol = hasLetters(machine) ? machine.symbols.indexOf(event.key) : -1;
  const action = actions[event.key] ?? (symbol >= 0 ? () => session.append(symbol) : null);
  if (!action) return;
  event.preventDefault();
  action();
}
