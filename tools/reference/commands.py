"""Reference page of the command line, from the parsers of `trainyard`."""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Iterator
from typing import Final

from ops import __main__ as front_door
from ops.commands import PROGRAM, add_cluster

PATH: Final = "docs/reference/command-line.md"

_INTRO: Final = f"""# Command line

`{PROGRAM}` and `python -m ops` are the same program. Every command prints its help, with examples, with `--help`.
`{PROGRAM} completion bash` makes the shell complete it.

| exit code | meaning |
|---|---|
| 0 | done |
| 1 | not found, invalid input, a check that failed; commands that follow a run end with its result |
| 2 | invalid command line, or the cluster gave no answer or refused: one line says which, and what to do |
| 130 | Ctrl-C; the same command continues |

Every command reads the cluster of your kubeconfig and takes the first three of these arguments, unless it says
that it needs no cluster. The others mean the same wherever a command does not explain them:
"""


def text() -> str:
    """Return the page, as Markdown."""
    cluster = argparse.ArgumentParser(add_help=False)
    add_cluster(cluster)
    parsers = [*_commands(front_door.parser())]
    uses = Counter(_line(a) for one in parsers for a in _own(one) if a.dest != "name")
    lines = [_line(action) for action in cluster._actions]
    usual: dict[str, str] = {}
    """Of each argument that several commands explain alike, the most frequent line."""
    for line, count in uses.most_common():
        if count > (1 if line.startswith("- `-") else 3):
            usual.setdefault(line.split(":")[0], line)
    shared = list(dict.fromkeys(lines + list(usual.values())))
    parts = [_INTRO, "\n".join(shared)]
    for parser in parsers:
        parts.append("\n".join(_section(parser, set(lines), set(shared))))
    return "\n\n".join(part.strip() for part in parts) + "\n"


def _commands(parser: argparse.ArgumentParser) -> Iterator[argparse.ArgumentParser]:
    """Yield the parsers of the commands that do something, in the order of the help."""
    groups = [a for a in parser._actions if isinstance(a, argparse._SubParsersAction)]
    if not groups:
        yield parser
    for group in groups:
        for one in group.choices.values():
            yield from _commands(one)


def _own(parser: argparse.ArgumentParser) -> list[argparse.Action]:
    return [a for a in parser._actions if not isinstance(a, argparse._HelpAction)]


def _section(parser: argparse.ArgumentParser, cluster: set[str], shared: set[str]) -> Iterator[str]:
    own = [action for action in _own(parser) if _line(action) not in cluster]
    yield f"## {parser.prog}"
    yield f"{parser.description}{'' if len(own) < len(_own(parser)) else ' Needs no cluster.'}"
    if own:
        yield f"\n`{' '.join(map(_usage, own))}`"
    explained = [line for line in map(_line, own) if line not in shared]
    yield from ["", *explained] if explained else []


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
    if action.choices is not None and not action.metavar:
        return "{" + ",".join(str(one) for one in action.choices) + "}"
    fallback = action.dest.upper() if action.option_strings else action.dest
    return str(action.metavar or fallback)


def _line(action: argparse.Action) -> str:
    """Return the item of a list that explains an argument."""
    shown = f"{', '.join(action.option_strings)} {_value(action)}".strip()
    return f"- `{shown}`: {(action.help or '') % vars(action)}"
