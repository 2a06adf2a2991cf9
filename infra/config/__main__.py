"""`python -m infra.config check FILE`: report every mistake of a stack file and of the runs it names.

Exit 0 and `ok`, or exit 1 and one line per mistake on stderr; exit 2 for a wrong command line.
"""

from __future__ import annotations

import argparse
import runpy
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from infra.config import ConfigError, stack_values

PROGRAM: Final = Path(__file__).resolve().parents[2] / "__main__.py"
"""The program that composes infra/ and training/: its `plan` makes everything known
that a deployment would create, and creates nothing."""


def check(file: Path) -> list[str]:
    """Return one line per issue; none when the stack can be deployed."""
    program = runpy.run_path(str(PROGRAM), run_name="check")
    try:
        program["plan"].make(stack_values(file), stack_name(file), program["ROOT"], preview=True)
    except ConfigError as error:
        return list(error.lines)
    return []


def stack_name(file: Path) -> str:
    """Return `local` for `Pulumi.local.yaml`, the stem of any other name."""
    return file.stem.removeprefix("Pulumi.")


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m infra.config", description=__doc__)
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    checking = commands.add_parser("check", help="report every mistake of a stack file")
    checking.add_argument("file", type=Path, metavar="FILE", help="such as Pulumi.local.yaml")
    chosen = parser.parse_args(arguments)
    issues = check(chosen.file)
    if not issues:
        print("ok")
        return 0
    print("\n".join(issues), file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
