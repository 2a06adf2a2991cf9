"""The simulated fleet and its two queue configurations: the platform's, and a minimal one."""

from __future__ import annotations

import contextlib
import copy
import signal
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from bench.api import Json
from infra.addons.kueue import PRODUCTION_TIMEOUTS, scheduling_config
from infra.cli import render
from infra.config import parse, platform_record
from infra.domain import naming
from infra.domain.platform import Platform
from infra.domain.tier import TIERS

POOLS: Final = (
    ("ondemand-a", "on-demand", "us-east-1a"),
    ("ondemand-b", "on-demand", "us-east-1b"),
    ("spot-a", "spot", "us-east-1a"),
    ("spot-b", "spot", "us-east-1b"),
)
"""Name, capacity and zone."""
TEAMS: Final = (
    ("vision", "research"),
    ("language", "research"),
    ("speech", "production"),
    ("assistant", "production"),
)
"""Name and tier."""
INSTANCE_TYPE: Final = "p4d.24xlarge"
GPUS_PER_NODE: Final = 8
GUARANTEED_FRACTION: Final = 8
"""Each team is guaranteed one eighth of each pool of its tier's capacity type; the rest is borrowed."""

IMAGE: Final = "registry.test/trainer@sha256:" + "5" * 64

_UNUSED_KINDS: Final = frozenset({"PersistentVolumeClaim", "StorageClass", "ConfigMap"})
"""Pods on simulated nodes mount nothing."""
_ARM_KINDS: Final = frozenset(
    {
        "Topology",
        "ResourceFlavor",
        "Cohort",
        "ClusterQueue",
        "LocalQueue",
        "ValidatingAdmissionPolicy",
        "ValidatingAdmissionPolicyBinding",
    }
)
"""Kinds of the compared configuration; other objects apply to both, in team namespaces only."""
_ORDER: Final = ("Namespace", "Topology", "ResourceFlavor", "Cohort", "ClusterQueue", "LocalQueue")

TRAINYARD_ARM: Final = "ours"
MINIMAL_ARM: Final = "minimal"
"""Names of the two configurations in tables."""
MINIMAL: Final = "bench-minimal"
"""Name of all that the minimal configuration has."""


def stack_values(nodes: int, network: str = "efa") -> dict[str, Any]:
    """A stack file's values: `nodes` simulated p4d nodes in four pools, and four teams.

    `network`: of the pools; empty: the default.
    """
    size, more = divmod(nodes, len(POOLS))
    sizes = {name: size + (index < more) for index, (name, _, _) in enumerate(POOLS)}
    return {
        "cluster": {"provider": "existing", "name": "bench"},
        "taintKey": "dedicated",
        "cohort": "bench",
        "nodePools": [
            {
                "name": name,
                "capacity": bought,
                "instanceTypes": [INSTANCE_TYPE],
                "min": sizes[name],
                "max": sizes[name],
                "zone": zone,
                **({"network": network} if network else {}),
                "nodes": "kwok",
            }
            for name, bought, zone in POOLS
        ],
        "storage": {"checkpoints": "1Gi", "datasets": "1Gi"},
        "operators": {"kueue": {"provided": True}, "jobset": {"provided": True}},
        "images": {"trainer": IMAGE},
        "teams": [
            {
                "name": team,
                "tier": tier,
                "guaranteed": {
                    name: sizes[name] // GUARANTEED_FRACTION
                    for name, bought, _ in POOLS
                    if bought == TIERS[tier].capacity_order[0].value
                },
                "quota": {
                    "cpu": str(96 * nodes),
                    "memory": f"{2 * nodes}Ti",
                    "gpus": GPUS_PER_NODE * nodes,
                },
            }
            for team, tier in TEAMS
        ],
    }


@dataclass(frozen=True, kw_only=True)
class Arm:
    """One configuration of the queues."""

    name: str
    objects: tuple[Json, ...]
    """In the order of creation."""
    kueue: Mapping[str, Any]
    """Kueue's own configuration file."""

    @property
    def cluster_queues(self) -> tuple[str, ...]:
        """Names of its ClusterQueues."""
        found = (o for o in self.objects if o["kind"] == "ClusterQueue")
        return tuple(o["metadata"]["name"] for o in found)

    def held(self) -> list[Json]:
        """The objects, with queues that do not admit yet."""
        objects = copy.deepcopy(list(self.objects))
        for queue in objects:
            if queue["kind"] == "ClusterQueue":
                queue["spec"]["stopPolicy"] = "Hold"
        return objects


@dataclass(frozen=True, kw_only=True)
class Fleet:
    """Nodes, what is there for both configurations, and the platform that runs are rendered for."""

    nodes: tuple[Json, ...]
    common: tuple[Json, ...]
    ours: tuple[Json, ...]
    platform: Platform

    @property
    def priorities(self) -> dict[str, int]:
        """Values of the WorkloadPriorityClasses, by name."""
        classes = (m for m in self.common if m["kind"] == "WorkloadPriorityClass")
        return {m["metadata"]["name"]: int(m["value"]) for m in classes}

    @property
    def gpus(self) -> dict[str, int]:
        """GPUs of each pool: what its flavor may never exceed."""
        return {pool.name: pool.max * pool.gpus_per_node for pool in self.platform.pools}


