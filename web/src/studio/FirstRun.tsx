/** What an empty folder shows: how to start a training. */
import { Copyable } from "../report/Copyable";
import { quote } from "../report/run/Missing";
import { connection, folder } from "./live";

export function FirstRun() {
  if (connection.value === "waiting") return <p>Loading the runs …</p>;
  return (
    <div class="first-run">
      <p>
        There are no runs in <code>{folder}</code> yet. Start a training in another terminal; it appears here by itself within a few
        seconds.
      </p>
      <Copyable label="Start a training" text={`sdssm train parity --steps 2000 --out ${quote(`${folder.value}/parity`)}`} />
    </div>
  );
}
