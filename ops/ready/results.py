"""Results of stages and their checks, and the latest of each, which a ConfigMap keeps as evidence."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final

import pydantic

from ops import objects
from ops.cluster import Cluster, ConflictError
from ops.collect import CONFIG_MAPS
from ops.objects import Json
from ops.ready.stack_facts import NAMESPACE


class Outcome(StrEnum):
    """Outcome of a check or stage."""

    PASSED = "passed"
    SIMULATED = "simulated"
    """Passed, but on a CPU or on simulated nodes: proves the programs, not the hardware."""
    FAILED = "failed"
    SKIPPED = "skipped"
    """There was nothing to check, or nothing may be started; the text gives the reason."""
    UNKNOWN = "not known"
    """Cannot be determined from what the caller may read."""
    UNREACHED = "not reached"
    """An earlier stage failed."""


@dataclass(frozen=True, kw_only=True)
class Check:
    """Result for one subject: a pool, a team, the queue."""

    subject: str
    """`pool spot`, `team production`, `queue`; an area of the stage `production`."""
    outcome: Outcome
    seen: str
    """What was found; for a failure, its cause; in the stage `production`, what is checked."""
    remedy: str = ""
    """One or more lines."""
    evidence: tuple[str, ...] = ()
    """Objects, digests, and results with their age."""
    facts: Mapping[str, Any] = field(default_factory=dict)
    """Machine-readable values, such as device, driver, bandwidth_gbps."""


@dataclass(frozen=True, kw_only=True)
class StageResult:
    stage: str
    """Stable name for scripts."""
    title: str
    checks: tuple[Check, ...] = ()

    @property
    def outcome(self) -> Outcome:
        """The worst of its checks; not reached if nothing was tried."""
        outcomes = {check.outcome for check in self.checks}
        for outcome in _WORST_FIRST:
            if outcome in outcomes:
                return outcome
        return Outcome.UNREACHED

    def as_json(self) -> Json:
        """As in the JSON report."""
        return {
            "stage": self.stage,
            "title": self.title,
            "outcome": self.outcome.value,
            "checks": [
                {
                    "subject": check.subject,
                    "outcome": check.outcome.value,
                    "seen": check.seen,
                    "remedy": check.remedy,
                    "evidence": list(check.evidence),
                    "facts": dict(check.facts),
                }
                for check in self.checks
            ],
        }


_WORST_FIRST: Final = (
    *(Outcome.FAILED, Outcome.UNKNOWN, Outcome.SIMULATED, Outcome.PASSED, Outcome.SKIPPED),
)


def passed(subject: str, seen: str, **facts: Any) -> Check:
    return Check(subject=subject, outcome=Outcome.PASSED, seen=seen, facts=facts)


def proven(subject: str, seen: str, *, hardware: bool, **facts: Any) -> Check:
    """Return a passed check of hardware; a simulated one where there was no `hardware`."""
    outcome = Outcome.PASSED if hardware else Outcome.SIMULATED
    return Check(subject=subject, outcome=outcome, seen=seen, facts=facts)


def failed(subject: str, cause: str, remedy: str, **facts: Any) -> Check:
    return Check(subject=subject, outcome=Outcome.FAILED, seen=cause, remedy=remedy, facts=facts)


def skipped(subject: str, reason: str) -> Check:
    return Check(subject=subject, outcome=Outcome.SKIPPED, seen=reason)


NAME: Final = "trainyard-ready"
KEY: Final = "results.json"
_CONCLUSIVE: Final = (Outcome.PASSED, Outcome.SIMULATED, Outcome.FAILED)


@dataclass(frozen=True, kw_only=True)
class Result:
    """Latest conclusive result of a check."""

    outcome: Outcome
    seen: str
    at: str
    """RFC 3339."""
    facts: Mapping[str, Any] = field(default_factory=dict)


Results = dict[str, dict[str, Result]]
"""By stage name, then by subject."""
_STORED: Final = pydantic.TypeAdapter(Results)


def read(cluster: Cluster) -> Results:
    """Return the stored results; empty if there are none or they cannot be parsed."""
    found = cluster.get(CONFIG_MAPS, NAME, NAMESPACE)
    try:
        return _STORED.validate_json(found["data"][KEY]) if found else {}
    except (KeyError, pydantic.ValidationError):
        return {}


def merge(
    known: Results, found: Iterable[StageResult], now: dt.datetime, subjects: set[str]
) -> Results:
    """Merge new results into the known ones. A skipped check keeps its older result.

    Results of pools and teams that the stack no longer has (not in `subjects`) are dropped.
    """
    after = {stage: dict(results) for stage, results in known.items()}
    for stage in found:
        for check in stage.checks:
            if check.outcome in _CONCLUSIVE:
                after.setdefault(stage.stage, {})[check.subject] = Result(
                    outcome=check.outcome, seen=check.seen, at=objects.stamp(now), facts=check.facts
                )
    kept = {r: {s: one for s, one in of.items() if s in subjects} for r, of in after.items()}
    return {stage: results for stage, results in kept.items() if results}


def write(cluster: Cluster, results: Results) -> None:
    data = {KEY: _STORED.dump_json(results, indent=1).decode()}
    meta = {"name": NAME, "namespace": NAMESPACE}
    about = {"apiVersion": CONFIG_MAPS.api, "kind": CONFIG_MAPS.kind, "metadata": meta}
    try:
        cluster.create(CONFIG_MAPS, about | {"data": data})
    except ConflictError:
        cluster.patch(CONFIG_MAPS, NAME, {"data": data}, NAMESPACE)
