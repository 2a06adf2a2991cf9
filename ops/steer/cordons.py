"""Cordon nodes on which runs have named ranks that hang, stay slow or compute wrong values."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence

from infra.domain import naming
from infra.observability import series
from ops import objects
from ops.cluster import Cluster, ClusterError, UnreachableError
from ops.collect import NODES
from ops.metrics import MetricsUnknownError, PrometheusClient
from ops.objects import Json
from ops.steer import cordon
from ops.steer.look import Nodes


class Cordons:
    """What was named in the last hour, and what follows from it."""

    def __init__(
        self,
        cluster: Cluster,
        show: Callable[[str], None],
        may_write: Callable[[], None],
        *,
        dry_run: bool,
    ) -> None:
        """`may_write` raises ClusterError where another process decides."""
        self._cluster, self._show, self._may_write = cluster, show, may_write
        self._dry_run = dry_run
        self._record = cordon.Record()

    def step(
        self,
        prometheus: PrometheusClient,
        items: Sequence[Json],
        held: Mapping[cordon.Run, set[str]],
        nodes: Nodes,
        now: float,
    ) -> None:
        """Look once, and cordon what is due. Raises UnreachableError.

        `items`: all nodes; `held`: UIDs of each run's.
        """
        try:
            found = cordon.parse(prometheus.query(str(series.CULPRIT_TIME)))
        except MetricsUnknownError:
            return
        names = {uid: name for name, uid in nodes.by_name.items()}
        self._record.look({run: {names[u] for u in uids} for run, uids in held.items()}, found, now)
        pools = {objects.name(one): objects.label(one, naming.POOL) for one in items}
        closed = {objects.name(one): one for one in items if _is_closed(one)}
        cordoned = {name: note[0] for name, one in closed.items() if (note := _note(one))}
        suspects = {n: why for n, why in self._record.suspects(now).items() if n not in closed}
        for name in cordon.allowed(suspects, pools, cordoned, now):
            self._write(name, suspects[name], now)

    def _write(self, name: str, why: str, now: float) -> None:
        self._show(f"node {name}: cordoned: {why}")
        if self._dry_run:
            return
        self._may_write()
        note = json.dumps({"at": now, "why": why})
        change = {
            "metadata": {"annotations": {naming.CORDONED: note}},
            "spec": {"unschedulable": True},
        }
        try:
            self._cluster.patch(NODES, name, change)
        except UnreachableError:
            raise
        except ClusterError as error:
            self._show(f"node {name}: not cordoned: {error}")


def because(nodes: Sequence[Json]) -> dict[str, str]:
    """Return why nodes were cordoned that are still closed, by UID; without those that others have cordoned."""
    return {
        str(objects.meta(one).get("uid")): f"node {objects.name(one)}: {note[1]}"
        for one in nodes
        if _is_closed(one) and (note := _note(one))
    }


def _is_closed(node: Json) -> bool:
    return bool((node.get("spec") or {}).get("unschedulable"))


def _note(node: Json) -> tuple[float, str] | None:
    """Return when this program has cordoned a node, and why; None for nodes that others have cordoned."""
    text = (objects.meta(node).get("annotations") or {}).get(naming.CORDONED)
    if not text:
        return None
    try:
        found = json.loads(text)
        return float(found["at"]), str(found["why"])
    except (ValueError, TypeError, KeyError):
        return 0.0, "its ranks were named"
