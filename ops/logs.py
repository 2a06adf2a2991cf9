"""What the containers of a run have written: read within bounds, and searched for known lines.

Logs are somebody's program talking: nothing in them is believed but the patterns of
infra.observability.log_patterns, and what is shown of them cannot move a terminal's cursor.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from infra.observability.log_patterns import LOG_PATTERNS
from ops import concurrent, objects
from ops.cluster import Cluster, ClusterError, ForbiddenError, Kind
from ops.objects import Json

PODS_MAX: Final = 16
"""Pods whose logs are read: those that ended badly first."""
LINES_MAX: Final = 1000
"""Last lines of each log."""
BYTES_MAX: Final = 256 * 1024
"""Of each log; the kubelet counts from the first of these lines."""
DEADLINE_S: Final = 10.0
"""For all logs together."""
SHOWN_CHARS: Final = 200
"""Of a line that is shown."""

_PODS: Final = Kind("v1", "pods", "Pod")
_NOT_TEXT: Final = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|[\x00-\x1f\x7f-\x9f]")
_STAMP: Final = re.compile(r"(\d{4}-\d\d-\d\dT[0-9:.]+(?:Z|[+-]\d\d:\d\d)) ?")


@dataclass(frozen=True, kw_only=True)
class Line:
    """One line. `time`: when the node got it, RFC 3339; empty where it is not known."""

    time: str
    text: str


@dataclass(frozen=True, kw_only=True)
class Log:
    """The end of one container's log. `previous`: of the container before its last restart."""

    pod: str
    container: str
    previous: bool = False
    lines: tuple[Line, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Match:
    """A line of a known kind."""

    pattern: str
    log: Log
    line: Line

    @property
    def evidence(self) -> str:
        """`OBJECT: what it says`."""
        when = " before its restart" if self.log.previous else ""
        return f"pod/{self.log.pod}: log of {self.log.container}{when}: {sanitize(self.line.text)}"


@dataclass(frozen=True, kw_only=True)
class LogReading:
    """What came of reading a run's logs."""

    logs: tuple[Log, ...] = ()
    forbidden: bool = False
    """The caller may not read logs here."""
    gap: str = ""
    """What could not be read, and why; empty: all that was asked for came."""


def read_logs(
    cluster: Cluster, namespace: str, pods: Sequence[Json], deadline_s: float = DEADLINE_S
) -> LogReading:
    """Logs of the run's containers that have started, of the ones before a restart too."""
    wanted = log_refs(pods)
    came = concurrent.gather_with_deadline(
        {p: _log_request(cluster, namespace, p, deadline_s) for p in wanted}, deadline_s
    )
    if any(isinstance(answer, ForbiddenError) for answer in came.values()):
        return LogReading(forbidden=True)
    texts = {p: text for p, text in came.items() if isinstance(text, str)}
    return LogReading(
        logs=tuple(
            Log(pod=p.pod, container=p.container, previous=p.previous, lines=parse_lines(texts[p]))
            for p in wanted
            if p in texts
        ),
        gap=_describe_gap(wanted, came),
    )


@dataclass(frozen=True, kw_only=True)
class LogRef:
    """Where a log is."""

    pod: str
    container: str
    previous: bool = False


def log_refs(pods: Sequence[Json]) -> list[LogRef]:
    """Containers that have written something, at most those of PODS_MAX pods."""
    found = []
    for pod in sorted(pods, key=_urgency)[:PODS_MAX]:
        status = objects.status(pod)
        both = ("initContainerStatuses", "containerStatuses")
        for one in (one for field in both for one in status.get(field) or []):
            state = one.get("state") or {}
            if int(one.get("restartCount") or 0):
                found.append(LogRef(pod=objects.name(pod), container=one["name"], previous=True))
            if "running" in state or "terminated" in state:
                found.append(LogRef(pod=objects.name(pod), container=one["name"]))
    return found


def _urgency(pod: Json) -> tuple[bool, str, str]:
    """Pods that ended badly come first, among them the first that did."""
    ends = [
        str(ended.get("finishedAt", ""))
        for one in objects.status(pod).get("containerStatuses") or []
        for state in (one.get("state") or {}, one.get("lastState") or {})
        if (ended := state.get("terminated") or {}).get("exitCode")
    ]
    return (not ends, min(ends, default=""), objects.name(pod))


def _log_request(
    cluster: Cluster, namespace: str, place: LogRef, timeout_s: float
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


def _describe_gap(wanted: Sequence[LogRef], came: dict[LogRef, str | ClusterError]) -> str:
    late = [p for p in wanted if p not in came]
    failed = [(p, e) for p, e in came.items() if isinstance(e, ClusterError) and not p.previous]
    if late:
        return f"{len(late)} of {len(wanted)} logs did not come in time"
    if failed:
        place, error = failed[0]
        return f"the log of {place.container} in {place.pod} cannot be read: {sanitize(str(error))}"
    return ""


def parse_lines(text: str) -> tuple[Line, ...]:
    """Lines of an answer, with their time stamps apart."""
    found = []
    for line in text.splitlines():
        stamp = _STAMP.match(line)
        time, rest = (stamp[1], line[stamp.end() :]) if stamp else ("", line)
        if rest.strip():
            found.append(Line(time=time, text=rest))
    return tuple(found)


def matches(logs: Sequence[Log], *patterns: str) -> list[Match]:
    """Lines of these kinds, the first that was written first, and one of each kind per log."""
    found = []
    for log in logs:
        for name in patterns:
            pattern = LOG_PATTERNS[name]
            line = next((line for line in log.lines if pattern.found_in(line.text)), None)
            if line:
                found.append(Match(pattern=name, log=log, line=line))
    return sorted(found, key=lambda match: match.line.time or "9")


def log_tail(logs: Sequence[Log], pod: str, container: str, count: int = 3) -> list[str]:
    """The end of a container's newest log."""
    mine = [log for log in logs if (log.pod, log.container) == (pod, container)]
    newest = sorted(mine, key=lambda log: log.previous)
    lines = newest[0].lines[-count:] if newest else ()
    return [f"pod/{pod}: log of {container}: {sanitize(line.text)}" for line in lines]


def sanitize(text: str) -> str:
    """A line as it may be printed: no control characters, not longer than SHOWN_CHARS."""
    plain = _NOT_TEXT.sub("", text.replace("\t", " ")).strip()
    return plain if len(plain) <= SHOWN_CHARS else f"{plain[: SHOWN_CHARS - 3]}..."
