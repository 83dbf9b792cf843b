"""Figures for papers: what is drawn, at both widths, with readable letters and nothing cut off."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

pytest.importorskip("matplotlib")

from sdssm.automata import Machine, get_machine
from sdssm.automata.drawing import make_diagram
from sdssm.automata.drawing.wording import COLOURS
from sdssm.errors import SettingsError
from sdssm.report.figures.automaton_figure import NamedMachine, make_automaton_figure
from sdssm.report.figures.eigenvalue_figure import make_eigenvalue_figure
from sdssm.report.figures.matrix_figure import MatrixGroup, make_matrix_figure
from sdssm.report.figures.paper_figure import PaperFigure
from sdssm.report.figures.state_figure import StateGroup, make_state_figure, state_colours
from sdssm.report.layouts import COLUMNS, PlotLayout, column_layout
from sdssm.report.plots import make_figure
from tests.report.figures.legibility import assert_legible, shown_texts

both_widths = pytest.mark.parametrize("layout", COLUMNS.values(), ids=["one column", "two columns"])
HELLO = "regex[ a-z]:.*hello.*"


@pytest.fixture(autouse=True)
def _without_dot(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hide `dot`, so that the diagrams are the same on every computer."""
    monkeypatch.setattr(shutil, "which", lambda name: None)


def texts_of(drawn: PaperFigure) -> list[str]:
    return [text.get_text() for text in shown_texts(drawn)]


# -- accuracy ----------------------------------------------------------------------------------------------------------


def evaluation_of(model: str, values: Sequence[float], **more: Any) -> dict[str, Any]:
    run = {"task": "parity", "model": model, "train_length": 40, "chance": 50.0, "strings": 512, "seed": 0}
    return {**run, "max_length": len(values), "accuracy": list(values), "best_constant_mean": 50.0, **more}


@both_widths
@pytest.mark.parametrize("view", ["accuracy", "both"])
def test_accuracy_has_labels_beside_its_lines(layout: PlotLayout, view: str) -> None:
    falling = [100.0] * 60 + [100 - 0.1 * k for k in range(440)]
    runs = [evaluation_of("sd-ssm", [100.0] * 500), evaluation_of("complex-diagonal", falling)]
    runs += [evaluation_of("sd-ssm", falling, task="a-task-with-a-long-name", chance=1.67, best_constant_mean=98.5)]
    figure = make_figure({"runs": runs}, layout=layout, logarithmic=True, view=view)
    drawn = PaperFigure(figure, layout, "")
    assert_legible(drawn)
    assert figure.get_size_inches()[0] == layout.width
    assert figure.axes[0].get_xscale() == "log"
    joined = " ".join(texts_of(drawn)).replace("\n", " ").replace("- ", "-")
    for word in ("complex-diagonal", "chance 50 %", "chance 1.67 %", "best constant 98.5 %", "training lengths, up to"):
        assert word in joined
    assert not figure.axes[0].get_legend()
    assert not [text for text in figure.texts if text.get_weight() == "bold"]  # the caption has the title


def test_columns_are_one_or_two() -> None:
    assert [column_layout(columns).width for columns in (1, 2)] == [3.3, 7.0]
    with pytest.raises(SettingsError, match=r"columns must be 1 or 2, got 3; 1 is 3.3 in wide"):
        column_layout(3)


# -- automata ----------------------------------------------------------------------------------------------------------


@both_widths
@pytest.mark.parametrize("name", ["even_pairs", "cycle", "a5", "tomita3"])
def test_diagrams_are_legible(name: str, layout: PlotLayout) -> None:
    machine = get_machine(name)
    drawn = make_automaton_figure([[NamedMachine(name, machine)]], layout)
    assert_legible(drawn)
    assert drawn.size[0] == layout.width
    [axes] = drawn.figure.axes
    diagram = make_diagram(machine)
    n_heads = sum(len(arrow.heads) for arrow in (*diagram.arrows, diagram.start))
    n_circles = sum(1 + (state.inner is not None) for state in diagram.states)
    n_lines = len(diagram.arrows) + 1
    assert len(axes.patches) == n_heads + n_circles + n_lines + len(diagram.labels)
    names = [line.text for state in diagram.states for line in state.lines]
    has_names = set(names) <= set(texts_of(drawn))
    assert has_names == ("left out" not in drawn.caption)
    assert {entry.text.text for entry in diagram.legend} <= set(texts_of(drawn))


