"""Which failures of a run may be followed by another start, counted in a file: no pod lasts.

A run whose gang is one pod starts its ranks again in that pod: nothing waits for the pod's end, and no
new one has to be placed. Only failures that say nothing about the pod are restarted there. Ranks that end
before they have made a step may have a broken device, volume or node: then the pod ends with
EXIT_REPLACE_POD, and its Kubernetes object replaces it.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any, Final

from trainyard.contract import (
    EXIT_BAD_CONFIG,
    EXIT_DONE,
    EXIT_FAILED,
    EXIT_PREEMPTED,
    EXIT_REPLACE_POD,
    METRICS_FILE,
    REPLACED_CODES,
    RESTARTS_IN_POD_ENV,
)
from trainyard.run_logs import last_line

_FINAL: Final = (EXIT_DONE, EXIT_BAD_CONFIG, EXIT_PREEMPTED)
"""Codes on which the Kubernetes object decides alone."""
USED_UP: Final = "restarts are used up"
"""What the pod's log says of the last failure."""


class RestartBudget:
    """The failures of a run in `state`, a JSON file; at most `max_restarts` are followed by a start."""

    def __init__(self, state: Path, max_restarts: int) -> None:
        self.state, self.max_restarts = state, max_restarts

    @property
    def failures(self) -> int:
        """Failures so far, over all pods."""
        return int(self._read().get("failures", 0))

    def ended(self) -> int | None:
        """Return the code with which the run has ended for good; None while it may go on."""
        ended = self._read().get("ended")
        if ended is None:
            return None
        report(f"the run has ended with {ended}; to start it again, remove {self.state}")
        return int(ended)

    def end(self, code: int) -> None:
        self._write(self._read() | {"ended": code})

    def spend(self, code: int) -> bool:
        """Count a failure; return whether another start is allowed."""
        failures = self.failures + 1
        self._write(self._read() | {"failures": failures})
        if failures <= self.max_restarts:
            return True
        report(f"the ranks ended with {code}; {self.max_restarts} {USED_UP}")
        return False

    def _read(self) -> dict[str, Any]:
        try:
            found = json.loads(self.state.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return {}
        return found if isinstance(found, dict) else {}

    def _write(self, content: dict[str, Any]) -> None:
        self.state.parent.mkdir(parents=True, exist_ok=True)
        partial = self.state.with_suffix(".partial")
        partial.write_text(json.dumps(content), encoding="utf-8")
        partial.replace(self.state)


class PodRestarts:
    """Restarts of the ranks in the pod of a run that has no other."""

    def __init__(self, budget: RestartBudget) -> None:
        """The budget's file is in the run's directory, next to its metrics."""
        self._budget = budget
        self._metrics = budget.state.with_name(METRICS_FILE)
        self._before = 0
        self.restarts = 0
        """Restarts in this pod."""

    def begin(self) -> None:
        self._before = self._last_attempt()

    def verdict(self, code: int, *, ending: bool) -> int | None:
        """Decide after the ranks' end; return the pod's exit code, None to start them again.

        `ending`: whether the pod ends in any case. A failure is counted.
        """
        if code in _FINAL:
            return code
        if not self._budget.spend(code):
            return final_code(code)
        used = (
            f"failure {self._budget.failures} of {self._budget.max_restarts} that may be restarted"
        )
        if ending or self._last_attempt() <= self._before:
            why = "while the pod ends" if ending else "before their first step"
            report(f"the ranks ended with {code} {why}; the pod is to be replaced ({used})")
            return EXIT_REPLACE_POD
        self.restarts += 1
        report(f"the ranks ended with {code}; starting them again in this pod ({used})")
        return None

    def _last_attempt(self) -> int:
        """Return the attempt that made the last recorded step; 0 without one."""
        line = last_line(self._metrics) or {}
        return int(line.get("attempt", 0))


def final_code(code: int) -> int:
    """Return the code with which a pod ends a run that failed with `code`: none that gets it replaced."""
    return EXIT_FAILED if code in REPLACED_CODES else code


def restarts_in_pod() -> int:
    """Return how often the ranks of this process's pod were started again in it."""
    text = os.environ.get(RESTARTS_IN_POD_ENV, "")
    return int(text) if text.isdigit() else 0


def report(text: str) -> None:
    print(f"restarts: {text}", file=sys.stderr, flush=True)
