"""Read the logs of a run directory, without torch."""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from training.spec import EVENTS_FILE, METRICS_FILE
from training.trainer.metrics.goodput import Goodput, compute_goodput


@dataclass(frozen=True, kw_only=True)
class RunLogs:
    """Metrics and events of one run directory, and values derived from them."""

    name: str
    metrics: list[dict[str, Any]]
    """By step, each once."""
    events: list[dict[str, Any]]
    """In file order, over all attempts."""

    @classmethod
    def read(cls, run_dir: Path) -> RunLogs:
        """Read a run directory; empty if it has no logs yet."""
        return cls(
            name=run_dir.resolve().name,
            metrics=list(_lines(run_dir / METRICS_FILE)),
            events=list(_lines(run_dir / EVENTS_FILE)),
        )

    @property
    def losses(self) -> dict[int, float]:
        """Training loss by step."""
        return {line["step"]: line["loss"] for line in self.metrics}

    @property
    def evaluations(self) -> dict[int, float]:
        """Held-out loss by step; the last value of each."""
        return {e["step"]: e["loss"] for e in self._named("evaluated")}

    @property
    def unigram_loss(self) -> float | None:
        """Loss of a unigram model on the held-out targets."""
        values = [e["unigram_loss"] for e in self._named("evaluated") if "unigram_loss" in e]
        return values[-1] if values else None

    @property
    def resumed(self) -> list[int]:
        """Steps that attempts resumed from."""
        return [e["from_step"] for e in self._named("resumed")]

    @property
    def world_sizes(self) -> list[int]:
        """Ranks of each attempt that started."""
        return [e["world_size"] for e in self._named("started")]

    @property
    def ended(self) -> str:
        """How the newest attempt ended, from its last event."""
        if not self.events:
            return "nothing written"
        last = self.events[-1]
        if last["event"] == "finished":
            return str(last["reason"])
        return "failed" if last["event"] == "failed" else "running or killed"

    @cached_property
    def settings(self) -> dict[str, Any]:
        """Configuration of the newest attempt by dotted name."""
        started = self._named("started")
        return dict(_dotted(started[-1].get("config", {}))) if started else {}

    @cached_property
    def goodput(self) -> Goodput:
        """Time by cause."""
        return compute_goodput(self.events, self.metrics)

    @property
    def checkpoint_seconds(self) -> list[float]:
        """Seconds of each committed save, mostly in the background."""
        return [e["seconds"] for e in self._named("checkpoint_commit")]

    @property
    def checkpoints_failed(self) -> int:
        """Failed saves and corrupt checkpoints."""
        return len(self._named("checkpoint_failed")) + len(self._named("checkpoint_corrupt"))

    def median(self, key: str) -> float | None:
        """Return the median over all steps that have this value."""
        values = [line[key] for line in self.metrics if line.get(key) is not None]
        return statistics.median(values) if values else None

    def _named(self, event: str) -> list[dict[str, Any]]:
        return [e for e in self.events if e["event"] == event]


def _lines(file: Path) -> Iterator[dict[str, Any]]:
    """Yield complete JSON objects; a running run may end in a torn line."""
    if not file.exists():
        return
    for line in file.read_text(encoding="utf-8", errors="replace").splitlines():
        try:
            values = json.loads(line)
        except ValueError:
            continue
        if isinstance(values, dict):
            yield values


def _dotted(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in values.items():
        if isinstance(value, Mapping):
            yield from _dotted(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value
