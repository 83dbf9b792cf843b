import { className, UNLABELLED } from "./automaton";
import { count } from "./numbers";
import type { Session } from "./session";

/** Symbols on either side of the current one. */
const REACH = 20;

/** The symbols around the position, with the true class and each prediction below them. */
export function Tape({ session }: { session: Session }) {
  const { machine } = session.task.value;
  const word = session.word.value;
  const position = session.position.value;
  const labels = session.labels.value;
  const lanes = session.lanes.value;
  void session.progress.value; // predictions may have been computed since
  const trained = session.trainLength.value;
  const names = Array.from({ length: machine.n_classes }, (_, label) => className(machine, label));
  const widest = Math.max(2, ...[...machine.symbols, ...names].map((name) => [...name].length));
  const around = Array.from({ length: 2 * REACH + 1 }, (_, i) => position - REACH + i);
  const isRead = (t: number) => t >= 1 && t <= position;
  const rows = [
    {
      name: "symbol",
      cell: (t: number) => (t >= 1 && t <= word.length ? { text: machine.symbols[word[t - 1]!]! } : null),
    },
    {
      name: "true",
      cell: (t: number) =>
        isRead(t) ? { text: labels[t] === UNLABELLED ? "·" : names[labels[t]!]!, kind: "is-true" } : null,
    },
    ...lanes.map((lane) => {
      const trace = lane.trace.value;
      const cell = (t: number) => {
        if (!isRead(t) || t > trace.done) return null;
        if (labels[t] === UNLABELLED) return { text: "·" };
        const isRight = trace.predicted[t] === labels[t];
        return { text: names[trace.predicted[t]!] ?? "?", kind: isRight ? "is-right" : "is-wrong" };
      };
      return { name: lane.entry.label, cell };
    }),
  ];
  return (
    <div class="player-tape" aria-hidden="true" style={{ "--cell": `${Math.min(widest, 8) * 0.62 + 0.7}em` }}>
      {rows.map((row, i) => (
        <div class={`player-tape-row ${i === 0 ? "is-symbols" : ""}`} key={i}>
          <span class="player-tape-name">{row.name}</span>
          <span class="player-tape-window">
            {around.map((t) => {
              const cell = row.cell(t);
              const now = t === position && cell ? "is-now" : t > position ? "is-next" : "";
              const beyond = t > trained && t <= word.length ? "is-beyond" : "";
              return (
                <span key={t} class={`player-cell ${now} ${beyond} ${cell && "kind" in cell ? cell.kind : ""}`}>
                  {cell?.text}
                </span>
              );
            })}
          </span>
        </div>
      ))}
      {word.length > trained && <p class="player-tape-key">beyond training: after symbol {count(trained)}</p>}
    </div>
  );
}
