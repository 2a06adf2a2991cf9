"""Whether this group takes part in the training, or can at once, for the readiness probe of its pods."""

from __future__ import annotations

import os
from pathlib import Path

from trainyard.contract import READY_FILE_ENV


def report(takes_part: bool) -> None:
    """Show it by a file of the pod; nothing without the platform. A spare that follows the steps takes part.

    The queue takes the nodes back from a group whose pods are not ready for long: one that waits until `min`
    groups are there, or that cannot join, does not hold them idle.
    """
    if not (name := os.environ.get(READY_FILE_ENV)):
        return
    if takes_part:
        Path(name).touch()
    else:
        Path(name).unlink(missing_ok=True)
