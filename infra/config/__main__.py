"""`python -m infra.config check FILE`: every mistake of a stack file and of the runs it names.

Exit 0 and `ok`, or exit 1 and one line per mistake on stderr; exit 2 for a wrong command line. Like
the project's own __main__ this front door composes, and so sees both infra and training.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from infra.config import ConfigError, stack_values
from training.deployment import plan


def check(file: Path, root: Path) -> list[str]:
    """One line per mistake; none when the stack can be deployed."""
    try:
        plan.make(stack_values(file), stack_name(file), root)
    except ConfigError as error:
        return list(error.lines)
    return []


def stack_name(file: Path) -> str:
    """`local` of `Pulumi.local.yaml`; the stem of any other name."""
    return file.stem.removeprefix("Pulumi.")


def main(arguments: Sequence[str] | None = None) -> int:
    """The command; returns its exit code."""
    parser = argparse.ArgumentParser(prog="python -m infra.config", description=__doc__)
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    checking = commands.add_parser("check", help="report every mistake of a stack file")
    checking.add_argument("file", type=Path, metavar="FILE", help="such as Pulumi.local.yaml")
    chosen = parser.parse_args(arguments)
    mistakes = check(chosen.file, Path(__file__).resolve().parents[2])
    if not mistakes:
        print("ok")
        return 0
    print("\n".join(mistakes), file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
