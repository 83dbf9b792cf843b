"""The reference of the command line as Markdown, generated from the parsers of the commands."""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator
from textwrap import fill

from sdssm.cli.options import EXAMPLES
from sdssm.cli.parser import make_parser

#: Text that Markdown or HTML would read as markup.
MARKUP = re.compile(r"([\\`*_{}\[\]<>|])")


def command_line_page() -> str:
    """Return a section for each command, with every argument and option and its examples."""
    return "\n\n".join(_describe_command(parser) for parser in commands())


def commands() -> Iterator[argparse.ArgumentParser]:
    """Yield the parser of each command in the order of `sdssm --help`, and of commands inside of it."""
    for parser in _subcommands(make_parser()):
        yield parser
        yield from _subcommands(parser)


def visible_actions(parser: argparse.ArgumentParser) -> list[argparse.Action]:
    """Return the arguments and options of a command that its help shows, without --help itself."""
    hidden = (argparse._HelpAction, argparse._SubParsersAction)
    return [action for action in parser._actions if not isinstance(action, hidden) and action.help != argparse.SUPPRESS]


def _subcommands(parser: argparse.ArgumentParser) -> Iterator[argparse.ArgumentParser]:
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            yield from action.choices.values()


def _describe_command(parser: argparse.ArgumentParser) -> str:
    usage = parser.format_usage().removeprefix("usage: ").strip()
    usage = re.sub(r"\n\s{7}(?=\S)", "\n", usage)  # argparse indents by the width of "usage: "
    usage = "\n".join(fill(line, 88, subsequent_indent="    ", break_on_hyphens=False) for line in usage.splitlines())
    parts = [f"## {parser.prog}", parser.description and escape(parser.description), f"```text\n{usage}\n```"]
    actions = visible_actions(parser)
    if actions:
        rows = [f"| {_name_action(action)} | {_explain_action(parser, action)} |" for action in actions]
        parts.append("\n".join(["| argument | meaning |", "|---|---|", *rows]))
    if parser.epilog and parser.epilog.startswith(EXAMPLES):
        parts.append("```sh\n" + re.sub("^  ", "", parser.epilog.removeprefix("examples:\n"), flags=re.M) + "\n```")
    return "\n\n".join(part for part in parts if part)


def _name_action(action: argparse.Action) -> str:
    """Return how an argument is typed: `--out DIR`, `TASK ...`."""
    value = "" if action.nargs == 0 else argparse.HelpFormatter("")._format_args(action, _placeholder(action))
    names = action.option_strings or [""]
    return ", ".join(f"`{f'{name} {value}'.strip()}`".replace("|", "\\|") for name in names)


def _placeholder(action: argparse.Action) -> str:
    """Return the text that stands for a value, as argparse shows it: its metavar, its choices, or its name."""
    if isinstance(action.metavar, str):
        return action.metavar
    if action.choices is not None:
        return "{" + ",".join(map(str, action.choices)) + "}"
    return action.dest.upper() if action.option_strings else action.dest


def _explain_action(parser: argparse.ArgumentParser, action: argparse.Action) -> str:
    """Return the help of an argument, with its default filled in."""
    return escape(parser._get_formatter()._expand_help(action)) if action.help else ""


def escape(text: str) -> str:
    """Escape what Markdown would read as markup."""
    return MARKUP.sub(r"\\\1", text).replace("\\<", "&lt;").replace("\\>", "&gt;")
