"""Reference page of the command line, from the parsers of `trainyard`."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from typing import Final

from ops import __main__ as front_door
from ops.commands import PROGRAM, add_cluster

PATH: Final = "docs/reference/command-line.md"

_INTRO: Final = f"""# Command line

`{PROGRAM}` and `python -m ops` are the same program. Every command prints its help with `--help`, and
`{PROGRAM} completion bash` makes the shell complete it.

| exit code | meaning |
|---|---|
| 0 | done |
| 1 | not found, invalid input, a check that failed; commands that follow a run end with its result |
| 2 | invalid command line, or the cluster gave no answer or refused: one line says which, and what to do |
| 130 | Ctrl-C; the same command continues |

Commands on a cluster also have these options:
"""


def text() -> str:
    """Return the page, as Markdown."""
    shared = argparse.ArgumentParser(add_help=False)
    add_cluster(shared)
    names = {option for action in shared._actions for option in action.option_strings}
    parts = [_INTRO, "\n".join(_table(shared._actions))]
    for parser in _commands(front_door.parser()):
        parts.append("\n".join(_section(parser, names)))
    return "\n\n".join(part.strip() for part in parts) + "\n"


def _commands(parser: argparse.ArgumentParser) -> Iterator[argparse.ArgumentParser]:
    """Yield the parsers of the commands that do something, in the order of the help."""
    groups = [a for a in parser._actions if isinstance(a, argparse._SubParsersAction)]
    if not groups:
        yield parser
    for group in groups:
        for one in group.choices.values():
            yield from _commands(one)


def _section(parser: argparse.ArgumentParser, shared: set[str]) -> Iterator[str]:
    own = [
        action
        for action in parser._actions
        if not isinstance(action, argparse._HelpAction)
        and not shared.intersection(action.option_strings)
    ]
    on_cluster = any(shared.intersection(a.option_strings) for a in parser._actions)
    yield f"## {parser.prog}"
    yield ""
    yield f"{parser.description}{' On a cluster.' if on_cluster else ''}"
    yield ""
    yield "```sh"
    yield " ".join([parser.prog, *(_usage(action) for action in own)])
    yield "```"
    if own:
        yield ""
        yield from _table(own)
    if parser.epilog:
        yield ""
        yield "```sh"
        yield from (line.strip() for line in parser.epilog.splitlines()[1:])
        yield "```"


def _usage(action: argparse.Action) -> str:
    value = _value(action)
    if action.option_strings:
        name = action.option_strings[-1]
        one = f"{name} {value}" if value else name
        repeated = " ..." if isinstance(action, argparse._AppendAction) else ""
        return f"{one}{repeated}" if action.required else f"[{one}]{repeated}"
    optional = action.nargs in ("?", "*")
    many = " ..." if action.nargs in ("+", "*") else ""
    return f"[{value}{many}]" if optional else f"{value}{many}"


def _value(action: argparse.Action) -> str:
    """Return what stands for the value of an argument; empty for a flag."""
    if action.nargs == 0:
        return ""
    if action.choices is not None:
        return "{" + ",".join(str(one) for one in action.choices) + "}"
    fallback = action.dest.upper() if action.option_strings else action.dest
    return str(action.metavar or fallback)


def _table(actions: Sequence[argparse.Action]) -> Iterator[str]:
    yield "| argument | meaning |"
    yield "|---|---|"
    for action in actions:
        names = ", ".join(action.option_strings) or _value(action)
        value = _value(action) if action.option_strings else ""
        shown = f"{names} {value}".strip().replace("|", "\\|")
        meaning = ((action.help or "") % vars(action)).replace("|", "\\|")
        yield f"| `{shown}` | {meaning or '-'} |"
