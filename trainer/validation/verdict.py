"""Result of a check: a line of JSON, the last of its pod's log, and an exit code."""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

TERMINATION_LOG: Final = Path("/dev/termination-log")
"""Copied by the kubelet to the pod's status, for users who may read pods but not logs."""
_TERMINATION_BYTES: Final = 4096


@dataclass(frozen=True, kw_only=True)
class Finding:
    """Cause of a failed check and its remedy; one line each."""

    cause: str
    remedy: str


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """The outcome of one check as one pod sees it."""

    validation: str
    """Which check: smoke, collective, train-single, train-multi, queueing-low, queueing-high."""
    finding: Finding | None = None
    """None if it passed."""
    facts: Mapping[str, Any] = field(default_factory=dict)

    @property
    def ok(self) -> bool:
        return self.finding is None

    def line(self) -> str:
        """Return one line of JSON: validation, ok, cause, remedy, then the facts."""
        said = {
            "validation": self.validation,
            "ok": self.ok,
            "cause": self.finding.cause if self.finding else "",
            "remedy": self.finding.remedy if self.finding else "",
        }
        return json.dumps({**said, **self.facts})


def report_verdict(verdict: Verdict, termination_log: Path = TERMINATION_LOG) -> int:
    """Print the verdict and copy it to the termination log; return the exit code, 0 or 1."""
    line = verdict.line()
    print(line, flush=True)
    sys.stderr.flush()
    # Missing outside of Kubernetes; the log has the line anyway.
    with contextlib.suppress(OSError):
        if termination_log.exists():
            termination_log.write_text(line[:_TERMINATION_BYTES])
    return 0 if verdict.ok else 1
