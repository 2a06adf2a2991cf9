"""Everything that can say why a run is where it is, read at one moment."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from infra.domain import naming
from ops import objects
from ops.logs import Log
from ops.metrics import Vitals
from ops.objects import Json


@dataclass(frozen=True, kw_only=True)
class Snapshot:
    """One run and all that surrounds it. Objects carry their `kind`."""

    run: Json
    now: dt.datetime
    workload: Json | None = None
    local_queue: Json | None = None
    cluster_queue: Json | None = None
    cohort: Json | None = None
    cluster_queues: Sequence[Json] = ()
    """Those of the cohort, the run's own among them."""
    workloads: Sequence[Json] = ()
    """Of all teams that may be read."""
    flavors: Sequence[Json] = ()
    jobs: Sequence[Json] = ()
    """Jobs that belong to the run."""
    pods: Sequence[Json] = ()
    events: Sequence[Json] = ()
    """Of the namespace; see `events_of`."""
    nodes: Sequence[Json] = ()
    provisioning: Sequence[Json] = ()
    """ProvisioningRequests of the namespace."""
    others_pods: Sequence[Json] = ()
    """Pods of all runs that may be read; looked up only for a run that finds no node."""
    gpu_pods: Sequence[Json] = ()
    """What makes GPUs visible to the kubelet; looked up only where some are not."""
    logs: Sequence[Log] = ()
    vitals: Vitals | None = None
    """None: nobody was asked, or nobody knew."""
    gaps: Sequence[str] = ()
    """What could not be looked at besides, and why."""
    hidden: frozenset[str] = field(default_factory=frozenset)
    """Plurals that the caller may not read: what is missing of them is not known to be absent."""

    @property
    def run_id(self) -> str:
        return objects.run_id_of(self.run)

    @property
    def team(self) -> str:
        return objects.label(self.run, naming.TEAM)

    @property
    def namespace(self) -> str:
        return str(objects.meta(self.run)["namespace"])

    @property
    def queue_name(self) -> str:
        """The LocalQueue that the run names."""
        return objects.label(self.run, naming.QUEUE_NAME)

    @property
    def admitted(self) -> bool:
        """Whether its pods may run; where Kueue does not queue it, they always may."""
        return not self.queue_name or objects.condition_is_true(self.workload, "Admitted")

    @property
    def other_scheduler(self) -> str:
        """Who schedules its gang in Kueue's stead: `volcano`, `yunikorn`, the cluster; empty: nobody."""
        specs = [pod["spec"] for pod in self.pods] + list(_pod_specs(self.run))
        names = [str(spec.get("schedulerName") or "") for spec in specs]
        other = [name for name in names if name not in ("", "default-scheduler")]
        grouped = any("schedulingGroup" in spec for spec in specs)
        return other[0] if other else "the cluster" if grouped else ""

    def events_of(self, *items: Json) -> list[Json]:
        """Events of these objects, the newest last."""
        uids = {objects.meta(item).get("uid") for item in items}
        mine = [e for e in self.events if (e.get("involvedObject") or {}).get("uid") in uids]
        return sorted(mine, key=lambda e: str(e.get("lastTimestamp") or e.get("eventTime") or ""))

    def ago(self, text: str | None) -> str:
        """How long ago a time stamp was: `40 s`, `12 min`, `3 h`, `2 days`."""
        then = objects.time(text)
        return format_duration((self.now - then).total_seconds()) if then else "some time"


def _pod_specs(value: object) -> Iterator[Json]:
    """Pod specs anywhere inside of an object, whichever kind it is."""
    if isinstance(value, dict):
        if "containers" in value:
            yield value
        else:
            for inner in value.values():
                yield from _pod_specs(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _pod_specs(inner)


def format_duration(seconds: float) -> str:
    """A duration for people, in its largest unit that is at least 2."""
    for unit, size in (("days", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{max(0.0, seconds):.0f} s"


def pluralize(number: int, noun: str) -> str:
    """`1 pod`, `2 pods`."""
    return f"{number} {noun}{'' if number == 1 else 's'}"
