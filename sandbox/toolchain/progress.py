"""Progress of builds: a live table on a terminal, else one line per change."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext

from rich.console import Console
from rich.live import Live
from rich.table import Table

PLAIN_EVERY_S = 30.0
"""Without a terminal: at most one line per tool in this time, to keep CI logs short."""


class BuildTable:
    """Shows the current step of each build. Thread-safe."""

    def __init__(self, names: list[str], console: Console) -> None:
        self._console = console
        self._started = time.monotonic()
        self._rows = dict.fromkeys(names, "waiting")
        self._printed = dict.fromkeys(names, -PLAIN_EVERY_S)
        self._lock = threading.Lock()
        self._live = Live(get_renderable=self._render, console=console, refresh_per_second=4)

    @contextmanager
    def shown(self) -> Iterator[None]:
        with self._live if self._console.is_terminal else nullcontext():
            yield

    def report(self, name: str, text: str) -> None:
        with self._lock:
            self._rows[name] = text
            now = time.monotonic() - self._started
            if not self._console.is_terminal and now - self._printed[name] >= PLAIN_EVERY_S:
                self._printed[name] = now
                self._console.print(f"{now:5.0f} s  {name}: {text}", highlight=False)

    def done(self, name: str, text: str) -> None:
        with self._lock:
            self._printed[name] = -PLAIN_EVERY_S
        self.report(name, text)

    def note(self, text: str) -> None:
        """Print a line that stays."""
        self._console.print(text, highlight=False, soft_wrap=True)

    def _render(self) -> Table:
        table = Table(title=f"Toolchain, {time.monotonic() - self._started:.0f} s")
        table.add_column("tool")
        table.add_column("step", min_width=48)
        with self._lock:
            for name, text in self._rows.items():
                table.add_row(name, text)
        return table
