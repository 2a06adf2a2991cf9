"""Check invariants on watch events: no flavor exceeds its quota, no gang is admitted in part.

One revision counter orders all changes in etcd, so the events of one kind, in their order, are the states
that the API server went through: a check after each event misses none. Pods are another kind with a watch
of its own; when they came to their nodes is compared with the gangs' admissions by revision, in the end.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from infra.domain import naming

Key = tuple[str, str]
"""Namespace and name of a gang's Job or JobSet."""

MESSAGES_MAX: Final = 20
"""Violations whose messages are kept; further ones are only counted."""


@dataclass
class GangRecord:
    """History of one gang."""

    admissions: list[tuple[int, int | None]] = field(default_factory=list)
    """Revisions at which it got its quota and gave it back; None while it holds it."""
    first_admitted: float | None = None
    """Seconds, on the observer's clock."""
    finished: float | None = None
    times_finished: int = 0
    succeeded: bool = False
    size: int = 0
    """Number of pods requested."""
    evictions: Counter[str] = field(default_factory=Counter)
    """By reason."""
    pods: set[str] = field(default_factory=set)
    """Uids of all it ever had."""
    bound: dict[str, int] = field(default_factory=dict)
    """Revision at which a pod was first seen on a node, by uid."""
    done: set[str] = field(default_factory=set)
    """Pods that succeeded."""

    @property
    def holds(self) -> bool:
        """Whether it holds quota now."""
        return bool(self.admissions) and self.admissions[-1][1] is None


@dataclass
class _Workload:
    """The last that was heard of a Workload."""

    key: Key
    holds: Mapping[str, int]
    """GPUs by flavor; none while it is not admitted or when it has finished."""
    admitted: bool = False
    finished: bool = False
    evicted_at: str = ""


class InvariantChecker:
    """Consumes events and counts violations. Not thread-safe: guard it with one lock."""

    def __init__(self, gpus: Mapping[str, int], *, with_pods: bool = True) -> None:
        """`gpus`: the most that each flavor may have in use; `with_pods`: whether gangs have any."""
        self.gpus = dict(gpus)
        self._with_pods = with_pods
        self._workloads: dict[str, _Workload] = {}
        self.used: Counter[str] = Counter()
        self.peak_total = 0
        self.gangs: dict[Key, GangRecord] = defaultdict(GangRecord)
        self.over_after_restart: list[str] = []
        """Admissions over quota while Kueue had just been started; counted separately: a known cause."""
        self._restarting_until = 0.0
        self.late_pods = 0
        """Pods scheduled after the eviction of their gang: the scheduler had not observed it yet; the Job
        controller deletes them."""
        self.violations = 0
        self.messages: list[str] = []
        self.events = 0

    def workload(self, kind: str, item: Mapping[str, Any], now: float) -> None:
        """An ADDED, MODIFIED or DELETED event of a Workload."""
        self.events += 1
        uid, revision = item["metadata"]["uid"], int(item["metadata"]["resourceVersion"])
        key = (item["metadata"]["namespace"], _owner(item))
        known = self._workloads.get(uid) or _Workload(key, {})
        gang = self.gangs[key]
        gang.size = sum(s["count"] for s in item["spec"]["podSets"])
        self._admission(known, gang, item, revision, now, deleted=kind == "DELETED")
        self._eviction(known, gang, item)
        self._finish(known, gang, item, now)
        self._workloads[uid] = known
        if kind == "DELETED":
            del self._workloads[uid]

    def _admission(
        self,
        known: _Workload,
        gang: GangRecord,
        item: Mapping[str, Any],
        revision: int,
        now: float,
        *,
        deleted: bool,
    ) -> None:
        over = deleted or _condition(item, "Finished").get("status") == "True"
        admission = None if over else (item.get("status") or {}).get("admission")
        holds = _gpus_by_flavor(item, admission)
        new = admission is not None and not known.admitted
        if new:
            gang.admissions.append((revision, None))
            gang.first_admitted = now if gang.first_admitted is None else gang.first_admitted
            if not _is_fully_admitted(item, admission):
                self._violation(f"{'/'.join(known.key)} is admitted in part")
        elif known.admitted and not admission:
            gang.admissions[-1] = (gang.admissions[-1][0], revision)
        self.used.subtract(known.holds)
        self.used.update(holds)
        known.holds, known.admitted = holds, admission is not None
        self.peak_total = max(self.peak_total, self.used.total())
        for flavor in holds if new else ():
            used, most = self.used[flavor], self.gpus.get(flavor, 0)
            if used > most:
                message = (
                    f"{'/'.join(known.key)} is admitted to flavor {flavor}, which has then {used} GPUs"
                    f" in use of {most}; held by {', '.join(self._holders(flavor, known))}{self._since(now)}"
                )
                if now < self._restarting_until:
                    self.over_after_restart.append(message)
                else:
                    self._violation(message)

    def _since(self, now: float) -> str:
        """How long ago Kueue knew its queues again after a restart; nothing without one."""
        passed = now - self._restarting_until
        return f"; {passed:.1f} s after it knew its queues" if 0 <= passed < now else ""

    def _holders(self, flavor: str, newest: _Workload) -> list[str]:
        """`RUN xGPUS` of all that hold a flavor, the one that just changed last."""
        others = [w for w in self._workloads.values() if w is not newest]
        return [
            f"{w.key[1]} x{w.holds[flavor]}{' (evicted)' if w.evicted_at else ''}"
            for w in [*others, newest]
            if w.holds.get(flavor)
        ]

    def _eviction(self, known: _Workload, gang: GangRecord, item: Mapping[str, Any]) -> None:
        evicted = _condition(item, "Evicted")
        since = evicted.get("lastTransitionTime", "")
        if evicted.get("status") != "True":
            known.evicted_at = ""
        elif known.evicted_at != since:
            known.evicted_at = since
            gang.evictions[evicted["reason"]] += 1

    def _finish(
        self, known: _Workload, gang: GangRecord, item: Mapping[str, Any], now: float
    ) -> None:
        finished = _condition(item, "Finished")
        if finished.get("status") == "True" and not known.finished:
            known.finished = True
            gang.finished = now
            gang.times_finished += 1
            gang.succeeded = finished["reason"] == "Succeeded"

    def pod(self, item: Mapping[str, Any]) -> None:
        """What a gang's pod was like at some revision.

        One that is only created counts for nothing: a Job controller that has not heard yet of a
        suspension makes some, and takes them away again.
        """
        metadata = item["metadata"]
        run_id = (metadata.get("labels") or {}).get(naming.RUN_ID)
        if not run_id:
            return
        gang = self.gangs[metadata["namespace"], run_id]
        gang.pods.add(metadata["uid"])
        if item["spec"].get("nodeName"):
            gang.bound.setdefault(metadata["uid"], int(metadata["resourceVersion"]))
        if (item.get("status") or {}).get("phase") == "Succeeded":
            gang.done.add(metadata["uid"])

    def restarting(self, until: float) -> None:
        """Kueue restarts; it has loaded all queues at this time of the observer's clock."""
        self._restarting_until = until

    def broken(self, message: str) -> None:
        """The record has a gap."""
        self._violation(message)

    def _violation(self, message: str) -> None:
        self.violations += 1
        if len(self.messages) < MESSAGES_MAX:
            self.messages.append(message)

    def close(self) -> None:
        """What can only be judged in the end: pods that ran without an admission, gangs that ended in part."""
        for key, gang in self.gangs.items():
            self.late_pods += sum(_is_late(gang, bound) for bound in gang.bound.values())
            for message in _pods_against_admissions(gang) if self._with_pods else ():
                self._violation(f"{'/'.join(key)} {message}")
            if gang.times_finished != 1 or not gang.succeeded:
                self._violation(
                    f"{'/'.join(key)} finished {gang.times_finished} times, not once and well"
                )


