/** Whether the page follows the folder: in the header, and read out when it changes. */
import { connection } from "./live";

const TEXTS = {
  waiting: ["connecting", "The studio has not answered yet."],
  live: ["live", "The page follows the folder: it asks the studio every two seconds."],
  lost: ["connection lost", "The studio does not answer. The page shows what it knew last, and tries again every two seconds."],
  failing: ["the studio fails", "The studio cannot read the folder. Its terminal says why; the page tries again every two seconds."],
} as const;

export function ConnectionStatus() {
  const [text, explanation] = TEXTS[connection.value];
  return (
    <p class={`connection connection-${connection.value}`} role="status" title={explanation}>
      {text}
    </p>
  );
}
