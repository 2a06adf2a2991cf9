"""Pass exit codes and configuration errors of ranks to the launcher; torchrun reduces them to 1.

The launcher names a folder in the environment; a rank writes its exit code there as `rank-N` and its
configuration errors as `mistakes-N`.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Collection
from pathlib import Path
from typing import Final

from training.spec import EXIT_BAD_CONFIG, EXIT_PREEMPTED

EXIT_DIR_ENV: Final = "TRAINYARD_EXIT_DIR"


def report_config_errors(text: str) -> None:
    """Report errors that every rank finds, so that they are printed once.

    The launcher prints them if there is one: torchrun ends the other ranks with the first that fails.
    """
    folder, rank = os.environ.get(EXIT_DIR_ENV), os.environ.get("RANK", "0")
    if folder:
        (Path(folder) / f"mistakes-{rank}").write_text(text)
    elif rank == "0":
        print(text, file=sys.stderr)


def report_exit_code(code: int) -> None:
    """Write this rank's exit code for the launcher, if there is one."""
    folder = os.environ.get(EXIT_DIR_ENV)
    if folder:
        (Path(folder) / f"rank-{os.environ.get('RANK', '0')}").write_text(str(code))


def read_exit_codes(folder: Path) -> list[int]:
    """Return the exit codes that ranks of this node reported."""
    return [int(file.read_text()) for file in sorted(folder.glob("rank-*"))]


def read_config_errors(folder: Path) -> list[str]:
    """Return the distinct configuration errors that ranks of this node reported."""
    return sorted({file.read_text() for file in folder.glob("mistakes-*")})


def node_exit_code(codes: Collection[int], expected_ranks: int, torchrun_code: int) -> int:
    """Return one exit code for the node.

    78 if any rank reported it, else 75 if any did; 0 if every rank reported 0, even when torchrun's
    own shutdown failed; else torchrun's code.
    """
    for special in (EXIT_BAD_CONFIG, EXIT_PREEMPTED):
        if special in codes:
            return special
    if len(codes) == expected_ranks and set(codes) == {0}:
        return 0
    return torchrun_code or 1