def test_names_are_left_out_where_they_would_be_too_small() -> None:
    a5 = [[NamedMachine("a5", get_machine("a5"))]]
    assert (
        "Names of states that would be smaller than 7 pt are left out" in make_automaton_figure(a5, COLUMNS[1]).caption
    )
    d4 = [[NamedMachine("d4", get_machine("d4"))]]
    assert make_automaton_figure(d4, COLUMNS[1]).caption == "State diagram."


def test_arrow_labels_that_would_cover_each_other_are_an_error() -> None:
    rows = [[NamedMachine("hello", get_machine(HELLO))]]
    with pytest.raises(
        SettingsError, match="the labels of the state diagram hello would cover each other at 7 pt; use"
    ):
        make_automaton_figure(rows, COLUMNS[1])
    assert_legible(make_automaton_figure(rows, COLUMNS[2]))


def test_an_extracted_machine_is_beside_the_true_one() -> None:
    true, other = get_machine("parity"), Machine(table=[[0, 1], [1, 2], [2, 0]], outputs=[0, 1, 1])
    row = [NamedMachine("parity", true), NamedMachine("extracted: not equal", other)]
    left, right = make_automaton_figure([row], COLUMNS[2]).figure.axes
    assert left.get_position().x1 < right.get_position().x0
    above, below = make_automaton_figure([row], COLUMNS[1]).figure.axes
    assert above.get_position().y0 > below.get_position().y1
    copy = [NamedMachine("parity", true), NamedMachine("extracted: equal", true, is_copy=True)]
    drawn = make_automaton_figure([copy], COLUMNS[1])
    assert len(drawn.figure.axes) == 1
    assert "parity; extracted: equal" in texts_of(drawn)
    for columns in (1, 2):
        assert_legible(make_automaton_figure([row, copy], COLUMNS[columns]))


def test_names_with_dollar_signs_are_shown_as_they_are() -> None:
    machine = Machine(table=[[1], [0]], states=["$x$", "a_{b}"], symbols=["$\\frac$"])
    drawn = make_automaton_figure([[NamedMachine("$1$", machine)]], COLUMNS[2])
    assert_legible(drawn)  # drawing it as mathematics would fail
    assert {"$x$", "a_{b}", "$1$"} <= set(texts_of(drawn))


# -- matrices and eigenvalues ------------------------------------------------------------------------------------------


def rotation(angle: float, size: int = 4) -> np.ndarray:
    matrix = np.zeros((size, size))
    matrix[:2, :2] = [[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]]
    return matrix


def matrix_group(count: int, heading: str = "") -> MatrixGroup:
    names = tuple(f"symbol {k}" for k in range(count))
    return MatrixGroup(heading, names, np.stack([rotation(0.4 * (k + 1)) for k in range(count)]))


@both_widths
@pytest.mark.parametrize("counts", [(1,), (3, 2), (16,)], ids=str)
def test_matrices_have_one_colour_bar(counts: tuple[int, ...], layout: PlotLayout) -> None:
    groups = [matrix_group(count, f"run {count}" if len(counts) > 1 else "") for count in counts]
    drawn = make_matrix_figure(groups, layout)
    assert_legible(drawn)
    *panels, _bar = drawn.figure.axes
    assert len(panels) == sum(counts)
    shown = [axes.images[0] for axes in panels]
    largest = max(float(np.abs(group.matrices).max()) for group in groups)
    assert {image.get_clim() for image in shown} == {(-largest, largest)}
    np.testing.assert_allclose(shown[0].get_array(), groups[0].matrices[0])
    assert {f"\u2212{largest:.2g}", "0", f"{largest:.2g}", "symbol 0"} <= set(texts_of(drawn))


