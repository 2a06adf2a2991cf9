"""Where the runs of a cluster are now."""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

from infra.domain import naming
from ops import collect, groups, objects
from ops.cluster import Cluster
from ops.objects import Json
from ops.review.impacts import Place, place_of
from ops.runs import states


def read(cluster: Cluster, nodes: Sequence[Json]) -> list[Place]:
    """Return the places of all runs that did not end, submitted ones included. Raises ForbiddenError."""
    runs = collect.list_runs(cluster)
    return places(runs, cluster.items(collect.PODS, None, naming.RUN_ID), nodes)


def places(runs: Iterable[Json], pods: Iterable[Json], nodes: Iterable[Json]) -> list[Place]:
    """Return where each run that did not end is: the pools and nodes of its live pods. Pure."""
    pool_of = {objects.name(node): objects.label(node, naming.POOL) for node in nodes}
    held: Mapping[tuple[str, str], set[tuple[str, str]]] = defaultdict(set)
    for pod in states.live_pods(list(pods)):
        node = str(pod["spec"].get("nodeName") or "")
        key = (str(objects.meta(pod).get("namespace")), objects.label(pod, naming.RUN_ID))
        if pool_of.get(node):
            held[key].add((pool_of[node], node))
    return [
        dataclasses.replace(one, nodes=frozenset(held[one.namespace, one.run]))
        for run in runs
        if not all(states.ending_of(gang) for gang in groups.gangs(run))
        for one in [place_of(objects.run_id_of(run), run)]
    ]
