"""The lines drawn on a diagram so far, and how new lines avoid them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

import numpy as np

from sdssm.automata.refinement import Floats, Ints

#: The size, in pixels, of a cell of the grid that records lines.
CELL = 6.0
#: The angle between two arrows at a state at which their heads are apart.
CLEARANCE = 0.4


class Canvas:
    """The positions of the states (Q, 2), and the density of the lines drawn so far on a grid."""

    def __init__(self, at: Floats, radius: float, *, regular: bool) -> None:
        self.at, self.radius = at, radius
        self.regular = regular  # rings and polygons: equal edges bend equally, whatever was drawn before
        self.low, self.high = at.min(0), at.max(0)  # the bounding box
        self.corner = self.low - 30 * CELL
        self.ink = np.zeros(((self.high - self.low) / CELL + 60).astype(int))
        self.boxes = np.zeros((0, 4))  # centres and sizes of the labels drawn so far
        self.heads = np.zeros((0, 2))  # the tips of the arrows drawn so far
        self.contacts: dict[int, list[float]] = defaultdict(list)  # the angles at which arrows touch each state

    def add(self, corners: Floats, first: float = 0.0, last: float = 1.0, *, weight: float = 1.0) -> None:
        """Record a curve. Other lines avoid its part between the times `first` and `last`; weight -1 removes it."""
        outline = bezier(corners, np.linspace(0, 1, 33))
        self.low, self.high = np.minimum(self.low, outline.min(0)), np.maximum(self.high, outline.max(0))
        length = float(np.hypot(*np.diff(outline, axis=0).T).sum())
        for cells, share in self._cells(bezier(corners, np.linspace(first, last, 2 + int(length / CELL)))):
            np.add.at(self.ink, cells, weight * share)

    def add_head(self, corners: Floats) -> None:
        """Record the head at the start of a curve. Labels must not cover it."""
        self.heads = np.vstack([self.heads, bezier(corners, np.array([exit_time(corners, corners[0], 5.0)]))])

    def touch(self, q: int, point: Floats) -> None:
        """Record that an arrow touches a state next to this point. Loops and the start arrow avoid it."""
        x, y = point - self.at[q]
        self.contacts[q].append(float(np.arctan2(y, x)))

    def add_box(self, centre: Floats, size: Floats) -> None:
        """Record a label. Other labels and loops avoid it."""
        self.boxes = np.vstack([self.boxes, np.concatenate([centre, size])])
        self.low, self.high = np.minimum(self.low, centre - size / 2), np.maximum(self.high, centre + size / 2)
        points = np.stack(np.meshgrid(*(np.arange(-s / 2, s / 2 + 1, CELL) for s in size)), axis=-1).reshape(-1, 2)
        for cells, share in self._cells(centre + points):
            np.add.at(self.ink, cells, 0.5 * share)

    def covering(self, centre: Floats, size: Floats) -> float:
        """Return a cost for a label: states and labels that it covers, and lines."""
        gap = np.maximum(np.abs(self.at - centre) - size / 2, 0)
        near = np.maximum(0, self.radius + 3 - np.hypot(*gap.T)).sum() / self.radius
        overlap = np.maximum((self.boxes[:, 2:] + size) / 2 + 1 - np.abs(self.boxes[:, :2] - centre), 0)
        points = np.stack(np.meshgrid(*(np.linspace(-s / 2, s / 2, 2 + int(s / CELL)) for s in size)), axis=-1)
        ink = sum((self.ink[cells] * share).sum() for cells, share in self._cells(centre + points.reshape(-1, 2)))
        covered = (np.abs(self.heads - centre) < size / 2 + 4).all(1).sum()
        return float(12 * near + 12 * overlap.prod(1).sum() / size.prod() + 0.3 * ink + 5 * covered)

    def beside(self, q: int, angle: float, size: Floats, distance: float) -> Floats:
        """Return the centre of a label of this size at an angle next to a state, from a distance of its centre on."""
        along = np.array([np.cos(angle), np.sin(angle)])
        across = np.abs(along) @ size / 2  # to a line through a corner of the label
        through = (size / 2 / np.maximum(np.abs(along), 1e-9)).min()  # to the side of the label
        return np.asarray(self.at[q] + along * (distance + (across + through) / 2))

    def _cells(self, points: Floats) -> Iterator[tuple[tuple[Ints, Ints], Floats]]:
        """Yield the four grid points around each point, and their weights."""
        scaled = np.clip((points - self.corner) / CELL, 0, np.array(self.ink.shape) - 2)
        x, y = scaled.astype(np.int64).T
        u, v = (scaled % 1).T
        yield (x, y), (1 - u) * (1 - v)
        yield (x + 1, y), u * (1 - v)
        yield (x, y + 1), (1 - u) * v
        yield (x + 1, y + 1), u * v

    def outward(self, q: int) -> float:
        """Return the angle from the middle of the picture to a state.

        It is upwards in the middle or on a single row.
        """
        x, y = self.at[q] - self.at.mean(0)
        return float(np.arctan2(y, x)) if np.hypot(x, y) > 1 and np.ptp(self.at[:, 1]) > 1 else -np.pi / 2

    def is_leftmost(self, q: int) -> bool:
        """Whether no state is farther left."""
        return bool(self.at[q, 0] <= self.at[:, 0].min() + 1)

    def crowding(self, points: Floats, ends: tuple[int, ...], *, lines: bool = True) -> float:
        """Return a cost for a line (n, 2) that crosses states other than `ends` or, with `lines`, lines."""
        others = np.delete(self.at, ends, axis=0)
        # Each state counts once.
        overlap = np.maximum(0, self.radius + 7 - _distances(points, others).min(0)).sum() / self.radius
        along = sum((self.ink[cells] * share).sum() for cells, share in self._cells(points)) if lines else 0.0
        return float(12 * overlap + 6 * along / len(points))

    def free_angle(
        self,
        q: int,
        length: float,
        breadth: float,
        preferred: float,
        *,
        spread: float = 0.0,
        label: Floats | None = None,
        label_from: float = 0.0,
    ) -> float:
        """Return the angle, near the preferred one, at which the space next to a state is the emptiest.

        The space is a strip of this length and breadth outwards from the rim, and a label of this size beyond it. At
        the rim it takes the angles up to `spread` on either side.
        """
        contacts = np.array(self.contacts[q])
        best, cost = 0.0, np.inf
        for turn in sorted(range(-11, 13), key=abs):
            angle = preferred + turn * np.pi / 12
            along = np.array([np.cos(angle), np.sin(angle)])
            side = np.array([-along[1], along[0]])
            reach = self.radius + np.linspace(4, length + 6, 6)
            points = self.at[q] + (reach[:, None] * along)[:, None] + np.linspace(-breadth, breadth, 5)[:, None] * side
            new_cost = self.crowding(points.reshape(-1, 2), (q,)) + 0.25 * abs(turn)
            apart = np.abs((contacts - angle + np.pi) % (2 * np.pi) - np.pi) - spread
            new_cost += 3 * np.clip(1 - apart / CLEARANCE, 0, 1).sum()
            if label is not None and label.any():
                new_cost += self.covering(self.beside(q, angle, label, label_from), label)
            if new_cost < cost - 1e-6:
                best, cost = angle, new_cost
        return float(best)


def _distances(points: Floats, others: Floats) -> Floats:
    if not len(others):
        return np.full((len(points), 1), np.inf)
    return np.asarray(np.sqrt(((points[:, None] - others[None]) ** 2).sum(-1)))


def bezier(corners: Floats, t: Floats) -> Floats:
    """Return points (n, 2) on the Bezier curve of 3 or 4 control points at the times t, from 0 to 1."""
    points = np.repeat(corners[:, None], len(t), axis=1)
    while len(points) > 1:
        points = points[:-1] * (1 - t)[:, None] + points[1:] * t[:, None]
    return np.asarray(points[0])


def exit_time(corners: Floats, centre: Floats, distance: float) -> float:
    """Return the first time at which a curve is this far from a point near its start."""
    times = np.linspace(0, 1, 101)
    gap = np.hypot(*(bezier(corners, times) - centre).T)
    after = max(1, int((gap > distance).argmax()))
    return float(np.interp(distance, gap[after - 1 : after + 1], times[after - 1 : after + 1]))


def subcurve(corners: Floats, first: float, last: float) -> Floats:
    """Return the control points of the part of a quadratic Bezier curve between two times."""

    def blossom(s: float, t: float) -> Floats:
        left = corners[:2] * (1 - s) + corners[1:] * s
        return np.asarray(left[0] * (1 - t) + left[1] * t)

    return np.array([blossom(first, first), blossom(first, last), blossom(last, last)])
