/** The frame of every view: skip link, navigation, footer. */
import { useEffect } from "preact/hooks";
import { Compare } from "./Compare";
import { Copyable } from "./Copyable";
import { Overview } from "./Overview";
import { PlaygroundView } from "./PlaygroundView";
import { href, route, type Route } from "./router";
import { RunView } from "./run/RunView";
import { chosen, isServed, pageStatus, report, runName, runs, tables, taskName, tasks } from "./store";
import { TableView } from "./TableView";
import { TaskView } from "./TaskView";

export function App() {
  const { view, id } = route.value;
  useEffect(() => {
    const name = viewName(route.value);
    document.title = name ? `${name} – ${report.value.title}` : report.value.title;
  }, [view, id, report.value]);
  return (
    <>
      <a class="skip" href="#main" onClick={skipToMain}>
        Skip to the content
      </a>
      <Header />
      <main id="main" tabIndex={-1}>
        <View key={`${view}/${id}`} view={view} id={id} />
      </main>
      <Footer />
    </>
  );
}

function skipToMain(event: Event): void {
  event.preventDefault(); // the address names the view
  document.getElementById("main")?.focus();
}

function View({ view, id }: Route) {
  const task = id === null ? undefined : tasks.value.get(id);
  const run = id === null ? undefined : runs.value.get(id);
  const table = id === null ? undefined : tables.value.get(id);
  if (view === "") return <Overview />;
  if (view === "compare") return <Compare ids={id === null ? null : id.split(",")} />;
  if (view === "playground") return <PlaygroundView id={id} />;
  if (view === "task" && task) return <TaskView task={task} />;
  if (view === "run" && run) return <RunView run={run} />;
  if (view === "table" && table) return <TableView table={table} />;
  return (
    <>
      <h1 tabIndex={-1}>Not on this page</h1>
      <p>
        There is no {view} “{id}” here. <a href={href("")}>Go to the overview.</a>
      </p>
    </>
  );
}

function Header() {
  const { view } = route.value;
  const Status = pageStatus.value;
  const data = report.value;
  const [firstTask, firstTable] = [data.tasks[0], data.tables[0]];
  const isPlayable = data.runs.some((run) => run.is_playable);
  const links: [view: string, label: string, target: string | undefined][] = [
    ["", "Overview", href("")],
    ["task", "Tasks", firstTask && href("task", firstTask.id)],
    ["table", "Tables", firstTable && href("table", firstTable.id)],
    ["compare", chosen.value.length ? `Compare (${chosen.value.length})` : "Compare", compareAddress()],
    ["playground", "Playground", isPlayable ? href("playground") : undefined],
  ];
  return (
    <header class="top">
      <div class="bar">
        <a class="brand" href={href("")}>
          sdssm
        </a>
        <nav aria-label="Views">
          <ul>
            {links.map(
              ([key, label, target]) =>
                target && (
                  <li key={key}>
                    <a href={target} aria-current={isCurrent(view, key) ? "page" : undefined}>
                      {label}
                    </a>
                  </li>
                ),
            )}
          </ul>
        </nav>
        {Status && <Status />}
      </div>
    </header>
  );
}

/** The address of the comparison names its runs, so that it can be kept. */
function compareAddress(): string {
  return chosen.value.length ? href("compare", chosen.value.join(",")) : href("compare");
}

/** The view of a run has no entry of its own: it is reached from the overview. */
function isCurrent(view: string, key: string): boolean {
  return view === key || (view === "run" && key === "");
}

function viewName({ view, id }: Route): string {
  const run = runs.value.get(id ?? "");
  if (view === "run" && run) return runName(run);
  if (view === "task" && id !== null) return taskName(id);
  if (view === "table" && id !== null) return tables.value.get(id)?.name ?? id;
  return { compare: "Compare runs", playground: "Playground" }[view] ?? "";
}

function Footer() {
  const { version, created, command } = report.value;
  return (
    <footer>
      <p>
        {isServed.value ? "Read" : "Written"} by sdssm {version}
        {created && (
          <>
            {" "}
            on <time dateTime={created}>{created.slice(0, 16).replace("T", " at ")}</time>
          </>
        )}
        . {isServed.value ? "The page follows the folder." : "This file needs no network and no server."}
      </p>
      {command && (
        <Copyable label={isServed.value ? "Write this page to a file" : "Write this page again"} text={command} />
      )}
    </footer>
  );
}
