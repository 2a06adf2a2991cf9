"""The command tree: help of every command, and examples that can be typed."""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Iterator

from ops import __main__ as front_door


def commands(
    parser: argparse.ArgumentParser,
) -> Iterator[tuple[str, str, argparse.ArgumentParser]]:
    """(words, line of help, parser) of every group and command."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            texts = {one.dest: str(one.help) for one in action._choices_actions}
            for name, below in action.choices.items():
                yield below.prog, texts[name], below
                yield from commands(below)


def test_every_command_has_one_line_of_help() -> None:
    lines = {words: line for words, line, _ in commands(front_door.parser())}
    assert len(lines) > 10
    wrong = [w for w, line in lines.items() if not line[0].islower() or line.endswith(".")]
    assert wrong == []


def test_every_example_is_accepted_by_the_parser() -> None:
    examples = [
        line.strip()
        for _, _, parser in commands(front_door.parser())
        for line in (parser.epilog or "").splitlines()[1:]
    ]
    assert len(examples) > 10
    for example in examples:
        words = shlex.split(example, comments=True)
        assert words[0] == "trainyard"
        front_door.parser().parse_args(words[1:])


def test_every_command_has_an_example() -> None:
    leaves = [
        p
        for _, _, p in commands(front_door.parser())
        if p.get_default("offline") or p.get_default("run")
    ]
    assert [p.prog for p in leaves if f"  {p.prog}" not in (p.epilog or "")] == []
