"""The platform's node checks on their own process nodes, alongside other objects in the cluster."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from infra.config import arguments, parse, platform_record
from infra.config.model import StackConfig
from infra.domain import naming
from infra.domain.platform import Platform
from infra.queueing import kueue, priorities
from infra.sites.simulated import node_pools
from infra.validation import component
from infra.validation.component import ValidationArgs
from infra.validation.jobs import COMPONENT, QUEUEING
from sandbox.node.api import Json
from tests.sandbox.conftest import Cluster
from tests.sandbox.node_kit import platform_in

SPACE = naming.VALIDATION_NAMESPACE


@dataclass(frozen=True, kw_only=True)
class CheckedStack:
    """A stack of two process nodes with a GPU each, one without, and a team."""

    name: str
    """Also of the pool, the team, the cohort and, as a prefix, of cluster-wide objects."""

    @property
    def cpu_pool(self) -> str:
        return f"{self.name}-cpu"

    @property
    def platform(self) -> Platform:
        """The Platform record of the stack."""
        return platform_record.platform(self._config, self.name)

    @property
    def _config(self) -> StackConfig:
        return parse(
            {
                "cluster": {"provider": "existing", "name": self.name},
                "taintKey": "dedicated",
                "cohort": self.name,
                "nodePools": [
                    _pool(self.name, 2, "g6.xlarge"),
                    _pool(self.cpu_pool, 1, "m6i.xlarge", workload="cpu"),
                ],
                "storage": {"checkpoints": "1Gi", "datasets": "1Gi"},
                "operators": {"kueue": {"provided": True}},
                "teams": [
                    {
                        "name": self.name,
                        "tier": "research",
                        "quota": {"cpu": "16", "memory": "64Gi", "gpus": 2},
                    }
                ],
            }
        )

    def checks(self, image: str) -> ValidationArgs:
        """Its checks, in this image."""
        return ValidationArgs(platform=self.platform, operators=("kueue",), image=image)

    def objects(self, args: ValidationArgs, *more: Json) -> list[Json]:
        """Return the objects for the stack's checks in the order of creation, and `more`."""
        queues = arguments.queues(self._config)
        found = [
            *(node_pools.node(pool, i) for pool in self._config.pools for i in range(pool.max)),
            *(kueue.workload_priority_class(name) for name in priorities.PRIORITIES),
            kueue.topology(),
            *(kueue.flavor(pool) for pool in queues.pools),
            kueue.cohort(queues.cohort, queues.pools, queues.teams),
            component.flavor(args.cpu_pool),
            component.borrowing_queue(args),
            component.own_queue(),
            component.namespace(signed=False),
            component.service_account(),
            component.service(),
            *component.network_policies(),
            component.local_queue(COMPONENT),
            component.local_queue(QUEUEING),
            *component.templates(args),
            component.stack_facts(args),
            *more,
        ]
        return self._renamed(found)

    def _renamed(self, objects: Sequence[Json]) -> list[Json]:
        """Cluster-wide objects that a stack on the same cluster has under their usual names."""
        text = json.dumps(objects)
        for usual in (naming.TOPOLOGY, *priorities.PRIORITIES):
            text = text.replace(f'"{usual}"', f'"{self.name}-{usual}"')
        found: list[Json] = json.loads(text)
        return found

    @contextlib.contextmanager
    def deployed(self, cluster: Cluster, objects: Sequence[Json]) -> Iterator[Cluster]:
        """The cluster with these objects, nodes ready and queues open; deleted at the end."""
        pools = (self.name, self.cpu_pool)
        with platform_in(cluster, objects, pools, (COMPONENT, QUEUEING), {SPACE: "jobs"}) as ready:
            yield ready


def _pool(name: str, nodes: int, instance: str, **more: Any) -> Json:
    size = {"min": nodes, "max": nodes, "instanceTypes": [instance]}
    return {"name": name, "capacity": "on-demand", "zone": "z-1", "nodes": "process"} | size | more
