"""The groups inside a transition monoid, found through image sets, without listing the monoid.

Strings send the set of all states to smaller and smaller image sets. On an image set I, the strings that return I to
itself act as a group of permutations. If an idempotent e of the monoid has the image I, this group is the largest group
around e. If none has, the group is still a quotient of a group inside the monoid, because the strings that return I to
itself form a submonoid that maps onto it, and so does the group in that submonoid's smallest ideal. Hence all groups
inside the monoid are solvable (or trivial) exactly when all the groups found here are.
"""

from __future__ import annotations

import numpy as np

from sdssm.automata.permutations import inverse, is_identity
from sdssm.automata.refinement import Ints


def image_groups(maps: Ints, states: int, *, cap: int, work: int) -> list[list[Ints]] | None:
    """Generators of the group on one image set of each strong component, trivial groups left out; None past the cap.

    `maps` (maps x states) are the maps of the symbols. The permutations act on the places 0..|I|-1 of the sorted I.
    """
    graph = _image_graph(maps, states, cap, work)
    if graph is None:
        return None
    images, arrows = graph
    component = strong_components(arrows)
    groups = [
        _loops(root, images, arrows, maps, component) for root in {c: i for i, c in enumerate(component)}.values()
    ]
    return [group for group in groups if group]


def _image_graph(maps: Ints, states: int, cap: int, work: int) -> tuple[list[Ints], list[list[int]]] | None:
    """The image sets of all strings and where each symbol sends them; None past the cap."""
    images = [np.arange(states)]
    index = {images[0].tobytes(): 0}
    arrows: list[list[int]] = []
    while len(arrows) < len(images):
        image = images[len(arrows)]
        row = []
        for m in maps:
            ahead = np.unique(m[image])
            key = ahead.tobytes()
            if key not in index:
                index[key] = len(images)
                images.append(ahead)
            row.append(index[key])
            work -= 20 * len(image) + 1_000  # sorting dominates
        arrows.append(row)
        if len(images) > cap or work < 0:
            return None
    return images, arrows


def _loops(root: int, images: list[Ints], arrows: list[list[int]], maps: Ints, component: list[int]) -> list[Ints]:
    """Schreier generators of the group on images[root]: along a tree to J, over an arrow to K, and back from K.

    `reach[J]` holds the places of J in the order in which the places of the root arrive there.
    """
    reach = {root: images[root]}
    waiting = [root]
    for here in waiting:
        for m, there in zip(maps, arrows[here], strict=True):
            if component[there] == component[root] and there not in reach:
                reach[there] = m[reach[here]]
                waiting.append(there)
    found: dict[bytes, Ints] = {}
    for here in waiting:
        for m, there in zip(maps, arrows[here], strict=True):
            if component[there] == component[root]:
                arrived = np.searchsorted(images[there], m[reach[here]])
                back = inverse(np.searchsorted(images[there], reach[there]))
                loop = back[arrived]
                if not is_identity(loop):
                    found[loop.tobytes()] = loop
    return list(found.values())


def strong_components(arrows: list[list[int]]) -> list[int]:
    """The strong component of each node (Tarjan, without recursion)."""
    component = [-1] * len(arrows)
    low, number, count = [0] * len(arrows), [-1] * len(arrows), 0
    stack: list[int] = []
    for root in range(len(arrows)):
        if number[root] != -1:
            continue
        path = [(root, iter(arrows[root]))]
        low[root] = number[root] = count
        count += 1
        stack.append(root)
        while path:
            node, ahead = path[-1]
            for there in ahead:
                if number[there] == -1:
                    low[there] = number[there] = count
                    count += 1
                    stack.append(there)
                    path.append((there, iter(arrows[there])))
                    break
                if component[there] == -1:
                    low[node] = min(low[node], number[there])
            else:
                path.pop()
                if path:
                    low[path[-1][0]] = min(low[path[-1][0]], low[node])
                if low[node] == number[node]:
                    while True:
                        member = stack.pop()
                        component[member] = node
                        if member == node:
                            break
    return component
