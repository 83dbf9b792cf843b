/** The page of `sdssm playground`. Its script is `window.sdssm`, with `predict` and `logits` for tests. */
import { render } from "preact";
import type { PlaygroundData } from "./data";
import { buildModel } from "./player/models";
import { Playground } from "./player/Playground";
import { argmax } from "./player/trace";
import "./styles/base.css";

const element = document.getElementById("sdssm-playground");
const data: PlaygroundData = JSON.parse(element?.textContent ?? '{"entries": []}');

/** The logits of a model after every symbol of a string. */
export function logits(entry: number, word: number[], variant = 0): number[][] {
  const model = buildModel(data.entries[entry]!.player.variants[variant]!.model);
  let state = model.initial();
  return word.map((symbol) => Array.from(model.logits((state = model.step(state, symbol)), symbol)));
}

/** The predictions of a model after every symbol of each string. */
export function predict(entry: number, words: number[][], variant = 0): number[][] {
  const model = buildModel(data.entries[entry]!.player.variants[variant]!.model);
  return words.map((word) => {
    let state = model.initial();
    return word.map((symbol) => argmax(model.logits((state = model.step(state, symbol)), symbol)));
  });
}

function Page() {
  return (
    <main class="playground">
      <h1>{data.title}</h1>
      <Playground entries={data.entries} isPage />
      <footer>sdssm {data.version}</footer>
    </main>
  );
}

const root = document.getElementById("app");
if (root) {
  root.replaceChildren(); // what the page says while the script starts
  render(<Page />, root);
}
