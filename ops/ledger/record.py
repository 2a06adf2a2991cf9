"""The record of facts: one JSON line per fact in a folder, appended to, so that it survives any restart.

A fact may be written any number of times; the line that was observed last counts. A line that a crash cut off is
ignored, and the next append starts a new line. One process writes at a time.
"""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import json
import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from ops.cluster import ClusterError
from ops.ledger.model import KINDS, Fact

FILE: Final = "facts.jsonl"
_LOCK: Final = "lock"
_COMPACT_AT: Final = 3
"""Rewrite the file when it has this many times as many lines as facts."""
_SMALL: Final = 1_000
"""Lines below which a file is never rewritten."""


class Record:
    """The facts in a folder, which is created when the first one is written."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._file = folder / FILE

    def read(self) -> list[Fact]:
        """Return the facts, each as it was observed last. Raises ClusterError if they cannot be read."""
        return list(self._load()[0].values())

    def write(self, facts: Iterable[Fact], at: float) -> int:
        """Add facts observed at a time in Unix seconds; return how many were new or changed.

        Raises ClusterError if another process writes, or the folder cannot be written.
        """
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            with self._locked():
                return self._write(facts, at)
        except OSError as error:
            raise ClusterError(f"{self._folder}: not writable: {error.strerror}") from None

    def _write(self, facts: Iterable[Fact], at: float) -> int:
        known, lines, torn = self._load()
        fresh = {f.identity: f for f in facts}
        changed = [f for identity, f in fresh.items() if known.get(identity) != f]
        if changed:
            text = "".join(_line(fact, at) for fact in changed)
            with self._file.open("a", encoding="utf-8") as file:
                file.write(("\n" if torn else "") + text)
                file.flush()
                os.fsync(file.fileno())
        known |= fresh
        if lines + len(changed) > max(_SMALL, _COMPACT_AT * len(known)):
            self._compact(known.values(), at)
        return len(changed)

    def _compact(self, facts: Iterable[Fact], at: float) -> None:
        """Replace the file by one with a line per fact."""
        new = self._file.with_suffix(".new")
        with new.open("w", encoding="utf-8") as file:
            file.writelines(_line(fact, at) for fact in facts)
            file.flush()
            os.fsync(file.fileno())
        new.replace(self._file)

    def _load(self) -> tuple[dict[tuple[str, ...], Fact], int, bool]:
        """Return facts by identity, the number of lines, and whether the last one is cut off."""
        try:
            text = self._file.read_text(encoding="utf-8")
        except FileNotFoundError:
            return {}, 0, False
        except (OSError, UnicodeDecodeError) as error:
            raise ClusterError(f"{self._file}: not readable: {error}") from None
        found: dict[tuple[str, ...], tuple[float, str, Fact]] = {}
        lines = text.splitlines()
        for line in lines:
            read = _parse(line)
            if read is not None:
                at, fact = read
                entry = (at, line, fact)
                if fact.identity not in found or found[fact.identity][:2] <= entry[:2]:
                    found[fact.identity] = entry
        return {i: e[2] for i, e in found.items()}, len(lines), bool(text) and text[-1] != "\n"

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        with (self._folder / _LOCK).open("w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise ClusterError(
                    f"{self._folder}: another process writes this record; stop it, or wait"
                ) from None
            yield


def _line(fact: Fact, at: float) -> str:
    fields = {k: v for k, v in dataclasses.asdict(fact).items() if v not in (None, "", (), {})}
    return json.dumps({"at": at, "kind": fact.KIND, **fields}, separators=(",", ":")) + "\n"


def _parse(line: str) -> tuple[float, Fact] | None:
    """Return a line's time and fact; None for one that was cut off or is of a later release."""
    try:
        found: Mapping[str, Any] = json.loads(line)
        fields = dict(found)
        at, kind = float(fields.pop("at")), KINDS[fields.pop("kind")]
        if "pools" in fields:
            fields["pools"] = tuple(fields["pools"])
        return at, kind(**fields)
    except (ValueError, TypeError, KeyError):
        return None
