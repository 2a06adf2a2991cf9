"""How a rank's exit code and its last words reach the launcher: torchrun turns every failure into 1.

The launcher names a folder in the environment; each rank leaves its code there as `rank-N`, and what
it has to say about a bad configuration as `mistakes-N`.
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
    """Tell the user what every rank found, once.

    The launcher does, if there is one: torchrun ends the other ranks with the first that fails, so
    none of them can be relied on to speak for all.
    """
    folder, rank = os.environ.get(EXIT_DIR_ENV), os.environ.get("RANK", "0")
    if folder:
        (Path(folder) / f"mistakes-{rank}").write_text(text)
    elif rank == "0":
        print(text, file=sys.stderr)


def report_exit_code(code: int) -> None:
    """Leave this rank's code for the launcher, if there is one."""
    folder = os.environ.get(EXIT_DIR_ENV)
    if folder:
        (Path(folder) / f"rank-{os.environ.get('RANK', '0')}").write_text(str(code))


def read_exit_codes(folder: Path) -> list[int]:
    """The codes that ranks of this node left."""
    return [int(file.read_text()) for file in sorted(folder.glob("rank-*"))]


def read_config_errors(folder: Path) -> list[str]:
    """What ranks of this node found wrong; what several found, once."""
    return sorted({file.read_text() for file in folder.glob("mistakes-*")})


def node_exit_code(codes: Collection[int], expected_ranks: int, torchrun_code: int) -> int:
    """One code for the node.

    78 if any rank said so, else 75 if any did; 0 if every rank did, whatever became of the
    launcher's own goodbyes; else torchrun's code.
    """
    for special in (EXIT_BAD_CONFIG, EXIT_PREEMPTED):
        if special in codes:
            return special
    if len(codes) == expected_ranks and set(codes) == {0}:
        return 0
    return torchrun_code or 1
