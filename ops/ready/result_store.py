"""Store the latest results in a ConfigMap, as evidence without new Jobs."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from ops.cluster import Cluster, ConflictError
from ops.ready.outcome import Check, Outcome, StageResult, stamp
from ops.ready.stack_facts import CONFIG_MAPS, NAMESPACE

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


Results = Mapping[str, Mapping[str, Result]]
"""By stage name, then by subject."""


def read(cluster: Cluster) -> Results:
    """Return the stored results; empty if there are none or they cannot be parsed."""
    found = cluster.get(CONFIG_MAPS, NAME, NAMESPACE)
    try:
        return parse(found["data"][KEY]) if found else {}
    except (AttributeError, KeyError, TypeError, ValueError):
        return {}


def parse(text: str) -> Results:
    """Parse stored results. Raises AttributeError, KeyError, TypeError or ValueError."""
    return {
        stage: {
            subject: Result(
                outcome=Outcome(one["outcome"]),
                seen=one["seen"],
                at=one["at"],
                facts=one.get("facts") or {},
            )
            for subject, one in subjects.items()
        }
        for stage, subjects in json.loads(text).items()
    }


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
                after.setdefault(stage.stage, {})[check.subject] = _result(check, now)
    kept = {r: {s: one for s, one in of.items() if s in subjects} for r, of in after.items()}
    return {stage: results for stage, results in kept.items() if results}


def _result(check: Check, now: dt.datetime) -> Result:
    return Result(outcome=check.outcome, seen=check.seen, at=stamp(now), facts=check.facts)


def write(cluster: Cluster, results: Results) -> None:
    """Write the results to the ConfigMap."""
    text = json.dumps(
        {
            stage: {
                subject: {
                    "outcome": one.outcome.value,
                    "seen": one.seen,
                    "at": one.at,
                    "facts": dict(one.facts),
                }
                for subject, one in of.items()
            }
            for stage, of in results.items()
        },
        indent=1,
        sort_keys=True,
    )
    manifest = {
        "apiVersion": CONFIG_MAPS.api,
        "kind": CONFIG_MAPS.kind,
        "metadata": {"name": NAME, "namespace": NAMESPACE},
        "data": {KEY: text},
    }
    try:
        cluster.create(CONFIG_MAPS, manifest)
    except ConflictError:
        cluster.patch(CONFIG_MAPS, NAME, {"data": {KEY: text}}, NAMESPACE)
