"""Runs with replica groups: the verdict on the run, from that on each of its groups."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Final

from ops import groups, objects
from ops.snapshot import Snapshot, Symptom, Verdict, pluralize
from ops.symptoms import culprits, terminal_states

WHOLE_RUN: Final[tuple[Symptom, ...]] = (
    terminal_states.finished,
    terminal_states.bad_configuration,
    culprits.caused_failure,
    terminal_states.out_of_memory,
    terminal_states.failed,
    terminal_states.deleting,
    terminal_states.stopped,
)
"""What is asked of the run before its groups: whether it has ended or is ending."""
_SHOWN: Final = 8
"""Groups listed individually."""

Explain = Callable[[Snapshot], Verdict]
Part = tuple[Snapshot, Verdict]
"""A group, and what is to be said of it."""


def explain_groups(snapshot: Snapshot, explain: Explain) -> Verdict:
    """Return the verdict on a run with groups. `explain`: that on one group."""
    # A group that has ended says nothing of the run while others go on.
    if objects.status(snapshot.run).get("conditions") or "deletionTimestamp" in objects.meta(
        snapshot.run
    ):
        over = next((verdict for check in WHOLE_RUN if (verdict := check(snapshot))), None)
        if over:
            return over
    found = [(part, explain(part)) for part in snapshot.parts]
    training = [one for one in found if one[0].is_training]
    others = [one for one in found if one not in training]
    if not training:
        return _below_min(snapshot, others)
    lead = next((one for one in training if one[1].symptom != "running"), training[0])
    if not others:
        return _all_train(training, lead[1])
    if lead[1].symptom != "running":
        return _with_groups(lead[1], found)
    return _below_max(snapshot, training, others)


def _all_train(training: Sequence[Part], lead: Verdict) -> Verdict:
    if lead.symptom != "running":
        return _with_groups(lead, training)
    nodes = sorted({str(p["spec"].get("nodeName", "")) for part, _ in training for p in part.pods})
    return dataclasses.replace(
        lead,
        headline=f"trains with all its {pluralize(len(training), 'group')} on {', '.join(nodes)}",
        evidence=_lines(training),
    )


def _below_max(snapshot: Snapshot, training: Sequence[Part], others: Sequence[Part]) -> Verdict:
    """The run trains, and would be faster with the groups that are missing."""
    total = groups.total(snapshot.run)
    part, first = others[0]
    return Verdict(
        symptom="groups-missing",
        headline=f"trains with {len(training)} of {total} groups{_since(others)}; group"
        f" {groups.number_of(part.run)} {first.headline}",
        evidence=(*_lines(others), *first.evidence, *_lines(training)),
        remedy=(
            "nothing is lost meanwhile: the other groups do its part, and it joins when it can",
            *first.remedy,
        ),
    )


def _below_min(snapshot: Snapshot, others: Sequence[Part]) -> Verdict:
    """No group takes part: too few are there, or the first ones have yet to start."""
    least = groups.needed(snapshot.run)
    here = [one for one in others if is_waiting(one[0])]
    part, first = next((one for one in others if one not in here), others[0])
    waits = ""
    if here and least > 1:
        waits = f"{len(here)} of the {pluralize(least, 'group')} that it needs are there; "
    return dataclasses.replace(
        first,
        headline=f"does not train: {waits}group {groups.number_of(part.run)} {first.headline}",
        evidence=(*_lines(others), *first.evidence),
    )


def is_waiting(part: Snapshot) -> bool:
    alive = part.live_pods
    running = [pod for pod in alive if objects.status(pod).get("phase") == "Running"]
    complete = bool(alive) and len(running) == len(alive) >= part.expected_size
    number = groups.number_of(part.run)
    return number is not None and complete and not part.is_training


def joining(snapshot: Snapshot) -> Verdict | None:
    if not is_waiting(snapshot):
        return None
    starts = [str(objects.status(p).get("startTime") or "") for p in snapshot.live_pods]
    return Verdict(
        symptom="joining",
        headline=f"started {snapshot.ago(max(starts))} ago and does not take part yet",
        evidence=tuple(
            f"{objects.reference(p)}: runs on {p['spec'].get('nodeName')}, not ready"
            for p in snapshot.live_pods
        ),
        remedy=(
            "it loads, gets the state from another group, or waits until as many are there as the run needs",
            "a group that is not ready for long is queued again, so that it does not hold its nodes idle",
        ),
    )


def _with_groups(lead: Verdict, found: Sequence[Part]) -> Verdict:
    return dataclasses.replace(lead, evidence=(*lead.evidence, *_lines(found)))


def _lines(found: Sequence[Part]) -> tuple[str, ...]:
    lines = [f"{objects.reference(part.run)}: {verdict.headline}" for part, verdict in found]
    more = [f"{pluralize(len(lines) - _SHOWN, 'more group')}"] if len(lines) > _SHOWN else []
    return (*lines[:_SHOWN], *more)


def _since(others: Sequence[Part]) -> str:
    """Return since when the run lacks a group: the first that it lost, or that never came."""
    times = []
    for part, _ in others:
        evicted = objects.condition(part.workload, "Evicted").get("lastTransitionTime")
        created = objects.meta(part.workload or part.run).get("creationTimestamp")
        times.append(str(evicted or created or ""))
    first = min(filter(None, times), default="")
    return f", and has lacked one for {others[0][0].ago(first)}" if first else ""
