"""Tests of state diagrams: valid SVG, layouts by structure, no overlaps, with and without `dot`."""

from __future__ import annotations

import math
import re
import shutil
import string
import subprocess
from functools import cache
from itertools import combinations, permutations
from pathlib import Path
from xml.etree import ElementTree as ET

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sdssm.automata.drawing import draw
from sdssm.automata.drawing.general import graphviz_layout
from sdssm.automata.drawing.layout import cycles, lay_out
from sdssm.automata.drawing.merging import LABEL_LETTERS, LABEL_LINES, merge_names, merge_transitions
from sdssm.automata.drawing.wording import COLOURS, symbol_styles
from sdssm.automata.formats import read_machine, write_diagram
from sdssm.automata.library import get_machine
from sdssm.automata.machine import Machine
from sdssm.automata.refinement import Floats
from sdssm.errors import AutomatonError, OutputError
from sdssm.palette import FONT_FAMILY, LINE_COLOUR

SVG = "{http://www.w3.org/2000/svg}"


def ring(n: int, *steps: int) -> Machine:
    return Machine(table=[[(q + step) % n for step in steps] for q in range(n)])


def two_rings(n: int, direction: int) -> Machine:
    """C_2 x C_n (direction 1) or D_n (direction -1): symbol 0 changes rings, symbol 1 moves along the ring."""
    return Machine(
        table=[[(q + n) % (2 * n), q // n * n + (q + (direction if q >= n else 1)) % n] for q in range(2 * n)]
    )


def a5() -> Machine:
    """The even permutations of five elements, with a 5-cycle and a double swap as generators."""
    even = [p for p in permutations(range(5)) if np.linalg.det(np.eye(5)[list(p)]) > 0]
    number = {p: k for k, p in enumerate(even)}
    moves = [(1, 2, 3, 4, 0), (1, 0, 3, 2, 4)]
    return Machine(
        table=[[number[tuple(g[i] for i in p)] for g in moves] for p in even],
        states=["".join(map(str, p)) for p in even],
    )


def arithmetic() -> Machine:
    """Arithmetic mod 5 with state 5 s + p: digits 0..4, plus, minus, times."""
    table = []
    for s in range(5):
        for p in range(5):
            total = (s + p) % 5
            table.append([*(5 * s + p * d % 5 for d in range(5)), 5 * total + 1, 5 * total + 4, 5 * s + p])
    outputs = [(s + p) % 5 for s in range(5) for p in range(5)]
    names = [f"s={s} p={p}" for s in range(5) for p in range(5)]
    return Machine(table=table, start=1, outputs=outputs, states=names)


def random_machine(n: int, seed: int, symbols: int = 2) -> Machine:
    return Machine(table=np.random.default_rng(seed).integers(0, n, (n, symbols)))


AWKWARD = ["a<b", 'x&"y"', '<a long & "quoted" name that isn\'t short>']
MACHINES = {
    "parity": Machine(table=[[0, 1], [1, 0]], states=["even", "odd"]),
    "cycle of 5": ring(5, -1, 0, 1),
    "z12": ring(12, 0, 1, 3),
    "c2xc2": two_rings(2, 1),
    "c2xc4": two_rings(4, 1),
    "c2xc30": two_rings(30, 1),
    "d4": two_rings(4, -1),
    "d30": two_rings(30, -1),
    "a5": a5(),
    "arithmetic": arithmetic(),
    "even pairs": Machine(table=[[1, 4], [1, 2], [1, 2], [3, 4], [3, 4]], outputs=[0, 0, 1, 1, 0]),
    "random 10": random_machine(10, 0),
    "random 20": random_machine(20, 1),
    "random 60": random_machine(60, 2),
    "random 90": random_machine(90, 3),
    "one state": Machine(table=[[0, 0]]),
    "unconnected": Machine(table=[[0], [2], [1], [3], [3]]),
    "all to one": Machine(table=[[0, 0]] * 9),
    "hello": get_machine(f"regex[ {string.ascii_lowercase}]:.*hello.*"),
    "tomita 3": get_machine("tomita3"),
    "number": get_machine(r"regex[0123456789.e+-]:[+\-]?[0-9]+(\.[0-9]*)?(e[+\-]?[0-9]+)?"),
    "awkward names": Machine(table=[[1, 2], [2, 0], [2, 1]], states=AWKWARD, symbols=["<", '&"'], outputs=[1, 0, 1]),
}
every_machine = pytest.mark.parametrize("machine", MACHINES.values(), ids=MACHINES.keys())


@pytest.fixture(autouse=True)
def _without_dot(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hide `dot`, so that the pictures are the same on every computer."""
    monkeypatch.setattr(shutil, "which", lambda name: None)


def parts(text: str, kind: str) -> list[ET.Element]:
    return [g for g in ET.fromstring(text).iter(f"{SVG}g") if g.get("class") == kind]


def titles(elements: list[ET.Element]) -> list[str]:
    return [str(next(element.iter(f"{SVG}title")).text) for element in elements]


def circles(text: str) -> Floats:
    elements = [c for c in ET.fromstring(text).iter(f"{SVG}circle") if c.get("fill") != "none"]
    return np.array([[float(c.get(key, "nan")) for key in ("cx", "cy", "r")] for c in elements])


@cache
def drawn(machine: Machine) -> str:
    """Draw each machine once for all tests: the larger ones take a second."""
    return draw(machine, title="A & B")


@every_machine
def test_states_and_legend(machine: Machine) -> None:
    text = drawn(machine)
    states, symbols = titles(parts(text, "state")), titles(parts(text, "symbol"))
    numbers = range(machine.n_states)
    assert states == [f"{machine.state_names[q]} (state {q}, output {machine.outputs[q]})" for q in numbers]
    arrows, is_labelled = merge_transitions(machine)
    alone = sorted({a for arrow in arrows if len(arrow.symbols) == 1 for a in arrow.symbols})
    several = ["several symbols, as labelled"] if alone and any(len(arrow.symbols) > 1 for arrow in arrows) else []
    assert symbols == ([] if is_labelled else [machine.symbol_names[a] for a in alone] + several)
    assert "nan" not in text
    assert "inf" not in text

    nodes = circles(text)
    assert len(nodes) == machine.n_states
    gaps = np.hypot(*(nodes[:, None, :2] - nodes[None, :, :2]).T) + 1e6 * np.eye(len(nodes))
    assert gaps.min() > 2 * nodes[0, 2] + 20  # with space for an arrow between them

    root = ET.fromstring(text)
    left, top, width, height = map(float, root.get("viewBox", "").split())
    assert (nodes[:, :2] - nodes[:, 2:] > [left, top]).all()
    assert (nodes[:, :2] + nodes[:, 2:] < [left + width, top + height]).all()


@every_machine
def test_every_transition_has_a_tooltip(machine: Machine) -> None:
    edges = {str(t.text) for t in ET.fromstring(drawn(machine)).iter(f"{SVG}title")}
    for q, row in enumerate(machine.table.tolist()):
        for target in set(row):
            symbols = merge_names([machine.symbol_names[a] for a in range(machine.n_symbols) if row[a] == target])
            names = machine.state_names[q], machine.state_names[target]
            tooltips = {f"{', '.join(symbols)}: {names[0]} \u2192 {names[1]}"}
            tooltips |= {f"{', '.join(symbols)}: {x} \u2194 {y}" for x, y in (names, names[::-1])}
            assert edges & tooltips


@every_machine
def test_scripts_find_states_arrows_and_symbols(machine: Machine) -> None:
    root = ET.fromstring(drawn(machine))
    groups = list(root.iter(f"{SVG}g"))
    assert [g.get("data-state") for g in parts(drawn(machine), "state")] == [str(q) for q in range(machine.n_states)]
    assert [g.get("data-start") for g in groups if g.get("class") == "start"] == [str(machine.start)]
    assert not [element for element in root.iter() if element.get("id")]  # a page may show several diagrams
    transitions = sorted((q, a, int(p)) for q, row in enumerate(machine.table) for a, p in enumerate(row))
    arrows = [g for g in groups if "arrow" in g.get("class", "").split() and g.get("data-source")]
    assert sorted(t for arrow in arrows for t in stated_transitions(arrow)) == transitions
    labelled = [stated_transitions(label) for label in parts(drawn(machine), "label")]
    plain = [stated_transitions(arrow) for arrow in arrows if arrow.get("class") == "arrow"]
    assert sorted(labelled) == sorted(plain)  # arrows without a colour of their own are those with a label
    for entry in parts(drawn(machine), "symbol"):
        if symbol := entry.get("data-symbol"):
            assert titles([entry]) == [machine.symbol_names[int(symbol)]]


def stated_transitions(arrow: ET.Element) -> list[tuple[int, int, int]]:
    """Return the transitions (state, symbol, next state) that the attributes of an arrow name."""
    source, target = int(arrow.get("data-source", "")), int(arrow.get("data-target", ""))
    symbols = [int(symbol) for symbol in arrow.get("data-symbols", "").split()]
    there = [(source, a, target) for a in symbols]
    return there if arrow.get("data-both") is None else there + [(target, a, source) for a in symbols]


def boxes(text: str) -> Floats:
    """Return the left, top, right and bottom of each label."""
    rectangles = [next(g.iter(f"{SVG}rect")) for g in parts(text, "label")]
    sides = np.array([[float(r.get(key, "nan")) for key in ("x", "y", "width", "height")] for r in rectangles])
    return np.concatenate([sides[:, :2], sides[:, :2] + sides[:, 2:]], axis=1)


@every_machine
def test_parallel_transitions_are_one_arrow_with_a_label(machine: Machine) -> None:
    arrows, is_labelled = merge_transitions(machine)
    labels = parts(drawn(machine), "label")
    assert len(labels) == sum(is_labelled or len(arrow.symbols) > 1 for arrow in arrows)
    pairs = {(q, target) for q, row in enumerate(machine.table.tolist()) for target in row}
    assert len(arrows) + sum(arrow.both for arrow in arrows) == len(pairs)
    for label in labels:
        lines = [str(line.text) for line in label.iter(f"{SVG}text")]
        assert len(lines) <= LABEL_LINES
        assert all(len(line) <= LABEL_LETTERS * 1.6 for line in lines)  # narrow letters count less


@pytest.mark.parametrize("name", ["parity", "even pairs", "hello", "tomita 3", "number", "random 10"])
def test_labels_cover_no_state_and_no_other_label(name: str) -> None:
    text = drawn(MACHINES[name])
    labels, states = boxes(text), circles(text)
    for left, top, right, bottom in labels:
        gap = np.maximum(np.maximum([left, top] - states[:, :2], states[:, :2] - [right, bottom]), 0)
        assert (np.hypot(*gap.T) > states[:, 2] - 1).all()
    for first, second in combinations(labels, 2):
        assert (np.minimum(first[2:], second[2:]) < np.maximum(first[:2], second[:2]) + 1).any()


def test_search_for_a_word_is_drawn_on_a_line() -> None:
    text = drawn(MACHINES["hello"])
    assert len(set(circles(text)[:, 1])) == 1
    assert [t for t in titles(parts(text, "label")) if t.endswith("2 \u2192 0")] == [
        "\u2423, a-g, i-k, m-z: 2 \u2192 0"
    ]
    assert len(parts(text, "label")) == 15
    assert lay_out(MACHINES["even pairs"].table, 0).kind == "plain"  # two states are one symbol from the start


@given(st.sets(st.sampled_from(string.ascii_letters + string.digits), min_size=1))
def test_merged_letters_are_those_given(letters: set[str]) -> None:
    spans = [item.split("-") for item in merge_names(sorted(letters))]
    assert {chr(c) for span in spans for c in range(ord(span[0]), ord(span[-1]) + 1)} == letters


def test_long_labels_are_shortened() -> None:
    names = [f"symbol-{k}" for k in range(0, 60, 2)]
    text = draw(Machine(table=[[0] * 30], symbols=names))
    (label,) = parts(text, "label")
    lines = [str(line.text) for line in label.iter(f"{SVG}text")]
    assert len(lines) == LABEL_LINES
    assert lines[-1].endswith("\u2026")
    assert titles([label]) == [f"{', '.join(names)}: 0 \u2192 0"]


@every_machine
def test_accepting_states_have_double_circles(machine: Machine) -> None:
    doubled = [len(list(g.iter(f"{SVG}circle"))) == 2 for g in parts(drawn(machine), "state")]
    assert doubled == [machine.is_acceptor and output == 1 for output in machine.outputs]


def test_the_palette_of_all_pictures() -> None:
    text = drawn(MACHINES["arithmetic"])
    assert f'font-family="{FONT_FAMILY}"' in text
    assert set(re.findall(r'stroke="(#\w+)"', text)) <= {*COLOURS, LINE_COLOUR, "#222222"}


def test_diagrams_are_written_as_their_ending_says(tmp_path: Path) -> None:
    machine = MACHINES["tomita 3"]
    write_diagram(machine, tmp_path / "machine.svg", title="A & B")
    write_diagram(machine, str(tmp_path / "machine.dot"))
    assert (tmp_path / "machine.svg").read_text() == drawn(machine)
    assert read_machine(tmp_path / "machine.dot") == machine
    with pytest.raises(OutputError, match=r"x\.png ends in '\.png'; state diagrams are written as \.svg, or as \.dot"):
        write_diagram(machine, tmp_path / "x.png")
    assert not (tmp_path / "x.png").exists()


@pytest.mark.parametrize(("file", "name"), [("a5", "a5"), ("hello", "regex[ a-z]:.*hello.*")])
def test_pictures_of_the_documentation_are_up_to_date(file: str, name: str) -> None:
    """All but positions, which may differ in the last digit on another computer."""
    stored = (Path(__file__).parents[2] / "docs" / "images" / f"{file}.svg").read_text()
    machine_drawn = draw(name, title=name)
    assert re.sub(r"[\d.-]+", "", stored) == re.sub(r"[\d.-]+", "", machine_drawn)


WORDS = "regex[a-z]:(cat|dog|bird|mouse|elephant)+(and|or)(cat|dog)*"


def test_every_arrow_of_a_large_acceptor_has_a_label() -> None:
    machine = get_machine(WORDS)
    arrows, is_labelled = merge_transitions(machine)
    text = drawn(machine)
    assert is_labelled
    assert len(parts(text, "label")) == len(arrows) > 48
    assert parts(text, "symbol") == []  # no legend: no colours


@pytest.mark.parametrize("name", [WORDS, "tomita3", "arithmetic"])
def test_loops_and_the_start_arrow_do_not_meet_at_a_state(name: str) -> None:
    root = ET.fromstring(drawn(get_machine(name)))
    tip = head_tips(next(g for g in root.iter(f"{SVG}g") if g.get("class") == "start"))[0]
    gaps = sorted(float(np.hypot(*(other - tip))) for other in head_tips(root))
    assert gaps[0] == 0  # the start arrow itself
    assert gaps[1] > 5


def head_tips(element: ET.Element) -> list[Floats]:
    """Return the tips of the arrowheads, which are closed triangles."""
    shapes = [path.get("d", "") for path in element.iter(f"{SVG}path")]
    return [np.array(re.findall(r"[-\d.]+", d)[:2], dtype=float) for d in shapes if d.endswith("Z")]


def test_labels_do_not_cover_arrowheads() -> None:
    symbols = ["req", "ack", "data", "close"]
    table = [[(q + 1) % 12, (q * 5 + 2) % 12, q if q % 3 else (q + 4) % 12, 0 if q > 2 else 11] for q in range(12)]
    root = ET.fromstring(draw(Machine(table=table, outputs=[int(q % 4 == 0) for q in range(12)], symbols=symbols)))
    boxes = [
        [float(rect.get(key, "nan")) for key in ("x", "y", "width", "height")]
        for label in root.iter(f"{SVG}g")
        if label.get("class") == "label"
        for rect in label.iter(f"{SVG}rect")
    ]
    covered = [
        (x, y) for x, y in head_tips(root) for left, top, w, h in boxes if left < x < left + w and top < y < top + h
    ]
    assert covered == []


def test_title_fits_into_a_narrow_diagram() -> None:
    width = float(ET.fromstring(draw("regex:a*", title="m" * 40)).get("width", "nan"))
    assert width > 40 * 15 * 0.95 + 16  # the widest bold letters of common fonts


def test_notebooks_show_the_diagram_of_a_machine() -> None:
    assert MACHINES["parity"]._repr_svg_() == draw(MACHINES["parity"])
    assert ring(201, 1)._repr_svg_() is None  # too large: they show the text


@every_machine
def test_drawing_is_deterministic(machine: Machine) -> None:
    assert draw(machine, title="A & B") == drawn(machine)


@pytest.mark.parametrize(("n", "steps", "step"), [(5, (-1, 0, 1), 1), (12, (0, 1, 3), 1), (60, (7, 2), 7)])
def test_ring(n: int, steps: tuple[int, ...], step: int) -> None:
    layout = lay_out(ring(n, *steps).table, 0)
    assert layout.kind == "ring"
    radii, angles = np.hypot(*layout.positions.T), np.arctan2(*layout.positions.T[::-1])
    np.testing.assert_allclose(radii, radii[0])
    assert angles[0] == pytest.approx(-math.pi / 2)  # the start state at the top
    ordered = np.arange(n) * step % n
    turns = np.diff(angles[ordered]) % (2 * math.pi)
    np.testing.assert_allclose(turns, 2 * math.pi / n)


@pytest.mark.parametrize("n", [3, 4, 30])
@pytest.mark.parametrize("direction", [1, -1])
def test_two_rings(n: int, direction: int) -> None:
    machine = two_rings(n, direction)
    layout = lay_out(machine.table, 0)
    assert layout.kind == "two rings"
    outer, inner = layout.positions[:n], layout.positions[machine.table[:n, 0]]
    np.testing.assert_allclose(np.hypot(*outer.T), np.hypot(*outer[0]))
    np.testing.assert_allclose(np.hypot(*inner.T), np.hypot(*inner[0]))
    assert np.hypot(*outer[0]) >= np.hypot(*inner[0]) + 1
    np.testing.assert_allclose(outer[:, 0] * inner[:, 1], outer[:, 1] * inner[:, 0], atol=1e-9)  # on one line
    assert ((outer * inner).sum(1) > 0).all()  # on the same side of it
    neighbours = np.hypot(*(inner - np.roll(inner, 1, axis=0)).T)
    np.testing.assert_allclose(neighbours, neighbours[0])


def test_a5_is_twelve_pentagons_without_crossings() -> None:
    machine = a5()
    layout = lay_out(machine.table, 0)
    assert layout.kind == "cycles"
    pentagons = cycles(machine.table[:, 0])
    assert [len(p) for p in pentagons] == [5] * 12
    for pentagon in pentagons:
        sides = np.hypot(*(layout.positions[pentagon] - np.roll(layout.positions[pentagon], 1, axis=0)).T)
        np.testing.assert_allclose(sides, sides[0])
    edges = [(layout.positions[p], layout.positions[q]) for p, row in enumerate(machine.table) for q in row]
    edges = edges[::2] + [e for p, e in enumerate(edges[1::2]) if p < machine.table[p, 1]]
    assert len(edges) == 90

    def left(a: Floats, b: Floats, c: Floats) -> float:
        return float((b[0] - a[0]) * (c[1] - a[1]) - (b[1] - a[1]) * (c[0] - a[0]))

    for k, (a, b) in enumerate(edges):
        for c, d in edges[:k]:
            assert left(a, b, c) * left(a, b, d) > -1e-9 or left(c, d, a) * left(c, d, b) > -1e-9


def test_names_are_escaped_and_shortened() -> None:
    text = draw(MACHINES["awkward names"], title="<&>")
    assert ET.fromstring(text)[0].text == "<&>"
    shown = ["".join(t.text or "" for t in g.iter(f"{SVG}text")) for g in parts(text, "state")]
    assert shown[:2] == ["a<b", 'x&"y"']
    assert "\u2026" in shown[2]
    assert len(shown[2]) < 14


def test_characters_that_xml_forbids() -> None:
    machine = Machine(table=[[1], [2], [0]], states=["\x00", "\uffff", " "], symbols=["\x1b\n"])
    assert len(parts(draw(machine), "state")) == 3


def test_names_that_are_equal_when_shortened_become_numbers() -> None:
    names = [f"aaaaaaaaaa{middle}bbbbbbbbbb" for middle in "xyz"]
    shown = [g[-1].text for g in parts(draw(Machine(table=[[1], [2], [0]], states=names)), "state")]
    assert shown == ["0", "1", "2"]


def test_outputs_are_shown_unless_they_are_the_state_numbers_or_0_and_1() -> None:
    shown = []
    for outputs in ([0, 1, 2], [0, 0, 2], [0, 0, 1]):
        machine = Machine(table=[[1], [2], [0]], outputs=outputs)
        shown.append([str(g[-1].text) for g in parts(draw(machine), "state")])
    assert shown == [["0", "1", "2"], ["0 / 0", "1 / 0", "2 / 2"], ["0", "1", "2"]]


def test_colours_differ() -> None:
    assert len(set(symbol_styles(40))) == 40
    text = draw(ring(9, *range(8)))
    assert tuple(g[0].get("stroke") for g in parts(text, "symbol")) == COLOURS


def test_opposite_arrows_do_not_coincide() -> None:
    text = draw(Machine(table=[[1], [2], [1]], start=1))  # 1 and 2 lead to each other, but 0 only leads to 1
    lines = re.findall(r'<path d="(M[^"]*Q[^"]*)"', text.split('class="symbol"')[0])
    assert len(set(lines)) == 4  # three and the start arrow


def test_many_states_show_numbers_and_too_many_are_refused() -> None:
    names = [f"name {q}" for q in range(61)]
    shown = [g[-1].text for g in parts(draw(Machine(table=ring(61, 1).table, states=names)), "state")]
    assert shown == [str(q) for q in range(61)]
    with pytest.raises(AutomatonError, match=r"at most 200 states and this machine has 201; draw the minimal machine"):
        draw(ring(201, 1))
    with pytest.raises(AutomatonError, match=r"at most 2,000 arrows and this machine has 2,209; draw a machine with"):
        draw(ring(47, *range(47)))
    draw(Machine(table=[[0] * 5_000]))  # 5,000 symbols on one arrow


# -- dot -------------------------------------------------------------------------------------------------------------


def fake_dot(monkeypatch: pytest.MonkeyPatch, answer: str | Exception) -> None:
    """Replace `dot` by a program with this output, or one that fails with this exception."""

    def run(command: list[str], **settings: object) -> subprocess.CompletedProcess[str]:
        assert settings["timeout"]
        if isinstance(answer, Exception):
            raise answer
        return subprocess.CompletedProcess(command, 0, stdout=answer, stderr="")

    monkeypatch.setattr(shutil, "which", lambda name: f"/usr/bin/{name}")
    monkeypatch.setattr(subprocess, "run", run)


@pytest.mark.parametrize(
    "answer",
    [
        subprocess.TimeoutExpired("dot", 1),
        subprocess.CalledProcessError(1, "dot"),
        OSError("not a program"),
        UnicodeDecodeError("utf-8", b"x", 0, 1, "not text"),
        "",
        "graph 1 1 1\nnode 0 1 1\nstop\n",
        "node 0 here there\n",
        "".join(f"node {q} nan 0 1 1\n" for q in range(10)),
    ],
    ids=str,
)
def test_plain_layout_is_used_if_dot_fails(monkeypatch: pytest.MonkeyPatch, answer: str | Exception) -> None:
    machine = MACHINES["random 10"]
    expected = draw(machine)
    fake_dot(monkeypatch, answer)
    assert graphviz_layout(machine.table) is None
    assert draw(machine) == expected


def test_layout_of_dot_is_used_for_general_machines(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = MACHINES["even pairs"]
    positions = np.array([[0, 0], [1, 0.6], [2.1, 0.6], [2.1, -0.6], [1, -0.6]])
    fake_dot(monkeypatch, "".join(f"node {q} {x} {y} 1 1\n" for q, (x, y) in enumerate(positions)))
    layout = lay_out(machine.table, 0)
    assert layout.kind == "graphviz"
    np.testing.assert_allclose(layout.positions, positions * [1, -1], atol=0.01)  # y increases upwards in dot
    assert lay_out(ring(5, 1).table, 0).kind == "ring"  # special structures have precedence


def test_worse_layout_of_dot_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = MACHINES["even pairs"]
    fake_dot(monkeypatch, "".join(f"node {q} {9 * q} 0 1 1\n" for q in range(5)))
    assert lay_out(machine.table, 0).kind == "plain"


def test_output_of_the_real_dot(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    if shutil.which("dot") is None:
        pytest.skip("graphviz is not installed")
    positions = graphviz_layout(MACHINES["random 10"].table)
    assert positions is not None
    assert positions.shape == (10, 2)
