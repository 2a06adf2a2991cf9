"""Run requests concurrently with one deadline for all."""

from __future__ import annotations

import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Hashable, Mapping
from typing import Final, TypeVar

from ops.cluster import ClusterError

WORKERS: Final = 8
"""Maximum concurrent requests."""

K = TypeVar("K", bound=Hashable)
T = TypeVar("T")


def gather_with_deadline(
    questions: Mapping[K, Callable[[], T]], deadline_s: float
) -> dict[K, T | ClusterError]:
    """Return the results, or ClusterErrors, that arrived within `deadline_s` seconds, by key.

    Missing keys timed out. Worker threads are daemons, so they do not block the program's exit.
    """
    left = deque(questions.items())
    came: queue.SimpleQueue[tuple[K, T | BaseException]] = queue.SimpleQueue()

    def work() -> None:
        while left:
            try:
                key, question = left.popleft()
            except IndexError:
                return
            try:
                came.put((key, question()))
            except BaseException as error:
                came.put((key, error))

    for _ in range(min(WORKERS, len(questions))):
        threading.Thread(target=work, daemon=True).start()
    found: dict[K, T | ClusterError] = {}
    end = time.monotonic() + deadline_s
    while len(found) < len(questions):
        try:
            key, answer = came.get(timeout=max(0.0, end - time.monotonic()))
        except queue.Empty:
            break
        if isinstance(answer, BaseException) and not isinstance(answer, ClusterError):
            raise answer
        found[key] = answer
    left.clear()
    return found
