"""Read the logs of a run's containers within bounds, and search them for known lines.

Logs are untrusted: only the patterns of infra.observability.log_patterns are interpreted, and lines
are printed without control characters.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from infra.observability.log_patterns import LOG_PATTERNS
from ops import concurrent, objects
from ops.cluster import Cluster, ClusterError, ForbiddenError, Kind
from ops.objects import Json

PODS_MAX: Final = 16
"""Pods whose logs are read, failed pods first."""
LINES_MAX: Final = 1000
"""Last lines of each log."""
BYTES_MAX: Final = 256 * 1024
"""Bytes of each log, which the kubelet counts from the first of these lines."""
DEADLINE_S: Final = 10.0
"""Time limit for all logs together, in seconds."""
SHOWN_CHARS: Final = 200
"""Maximum length of a printed line."""

_PODS: Final = Kind("v1", "pods", "Pod")
_NOT_TEXT: Final = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|[\x00-\x1f\x7f-\x9f]")
_ERROR: Final = re.compile(r"(?:^|[\s.])(?:\w*(?:Error|Exception)|error):")
"""A line that says what went wrong: of a traceback, or of a program's arguments."""
_SUMMARY: Final = re.compile(r"ChildFailedError|^\s*error_file\b")
_STAMP: Final = re.compile(r"(\d{4}-\d\d-\d\dT[0-9:.]+(?:Z|[+-]\d\d:\d\d)) ?")


@dataclass(frozen=True, kw_only=True)
class Line:
    """One line. `time`: when the node received it, RFC 3339; empty if unknown."""

    time: str
    text: str


@dataclass(frozen=True, kw_only=True)
class Log:
    """The end of one container's log. `previous`: from before its last restart."""

    pod: str
    container: str
    previous: bool = False
    lines: tuple[Line, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Match:
    """A line that matches a known pattern."""

    pattern: str
    log: Log
    line: Line

    @property
    def evidence(self) -> str:
        """`OBJECT: observation`."""
        when = " before its restart" if self.log.previous else ""
        return f"pod/{self.log.pod}: log of {self.log.container}{when}: {sanitize(self.line.text)}"


@dataclass(frozen=True, kw_only=True)
class LogReading:
    """Result of reading a run's logs."""

    logs: tuple[Log, ...] = ()
    forbidden: bool = False
    """The caller may not read logs here."""
    gap: str = ""
    """What could not be read, and why; empty if everything was read."""


def read_logs(
    cluster: Cluster, namespace: str, pods: Sequence[Json], deadline_s: float = DEADLINE_S
) -> LogReading:
    """Read the logs of all started containers, including those from before a restart."""
    wanted = log_refs(pods)
    came = concurrent.gather_with_deadline(
        {p: _log_request(cluster, namespace, p, deadline_s) for p in wanted}, deadline_s
    )
    if any(isinstance(answer, ForbiddenError) for answer in came.values()):
        return LogReading(forbidden=True)
    texts = {p: text for p, text in came.items() if isinstance(text, str)}
    return LogReading(
        logs=tuple(
            dataclasses.replace(p, lines=parse_lines(texts[p])) for p in wanted if p in texts
        ),
        gap=_describe_gap(wanted, came),
    )


def log_refs(pods: Sequence[Json]) -> list[Log]:
    """Return the logs of started containers, not read yet, of at most PODS_MAX pods."""
    found = []
    for pod in sorted(pods, key=_urgency)[:PODS_MAX]:
        for one in objects.containers(pod, init=True):
            state = one.get("state") or {}
            if int(one.get("restartCount") or 0):
                found.append(Log(pod=objects.name(pod), container=one["name"], previous=True))
            if "running" in state or "terminated" in state:
                found.append(Log(pod=objects.name(pod), container=one["name"]))
    return found


def _urgency(pod: Json) -> tuple[bool, str, str]:
    """Sort key: failed pods first, earliest failure first."""
    ends = [
        str(ended.get("finishedAt", ""))
        for one in objects.containers(pod)
        for state in (one.get("state") or {}, one.get("lastState") or {})
        if (ended := state.get("terminated") or {}).get("exitCode")
    ]
    return (not ends, min(ends, default=""), objects.name(pod))


def _log_request(
    cluster: Cluster, namespace: str, place: Log, timeout_s: float
) -> Callable[[], str]:
    query = [
        ("container", place.container),
        ("tailLines", str(LINES_MAX)),
        ("limitBytes", str(BYTES_MAX)),
        ("timestamps", "true"),
        *([("previous", "true")] if place.previous else []),
    ]
    path = f"{_PODS.path(namespace, place.pod)}/log"
    return lambda: cluster.text(path, query, timeout_s) or ""


def _describe_gap(wanted: Sequence[Log], came: dict[Log, str | ClusterError]) -> str:
    late = [p for p in wanted if p not in came]
    failed = [(p, e) for p, e in came.items() if isinstance(e, ClusterError) and not p.previous]
    if late:
        return f"{len(late)} of {len(wanted)} logs were not read within the time limit"
    if failed:
        place, error = failed[0]
        return f"the log of {place.container} in {place.pod} cannot be read: {sanitize(str(error))}"
    return ""


def parse_lines(text: str) -> tuple[Line, ...]:
    found = []
    for line in text.splitlines():
        stamp = _STAMP.match(line)
        time, rest = (stamp[1], line[stamp.end() :]) if stamp else ("", line)
        if rest.strip():
            found.append(Line(time=time, text=rest))
    return tuple(found)


def matches(logs: Sequence[Log], *patterns: str) -> list[Match]:
    """Return the first line per log and pattern, oldest first."""
    found = []
    for log in logs:
        for name in patterns:
            pattern = LOG_PATTERNS[name]
            line = next((line for line in log.lines if pattern.found_in(line.text)), None)
            if line:
                found.append(Match(pattern=name, log=log, line=line))
    return sorted(found, key=lambda match: match.line.time or "9")


def log_tail(logs: Sequence[Log], pod: str, container: str, count: int = 3) -> list[str]:
    """Return the last `count` lines of a container's newest log; the last error is one of them.

    torchrun writes a summary of twenty lines after the error of the program.
    """
    mine = [log for log in logs if (log.pod, log.container) == (pod, container)]
    newest = sorted(mine, key=lambda log: log.previous)
    every = newest[0].lines if newest else ()
    lines = every[-count:]
    errors = [line for line in every if _ERROR.search(line.text) and not _SUMMARY.search(line.text)]
    if errors and errors[-1] not in lines:
        lines = (errors[-1], *lines[1:])
    return [f"pod/{pod}: log of {container}: {sanitize(line.text)}" for line in lines]


def printable(text: str) -> str:
    """Return a line without control characters, which could change the reader's terminal."""
    return _NOT_TEXT.sub("", text.replace("\t", " "))


def sanitize(text: str) -> str:
    """Return a printable line: no control characters, at most SHOWN_CHARS long."""
    plain = printable(text).strip()
    return plain if len(plain) <= SHOWN_CHARS else f"{plain[: SHOWN_CHARS - 3]}..."
