"""Move gangs: allow a Workload only some flavors of its queue; where it holds another one, it saves and stops.

What a gang may have is an annotation that Kueue's scheduler reads; which flavors, quotas and borrowing limits its
team has is the ClusterQueue's business alone, so a gang can only be kept from a pool here, never let into one.
"""

from __future__ import annotations

import contextlib
import dataclasses
import datetime as dt
import json
import math
import secrets
from collections.abc import Callable, Collection, Mapping
from typing import Any, Final

from infra.domain import naming
from infra.observability import series
from ops import metrics, objects
from ops.budgets import control as budgets
from ops.budgets.decision import Level
from ops.cluster import Cluster, ClusterError, ConflictError, UnreachableError
from ops.collect import CLUSTER_QUEUES, CONFIG_MAPS, EVENTS, NODES, PODS, WORKLOADS
from ops.exposition import Page, Sample
from ops.lease import Lease
from ops.metrics import MetricsUnknownError
from ops.objects import Json
from ops.runs import progress
from ops.snapshot import pluralize
from ops.steer import cordon, look, memory
from ops.steer.memory import Memory
from ops.steer.settings import Settings
from training.spot.rates import INTERRUPTIONS_PER_NODE_HOUR, Exposure
from training.spot.steer import Choice, choose

RATES: Final = "rates"
"""ConfigMap beside the Lease, and its key: what was learnt of each pool, type and zone."""
_RATES_S: Final = 300.0
"""How often it is written without a loss."""
_GAP_S: Final = 600.0
"""Longer times without a look are not observed: nodes came and went meanwhile."""


