"""What a benchmark is asked for and what it returns.

A benchmark is a module with

    SIZES: dict[str, dict[str, Any]]        how much, by scale (small, full)
    run(request: Request) -> Result
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal, Protocol

from bench import embedded

ROOT: Final = Path(__file__).parents[1]
TRACES: Final = ROOT / "bench" / "traces"
"""Synthetic traces of capacity, for a run without recorded ones."""

Notify = Callable[[str, int, int], None]
"""Receives the activity, the total and the number done."""


class RequestError(Exception):
    """An option cannot be used: `OPTION: what is wrong; what to do`."""


@dataclass(frozen=True, kw_only=True)
class Request:
    """How much to measure, and with what."""

    sizes: Mapping[str, Any]
    seed: int = 1
    notify: Notify = lambda _what, _total, _done: None
    traces: Path | None = None
    program: Path | None = None

    @contextmanager
    def cluster(self, *, tuned: bool = True) -> Iterator[embedded.Embedded]:
        """Run a cluster for this benchmark alone."""
        with embedded.running_cluster(lambda what: self.notify(what, 0, 0), tuned=tuned) as cluster:
            yield cluster


@dataclass(frozen=True, kw_only=True)
class Result:
    """What was measured."""

    text: str
    """Markdown for the section of RESULTS.md."""
    good: bool = True
    """Whether everything holds that must; a goal of speed may be missed."""
    values: Mapping[str, Any] = field(default_factory=dict)
    """For --json."""
    versions: Literal["", "libraries", "cluster"] = ""
    """Which versions the section names beside the machine."""


class Benchmark(Protocol):
    """What a module of a benchmark offers."""

    SIZES: dict[str, dict[str, Any]]

    def run(self, request: Request) -> Result:
        """Measure."""
