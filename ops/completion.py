"""Completion of the command line by the shell, generated from the command tree."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Final

import shtab
from rich.console import Console

from ops.commands import Group

SHELLS: Final = ("bash", "zsh", "fish")
_PATHS: Final = {"FILE": shtab.FILE, "FOLDER": shtab.DIRECTORY, "SOURCE": shtab.FILE}
"""What arguments of these metavars complete to."""


def add(tree: Group, parser: Callable[[], argparse.ArgumentParser]) -> None:
    """Add the command. `parser`: returns the parser of the whole tree."""

    def show(args: argparse.Namespace, _: Console) -> int:
        print(script(parser(), args.shell))
        return 0

    command = tree.add_offline(
        "completion",
        show,
        "print the completion script of a shell",
        (
            'completion bash   # in ~/.bashrc: eval "$(trainyard completion bash)"',
            'completion zsh    # in ~/.zshrc, after compinit: eval "$(trainyard completion zsh)"',
            "completion fish   # > ~/.config/fish/completions/trainyard.fish",
        ),
    )
    command.add_argument("shell", choices=SHELLS, help="the shell whose script is printed")


def script(parser: argparse.ArgumentParser, shell: str) -> str:
    _complete_paths(parser)
    return str(shtab.complete(parser, shell))


def _complete_paths(parser: argparse.ArgumentParser) -> None:
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for one in action.choices.values():
                _complete_paths(one)
        elif action.metavar in _PATHS:
            action.complete = _PATHS[str(action.metavar)]  # type: ignore[attr-defined]
