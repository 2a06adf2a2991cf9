"""Keep the exact text of messages in one YAML file per area; tests assert codes and paths.

`UPDATE_SNAPSHOTS=1 python -m pytest tests/unit/...` rewrites the texts; review them with git diff.
"""

from __future__ import annotations

import fcntl
import os
import re
from collections.abc import Callable, Sequence
from itertools import count
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

UPDATE: Final = "UPDATE_SNAPSHOTS"
_LINE_WIDTH: Final = 1_000_000
"""Never wrap: a changed sentence is one changed line."""


Text = Callable[[Any], None]
"""Compares a text, or a collection of texts, with the snapshot of the running test."""


def text_check(file: Path, request: pytest.FixtureRequest) -> Text:
    """Return the comparison for one test: cases are named after the test and numbered from 2."""
    snapshot, numbers = Snapshot(file, request.path.stem), count(1)

    def check(value: Any) -> None:
        items = sorted(value) if isinstance(value, (set, frozenset)) else value
        lines = items.splitlines() if isinstance(items, str) else [str(line) for line in items]
        number = next(numbers)
        snapshot.check(request.node.name + (f" ({number})" if number > 1 else ""), lines)

    return check


def stale_cases(file: Path, tests: Path) -> list[str]:
    """Return the cases of a file by `text_check` whose test no longer exists in the folder."""
    stale = []
    for group, cases in (yaml.safe_load(file.read_text()) or {}).items():
        module = tests / f"{group}.py"
        source = module.read_text() if module.exists() else ""
        defined = set(re.findall(r"^def (test_\w+)", source, re.MULTILINE))
        stale += [f"{group}: {case}" for case in cases if re.split(r"\W", case)[0] not in defined]
    return stale


class Snapshot:
    """One group of cases in a snapshot file, by convention a group per test module."""

    def __init__(self, file: Path, group: str) -> None:
        self._file, self._group = file, group

    def check(self, case: str, lines: Sequence[str]) -> None:
        """Assert that the lines are those on file, or store them where UPDATE_SNAPSHOTS is set."""
        if os.environ.get(UPDATE):
            self._store(case, list(lines))
        assert list(lines) == self._read().get(self._group, {}).get(case), (
            f"{self._file.name} has another text for {self._group}, {case!r}; if the new one is "
            f"better, run this test with {UPDATE}=1 and review the change of the file"
        )

    def cases(self) -> set[str]:
        """Return the cases on file: a test compares them with its own to find stale ones."""
        return set(self._read().get(self._group, {}))

    def _read(self) -> dict[str, Any]:
        return yaml.safe_load(self._file.read_text()) or {} if self._file.exists() else {}

    def _store(self, case: str, lines: list[str]) -> None:
        self._file.parent.mkdir(exist_ok=True)
        with self._file.open("a+") as held:
            fcntl.flock(held, fcntl.LOCK_EX)  # pytest -n runs several processes.
            content = self._read()
            content.setdefault(self._group, {})[case] = lines
            self._file.write_text(
                yaml.safe_dump(content, width=_LINE_WIDTH, allow_unicode=True, sort_keys=True)
            )
