"""`sdssm reproduce mlregtest --data DIR`: every language of a folder of automata, with proof."""

from __future__ import annotations

import argparse
import re
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from shlex import join
from typing import TYPE_CHECKING

from sdssm.cli.exact_options import parse_seconds
from sdssm.cli.options import collect_settings, parse_parallel
from sdssm.cli.output import print_table, print_text
from sdssm.errors import SettingsError, format_value
from sdssm.experiments.mlregtest.reproduction import NAME
from sdssm.files import format_path
from sdssm.formatting import count_of

if TYPE_CHECKING:
    from sdssm.experiments.mlregtest.configuration import Configuration
    from sdssm.experiments.mlregtest.records import LanguageRecord
    from sdssm.experiments.mlregtest.reproduction import LanguagePlan

#: Options that only this experiment has.
OPTIONS = ("data", "languages", "part", "max_seconds", "at_once", "keep_weights", "set")
#: Options of other experiments that it does not have.
OTHERS = ("models", "rows", "tasks", "minutes", "reuse")


def add_language_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of this experiment to `sdssm reproduce`."""
    add = parser.add_argument_group("options of mlregtest").add_argument
    add("--data", metavar="DIR", type=Path, help="the folder with the automata, one .att file for each language")
    add(
        "--languages",
        metavar="NAME",
        nargs="+",
        help="tuning (the 100 on which settings are chosen), studied (looked at while the loss was found), held-out "
        "(the others), or names (default: all)",
    )
    add("--part", metavar="I/N", type=parse_part, help="only the I-th of N equal parts of these languages")
    add(
        "--max-seconds",
        metavar="S",
        type=parse_seconds,
        help="stop about then, between two batches; the same command continues",
    )
    add("--at-once", metavar="N", type=parse_parallel, help="languages that train side by side (default: 128, CPU: 8)")
    add("--keep-weights", action="store_true", help="keep the trained models in OUT/mlregtest")
    add("--set", metavar="NAME=VALUE", nargs="+", action="extend", default=[], help="change settings of all languages")


def parse_part(text: str) -> tuple[int, int]:
    """Parse a part such as 2/4.

    >>> parse_part("2/4")
    (2, 4)
    """
    match = re.fullmatch(r"(\d{1,9})/(\d{1,9})", text, re.ASCII)
    if match is None or not 1 <= int(match[1]) <= int(match[2]):
        raise argparse.ArgumentTypeError(f"{format_value(text)} is not a part; write 2/4 for the second of four")
    return int(match[1]), int(match[2])


def check_no_language_options(options: argparse.Namespace) -> None:
    """Raise an error if an option of this experiment was given without it."""
    for name in OPTIONS:
        if getattr(options, name):
            raise SettingsError(
                f"--{name.replace('_', '-')} belongs to {NAME}; write sdssm reproduce {NAME}, or leave it out"
            )


def reproduce_languages(options: argparse.Namespace) -> None:
    """Run the experiment, print its table, and write the results folder."""
    _check_options(options)
    configuration = _configuration(options)
    plan = _plan(configuration, options, options.languages or ["all"], options.part or (1, 1))
    if options.dry_run:
        _show_plan(plan)
        return
    if plan.missing and not options.no_train:
        plan = _run(plan, configuration, options)
    _show_results(plan, configuration, options)


def _plan(
    configuration: Configuration, options: argparse.Namespace, languages: Sequence[str], part: tuple[int, int]
) -> LanguagePlan:
    """Return languages of the folder; without a folder, those with a record."""
    from sdssm.experiments.mlregtest.reproduction import plan_languages, stored_languages

    if options.data is None:
        return stored_languages(configuration, languages=languages, results=options.results)
    return plan_languages(options.data, configuration, languages=languages, part=part, results=options.results)


def _check_options(options: argparse.Namespace) -> None:
    if len(options.specs) > 1:
        raise SettingsError(f"{NAME} cannot be combined with other experiments; run it alone")
    if options.data is None and (not options.no_train or options.part):
        raise SettingsError(
            f"{NAME} needs a folder of automata; add --data DIR, a folder with .att files, or --no-train to show the "
            "stored results"
        )
    for name in OTHERS:
        if getattr(options, name) is not None:
            raise SettingsError(f"{NAME} has no --{name}; leave it out (its own options: sdssm reproduce --help)")
    for option, is_given in (
        ("--max-seconds", options.max_seconds is not None),
        ("--keep-weights", options.keep_weights),
    ):
        if is_given and options.engine == "ray":
            raise SettingsError(f"{option} is for this machine, but --engine ray trains on others; leave it out")


def _configuration(options: argparse.Namespace) -> Configuration:
    from sdssm.experiments.mlregtest.configuration import SETTINGS, Configuration

    seeds = options.seeds
    if (isinstance(seeds, int) and seeds != 1) or (isinstance(seeds, list) and len(seeds) != 1):
        raise SettingsError(f"{NAME} trains one seed; give --seeds 1 for seed 0, or --seeds 5, for seed 5")
    seed = seeds[0] if isinstance(seeds, list) else 0
    return Configuration(settings={**SETTINGS, **collect_settings(options)}, seed=seed, budget=options.budget)


def _run(plan: LanguagePlan, configuration: Configuration, options: argparse.Namespace) -> LanguagePlan:
    from sdssm.experiments.mlregtest.records import FILE
    from sdssm.experiments.mlregtest.reproduction import run_languages

    def message(text: str) -> None:
        if not options.quiet:
            print(f"sdssm: {text}", file=sys.stderr)

    if options.engine != "local":
        from sdssm.experiments.mlregtest.ray_batches import run_languages_on_ray

        return run_languages_on_ray(
            plan, configuration, options.engine, options.device, options.address,
            workers=options.workers, at_once=options.at_once, results=options.results, message=message,
        )  # fmt: skip
    file = FILE if options.part is None else "records-part-{}-of-{}.jsonl".format(*options.part)
    return run_languages(
        plan,
        configuration,
        device=options.device,
        workers=options.workers,
        at_once=options.at_once,
        max_seconds=options.max_seconds,
        results=options.results,
        file=file,
        weights=options.out / NAME if options.keep_weights else None,
        progress=not options.quiet,
        message=message,
    )


def _show_plan(plan: LanguagePlan) -> None:
    """Print how many languages there are, by class, and how many have a record."""
    from sdssm.experiments.mlregtest.languages import CLASSES, parse_name

    kinds = Counter(parse_name(name).kind for name in plan.paths)
    done = Counter(parse_name(name).kind for name in plan.records)
    rows = [[kind, str(kinds[kind]), str(done[kind])] for kind in CLASSES if kinds[kind]]
    rows += [[kind, str(kinds[kind]), str(done[kind])] for kind in sorted(set(kinds) - set(CLASSES))]
    print_table(["class", "languages", "with a record"], rows, right=("languages", "with a record"))
    left = count_of(len(plan.missing), "language")
    print(f"{left} of {len(plan.paths)} would be trained; the files were not checked, nothing was started.")


def _show_results(plan: LanguagePlan, configuration: Configuration, options: argparse.Namespace) -> None:
    """Write the results of all languages of the folder, and print those that were selected."""
    from sdssm.experiments.mlregtest.tables import FAILURES, write_results

    folder = options.results / NAME
    everything = _plan(configuration, options, ["all"], (1, 1))
    if not everything.records:
        advice = "leave out --no-train" if options.no_train else "give more --max-seconds"
        raise SettingsError(f"{format_path(folder)} has no record of these languages; {advice}")
    settings = {**configuration.settings}
    write_results(list(everything.records.values()), folder, command=_command(options), settings=settings)
    _print_results(list(plan.records.values()))
    if plan.missing:
        print_text(
            f"{count_of(len(plan.missing), 'language')} of {len(plan.paths)} are left; the same command continues."
        )
    print(
        f"\nTables in {format_path(folder)}; {FAILURES} has the failed languages, with a misclassified string of each"
    )


def _print_results(records: Sequence[LanguageRecord]) -> None:
    from sdssm.experiments.mlregtest.languages import HELD_OUT
    from sdssm.experiments.mlregtest.summary import count_reasons, describe_targets, describe_time, describe_unnamed
    from sdssm.experiments.mlregtest.tables import TABLE_NOTE, split_parts, table_rows

    parts = {name: part for name, part in split_parts(records).items() if part}
    for name, part in parts.items():
        print(f"{name} languages")
        headers, rows = table_rows(part)
        print_table(headers, rows, right=headers[1:], keep=[headers[0], headers[6], "chance", "proved equal"])
        print()
    if records:
        print_text(TABLE_NOTE)
        print()
    for name, part in parts.items():
        for line in [*describe_targets(part, name), *(describe_unnamed(part) if name == HELD_OUT else ())]:
            print_text(line)
    print_text(describe_time(records))
    for reason, count in count_reasons(records):
        print_text(f"failed, {count}: {reason}")


def _command(options: argparse.Namespace) -> str:
    """Return the command as the results record it: all that affects numbers."""
    words = ["sdssm", "reproduce", NAME, "--data", "DIR"]
    words += ["--budget", f"{options.budget:g}"] if options.budget != 1 else []
    words += ["--set", *options.set] if options.set else []
    words += ["--seeds", f"{options.seeds[0]},"] if isinstance(options.seeds, list) else []
    return join(words)
