"""`sdssm completion`: print a script that completes commands, options and names in a shell.

All words are written into the script, so that pressing the Tab key starts no Python.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sdssm.cli.options import declare_command

if TYPE_CHECKING:
    from sdssm.cli.options import Commands
    from sdssm.cli.parser import CommandParser

SHELLS = ("bash", "zsh", "fish")
#: What the values of an option are, by the name of its argument in the help.
KINDS = {
    "TASK": "tasks",
    "MODEL": "models",
    "PRESET": "presets",
    "DEVICE": "devices",
    "SPEC": "experiments",
    "DIR": "folders",
    "RUN": "folders",
    "FILE": "files",
}
BASH = """\
# Completion of sdssm, written by: sdssm completion
_sdssm() {
    local cur=${COMP_WORDS[COMP_CWORD]} command=${COMP_WORDS[1]} option= distance=0 kind= words= i
    COMPREPLY=()
    if [ "$COMP_CWORD" -le 1 ]; then
        COMPREPLY=($(compgen -W "@COMMANDS@ --help --version" -- "$cur"))
        return
    fi
    for ((i = COMP_CWORD - 1; i > 1; i--)); do
        case ${COMP_WORDS[i]} in -*) option=${COMP_WORDS[i]}; distance=$((COMP_CWORD - i)); break ;; esac
    done
    case "$command:$option" in
@OPTION_KINDS@
    esac
    case "$kind" in
        *+) kind=${kind%+} ;;
        *) [ "$distance" -gt 1 ] && kind= ;;
    esac
    case "$cur" in -*) kind=options ;; esac
    if [ -z "$kind" ]; then
        case "$command" in
@POSITION_KINDS@
        esac
    fi
    case "$kind" in
        options)
            case "$command" in
@OPTIONS@
            esac ;;
        folders)
            type compopt >/dev/null 2>&1 && compopt -o filenames
            # Names of folders contain "=", at which bash splits words: only the last part is completed.
            local whole=$cur before=
            [ "$cur" = "=" ] && whole= before="${COMP_WORDS[COMP_CWORD - 1]}="
            for ((i = COMP_CWORD - 1; i > 2; i -= 2)); do
                [ "${COMP_WORDS[i]}" = "=" ] || break
                before="${COMP_WORDS[i - 1]}=$before"
            done
            COMPREPLY=($(compgen -d -- "$before${whole//\\\\/}"))
            COMPREPLY=("${COMPREPLY[@]#"$before"}")
            return ;;
        settings)
            type compopt >/dev/null 2>&1 && compopt -o nospace
            words="@settings@" ;;
