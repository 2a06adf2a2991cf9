"""The Fence of a run on S3: attempts claim numbers by conditional object creation.

attempts/attempt-00000003.json
"""

from __future__ import annotations

import json
import os
import re
import socket
import time
import uuid

from trainyard.objects import ObjectExists, Objects
from trainyard.store.fence import ATTEMPTS_DIR, already_claimed
from trainyard.store.interface import StaleAttempt

_NAME = re.compile(r"attempt-([0-9]{8})\.json")


class S3Fence:
    """One attempt's right to publish; `run` is the run's location on S3."""

    def __init__(self, run: Objects, attempt: int) -> None:
        self._attempts = run.below(ATTEMPTS_DIR)
        self.attempt = attempt

    @classmethod
    def claim(cls, run: Objects, *, above: int = 0, number: int | None = None) -> S3Fence:
        """Claim the next number higher than `above`, or this `number` as PosixFence does.

        Raises ObjectError, and StaleAttempt for a `number`.
        """
        about = {
            "host": socket.gethostname(),
            "pid": os.getpid(),
            "started": time.time(),
            "claim": uuid.uuid4().hex,
        }
        while True:
            attempt = number or max(newest_attempt(run), above) + 1
            try:
                run.below(ATTEMPTS_DIR).create(_name(attempt), json.dumps(about).encode())
            except ObjectExists:
                if number:
                    raise already_claimed(number) from None
                continue
            fence = cls(run, attempt)
            if number:
                fence.check()
            return fence

    def check(self) -> None:
        """Raise StaleAttempt when a newer attempt has claimed the run, ObjectError when unknown."""
        newer = [entry.name for entry in self._attempts.list(after=_name(self.attempt))]
        if newer:
            raise StaleAttempt(
                f"attempt {self.attempt} was replaced by {newer[-1].removesuffix('.json')}; "
                "nothing more is written"
            )


def newest_attempt(run: Objects) -> int:
    """Return the highest claimed number; 0 if there is none. Raises ObjectError."""
    names = [entry.name for entry in run.below(ATTEMPTS_DIR).list()]
    return max((int(match[1]) for name in names if (match := _NAME.fullmatch(name))), default=0)


def _name(attempt: int) -> str:
    return f"attempt-{attempt:08d}.json"
