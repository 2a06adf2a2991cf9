"""The record of facts: an SQLite file in a folder, with the last observation of each."""

from __future__ import annotations

import dataclasses
import json
import sqlite3
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path
from typing import Any, Final

from ops.cluster import ClusterError
from ops.ledger.model import KINDS, Fact

FILE: Final = "facts.sqlite"
_READ_S: Final = 60.0
"""How long a reader waits for a writer."""


class Record:
    """The facts in a folder, which is created when the first one is written."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._file = folder / FILE

    def read(self) -> list[Fact]:
        """Return the facts, each as it was observed last. Raises ClusterError if they cannot be read."""
        if not self._file.exists():
            return []
        try:
            with closing(sqlite3.connect(self._file, timeout=_READ_S)) as file:
                rows = file.execute("SELECT fact FROM facts").fetchall()
        except sqlite3.Error as error:
            if "no such table" in str(error):  # The first write is under way.
                return []
            raise ClusterError(f"{self._file}: not readable: {error}") from None
        return [fact for (text,) in rows if (fact := _parse(text))]

    def write(self, facts: Iterable[Fact]) -> int:
        """Add facts; return how many were new or changed.

        Raises ClusterError if another process writes, or the folder cannot be written.
        """
        texts = {json.dumps(fact.identity): _text(fact) for fact in facts}
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            with closing(sqlite3.connect(self._file, timeout=0)) as file, file:
                file.execute("BEGIN IMMEDIATE")
                file.execute(
                    "CREATE TABLE IF NOT EXISTS facts (identity TEXT PRIMARY KEY, fact TEXT)"
                )
                known = dict(file.execute("SELECT identity, fact FROM facts"))
                changed = [one for one in texts.items() if known.get(one[0]) != one[1]]
                file.executemany("INSERT OR REPLACE INTO facts VALUES (?, ?)", changed)
                return len(changed)
        except sqlite3.OperationalError as error:
            if "locked" in str(error):
                raise ClusterError(
                    f"{self._folder}: another process writes this record; stop it, or wait"
                ) from None
            raise ClusterError(f"{self._folder}: not writable: {error}") from None
        except (sqlite3.Error, OSError) as error:
            raise ClusterError(f"{self._folder}: not writable: {error}") from None


def _text(fact: Fact) -> str:
    fields = {k: v for k, v in dataclasses.asdict(fact).items() if v not in (None, "", (), {})}
    return json.dumps({"kind": fact.KIND, **fields}, separators=(",", ":"))


def _parse(text: str) -> Fact | None:
    """Return a fact; None for one of a later release."""
    try:
        fields: dict[str, Any] = json.loads(text)
        kind = KINDS[fields.pop("kind")]
        if "pools" in fields:
            fields["pools"] = tuple(fields["pools"])
        return kind(**fields)
    except (ValueError, TypeError, KeyError):
        return None
