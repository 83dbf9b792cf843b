/** The accuracy of one run against the length. */
import { useMemo } from "preact/hooks";
import type { Series } from "../../charts/accuracy";
import type { RunCurves, RunData, RunDetail, TaskData, TrainingData } from "../../data";
import { accuracyLevels, AccuracyPanel, type Measure } from "../AccuracyPanel";
import { count } from "../format";
import { runName } from "../store";
import { Missing } from "./Missing";

interface AccuracyProps {
  run: RunData;
  detail: RunDetail | null | undefined;
  task: TaskData | undefined;
  training: TrainingData | undefined;
}

/** The curves of this run, with the 95 % interval of each accuracy; those of its training if only these are known. */
export function RunAccuracy({ run, detail, task, training }: AccuracyProps) {
  const evaluation = detail?.evaluation ?? null;
  const series = useMemo(() => runSeries(evaluation, training), [evaluation, training]);
  const balanced = run.headline_name === "balanced accuracy" ? run.headline_chance : null;
  const levels = useMemo(
    () => accuracyLevels(task?.chance ?? 0, training ? [training] : [], balanced),
    [task, training, balanced],
  );
  if (Object.values(series).every((lines) => lines.length === 0))
    return <Missing what="This run was not evaluated yet." command="evaluate" run={run} />;
  return (
    <>
      <p class="fine">
        {evaluation
          ? `Measured on ${count(evaluation.strings)} strings of each length; the band is the 95 % interval of the accuracy.`
          : "Over all seeds of this training; the curve of this seed alone is not stored here."}
      </p>
      <AccuracyPanel
        name={runName(run)}
        series={series}
        levels={levels}
        trainLength={training?.train_length ?? null}
        height={320}
      />
    </>
  );
}

function runSeries(evaluation: RunCurves | null, training: TrainingData | undefined): Record<Measure, Series[]> {
  const style = { key: "run", label: training?.label ?? "this run", colour: training?.colour ?? "#0072b2", dashes: [] };
  const line = (
    curve: { lengths: number[]; value: (number | null)[]; low?: (number | null)[]; high?: (number | null)[] } | null,
  ) =>
    curve
      ? [
          {
            ...style,
            curve: {
              lengths: curve.lengths,
              mean: curve.value,
              low: curve.low ?? curve.value,
              high: curve.high ?? curve.value,
            },
          },
        ]
      : [];
  if (evaluation)
    return {
      accuracy: line(evaluation.accuracy),
      balanced: line(evaluation.balanced),
      covering: line(evaluation.covering),
    };
  const whole = (measure: Measure) => (training?.[measure] ? [{ ...style, curve: training[measure] }] : []);
  return { accuracy: whole("accuracy"), balanced: whole("balanced"), covering: whole("covering") };
}
