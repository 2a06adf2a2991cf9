"""Read the cluster again and again, across lost connections."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final, TypeVar

from ops.cluster import UnreachableError

POLL_S: Final = 2.0
BACKOFF_MAX_S: Final = 30.0

T = TypeVar("T")


def read_again(
    read: Callable[[], T],
    report: Callable[[str], None],
    sleep: Callable[[float], None] = time.sleep,
) -> T:
    """Return what `read` returns, however long the API server does not answer.

    For all reads but the first of a command: then the address and the credentials were right, and a laptop
    that was closed overnight goes on. `report` gets one line when the connection is lost and one when it is
    back. Raises every other error, such as expired credentials.
    """
    pause = POLL_S
    lost = False
    while True:
        try:
            found = read()
        except UnreachableError as error:
            if not lost:
                report(f"connection lost: {error}; trying again until it is back (Ctrl-C ends)")
            lost = True
            sleep(pause)
            pause = min(2 * pause, BACKOFF_MAX_S)
            continue
        if lost:
            report("connected again")
        return found