@both_widths
@pytest.mark.parametrize("counts", [(1,), (3, 2), (8,)], ids=str)
def test_eigenvalues_are_on_the_complex_plane(counts: tuple[int, ...], layout: PlotLayout) -> None:
    drawn = make_eigenvalue_figure([matrix_group(count, f"run {count}") for count in counts], layout)
    assert_legible(drawn)
    assert len(drawn.figure.axes) == sum(counts)
    axes = drawn.figure.axes[0]
    x, y = axes.lines[-1].get_data()
    np.testing.assert_allclose(sorted(x), sorted([0, 0, np.cos(0.4), np.cos(0.4)]), atol=1e-9)
    np.testing.assert_allclose(sorted(y), sorted([0, 0, -np.sin(0.4), np.sin(0.4)]), atol=1e-9)
    [circle] = axes.patches
    assert (circle.center, circle.radius) == ((0, 0), 1)
    assert axes.get_xlim() == axes.get_ylim()
    assert axes.get_position().width * drawn.size[0] == pytest.approx(axes.get_position().height * drawn.size[1])


@pytest.mark.parametrize("make", [make_matrix_figure, make_eigenvalue_figure])
def test_a_diverged_model_is_an_error(make: Any) -> None:
    broken = MatrixGroup("", ("symbol 0",), np.full((1, 2, 2), np.nan))
    with pytest.raises(SettingsError, match="not finite; the training diverged"):
        make([broken], COLUMNS[1])


def test_too_many_panels_are_an_error() -> None:
    with pytest.raises(SettingsError, match="at most 64 panels, and this one 65; pass fewer runs"):
        make_matrix_figure([matrix_group(65)], COLUMNS[2])


# -- states ------------------------------------------------------------------------------------------------------------


def state_group(n_states: int, lengths: tuple[int, ...]) -> StateGroup:
    random = np.random.default_rng(0)
    states = [random.integers(0, n_states, 30) for _ in lengths]
    correct = [np.arange(30) >= k for k in range(len(lengths))]  # one more is wrong at each length
    points = [random.normal(size=(30, 2)) for _ in lengths]
    return StateGroup("", lengths, tuple(points), tuple(states), tuple(correct), n_states, (0.6, 0.25))


@both_widths
@pytest.mark.parametrize("lengths", [(10,), (10, 40, 100, 500, 50_000)], ids=str)
def test_states_have_a_panel_for_each_length(lengths: tuple[int, ...], layout: PlotLayout) -> None:
    group = state_group(60, lengths)
    drawn = make_state_figure([group], layout)
    assert_legible(drawn)
    axes = drawn.figure.axes
    assert [f"length {length:,}" in texts_of(drawn) for length in lengths] == [True] * len(lengths)
    assert len({(panel.get_xlim(), panel.get_ylim()) for panel in axes}) == 1  # drift shows as movement
    for k, panel in enumerate(axes):
        crosses = panel.collections[-1].get_offsets() if k else []
        np.testing.assert_allclose(crosses, group.points[k][~group.correct[k]] if k else [])
        assert len(panel.collections) == (3 if k else 1)
    assert "axis 1 (60 %)" in texts_of(drawn) and "axis 2 (25 %)" in texts_of(drawn)


def test_states_without_a_string_are_an_empty_panel() -> None:
    empty = np.zeros((0, 2))
    nothing = np.zeros(0, dtype=np.int64)
    group = StateGroup("", (3,), (empty,), (nothing,), (nothing.astype(bool),), 2, (1.0, 0.0))
    assert_legible(make_state_figure([group], COLUMNS[1]))


def test_every_state_has_a_colour_of_its_own() -> None:
    assert state_colours(8) == list(COLOURS)
    assert len(set(state_colours(60))) == 60


# -- files -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("suffix", [".pdf", ".svg", ".png"])
def test_the_same_figure_is_the_same_file(suffix: str, tmp_path: Any) -> None:
    made = []
    for name in ("one", "two"):
        drawn = make_state_figure([state_group(3, (10, 40))], COLUMNS[1])
        drawn.save(tmp_path / f"{name}{suffix}")
        made.append((tmp_path / f"{name}{suffix}").read_bytes())
    assert made[0] == made[1]
    if suffix == ".svg":
        assert b">length 10<" in made[0]  # text is text
    if suffix == ".pdf":
        assert b"/Subtype /Type3" not in made[0] and b"/FontFile2" in made[0]  # TrueType, as journals want it
