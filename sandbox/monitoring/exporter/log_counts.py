"""Count lines in logs of runs that match a pattern, as a log shipper's filters do on clusters.

Logs are read incrementally. Counts outlive their pod by `KEPT_S`, so that its last lines reach a scrape.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from infra.observability import log_patterns, series
from sandbox.monitoring.exporter import text_format
from sandbox.node.logs import parse_entry

READ_BYTES: Final = 4 * 2**20
"""Limit per log and update; the next update continues."""
KEPT_S: Final = 600.0
"""How long counts outlive their pod."""


@dataclass(frozen=True, kw_only=True)
class LoggedPod:
    """A pod of a run with its log folder: FOLDER/CONTAINER/ATTEMPT.log."""

    uid: str
    namespace: str
    pod: str
    run_id: str
    folder: Path


class _Tail:
    """Read position in one log, which is rotated to LOG.1."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._inode = 0
        self._offset = 0
        self._rest = self._part = b""

    def lines(self) -> list[str]:
        data = self._rest
        for path in (Path(f"{self._path}.1"), self._path):
            read = self._read(path, rotated=path != self._path)
            data += read
            if len(read) == READ_BYTES:
                break
        *entries, self._rest = data.split(b"\n")
        found = []
        for entry in map(parse_entry, entries):
            self._part += entry.text
            if entry.is_whole:
                found.append(self._part.decode(errors="replace"))
                self._part = b""
        return found

    def _read(self, path: Path, *, rotated: bool) -> bytes:
        try:
            with path.open("rb") as file:
                inode = os.fstat(file.fileno()).st_ino
                if rotated and inode != self._inode:
                    return b""  # read before its rotation
                if inode != self._inode:
                    self._inode, self._offset = inode, 0
                file.seek(self._offset)
                data = file.read(READ_BYTES)
        except OSError:
            return b""
        self._offset += len(data)
        return data


@dataclass
class _PodCounts:
    logged: LoggedPod
    seen: float
    tails: dict[Path, _Tail] = field(default_factory=dict)
    counts: Counter[str] = field(default_factory=Counter)
    exposed: bool = False


class LogCounts:
    def __init__(self, started: float) -> None:
        """`started`: now, in Unix seconds."""
        self._started = started
        self._pods: dict[str, _PodCounts] = {}

    def update(self, pods: Iterable[LoggedPod], created: Mapping[str, float], now: float) -> None:
        """Read new lines. `created`: creation time of each pod by uid."""
        for logged in pods:
            if not logged.folder.exists():
                continue  # not started on a process node
            known = self._pods.setdefault(logged.uid, _PodCounts(logged, now))
            known.seen = now
            # An earlier exporter has already exposed the pods that are older than this one.
            known.exposed = known.exposed or created[logged.uid] < self._started
        self._pods = {uid: pod for uid, pod in self._pods.items() if now - pod.seen < KEPT_S}
        for pod in self._pods.values():
            _read(pod)

    def text(self) -> str:
        """Return the metric family; a new pod starts at zero, so that its first match is an increase."""
        samples: list[text_format.Sample] = []
        for pod in self._pods.values():
            of = pod.logged
            labels = {"namespace": of.namespace, "pod": of.pod, "run_id": of.run_id}
            for name in log_patterns.COUNTED:
                count = pod.counts[name] if pod.exposed else 0
                samples.append(({"pattern": name, **labels}, count))
            pod.exposed = True
        text = "Lines in logs of runs that match a pattern."
        return text_format.metric_family(series.LOG_MATCHES.name, "counter", text, samples)


def _read(pod: _PodCounts) -> None:
    for path in pod.logged.folder.glob("*/*.log"):
        tail = pod.tails.setdefault(path, _Tail(path))
        for line in tail.lines():
            pod.counts.update(log_patterns.names_in(line))
