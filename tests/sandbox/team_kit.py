"""One team with process nodes, queue and volumes on the real cluster, as a stack deploys them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from infra.config import arguments, parse, platform_record
from infra.domain import naming
from infra.domain.platform import Platform
from infra.domain.storage import Volume
from infra.queueing import kueue, priorities
from infra.sites.simulated import node_pools, storage
from infra.tenancy import access, team, volumes
from tests.sandbox.conftest import Cluster
from tests.sandbox.node_kit import platform_in

Json = dict[str, Any]


def process_pool(name: str, capacity: str, nodes: int, zone: str) -> Json:
    return {
        "name": name,
        "capacity": capacity,
        "instanceTypes": ["g6.xlarge"],
        "min": nodes,
        "max": nodes,
        "zone": zone,
        "nodes": "process",
    }


@dataclass(frozen=True, kw_only=True)
class TeamStage:
    """A stack of one team. Cluster-wide objects have names of their own, beside those of other stacks."""

    team: str
    """Also the prefix of those names."""
    pools: Sequence[Json]
    guaranteed: Mapping[str, int]
    more: Json = field(default_factory=dict)
    """Further sections of the stack file."""
    of_team: Json = field(default_factory=dict)
    """Further settings of the team."""

    @property
    def namespace(self) -> str:
        return naming.namespace(self.team)

    def values(self) -> Json:
        gpus = sum(one["max"] for one in self.pools if one.get("workload") != "cpu")
        quota = {"cpu": str(4 * gpus), "memory": "64Gi", "gpus": gpus}
        one = {"name": self.team, "tier": "research", "guaranteed": dict(self.guaranteed)}
        return {
            "cluster": {"provider": "existing", "name": self.team},
            "taintKey": "dedicated",
            "cohort": self.team,
            "nodePools": list(self.pools),
            "storage": {"checkpoints": "1Gi", "datasets": "1Gi"},
            "operators": {"kueue": {"provided": True}, "jobset": {"provided": True}},
            "teams": [one | {"quota": quota} | self.of_team],
            **self.more,
        }

    def platform(self) -> Platform:
        return platform_record.platform(parse(self.values()), self.team)

    def own(self, manifest: Json) -> Json:
        """Return the manifest with the stage's names for cluster-wide objects."""
        text = json.dumps(manifest)
        for usual in (naming.SIMULATED_STORAGE_CLASS, naming.TOPOLOGY, *priorities.PRIORITIES):
            text = text.replace(f'"{usual}"', f'"{self.team}-{usual}"')
        renamed: Json = json.loads(text)
        return renamed

    def objects(self) -> list[Json]:
        config = parse(self.values())
        queues = arguments.queues(config)
        size = Volume(size="1Gi", storage_class=naming.SIMULATED_STORAGE_CLASS)
        found = [
            *(node_pools.node(pool, i) for pool in config.pools for i in range(pool.max)),
            *(
                build(name)
                for name in priorities.PRIORITIES
                for build in (priorities.priority_class, kueue.workload_priority_class)
            ),
            storage.storage_class(),
            kueue.topology(),
            *(kueue.flavor(pool) for pool in queues.pools),
            kueue.cohort(queues.cohort, queues.pools, queues.teams),
            *(kueue.cluster_queue(t, queues.cohort, queues.pools) for t in queues.teams),
            team.namespace(self.team),
            access.service_account(self.team),
            team.local_queue(self.team),
            volumes.claim(self.team, naming.CHECKPOINTS_CLAIM, size),
            volumes.claim(self.team, naming.DATASETS_CLAIM, size),
        ]
        return [self.own(manifest) for manifest in found]

    def deployed(self, cluster: Cluster, kinds: str) -> AbstractContextManager[Cluster]:
        """Return the cluster with it. `kinds`: what tests make in its namespace, which goes first at the end."""
        pools = [pool["name"] for pool in self.pools]
        queue = naming.cluster_queue(self.team)
        return platform_in(cluster, self.objects(), pools, (queue,), {self.namespace: kinds})

    def volume(self, cluster: Cluster, claim: str) -> Path:
        return cluster.state.volumes / self.namespace / claim
