"""What a check found: one line of JSON, the last of its pod's log, and an exit code."""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

TERMINATION_LOG: Final = Path("/dev/termination-log")
"""The kubelet copies it into the pod's status: for who may see pods and not their logs."""
_TERMINATION_BYTES: Final = 4096


@dataclass(frozen=True, kw_only=True)
class Finding:
    """Why a check failed, and what would help; a line each."""

    cause: str
    remedy: str


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """The outcome of one check as one pod sees it."""

    validation: str
    """Which check: smoke, collective, train-single, train-multi, queueing-low, queueing-high."""
    finding: Finding | None = None
    """None: it passed."""
    facts: Mapping[str, Any] = field(default_factory=dict)

    @property
    def ok(self) -> bool:
        """Whether it passed."""
        return self.finding is None

    def line(self) -> str:
        """One line of JSON: validation, ok, cause, remedy, then the facts."""
        said = {
            "validation": self.validation,
            "ok": self.ok,
            "cause": self.finding.cause if self.finding else "",
            "remedy": self.finding.remedy if self.finding else "",
        }
        return json.dumps({**said, **self.facts})


def report_verdict(verdict: Verdict, termination_log: Path = TERMINATION_LOG) -> int:
    """Say it; returns the exit code, 0 or 1."""
    line = verdict.line()
    print(line, flush=True)
    sys.stderr.flush()
    # Absent outside of Kubernetes; the log has the line anyway.
    with contextlib.suppress(OSError):
        if termination_log.exists():
            termination_log.write_text(line[:_TERMINATION_BYTES])
    return 0 if verdict.ok else 1
