/** A choice between a few values, side by side. */
import { useId } from "preact/hooks";

interface SegmentedProps<T extends string> {
  legend: string;
  options: [value: T, label: string][];
  value: T;
  onChange: (value: T) => void;
}

export function Segmented<T extends string>({ legend, options, value, onChange }: SegmentedProps<T>) {
  const name = useId();
  return (
    <fieldset class="segmented">
      <legend>{legend}</legend>
      <div>
        {options.map(([key, label]) => (
          <label key={key}>
            <input type="radio" name={name} value={key} checked={key === value} onChange={() => onChange(key)} />
            <span>{label}</span>
          </label>
        ))}
      </div>
    </fieldset>
  );
}
