/** The report page: reads its data from the page and shows the view that the address names. */
import { render } from "preact";
import type { ReportData } from "./data";
import { App } from "./report/App";
import { startRouter } from "./report/router";
import { readEmbedded, report } from "./report/store";
import { startStudio } from "./studio/start";
import "./styles/base.css";
import "./styles/report.css";

const root = document.getElementById("app");
if (root) {
  const data = readEmbedded<ReportData>("sdssm-report");
  if (data) report.value = data;
  startStudio();
  startRouter();
  root.replaceChildren(); // what the page says while the script starts
  render(<App />, root);
}