@WORDS@
    esac
    COMPREPLY=($(compgen -W "$words" -- "$cur"))
}
complete -o bashdefault -o default -F _sdssm sdssm
"""


@dataclass(frozen=True)
class CompletedOption:
    """An option of a command that takes a value, or a position."""

    command: str
    names: tuple[str, ...]  # none for a position
    kind: str  # a key of the word lists, "folders", "files", "any" if nothing is known, or the words themselves
    is_repeated: bool  # it takes several values


def add_command(commands: Commands) -> None:
    """Declare the command."""
    parser = declare_command(
        commands,
        "completion",
        summary="print a script for completion in a shell",
        description="Print a script that makes a shell complete commands, options, tasks, models, presets, "
        "experiments, settings and folders with the Tab key. Write it again after an update, and after a plug-in with "
        "models was installed.",
        examples=[
            "sdssm completion bash > ~/.local/share/bash-completion/completions/sdssm",
            "sdssm completion zsh >> ~/.zshrc",
            "sdssm completion fish > ~/.config/fish/completions/sdssm.fish",
        ],
    )
    parser.add_argument("shell", metavar="SHELL", choices=SHELLS, help=", ".join(SHELLS))
    parser.set_defaults(run=_print_script)


def _print_script(options: argparse.Namespace) -> None:
    from sdssm.cli.parser import make_parser

    commands = _commands(make_parser())
    if options.shell == "fish":
        print("\n".join(_fish_lines(commands)))
        return
    if options.shell == "zsh":
        print("autoload -U +X compinit && compinit\nautoload -U +X bashcompinit && bashcompinit")
    print(_bash_script(commands), end="")


def word_lists() -> dict[str, list[str]]:
    """Return the names that can be completed, by kind. Names that a shell would split or expand are left out."""
    from sdssm.experiments.mlregtest.reproduction import NAME as MLREGTEST
    from sdssm.experiments.specs.catalogue import list_experiments
    from sdssm.models.catalogue import MODELS, default_preset
    from sdssm.models.presets import PRESETS
    from sdssm.models.registry import list_models
    from sdssm.runs.schema import resolve_settings, setting_names
    from sdssm.tasks.library import list_tasks

    resolved = [resolve_settings(model, default_preset(model), "") for model in MODELS]
    lists = {
        "tasks": list_tasks(),
        "models": list_models(),  # plug-ins by name; nothing of them is imported
        "presets": list(PRESETS),
        "devices": ["auto", "cpu", "cuda"],
        "experiments": [*list_experiments(), MLREGTEST],
        "settings": list(dict.fromkeys(f"{name}=" for settings in resolved for name in setting_names(settings))),
    }
    return {kind: [word for word in words if re.fullmatch(r"[\w.=-]+", word)] for kind, words in lists.items()}


def _commands(parser: CommandParser) -> dict[str, CommandParser]:
    """Return the parsers of the commands."""
    action = next(action for action in parser._actions if isinstance(action, argparse._SubParsersAction))
    return dict(action.choices)


def _completed_options(commands: dict[str, CommandParser]) -> Iterator[CompletedOption]:
    """Yield the options of all commands that take a value, and the positions whose values can be completed."""
    for command, parser in commands.items():
        nested = _commands(parser) if parser.implied_command is not None else {}
        for action in (*parser._actions, *(action for other in nested.values() for action in other._actions)):
            if isinstance(action, argparse._SubParsersAction) or action.nargs == 0:
                continue
            metavar = str(action.metavar or action.dest.upper())
            kind = "settings" if metavar.startswith("NAME=") else KINDS.get(metavar)
            kind = " ".join(map(str, action.choices)) if action.choices is not None else kind
            if kind is not None or action.option_strings:
                yield CompletedOption(command, tuple(action.option_strings), kind or "any", action.nargs in ("+", "*"))


def _option_strings(parser: CommandParser) -> list[str]:
    """Return all options of a command, those of a nested command too."""
    nested = _commands(parser).values() if parser.implied_command is not None else ()
    known = {option: None for owner in (parser, *nested) for option in owner._option_string_actions}
    return [option for option in known if option.startswith("--")]


def _bash_script(commands: dict[str, CommandParser]) -> str:
    lists, options = word_lists(), list(_completed_options(commands))
    cases = {
        "OPTION_KINDS": (
            (
                "|".join(f"{option.command}:{name}" for name in option.names),
                f'kind="{option.kind}{"+" * option.is_repeated}"',
            )
            for option in options
            if option.names
        ),
        "POSITION_KINDS": ((option.command, f'kind="{option.kind}"') for option in options if not option.names),
        "OPTIONS": ((name, f'words="{" ".join(_option_strings(parser))}"') for name, parser in commands.items()),
        "WORDS": [
            *((kind, f'words="{" ".join(words)}"') for kind, words in lists.items() if kind != "settings"),
            ("files|any", "words="),
            ("*", 'words="$kind"'),
        ],
    }
    indents = {"OPTION_KINDS": 8, "POSITION_KINDS": 12, "OPTIONS": 16, "WORDS": 8}
    script = BASH.replace("@COMMANDS@", " ".join(commands)).replace("@settings@", " ".join(lists["settings"]))
    for name, pairs in cases.items():
        script = script.replace(f"@{name}@", _bash_cases(pairs, indents[name]))
    return script


def _bash_cases(pairs: Iterable[tuple[str, str]], indent: int) -> str:
    return "\n".join(f"{' ' * indent}{pattern}) {command} ;;" for pattern, command in pairs)


def _fish_lines(commands: dict[str, CommandParser]) -> Iterator[str]:
    """Yield one rule for each command, option and position."""
    lists = word_lists()
    completed = {(option.command, name): option for option in _completed_options(commands) for name in option.names}
    yield f"complete -c sdssm -f -n __fish_use_subcommand -a '{' '.join(commands)}'"
    for command, parser in commands.items():
        rule = f"complete -c sdssm -n '__fish_seen_subcommand_from {command}'"
        for name in _option_strings(parser):
            option = completed.get((command, name))
            values = "" if option is None else _fish_values(option.kind, lists)
            yield f"{rule} -l {name[2:]}{values}"
    for option in _completed_options(commands):
        if not option.names:
            rule = f"complete -c sdssm -n '__fish_seen_subcommand_from {option.command}'"
            yield rule + _fish_values(option.kind, lists).replace(" -x", "")


def _fish_values(kind: str, lists: dict[str, list[str]]) -> str:
    if kind == "folders":
        return " -x -a '(__fish_complete_directories)'"
    if kind in ("files", "any"):
        return " -r" if kind == "files" else " -x"
    return f" -x -a '{' '.join(lists.get(kind, kind.split()))}'"
