"""How a rank's exit code reaches the launcher: torchrun turns every failure into 1.

The launcher names a folder in the environment; each rank leaves its code there as `rank-N`.
"""

from __future__ import annotations

import os
from collections.abc import Collection
from pathlib import Path
from typing import Final

from training.spec import EXIT_BAD_CONFIG, EXIT_PREEMPTED

EXIT_DIR_ENV: Final = "TRAINYARD_EXIT_DIR"


def speaks() -> bool:
    """Whether this rank tells the user what all ranks found."""
    return os.environ.get("RANK", "0") == "0"


def report_exit_code(code: int) -> None:
    """Leave this rank's code for the launcher, if there is one."""
    folder = os.environ.get(EXIT_DIR_ENV)
    if folder:
        (Path(folder) / f"rank-{os.environ.get('RANK', '0')}").write_text(str(code))


def reported(folder: Path) -> list[int]:
    """The codes that ranks of this node left."""
    return [int(file.read_text()) for file in sorted(folder.glob("rank-*"))]


def verdict(codes: Collection[int], expected_ranks: int, torchrun_code: int) -> int:
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
