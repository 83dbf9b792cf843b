import { useSignal } from "@preact/signals";
import { useId } from "preact/hooks";
import type { Session } from "./session";

/** Disturb the state of the models: once, or after every symbol. */
export function NoiseControls({ session }: { session: Session }) {
  const size = useSignal(30); // percent of the norm of the state
  const { level, kicks } = session.noise.value;
  const isOn = level > 0 || kicks.size > 0;
  const [slider, box] = [useId(), useId()];
  return (
    <fieldset class="player-noise">
      <legend>Disturb the model</legend>
      <p class="player-note">
        Add random noise to the numbers that the model remembers. A robust model stays right, or recovers.
      </p>
      <div class="player-slider">
        <label for={slider}>size: {`${size.value}\u202f%`} of the state</label>
        <input
          id={slider}
          type="range"
          min={0}
          max={200}
          step={1}
          value={size.value}
          onInput={(event) => {
            size.value = Number(event.currentTarget.value);
            if (isOn && size.value > 0) session.resizeNoise(size.value / 100);
          }}
        />
      </div>
      <div class="player-buttons">
        <button type="button" disabled={size.value === 0} onClick={() => session.kick(size.value / 100)}>
          Kick once, here
        </button>
        <label for={box} class="player-check">
          <input
            id={box}
            type="checkbox"
            checked={level > 0}
            onChange={(event) => session.setNoiseLevel(event.currentTarget.checked ? size.value / 100 : 0)}
          />
          after every symbol
        </label>
        <button type="button" disabled={!isOn} onClick={() => session.quieten()}>
          Remove noise
        </button>
      </div>
    </fieldset>
  );
}
