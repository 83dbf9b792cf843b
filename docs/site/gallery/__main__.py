"""`make gallery`: train, measure and draw the paper's nine tasks, and write docs/gallery/.

    python -m docs.site.gallery

Runs that are missing in runs/gallery are trained on a CPU, which takes about half an hour on two cores. The page, its
pictures and the report are committed; the runs are not.
"""

from __future__ import annotations

import argparse
import json
import shlex
from pathlib import Path

from docs.site.gallery.facts import RunFacts, read_facts
from docs.site.gallery.markdown import render_page
from docs.site.gallery.recipes import RECIPES, make_run, measure_run
from docs.site.gallery.screenshot import picture_playground
from sdssm.automata import draw
from sdssm.report import write_report
from sdssm.report.figures import FigureOptions, make_run_figure
from sdssm.runs import RunFolder
from sdssm.tasks import get_task

ROOT = Path(__file__).parents[3]
#: The facts that the page is made from, and the page with its report.
FACTS_FILE, PAGE, REPORT = "runs.json", "index.md", "report.html"
#: The title of the report.
TITLE = "Gallery: the paper's nine tasks"
#: Points of a picture of states at each length: few, so that the pictures are small files.
POINTS = 48


def main() -> None:
    """Parse the options and make the gallery."""
    parser = argparse.ArgumentParser(prog="make gallery", description="Make the gallery of the nine tasks.")
    parser.add_argument(
        "--runs", type=Path, default=Path("runs/gallery"), help="the run folders (default: %(default)s)"
    )
    parser.add_argument("--out", type=Path, default=ROOT / "docs" / "gallery", help="where the page is written")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    runs = [make_run(recipe, options.runs) for recipe in RECIPES]
    for run in runs:
        measure_run(run)
    facts = [read_facts(run.path) for run in runs]
    for task in dict.fromkeys(recipe.task for recipe in RECIPES):
        draw_task(task, [recipe.folder(options.runs) for recipe in RECIPES if recipe.task == task], options.out)
    write_gallery_page(facts, options.out)
    folders = [run.path for run in runs]
    command = f"sdssm report {options.runs} -o {REPORT} --title {shlex.quote(TITLE)}"
    write_report(folders, options.out / REPORT, title=TITLE, command=command)
    picture_playground(folders[:2], ROOT / "docs" / "images" / "playground.png")  # both models of parity
    print(f"{options.out / PAGE}, {options.out / REPORT}")


def draw_task(task: str, folders: list[Path], out: Path) -> None:
    """Draw the pictures of a task: its diagram, the accuracy and states of all runs, and eigenvalues of the first."""
    (out / f"{task}-diagram.svg").write_text(draw(get_task(task).machine))
    options = FigureOptions(columns=2, strings=POINTS)
    make_run_figure("accuracy", folders, options).save(out / f"{task}-accuracy.svg")
    make_run_figure("eigenvalues", folders[:1], options).save(out / f"{task}-eigenvalues.svg")
    for folder in folders:
        model = RunFolder.open(folder).config.model.name
        make_run_figure("states", [folder], options).save(out / f"{task}-states-{model}.svg")


def write_gallery_page(facts: list[RunFacts], out: Path) -> None:
    """Write the facts about all runs, and the page that is made from them."""
    (out / FACTS_FILE).write_text(json.dumps(facts, indent=1) + "\n")
    (out / PAGE).write_text(render_page(facts))


if __name__ == "__main__":
    main()