def _pods_against_admissions(gang: GangRecord) -> Iterator[str]:
    """No pod came to a node before its gang was admitted, and as many succeeded as the gang has.

    More may succeed: a JobSet that is evicted half done starts all over.
    """
    for bound in gang.bound.values():
        if not any(admitted <= bound for admitted, _ in gang.admissions):
            yield f"had a pod on a node (revision {bound}) without an admission"
    if gang.succeeded and len(gang.done) < gang.size:
        yield f"finished, but {len(gang.done)} of its {gang.size} pods succeeded"


def _is_late(gang: GangRecord, bound: int) -> bool:
    """Whether a pod came to its node after an admission had ended, and before the next."""
    earlier = [ended for admitted, ended in gang.admissions if admitted <= bound]
    return bool(earlier) and earlier[-1] is not None and earlier[-1] < bound


def _owner(item: Mapping[str, Any]) -> str:
    owners = item["metadata"].get("ownerReferences") or [{}]
    return str(owners[0].get("name", item["metadata"]["name"]))


def _condition(item: Mapping[str, Any], kind: str) -> dict[str, Any]:
    conditions = (item.get("status") or {}).get("conditions") or []
    return next((c for c in conditions if c["type"] == kind), {})


def _pods_left(item: Mapping[str, Any]) -> dict[str, int]:
    """Pods by pod set, less those that have succeeded: Kueue counts these no longer.

    A gang that is evicted with some of its pods done is admitted again for the others only.
    """
    done = {r["name"]: r["count"] for r in (item.get("status") or {}).get("reclaimablePods") or []}
    return {s["name"]: s["count"] - done.get(s["name"], 0) for s in item["spec"]["podSets"]}


def _gpus_by_flavor(item: Mapping[str, Any], admission: Mapping[str, Any] | None) -> dict[str, int]:
    """What an admission takes now."""
    left = _pods_left(item)
    found: Counter[str] = Counter()
    for assignment in (admission or {}).get("podSetAssignments") or []:
        flavor = (assignment.get("flavors") or {}).get(naming.GPU)
        count = assignment.get("count", 0)
        if flavor and count:
            per_pod = int(assignment["resourceUsage"][naming.GPU]) // count
            found[flavor] += per_pod * left[assignment["name"]]
    return dict(found)


def _is_fully_admitted(item: Mapping[str, Any], admission: Mapping[str, Any] | None) -> bool:
    """Whether each pod set got all of its pods, on one node each where Kueue chose the nodes."""
    wanted = _pods_left(item)
    got = {a["name"]: a for a in (admission or {})["podSetAssignments"]}
    if wanted != {name: a.get("count", wanted.get(name)) for name, a in got.items()}:
        return False
    placed = {
        n: _pods_placed(a["topologyAssignment"])
        for n, a in got.items()
        if "topologyAssignment" in a
    }
    return all(count == wanted[name] for name, count in placed.items())


def _pods_placed(topology: Mapping[str, Any]) -> int:
    """Pods that a topology assignment places."""
    if "domains" in topology:
        return sum(domain["count"] for domain in topology["domains"])
    placed = 0
    for part in topology.get("slices") or []:
        counts = part["podCounts"]
        each = counts.get("individual")
        placed += sum(each) if each else counts["universal"] * part["domainCount"]
    return placed
