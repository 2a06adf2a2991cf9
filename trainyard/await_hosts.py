"""Init container of a pytorchjob's master: `python3 -m trainyard.await_hosts HOST ...`.

It ends when every worker's name resolves, which it does while the worker's pod is ready. Until then the master is
not running, so Training Operator does not report the job as running, and Kueue requeues a gang whose worker has no
node.
"""

from __future__ import annotations

import signal
import socket
import sys
import time
from collections.abc import Iterable, Sequence
from types import FrameType
from typing import Final

from trainyard.contract import EXIT_PREEMPTED

POLL_S: Final = 1.0
REPORT_S: Final = 60.0
_NAMED: Final = 5
"""Names of missing hosts in a line of the log."""


def main(argv: Sequence[str]) -> int:
    """Wait for every host; return 0. SIGTERM ends it with 75: the first process of a container has no default."""
    signal.signal(signal.SIGTERM, _stop)
    signal.signal(signal.SIGINT, _stop)
    reported = -REPORT_S
    while missing := unresolved(argv):
        if time.monotonic() - reported >= REPORT_S:
            reported = time.monotonic()
            print(f"waiting for {_listed(missing)}", file=sys.stderr, flush=True)
        time.sleep(POLL_S)
    return 0


def unresolved(hosts: Iterable[str]) -> list[str]:
    """Return the hosts whose names do not resolve now. All are asked each time: a worker can be lost again."""
    return [host for host in hosts if not _resolves(host)]


def _resolves(host: str) -> bool:
    try:
        socket.gethostbyname(host)
    except OSError:
        return False
    return True


def _listed(hosts: Sequence[str]) -> str:
    more = len(hosts) - _NAMED
    return ", ".join(hosts[:_NAMED]) + (f" and {more} more" if more > 0 else "")


def _stop(_number: int, _frame: FrameType | None) -> None:
    sys.exit(EXIT_PREEMPTED)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
