"""What a run directory says about itself, read without torch."""

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
    """The lines of one run directory, and what follows from them."""

    name: str
    metrics: list[dict[str, Any]]
    """By step, each once."""
    events: list[dict[str, Any]]
    """In the order in which they were written, over all attempts."""

    @classmethod
    def read(cls, run_dir: Path) -> RunLogs:
        """Read it; empty where it has no lines yet."""
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
        """Held-out loss by step, the last word on each."""
        return {e["step"]: e["loss"] for e in self._named("evaluated")}

    @property
    def unigram_loss(self) -> float | None:
        """Of a model that knows only frequencies, on the held-out targets."""
        told = [e["unigram_loss"] for e in self._named("evaluated") if "unigram_loss" in e]
        return told[-1] if told else None

    @property
    def resumed(self) -> list[int]:
        """Steps that attempts went on from."""
        return [e["from_step"] for e in self._named("resumed")]

    @property
    def world_sizes(self) -> list[int]:
        """Ranks of each attempt that began."""
        return [e["world_size"] for e in self._named("started")]

    @property
    def ended(self) -> str:
        """How the newest attempt ended, as far as it said."""
        if not self.events:
            return "nothing written"
        last = self.events[-1]
        if last["event"] == "finished":
            return str(last["reason"])
        return "failed" if last["event"] == "failed" else "running or killed"

    @cached_property
    def settings(self) -> dict[str, Any]:
        """The configuration of the newest attempt that began, as dotted names."""
        started = self._named("started")
        return dict(_dotted(started[-1].get("config", {}))) if started else {}

    @cached_property
    def goodput(self) -> Goodput:
        """Where the time went."""
        return compute_goodput(self.events, self.metrics)

    @property
    def checkpoint_seconds(self) -> list[float]:
        """Of each committed save, most of it in the background."""
        return [e["seconds"] for e in self._named("checkpoint_commit")]

    @property
    def checkpoints_failed(self) -> int:
        """Saves that were given up, and checkpoints that did not load."""
        return len(self._named("checkpoint_failed")) + len(self._named("checkpoint_corrupt"))

    def median(self, key: str) -> float | None:
        """Over all steps that tell it."""
        told = [line[key] for line in self.metrics if line.get(key) is not None]
        return statistics.median(told) if told else None

    def _named(self, event: str) -> list[dict[str, Any]]:
        return [e for e in self.events if e["event"] == event]


def _lines(file: Path) -> Iterator[dict[str, Any]]:
    """Every whole JSON object; a run that is still writing may end in a torn line."""
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
