"""The parser of all commands: which there are, and errors that name the most similar command or option."""

from __future__ import annotations

import argparse
import re
from collections.abc import Sequence
from importlib import import_module
from itertools import takewhile
from typing import Any, NoReturn

from sdssm import __version__
from sdssm.cli.options import BAD_INPUT, HelpFormatter
from sdssm.errors import did_you_mean, format_value, most_similar
from sdssm.printable import make_printable, shorten_line

#: In the order of `sdssm --help`; each is a module of this package.
COMMANDS = (
    "tasks",
    "models",
    "settings",
    "train",
    "evaluate",
    "check",
    "runs",
    "studio",
    "compile",
    "extract",
    "certify",
    "horizon",
    "snap",
    "export",
    "reproduce",
    "sweep",
    "report",
    "playground",
    "figure",
    "completion",
)


class CommandParser(argparse.ArgumentParser):
    """Prints errors in one line, like all other errors of the command, and suggests similar names."""

    #: The nested command that is meant if its name is left out.
    implied_command: str | None = None

    def error(self, message: str) -> NoReturn:
        more = "" if message.endswith("?") else f"; see {self.prog} --help"
        self.exit(BAD_INPUT, shorten_line(f"{self.prog}: {message}{more}") + "\n")

    def parse_known_args(self, args: Sequence[str] | None = None, namespace: Any = None) -> Any:  # type: ignore[override]  # it has overloads
        """Parse arguments, and report unknown ones here, where the options of the command are known."""
        if self.implied_command is not None and args is not None:
            words = [word for word in args if not word.startswith("-")]
            if words and words[0] != self.implied_command:
                args = [self.implied_command, *args]
        misspelt = [] if args is None else self._unknown_options(args)
        if misspelt:  # before argparse reports that another argument is missing
            self.error(self._describe_unknown(misspelt))
        parsed, unknown = super().parse_known_args(args, namespace)
        if unknown:
            self.error(self._describe_unknown(unknown))
        return parsed, unknown

    def _unknown_options(self, args: Sequence[str]) -> list[str]:
        """Return the options that neither this parser nor, after the name of a command, another one knows."""
        has_commands = self._subparsers is not None
        own = list(takewhile(lambda word: word != "--" and not (has_commands and word[:1] != "-"), args))
        return [
            word
            for word in own
            if re.fullmatch(r"--\w[\w-]*(=.*)?", word) and word.partition("=")[0] not in self._option_string_actions
        ]

    def _describe_unknown(self, unknown: Sequence[str]) -> str:
        """Return the error message for arguments that belong to no option and no position."""
        options = [argument.partition("=")[0] for argument in unknown if argument.startswith("-") and argument != "--"]
        if not options:
            return f"unexpected argument {format_value(unknown[0])}"
        # Without the dashes, which would make all options similar.
        known = [option[2:] for option in self._option_string_actions if option.startswith("--")]
        similar = most_similar(options[0].lstrip("-").replace("_", "-"), known)
        hint = f"; did you mean --{similar}?" if similar else ""
        return f"there is no option {make_printable(options[0])}{hint}"

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        """Refuse a value that is not one of the choices, and name the most similar one."""
        if action.choices is not None and value not in action.choices:
            hint = did_you_mean(str(value), map(str, action.choices))
            if isinstance(action, argparse._SubParsersAction):
                self.error(f"there is no command {format_value(value)}; {hint}")
            name = "/".join(action.option_strings) or str(action.metavar or action.dest)
            self.error(f"{name} is {format_value(value)}; {hint}")


def make_parser(command: str | None = None) -> CommandParser:
    """Return the parser of this command with its options; of all commands, if there is none of this name.

    Importing one module instead of all of them saves time in every call.
    """
    parser = CommandParser(
        prog="sdssm",
        description="Train sequence models to emulate finite automata on short strings, measure how they generalise to "
        "long strings, and prove it. sdssm COMMAND --help describes a command.",
        formatter_class=HelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"sdssm {__version__}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    names = () if command == "--version" else (command,) if command in COMMANDS else COMMANDS
    for name in names:
        import_module(f"sdssm.cli.{name}").add_command(commands)
    return parser
