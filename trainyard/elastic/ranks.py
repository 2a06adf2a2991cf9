"""The ranks of one group: they decide together, and none waits where another one cannot come."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable
from typing import Final, NoReturn, TypeVar

from trainyard.contract import EXIT_FAILED
from trainyard.elastic.exchange import Lost, reason_of
from trainyard.exit_codes import report_exit_code
from trainyard.tensors import ranks

_POLL_S: Final = 0.02

T = TypeVar("T")
Why = Callable[[], tuple[str, float]]
"""Why waiting is in vain, and for how many seconds it has to be so; an empty text if it is not."""


class Ranks(ranks.Ranks):
    """This rank among those of its group; ends this rank where another one has ended."""

    def __init__(self) -> None:
        super().__init__()
        self.why_alone: Why = lambda: ("", 0.0)
        """Tells whether another rank of the group has ended."""

    def _wait(self, work: Callable[[], object]) -> None:
        try:
            interruptible(work, self.why_alone)
        except (Lost, RuntimeError) as error:
            print(f"elastic: {reason_of(error)}; this group ends", file=sys.stderr, flush=True)
            end(EXIT_FAILED)


def interruptible(work: Callable[[], T], why: Why) -> T:
    """Return the result of a call that may wait for long; raise Lost once there is a reason not to wait.

    gloo cannot be interrupted: the thread that waits is left behind, and ends at gloo's own timeout.
    """
    found: list[T] = []
    errors: list[BaseException] = []
    done = threading.Event()

    def call() -> None:
        try:
            found.append(work())
        except BaseException as error:
            errors.append(error)
        finally:
            done.set()

    threading.Thread(target=call, daemon=True).start()
    since = None
    while not done.wait(_POLL_S):
        reason, grace_s = why()
        now = time.monotonic()
        since = (since or now) if reason else None
        if since is not None and now - since >= grace_s:
            raise Lost(reason)
    if errors:
        raise errors[0]
    return found[0]


def end(code: int) -> NoReturn:
    """End this process at once: the interpreter's own end can wait for ranks that are gone."""
    report_exit_code(code)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
