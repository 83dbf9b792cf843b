/** A command, or another text, with a button that copies it. */
import { useState } from "preact/hooks";

export function Copyable({ text, label, noun = "command" }: { text: string; label: string; noun?: string }) {
  const [said, setSaid] = useState("");
  const copy = async () => {
    setSaid((await copyText(text)) ? "copied" : "select the text and copy it");
    setTimeout(() => setSaid(""), 2500);
  };
  return (
    <div class="copyable">
      <span class="label">{label}</span>
      <div>
        <code tabIndex={0}>{text}</code>
        <button type="button" onClick={copy} aria-label={`Copy the ${noun}: ${label}`}>
          {said || "Copy"}
        </button>
      </div>
      <span class="visually-hidden" role="status">
        {said}
      </span>
    </div>
  );
}

/** Copy a text; false if the browser does not allow it. A page from disk may have no clipboard API. */
async function copyText(text: string): Promise<boolean> {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    const area = document.createElement("textarea");
    area.value = text;
    document.body.append(area);
    area.select();
    const isCopied = document.execCommand("copy");
    area.remove();
    return isCopied;
  }
}
