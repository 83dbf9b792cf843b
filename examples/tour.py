"""A tour of what there is to emulate: `make demo`.

Six stops: the tasks, one machine in full, its strings and labels, a machine of your own, two machines told apart, and
the pictures, which are written to the folder demo/.
"""

from __future__ import annotations

import time
from pathlib import Path

import torch

import sdssm
from sdssm.automata import draw
from sdssm.cli import main as command

PICTURES = Path("demo")


def stop(title: str) -> None:
    print(f"\n=== {title}\n")


def tour() -> None:
    begin = time.perf_counter()

    stop("What there is to emulate: sdssm tasks")
    command(["tasks"])

    stop("The smallest group that is not solvable: sdssm tasks show a5")
    command(["tasks", "show", "a5"])

    stop("Strings and the label of every prefix, drawn and labelled as one batch")
    task = sdssm.task("arithmetic")
    batch = task.sample(3, task.floor(20), generator=torch.Generator().manual_seed(1))
    for tokens, labels in zip(batch.tokens.tolist(), batch.labels.tolist(), strict=True):
        text = task.machine.decode(tokens)
        print(f"  {text} = {eval(text)} = {labels[-1]} (mod 5)")

    stop("A machine of your own: how many ones, up to three?")
    counter = sdssm.Machine(table=[[0, 1], [1, 2], [2, 3], [3, 3]], states=["none", "one", "two", "more"])
    print(f"  {counter}: after 0101 {counter.state_names[counter.run('0101')]}")
    print(f"  {counter.theory}")

    stop("Two machines told apart by the shortest string there is")
    mirrored, plain = sdssm.machine("d4"), sdssm.machine("c2xc4")
    word = mirrored.distinguish(plain)
    assert word is not None
    print(f"  after '{mirrored.decode(word)}' D4 is in {mirrored.run(word)}, C2 x C4 in {plain.run(word)}")
    same = sdssm.machine("regex:0*(10*10*)*").distinguish(sdssm.machine("regex:(0|10*1)*"))
    print(f"  0*(10*10*)* and (0|10*1)* differ on: {same}")

    stop(f"State diagrams, written to {PICTURES}/")
    PICTURES.mkdir(exist_ok=True)
    for name in ("cycle", "c2xc4", "d30", "a5", "arithmetic", "random:10x2:0"):
        path = PICTURES / f"{name.replace(':', '-')}.svg"
        path.write_text(draw(sdssm.machine(name), title=name), encoding="utf-8")
        print(f"  {path}")

    print(f"\nThe tour took {time.perf_counter() - begin:.1f} s.")


if __name__ == "__main__":
    tour()
