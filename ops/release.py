"""Let groups go that still wait for nodes though their run has ended: nothing else would end their wait.

A group that gets nodes after the end finds the run finished, and ends. Until then it has a place in its queue, may
preempt others, and makes an autoscaler start nodes.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from rich.console import Console

from infra.domain import launcher_support
from ops import controller, groups, objects
from ops.cluster import Cluster, ClusterError, ConflictError, Kind, UnreachableError
from ops.collect import WORKLOADS
from ops.commands import Group, printer
from ops.lease import Lease
from ops.objects import Json

_KINDS: Final = tuple(
    Kind(one.kind.api_version, one.kind.resource, one.kind.kind)
    for one in launcher_support.LAUNCHERS.values()
    if one.groups
)


def waiting(gangs: Iterable[Json], workloads: Sequence[Json]) -> list[Json]:
    """Return the Workloads of groups that do not take part in their run and cannot any more. Pure.

    `gangs`: objects of groups, of any number of runs. What takes part is left alone: it may still save or export.
    """
    found = []
    for run in groups.merged(gangs):
        for gang in groups.gangs(run) if groups.outcome(run) else ():
            workload = objects.workload_of(gang, workloads)
            if workload is not None and not groups.has_ended(gang) and _waits(workload):
                found.append(workload)
    return found


def _waits(workload: Json) -> bool:
    active = (workload.get("spec") or {}).get("active", True)
    ready = objects.condition_is_true(workload, "PodsReady")
    return bool(active) and not ready and not objects.condition_is_true(workload, "Finished")


class Releaser:
    """Looks at all runs with groups, and deactivates what still waits of those that have ended."""

    def __init__(
        self,
        cluster: Cluster,
        show: Callable[[str], None],
        *,
        dry_run: bool = False,
        lease: Lease | None = None,
    ) -> None:
        """`lease`: what must be held to write; None: nobody else writes."""
        self._cluster, self._show = cluster, show
        self._dry_run, self._lease = dry_run, lease

    def step(self) -> int:
        """Look and act once; return how many groups were released. Raises UnreachableError."""
        if self._lease:
            self._lease.renew()
        gangs = [one for kind in _KINDS for one in self._cluster.items(kind, None, groups.LABEL)]
        workloads = self._cluster.items(WORKLOADS, None, groups.LABEL)
        return sum(self._release(workload) for workload in waiting(gangs, workloads))

    def _release(self, workload: Json) -> bool:
        about = objects.meta(workload)
        name = f"{about['namespace']}/{objects.name(workload)}"
        change = {
            "metadata": {"resourceVersion": about.get("resourceVersion")},
            "spec": {"active": False},
        }
        try:
            if not self._dry_run:
                if self._lease:
                    self._lease.check()
                self._cluster.patch(
                    WORKLOADS, objects.name(workload), change, str(about["namespace"])
                )
        except ConflictError:
            return False  # It was changed meanwhile; the next look decides again.
        except UnreachableError:
            raise
        except ClusterError as error:
            self._show(f"{name}: not released: {error}")
            return False
        self._show(f"{name}: released, its run has ended")
        return True


EVERY_S: Final = 30.0


def add(commands: Group) -> None:
    release = commands.add(
        "release",
        _release,
        "let groups of ended runs go that still wait for nodes",
        ["stack release --once --dry-run", "stack release --once"],
    )
    controller.add_options(release, EVERY_S, "poll once and end")


def _release(args: argparse.Namespace, cluster: Cluster, console: Console) -> int:
    show = printer(console)
    lease = controller.lease_of(args, cluster)
    releaser = Releaser(cluster, show, dry_run=args.dry_run, lease=lease)
    return controller.repeat(args, releaser.step, lease, show)
