"""Attack the package for some minutes and print what was tried, what held and what failed.

python -m tests.campaign --minutes 30                    two processes, all attacks
python -m tests.campaign --list                          the attacks
python -m tests.campaign --only certificates --seed 7 --trial 12    repeat a failure
"""

from __future__ import annotations

import argparse
import os
import platform
import signal
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from random import SystemRandom
from tempfile import TemporaryDirectory

from tests.campaign.attack import Attack
from tests.campaign.catalogue import find_attacks
from tests.campaign.runner import Campaign, make_attempt
from tests.campaign.sandbox import silence_threads
from tests.campaign.tally import Tally
from tests.campaign.templates import make_templates


def parse_options(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Parse the options of a campaign."""
    parser = argparse.ArgumentParser(prog="python -m tests.campaign", description=(__doc__ or "").splitlines()[0])
    add = parser.add_argument
    add("--minutes", type=float, default=30.0, help="how long to attack (default: %(default)g)")
    add("--seed", type=int, default=None, help="seed of all choices (default: a random one, which is printed)")
    add("--only", nargs="+", metavar="NAME", help="only these attacks")
    add("--trial", type=int, metavar="K", help="repeat one attempt of one attack, with --only and --seed")
    add("--slice", action="store_true", help="only the attacks of the test suite's short campaign")
    add("--workers", type=int, default=2, metavar="N", help="processes that attack (default: %(default)s)")
    add("--markdown", type=Path, metavar="FILE", help="also write the table as Markdown")
    add("--list", action="store_true", help="list the attacks and end")
    options = parser.parse_args(arguments)
    if options.trial is not None and (options.seed is None or len(options.only or ()) != 1):
        parser.error("--trial needs --seed, and --only with one name")
    return options


def choose_attacks(options: argparse.Namespace) -> list[Attack]:
    """Return the attacks that were asked for; raise SystemExit if there is none of a name."""
    attacks = {attack.name: attack for attack in find_attacks()}
    unknown = [name for name in options.only or () if name not in attacks]
    if unknown:
        sys.exit(f"there is no attack {unknown[0]!r}; known: {', '.join(attacks)}")
    chosen = [attacks[name] for name in options.only] if options.only else list(attacks.values())
    return [attack for attack in chosen if attack.in_slice or not options.slice]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a campaign; return 1 if something did not hold, or if nothing was tried."""
    options = parse_options(arguments)
    attacks = choose_attacks(options)
    if options.list:
        _print("\n".join(f"{attack.name:20}  {attack.subject}" for attack in attacks))
        return 0
    seed = SystemRandom().randrange(10**6) if options.seed is None else options.seed
    silence_threads()
    for attack in attacks:
        attack.prepare()
    make_templates()  # before the first fork, so that all forks share the folders and the imported modules
    with TemporaryDirectory(prefix="campaign-") as name:
        if options.trial is not None:
            tally = Tally(seed)
            tally.add(attacks[0].name, options.trial, make_attempt(attacks[0], seed, options.trial, Path(name)))
        else:
            _print(
                f"{len(attacks)} attacks for {options.minutes:g} minutes in {options.workers} processes, seed {seed}"
            )
            campaign = Campaign(
                attacks, seed=seed, seconds=60 * options.minutes, workers=options.workers, folder=Path(name)
            )
            for number in (signal.SIGINT, signal.SIGTERM):  # also where the shell has them ignored
                signal.signal(number, signal.default_int_handler)
            try:
                tally = campaign.run(_print)
            except KeyboardInterrupt:
                tally = campaign.tally
    _print("\n".join([tally.table(), *tally.list_skipped(), *tally.list_failures()]))
    if options.markdown is not None:
        options.markdown.write_text(tally.markdown(_describe(options.minutes, seed)), encoding="utf-8")
    return 0 if tally.tried and not tally.failures else 1


def _describe(minutes: float, seed: int) -> str:
    """Return a sentence about when, where and how long the campaign ran."""
    day = datetime.now(UTC).date().isoformat()
    cores = len(os.sched_getaffinity(0))
    return (
        f"`python -m tests.campaign --minutes {minutes:g} --seed {seed}` on {day}, {cores} cores, "
        f"Python {platform.python_version()}, {platform.system()}."
    )


def _print(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
