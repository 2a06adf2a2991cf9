"""Which replica groups leave a node that was cordoned because runs have named ranks on it. Pure.

A group that computed wrong values or hung has ended, and Kueue gives it another node; one that is slow goes on,
and holds up the others.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping

from ops import groups, objects
from ops.objects import Json


def leaving(
    workloads: Iterable[Json], nodes: Mapping[str, Collection[str]], cordoned: Collection[str]
) -> dict[str, int]:
    """Return the Workloads to queue again, as `NAMESPACE/NAME`, and how many groups go on without each.

    `nodes`: UIDs of the nodes of each Workload, by its name; `cordoned`: UIDs of nodes. A group stays where fewer
    others take part than the run needs: it would only save and wait.
    """
    runs: dict[tuple[str, str], list[Json]] = defaultdict(list)
    for one in workloads:
        if groups.number_of(one) is not None and _is_admitted(one):
            runs[str(objects.meta(one).get("namespace")), objects.run_id_of(one)].append(one)
    closed, found = set(cordoned), dict[str, int]()
    for members in runs.values():
        stay = {
            objects.full_name(one) for one in members if objects.condition_is_true(one, "PodsReady")
        }
        for one in members:
            name = objects.full_name(one)
            others = stay - {name}
            if closed & set(nodes.get(name, ())) and len(others) >= groups.needed(one):
                found[name] = len(others)
                stay = others
    return found


def _is_admitted(workload: Json) -> bool:
    active = (workload.get("spec") or {}).get("active", True)
    return bool(active and objects.status(workload).get("admission"))