class Controller:
    """Steers gangs. All that it must remember is on their Workloads and in the ConfigMap."""

    def __init__(
        self,
        cluster: Cluster,
        settings: Settings,
        show: Callable[[str], None],
        *,
        dry_run: bool = False,
        lease: Lease | None = None,
        home: str = "",
        page: Page | None = None,
        every_s: float = 0.0,
    ) -> None:
        """`lease`: what must be held to write. `home`: namespace of the rates; empty: they are not kept."""
        self._cluster, self._settings, self._show = cluster, settings, show
        self._dry_run, self._lease, self._home = dry_run, lease, home
        self._page, self._every_s = page, every_s
        self._seen: dict[look.Key, Exposure] | None = None
        self._looked = self._kept = 0.0
        self._moves: dict[tuple[str, str, str], int] = {}
        self._known: Mapping[str, progress.Progress] = {}
        self._cordons = cordon.Cordons(cluster, show, self._may_write, dry_run=dry_run)

    def step(self, prometheus: metrics.PrometheusClient | None, now: float) -> None:
        """Look, learn, decide and act once. Raises UnreachableError: nothing was decided."""
        if self._lease:
            self._lease.renew()
        items = self._cluster.items(NODES)
        nodes = look.nodes(items)
        held = look.nodes_of_gangs(self._cluster.items(PODS, None, naming.RUN_ID), nodes)
        queues = {objects.name(one): one for one in self._cluster.items(CLUSTER_QUEUES)}
        workloads = [
            one
            for one in self._cluster.items(WORKLOADS)
            if not objects.condition_is_true(one, "Finished") and _queue(one, queues)
        ]
        cordoned = cordon.because(items) if self._settings.cordon else {}
        known = self._progress(prometheus, {look.gang_of(one)[1] for one in workloads})
        memories = {objects.full_name(one): _memory(one) for one in workloads}
        gone = {uid for one in memories.values() for uid in one.nodes} - nodes.there
        self._learn(nodes, memory.losses_by_pool(memories, gone), now)
        updated = {
            objects.full_name(one): memory.update(
                memories[objects.full_name(one)],
                now,
                memory.seen(one, held.get(look.gang_of(one), set()) & nodes.there),
                gone,
            )
            for one in workloads
        }
        left = cordon.leaving(workloads, {n: one.nodes for n, one in updated.items()}, cordoned)
        for workload in workloads:
            name, run_id = objects.full_name(workload), look.gang_of(workload)[1]
            queue = _queue(workload, queues)
            assert queue is not None
            old, new = memories[name], updated[name]
            try:
                if name in left:
                    why = next(cordoned[uid] for uid in new.nodes if uid in cordoned)
                    self._replace(workload, new, left[name], why)
                    continue
                self._steer(workload, queue, old, new, known.get(run_id, progress.NO_PROGRESS), now)
            except ConflictError:
                continue  # It was changed meanwhile; the next look decides again.
            except UnreachableError:
                raise
            except ClusterError as error:
                self._show(f"{objects.full_name(workload)}: nothing done: {error}")
        if self._settings.cordon and prometheus is not None:
            self._cordons.step(prometheus, items, look.nodes_of_runs(held), nodes, now)
        if self._page:
            found = samples(self._seen or {}, self._moves, self._settings.priors, now)
            self._page.put(found, DECLARED)

    def _progress(
        self, prometheus: metrics.PrometheusClient | None, runs: Collection[str]
    ) -> Mapping[str, progress.Progress]:
        """Return the last known progress of runs; without it they are steered by losses and time-outs alone.

        A gang that waits for nodes reports none, but keeps what it has done. A restarted controller knows it again
        once the gang runs.
        """
        found: Mapping[str, progress.Progress] = {}
        if prometheus is not None:
            with contextlib.suppress(MetricsUnknownError):
                found = progress.from_prometheus(prometheus)
        none = progress.NO_PROGRESS
        self._known = {
            run: progress.newer(found.get(run, none), self._known.get(run, none)) for run in runs
        }
        return self._known

    def _steer(
        self,
        workload: Json,
        queue: Json,
        old: Memory,
        new: Memory,
        known: progress.Progress,
        now: float,
    ) -> None:
        spec = workload.get("spec") or {}
        if spec.get("active") is False:
            if old.moving and _let_go(workload) and not _stopped_by_budget(workload, queue):
                self._write(workload, dataclasses.replace(new, moving=False), {}, active=True)
            return
        # Somebody else has activated it meanwhile.
        new = dataclasses.replace(new, moving=False)
        names = look.eligible(workload, queue, self._settings.pools)
        if len(names) < 2 and not any(self._settings.pools[name].timed for name in names):
            return
        pool = memory.held_pool(workload)
        pools = [
            dataclasses.replace(self._settings.pools[name], seen=self._exposure(name))
            for name in names
        ]
        rich = budgets.read_state(queue).level < Level.WARN
        run = look.run(workload, new, known, now, pool=pool, may_buy=rich)
        choice = choose(run, pools, new.history, now, self._settings.rules, self._every_s)
        new = dataclasses.replace(new, place=choice.place, reason=explained(choice))
        self._put(workload, names, choice, old, new, pool)

    def _replace(self, workload: Json, new: Memory, others: int, why: str) -> None:
        """Have a group leave a cordoned node: it is queued again and joins from another one."""
        moved = dataclasses.replace(new, moving=True, moves=new.moves + 1, nodes=())
        self._write(workload, moved, {}, active=False)
        stay = pluralize(others, "group")
        self._say(workload, f"leaves a cordoned node; the run goes on with {stay}: {why}")

    def _put(
        self, workload: Json, names: list[str], choice: Choice, old: Memory, new: Memory, pool: str
    ) -> None:
        """Write what it may have, and stop it where it may not be or must be queued anew."""
        annotations = objects.meta(workload).get("annotations") or {}
        found = annotations.get(naming.ALLOWED_FLAVORS)
        before = set(names) if found is None else set(found.split(",")) & set(names)
        after = set(choice.pools)
        leaves = bool(pool) and pool not in after
        # Kueue looks again at a waiting Workload only after its spec has changed.
        wakes = not pool and bool(after - before)
        if leaves:
            new = dataclasses.replace(new, moves=new.moves + 1, nodes=())
        if not (leaves or wakes or after != before) and new == old:
            return
        stop = leaves or wakes
        value = None if after == set(names) else ",".join(choice.pools)
        self._write(
            workload,
            dataclasses.replace(new, moving=stop),
            {naming.ALLOWED_FLAVORS: value},
            active=False if stop else None,
        )
        if leaves or after != before:
            what = f"may have {', '.join(choice.pools) or 'no pool now'}"
            if leaves:
                what = f"saves and leaves {pool}; {what}"
                team = objects.label(workload, naming.TEAM)
                key = (team, pool, choice.place.value)
                self._moves[key] = self._moves.get(key, 0) + 1
            self._say(workload, f"{what}: {new.reason}")

    def _write(
        self, workload: Json, new: Memory, more: Mapping[str, str | None], *, active: bool | None
    ) -> None:
        change: dict[str, Any] = {
            "metadata": {
                "annotations": {naming.STEERING: new.text(), **more},
                "resourceVersion": objects.meta(workload).get("resourceVersion"),
            }
        }
        if active is not None:
            change["spec"] = {"active": active}
        if self._dry_run:
            return
        self._may_write()
        namespace = str(objects.meta(workload)["namespace"])
        self._cluster.patch(WORKLOADS, objects.name(workload), change, namespace)

    def _say(self, workload: Json, text: str) -> None:
        """Log a decision, and make it an event of the Workload; the decision does not depend on the event."""
        self._show(f"{objects.full_name(workload)}: {text}")
        if self._dry_run:
            return
        about = objects.meta(workload)
        now = objects.stamp(dt.datetime.now(dt.UTC))
        event = {
            "apiVersion": EVENTS.api,
            "kind": EVENTS.kind,
            "metadata": {
                "name": f"{objects.name(workload)}.{secrets.token_hex(8)}",
                "namespace": about["namespace"],
            },
            "involvedObject": {
                "apiVersion": WORKLOADS.api,
                "kind": WORKLOADS.kind,
                "name": objects.name(workload),
                "namespace": about["namespace"],
                "uid": about.get("uid"),
            },
            "reason": "Steered",
            "message": text[:1000],
            "type": "Normal",
            "source": {"component": naming.STEERING_ACCOUNT},
            "firstTimestamp": now,
            "lastTimestamp": now,
            "count": 1,
        }
        try:
            self._cluster.create(EVENTS, event)
        except ClusterError as error:
            self._show(f"{objects.full_name(workload)}: no event: {error}")

    def _may_write(self) -> None:
        if self._lease:
            self._lease.check()

    def _exposure(self, pool: str) -> Exposure:
        return sum(
            (one for key, one in (self._seen or {}).items() if key[0] == pool), start=Exposure()
        )

    def _learn(self, nodes: look.Nodes, lost: Mapping[str, set[str]], now: float) -> None:
        """Count node time and losses of this look, and keep them."""
        if self._seen is None:
            self._seen = self._read_rates()
        seconds = now - self._looked if self._looked else 0.0
        self._looked = now
        counts: dict[look.Key, int] = {}
        for uid in nodes.there:
            counts[nodes.keys[uid]] = counts.get(nodes.keys[uid], 0) + 1
        losses: dict[look.Key, int] = {}
        for pool, uids in lost.items():
            for uid in uids:
                key = nodes.keys.get(uid) or next((k for k in self._seen if k[0] == pool), None)
                if key:
                    losses[key] = losses.get(key, 0) + 1
        for key in {*counts, *self._seen} if 0 <= seconds <= _GAP_S else ():
            before = self._seen.get(key, Exposure())
            self._seen[key] = before.after(seconds, counts.get(key, 0), losses.get(key, 0))
        if losses or now - self._kept > _RATES_S:
            self._kept = now
            self._keep_rates()

    def _read_rates(self) -> dict[look.Key, Exposure]:
        if not self._home:
            return {}
        found = self._cluster.get(CONFIG_MAPS, RATES, self._home) or {}
        try:
            rows = json.loads((found.get("data") or {}).get(RATES, "[]"))
            return {
                (str(a), str(b), str(c)): Exposure(node_s=float(s), losses=float(n))
                for a, b, c, s, n in rows
            }
        except (ValueError, TypeError):
            return {}

    def _keep_rates(self) -> None:
        if not self._home or self._dry_run:
            return
        self._may_write()
        rows = [[*key, one.node_s, one.losses] for key, one in sorted((self._seen or {}).items())]
        data = {RATES: json.dumps(rows)}
        if self._cluster.get(CONFIG_MAPS, RATES, self._home) is not None:
            self._cluster.patch(CONFIG_MAPS, RATES, {"data": data}, self._home)
            return
        about = {"name": RATES, "namespace": self._home}
        manifest = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": about, "data": data}
        self._cluster.create(CONFIG_MAPS, manifest)


