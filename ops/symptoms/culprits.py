"""The rank that the run itself has named: it hangs, is slow, or computes wrong values.

The trainer compares its ranks and writes its verdict into the log of the pod that judges; the leading rank
exports it as a metric, which also shows verdicts of attempts whose pods are gone. Neither is trusted beyond its
text.
"""

from __future__ import annotations

from typing import Final

from ops import logs, objects
from ops.snapshot import Snapshot, Verdict, format_duration
from ops.symptoms import gpus, terminal_states
from trainyard import culprits
from trainyard.culprits import NO_RANK, Culprit

RECENT_S: Final = 600.0
"""A run that trains may have overcome what was named longer ago."""
_STILL_SLOW_S: Final = 120.0
"""Verdicts about slow ranks are renewed every few seconds while they hold."""

_WHAT: Final = {
    culprits.HUNG: "hangs",
    culprits.CORRUPT: "computes wrong values",
    culprits.SLOW_RANK: "slows the others down",
    culprits.SLOW_LOADER: "slows the others down, waiting for its data",
}
_REMEDY: Final = {
    culprits.HUNG: (
        "the frame shows what it waits for: storage, a lock, a device; if that is not in the program,"
        " cordon NODE and let the gang restart",
        "flight/ of the run's folder has the stacks and collectives of all ranks",
    ),
    culprits.CORRUPT: (
        "kubectl cordon NODE, and test its GPUs and memory before it is used again:"
        " docs/runbooks.md#rankcorrupt",
    ),
    culprits.SLOW_RANK: (
        "compare the node with the others: clock and temperature of its GPUs, other processes, its zone;"
        " if it stays slow, kubectl cordon NODE and let the run restart elsewhere",
    ),
    culprits.SLOW_LOADER: (
        "compare the node's disk and network with the others'; set data.staging to copy shards to the node"
        " first",
    ),
}

_UNDECIDED: Final = (
    "kubectl cordon the nodes of all candidates and test them, or run with three replicas:"
    " docs/runbooks.md#rankcorrupt",
)
"""Where replicas differ and no rank can be named."""


def caused_failure(snapshot: Snapshot) -> Verdict | None:
    how = terminal_states.failure_mode(snapshot)
    ended = [one for one in named(snapshot) if one.symptom in _ENDING]
    return _verdict(snapshot, f"{how}:", ended[0]) if how and ended else None


def holds_up(snapshot: Snapshot) -> Verdict | None:
    if not snapshot.is_training:
        return None
    recent = [one for one in named(snapshot) if _is_current(snapshot, one)]
    return _verdict(snapshot, "trains, but", recent[0]) if recent else None


def earlier(snapshot: Snapshot) -> list[str]:
    """Return what was named and is not the answer any more."""
    current = holds_up(snapshot) or caused_failure(snapshot)
    lines = [
        logs.sanitize(f"{_age(snapshot, one)} ago: {_sentence(one)}") for one in named(snapshot)
    ]
    return lines[1:] if current else lines


def named(snapshot: Snapshot) -> list[Culprit]:
    """Return the culprits that logs and metrics name, the worst and newest first, each once."""
    found: dict[tuple[str, int, str], Culprit] = {}
    measured = snapshot.vitals.culprits if snapshot.vitals else ()
    lines = (culprits.parse_line(line.text) for log in snapshot.logs for line in log.lines)
    for one in (*measured, *filter(None, lines)):
        known = found.get(one.key)
        if known is None or (one.time, one.evidence) >= (known.time, known.evidence):
            found[one.key] = one
    order = culprits.SYMPTOMS.index
    return sorted(found.values(), key=lambda one: (order(one.symptom), -one.time))


_ENDING: Final = (culprits.HUNG, culprits.CORRUPT)


def _is_current(snapshot: Snapshot, one: Culprit) -> bool:
    slow = one.symptom not in _ENDING
    return snapshot.now.timestamp() - one.time < (_STILL_SLOW_S if slow else RECENT_S)


def _verdict(snapshot: Snapshot, how: str, one: Culprit) -> Verdict:
    faults = [line for line in gpus.gpu_faults(snapshot) if line.startswith(f"node/{one.node}:")]
    place = f"pod/{one.pod}: " if one.pod else ""
    frame = one.frame and not any(one.frame in line for line in one.evidence)
    known = (
        *([f"{place}{one.what}"] if one.what and one.rank != NO_RANK else []),
        *([f"{place}its main thread: {one.frame}"] if frame else []),
        *one.evidence,
    )
    step = f" (step {one.step})" if one.step else ""
    undecided = one.symptom == culprits.CORRUPT and one.rank == NO_RANK
    return Verdict(
        symptom=one.symptom,
        headline=logs.sanitize(f"{how} {_sentence(one)}{step}"),
        evidence=(*map(logs.sanitize, known), *faults[:2]),
        remedy=(
            *(
                _UNDECIDED
                if undecided
                else (line.replace("NODE", _node(snapshot, one)) for line in _REMEDY[one.symptom])
            ),
            "docs/failures.md",
        ),
    )


def _sentence(one: Culprit) -> str:
    """Return who does what; where no rank is to blame, what all of them do."""
    if one.rank == NO_RANK:
        corrupt = one.symptom == culprits.CORRUPT
        return one.what or ("replicas differ" if corrupt else "all ranks wait")
    return f"rank {one.rank} on {one.node or 'an unknown node'} {_WHAT[one.symptom]}"


def _node(snapshot: Snapshot, one: Culprit) -> str:
    """Return a node's name for a command: a log may contain anything."""
    there = {str(pod["spec"].get("nodeName")) for pod in snapshot.pods}
    there |= {objects.name(node) for node in snapshot.nodes}
    return one.node if one.node in there else "its node"


def _age(snapshot: Snapshot, one: Culprit) -> str:
    return format_duration(snapshot.now.timestamp() - one.time)
