/** Turn the report page into that of the studio. */
import { emptyNotice, isServed, overviewTop, pageStatus, runActions } from "../report/store";
import { ConnectionStatus } from "./ConnectionStatus";
import { FirstRun } from "./FirstRun";
import { isLive, startLive } from "./live";
import { RunningNow } from "./RunningNow";
import { RunPanel } from "./RunPanel";
import "./studio.css";

/** Follow the folder if a studio serves this page; do nothing on the page of a report. */
export function startStudio(): void {
  if (!isLive()) return;
  isServed.value = true;
  pageStatus.value = ConnectionStatus;
  runActions.value = RunPanel;
  emptyNotice.value = FirstRun;
  overviewTop.value = RunningNow;
  startLive();
}
