import { useSignal } from "@preact/signals";
import { useId } from "preact/hooks";
import { statesAlong } from "./automaton";
import { count, countOf } from "./numbers";
import type { Session } from "./session";
import { formatString, liveStates, LONGEST, parseString } from "./strings";

const LENGTHS = [40, 200, 1_000, 10_000];

/** Choose the string: random ones, symbol by symbol, or as text. */
export function StringControls({ session }: { session: Session }) {
  const task = session.task.value;
  const { machine } = task;
  const word = session.word.value;
  const problem = useSignal("");
  const text = useSignal<string | null>(null); // what is being typed, as long as it is not read
  const length = useSignal(500);
  const notice = useSignal(""); // why a random string has another length than was asked for
  const draw = (asked: number) => {
    const size = Math.max(1, Math.round(asked));
    session.drawRandom(size);
    problem.value = "";
    text.value = null;
    const drawn = session.word.value.length;
    const reason = size > LONGEST ? "that is the longest here" : "no valid string has the length that you asked for";
    notice.value = drawn === size ? "" : `The string has ${countOf(drawn, "symbol")}: ${reason}.`;
  };
  const ids = [useId(), useId(), useId()] as const;
  const live = liveStates(task.valid);
  const validState = task.valid ? statesAlong(task.valid, word)[word.length]! : 0;
  const canAppend = (symbol: number) =>
    word.length < LONGEST && (!live || live.has(task.valid!.table[validState]![symbol]!));
  const read = (typed: string) => {
    const result = parseString(machine, typed);
    if (typeof result === "string") problem.value = `${result} Still showing the previous string.`;
    else {
      problem.value = notice.value = "";
      text.value = null;
      session.stop();
      session.setWord(result, 0);
    }
  };
  return (
    <div class="player-strings">
      <div class="player-buttons" role="group" aria-label="Random strings">
        <span>A random string of</span>
        {LENGTHS.map((size) => (
          <button type="button" key={size} onClick={() => draw(size)}>
            {count(size)} <span class="player-unit">symbols</span>
          </button>
        ))}
      </div>
      <div class="player-buttons" role="group" aria-label="Append a symbol">
        <span>or your own:</span>
        {machine.symbols.map((name, symbol) => (
          <button type="button" key={symbol} disabled={!canAppend(symbol)} onClick={() => session.append(symbol)}>
            {name}
          </button>
        ))}
        <button
          type="button"
          aria-label="Remove the last symbol"
          disabled={word.length === 0}
          onClick={() => session.removeLast()}
        >
          ⌫
        </button>
        <button type="button" disabled={word.length === 0} onClick={() => session.setWord([])}>
          clear
        </button>
      </div>
      {notice.value && (
        <p class="player-note player-notice" role="status">
          {notice.value}
        </p>
      )}
      <details>
        <summary>Paste a string, or choose another length</summary>
        <div class="player-fields">
          <label for={ids[0]}>The string</label>
          <textarea
            id={ids[0]}
            rows={2}
            spellcheck={false}
            value={text.value ?? formatString(machine, word)}
            aria-describedby={ids[1]}
            onInput={(event) => {
              text.value = event.currentTarget.value;
              read(event.currentTarget.value);
            }}
          />
          <p id={ids[1]} class="player-problem" role="status">
            {problem.value}
          </p>
          <label for={ids[2]}>Length of a random string, up to {count(LONGEST)}</label>
          <form
            class="player-buttons"
            noValidate
            onSubmit={(event) => {
              event.preventDefault();
              draw(length.value);
            }}
          >
            <input
              id={ids[2]}
              type="number"
              min={1}
              max={LONGEST}
              value={length.value}
              onInput={(event) => (length.value = Number(event.currentTarget.value))}
            />
            <button type="submit">Draw</button>
          </form>
        </div>
      </details>
    </div>
  );
}