def explained(choice: Choice) -> str:
    """Return the reason of a choice, with the best interval between checkpoints to one digit of minutes."""
    if math.isinf(choice.checkpoint_every_s):
        return choice.reason
    minutes = float(f"{choice.checkpoint_every_s / 60:.1g}")
    return f"{choice.reason}; a checkpoint every {minutes:g} min or so loses least"


def _memory(workload: Json) -> Memory:
    return memory.parse((objects.meta(workload).get("annotations") or {}).get(naming.STEERING, ""))


def _queue(workload: Json, queues: Mapping[str, Json]) -> Json | None:
    """Return the ClusterQueue of a team's Workload; None for those of other namespaces."""
    namespace = str(objects.meta(workload).get("namespace") or "")
    prefix = naming.namespace("")
    return (
        queues.get(naming.cluster_queue(namespace.removeprefix(prefix)))
        if namespace.startswith(prefix)
        else None
    )


def _let_go(workload: Json) -> bool:
    """Whether Kueue has taken the quota of a deactivated Workload back, so that it can be queued anew."""
    return not objects.status(workload).get("admission")


def _stopped_by_budget(workload: Json, queue: Json) -> bool:
    return objects.full_name(workload) in budgets.read_state(queue).stopped


DECLARED: Final = (series.STEERING_LOOKED, series.STEERING_MOVES, series.STEERING_LOSSES)


def samples(
    seen: Mapping[tuple[str, str, str], Exposure],
    moves: Mapping[tuple[str, str, str], int],
    priors: Mapping[tuple[str, str], float],
    now: float,
) -> list[Sample]:
    """Return all metrics.

    `moves`: by team, pool that was left, and place that was chosen, since the start.
    `priors`: by pool and instance type, as in `Settings`.
    """
    found: list[Sample] = [(series.STEERING_LOOKED, {}, now)]
    for (team, pool, place), count in sorted(moves.items()):
        found.append((series.STEERING_MOVES, {"team": team, "pool": pool, "to": place}, count))
    for (pool, kind, zone), one in sorted(seen.items()):
        labels = {"pool": pool, "type": kind, "zone": zone}
        rates = one.rates(1, priors.get((pool, kind), INTERRUPTIONS_PER_NODE_HOUR))
        found.append((series.STEERING_LOSSES, labels, rates.lost * 3600))
    return found