def render_fleet(nodes: int, network: str = "efa") -> Fleet:
    """What the program renders for so many nodes."""
    values = stack_values(nodes, network)
    with _signals_deferred():
        records = render.render("bench", values)
    manifests = [r["inputs"] for r in records if r["type"].startswith("kubernetes:")]
    kept = [m for m in manifests if "kind" in m and m["kind"] not in _UNUSED_KINDS]
    return Fleet(
        nodes=tuple(m for m in kept if m["kind"] == "Node"),
        common=tuple(
            _in_creation_order([m for m in kept if m["kind"] not in _ARM_KINDS | {"Node"}])
        ),
        ours=tuple(_in_creation_order([m for m in kept if m["kind"] in _ARM_KINDS])),
        platform=platform_record.platform(parse(values), "bench"),
    )


@contextlib.contextmanager
def _signals_deferred() -> Iterator[None]:
    """An interruption inside Pulumi's event loop would leave it waiting for ever."""
    came: list[int] = []
    numbers = (signal.SIGINT, signal.SIGTERM)
    before = [signal.signal(number, lambda got, _: came.append(got)) for number in numbers]
    try:
        yield
    finally:
        for number, handler in zip(numbers, before, strict=True):
            signal.signal(number, handler)
    if came:
        signal.raise_signal(came[0])


def with_production_settings(kueue: Json) -> Json:
    """Return the sandbox's Kueue configuration with all that decides on admission as on a cluster.

    The sandbox's timeout of 45 s is for a control plane with nothing else to do: under load gangs would be sent
    back that only wait for their turn. Its gates are those of a stack that steers runs; the benchmark's does not.
    """
    frameworks = kueue["integrations"]["frameworks"]
    return kueue | scheduling_config(PRODUCTION_TIMEOUTS, frameworks, steered=False)


def trainyard_arm(made: Fleet, kueue: Json) -> Arm:
    """Our queues, quotas and policies; `kueue`: Kueue's own configuration."""
    return Arm(name=TRAINYARD_ARM, objects=made.ours, kueue=kueue)


def minimal_arm(made: Fleet, kueue: Json) -> Arm:
    """Return one flavor of all nodes, one ClusterQueue without a cohort, and Kueue without options.

    Upstream's defaults hold for fair sharing, waiting for pods and feature gates. Topology, ports, certificates,
    client limits, workers and frameworks stay: without them the arms would differ in what is not meant.
    """
    plain = {k: v for k, v in kueue.items() if k not in ("waitForPodsReady", "fairSharing")}
    plain["featureGates"] = {}
    return Arm(
        name=MINIMAL_ARM,
        objects=tuple(minimal_objects(made)),
        kueue=plain,
    )


def minimal_objects(made: Fleet) -> list[Json]:
    """The platform's topology, one flavor, one ClusterQueue with the quota of all pools, its LocalQueue."""
    pools = made.platform.pools
    topology = next(o for o in made.ours if o["kind"] == "Topology")
    resources = ("cpu", "memory", naming.GPU, naming.EFA)
    total = {r: sum(p.node_quota[r] * p.max for p in pools) for r in resources}
    quota = {r: f"{amount}m" if r == "cpu" else str(amount) for r, amount in total.items()}
    flavor = {
        "name": MINIMAL,
        "resources": [{"name": r, "nominalQuota": quota[r]} for r in resources],
    }
    specs: dict[str, dict[str, Any]] = {
        "Topology": topology["spec"],
        "ResourceFlavor": {
            "nodeLabels": {naming.WORKLOAD_TYPE: naming.GPU_TRAINING},
            "tolerations": [{"operator": "Exists"}],
            "topologyName": MINIMAL,
        },
        "ClusterQueue": {
            "namespaceSelector": {},
            "resourceGroups": [{"coveredResources": list(resources), "flavors": [flavor]}],
        },
        "LocalQueue": {"clusterQueue": MINIMAL},
    }
    return [
        {
            "apiVersion": naming.KUEUE_API,
            "kind": kind,
            "metadata": {"name": MINIMAL}
            | ({"namespace": MINIMAL} if kind == "LocalQueue" else {}),
            "spec": spec,
        }
        for kind, spec in specs.items()
    ]


def minimal_namespace() -> list[Json]:
    """The namespace of the minimal configuration, and the account that pods name."""
    account = {"name": naming.SERVICE_ACCOUNT, "namespace": MINIMAL}
    return [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": MINIMAL}},
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": account},
    ]


def _in_creation_order(manifests: list[Json]) -> list[Json]:
    """What others name goes first; else as rendered."""
    rank = {kind: index for index, kind in enumerate(_ORDER)}
    return sorted(manifests, key=lambda m: rank.get(m["kind"], len(_ORDER)))
