"""P10: the critical path of the first `pulumi up` of a stack on AWS, simulated.

The graph is what the program registers (infra/cli/render.py), with a delay per type of resource. The engine starts
a resource when all that it depends on is there, so the time of `up` is the longest chain. Compared with

- the longest chain that the APIs force: the same resources with those edges that a request could not do without;
- the shape of terraform-aws-eks, whose node groups wait 30 s after the cluster (`dataplane_wait_duration`), whose
  add-ons wait for the node groups, and whose module charts wait for as a whole (`depends_on = [module.eks]`).

Nothing here is a measurement of AWS.
"""

from __future__ import annotations

import json
import math
import random
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

from bench.request import Request, Result
from infra.cli.render import ROOT, Record, render
from infra.config import stack_values

SIZES: dict[str, dict[str, Any]] = {"small": {"draws": 20}, "full": {"draws": 500}}
STACKS: Final = ("dev", "prod")
GOAL: Final = 1.03
CONTROL_PLANE_S: Final = 900.0
"""Published: 13 to 16 minutes in 21 regions, us-west-2 900 s (easontechtalk.com, "Unofficial EKS Cluster Creation
Performance")."""
DELAYS: Final[Mapping[str, float]] = {
    "eks:index:Cluster": CONTROL_PLANE_S,
    "aws:eks/nodeGroup:NodeGroup": 120.0,
    "aws:eks/addon:Addon": 45.0,
    "aws:ec2/natGateway:NatGateway": 100.0,
    "aws:ec2/vpcEndpoint:VpcEndpoint": 75.0,
    "aws:efs/fileSystem:FileSystem": 10.0,
    "aws:efs/mountTarget:MountTarget": 85.0,
    "aws:fsx/lustreFileSystem:LustreFileSystem": 480.0,
    "aws:fsx/dataRepositoryAssociation:DataRepositoryAssociation": 300.0,
    "aws:kms/key:Key": 12.0,
    "aws:iam/role:Role": 2.0,
    "aws:s3/bucket:Bucket": 3.0,
    "kubernetes:helm.sh/v3:Release": 60.0,
}
"""Seconds until a resource of a type is there. All but the control plane's are round numbers of the size that logs
of updates show, so they are also drawn from half to twice these."""
_REST_S: Final = 1.0
_DATA_PLANE_WAIT_S: Final = 30.0
_CLUSTER: Final = "eks:index:Cluster"
_GROUP: Final = "aws:eks/nodeGroup:NodeGroup"
_ADDON: Final = "aws:eks/addon:Addon"
_RELEASE: Final = "kubernetes:helm.sh/v3:Release"
_NAMESPACE: Final = "kubernetes:core/v1:Namespace"
_GRANTS: Final = (
    "aws:iam/rolePolicyAttachment:RolePolicyAttachment",
    "aws:iam/rolePolicy:RolePolicy",
    "aws:eks/accessEntry:AccessEntry",
    "aws:eks/podIdentityAssociation:PodIdentityAssociation",
)
"""Without them nodes cannot join and pods of an add-on fail."""
_CRDS: Final = {
    "kueue.x-k8s.io": "operators-kueue",
    "jobset.x-k8s.io": "operators-jobset",
    "trainer.kubeflow.org": "operators-kubeflowTrainer",
    "monitoring.coreos.com": "operators-kubePrometheusStack",
    "external-secrets.io": "operators-externalSecrets",
    "policy.sigstore.dev": "operators-policyController",
}
"""Release that brings the kinds of an API group."""

Edges = Mapping[str, frozenset[str]]


@dataclass(frozen=True, kw_only=True)
class Graph:
    """Resources of a stack by `TYPE::NAME`, and what each waits for."""

    records: Mapping[str, Record]
    ours: Edges
    forced: Edges
    terraform: Edges


def graph(records: Iterable[Record]) -> Graph:
    """Return the three graphs of a rendered stack."""
    by_key = {f"{one['type']}::{one['name']}": one for one in records}
    ours = {key: frozenset(_recorded(key, by_key)) for key in by_key}
    forced = {key: frozenset(_forced(key, by_key, ours)) for key in by_key}
    groups = frozenset(key for key in by_key if by_key[key]["type"] == _GROUP)
    addons = frozenset(key for key in by_key if by_key[key]["type"] == _ADDON)
    waits = {_ADDON: groups, _RELEASE: groups | addons}
    # Its cluster, node groups and add-ons do not wait for more than they must.
    inside = (_CLUSTER, _GROUP, _ADDON)
    terraform = {
        key: (forced if by_key[key]["type"] in inside else ours)[key]
        | waits.get(by_key[key]["type"], frozenset())
        for key in by_key
    }
    return Graph(records=by_key, ours=ours, forced=forced, terraform=terraform)


def _recorded(key: str, by_key: Mapping[str, Record]) -> Iterable[str]:
    one = by_key[key]
    for other in (*one["dependsOn"], *one["provider"].split(", ")):
        if other in by_key and other != key:
            yield other


def _forced(key: str, by_key: Mapping[str, Record], ours: Edges) -> Iterable[str]:
    """Yield what a request cannot do without: values, rights, namespaces, kinds, and nodes for a chart's pods."""
    one = by_key[key]
    text = json.dumps(one["inputs"])
    for other in ours[key]:
        if _needs(one, text, by_key[other]):
            yield other
    if one["type"] == _RELEASE:
        yield from (other for other in by_key if other == f"{_GROUP}::aws-system-group")


def _needs(one: Record, text: str, other: Record) -> bool:
    kind, name = other["type"], other["name"]
    if f'"{name}"' in text or f"${{{name}." in text or kind.startswith("pulumi:providers:"):
        return True
    if kind == _CLUSTER:
        return True
    if one["type"] == "aws:fsx/lustreFileSystem:LustreFileSystem":
        # FSx checks that its servers reach each other.
        return bool(kind.startswith("aws:vpc/securityGroup") and "-servers-" in name)
    if kind in _GRANTS:
        return one["type"] in (_GROUP, _ADDON, _RELEASE)
    if kind == _NAMESPACE:
        return bool(_namespace(one) == other["inputs"]["metadata"]["name"])
    if kind == _RELEASE:
        group = str(one["inputs"].get("apiVersion", "")).partition("/")[0]
        # Kueue's webhooks review the Jobs of other charts' hooks, and fail until Kueue answers.
        hooks = one["type"] == _RELEASE and name == "operators-kueue"
        return bool(hooks or _CRDS.get(group) == name)
    return bool(kind.endswith(":CustomResourceDefinition"))


def _namespace(one: Record) -> str:
    inputs = one["inputs"]
    return str(inputs.get("namespace") or (inputs.get("metadata") or {}).get("namespace") or "")


def longest(records: Mapping[str, Record], edges: Edges, delays: Mapping[str, float]) -> list[str]:
    """Return the chain that ends last, first resource first."""

    @cache
    def end(key: str) -> float:
        before = max((end(other) for other in edges[key]), default=0.0)
        return before + _delay(records[key], delays)

    chain = [max(sorted(edges), key=end)]
    while edges[chain[-1]]:
        chain.append(max(sorted(edges[chain[-1]]), key=end))
    return chain[::-1]


def seconds(records: Mapping[str, Record], edges: Edges, delays: Mapping[str, float]) -> float:
    """Return the time of the longest chain."""
    return sum(_delay(records[key], delays) for key in longest(records, edges, delays))


def _delay(record: Record, delays: Mapping[str, float]) -> float:
    # A component is a name for its children, and a provider a connection.
    if record["type"].startswith(("trainyard:", "pulumi:")):
        return 0.0
    return delays.get(record["type"], _REST_S)


def _draw(chance: random.Random) -> dict[str, float]:
    """Return delays from half to twice those of the table; the control plane's is published."""
    return {
        kind: value if kind == _CLUSTER else value * math.pow(2, chance.uniform(-1, 1))
        for kind, value in DELAYS.items()
    }


def run(request: Request) -> Result:
    """Simulate; good if the goal is met on all stacks."""
    draws, seed = request.sizes["draws"], request.seed
    rows, chains, good = list[str](), list[str](), True
    for number, stack in enumerate(STACKS):
        request.notify(f"rendering {stack}", len(STACKS), number)
        values: dict[str, Any] = stack_values(ROOT / f"Pulumi.{stack}.yaml")
        found = graph(render(stack, values))
        row, met = _row(stack, found, draws, seed)
        rows.append(row)
        chains += _chain(stack, found)
        good = good and met
    head = (
        f"P10: critical path of the first `up`, simulated; {draws} draws (seed {seed}). Control plane"
        f" {CONTROL_PLANE_S:.0f} s (published); all other delays are assumptions, drawn from half to twice."
        " Nothing was measured on AWS."
    )
    table = (
        "| stack | resources | ours | forced by the APIs | ours / forced | the same, worst draw | shape of"
        " terraform-aws-eks | |\n|---|---|---|---|---|---|---|---|"
    )
    return Result(text="\n".join([head, "", table, *rows, "", *chains]), good=good)


def _row(stack: str, found: Graph, draws: int, seed: int) -> tuple[str, bool]:
    def ratio(delays: Mapping[str, float]) -> float:
        ours = seconds(found.records, found.ours, delays)
        return ours / seconds(found.records, found.forced, delays)

    chance = random.Random(seed)
    drawn = [ratio(_draw(chance)) for _ in range(draws)]
    middle = ratio(DELAYS)
    ours = seconds(found.records, found.ours, DELAYS)
    forced = seconds(found.records, found.forced, DELAYS)
    waited = {**DELAYS, _GROUP: DELAYS[_GROUP] + _DATA_PLANE_WAIT_S}
    terraform = seconds(found.records, found.terraform, waited)
    met = max(middle, statistics.median(drawn)) <= GOAL
    cells = (
        *(stack, len(found.records), f"{ours:.0f} s", f"{forced:.0f} s", f"{middle:.3f}"),
        *(f"{max(drawn):.3f}", f"{terraform:.0f} s"),
        f"goal {GOAL}: {'met' if met else f'missed by {middle - GOAL:.3f}'}",
    )
    return f"| {' | '.join(map(str, cells))} |", met


def _chain(stack: str, found: Graph) -> Sequence[str]:
    parts = []
    for title, edges in (("ours", found.ours), ("forced", found.forced)):
        keys = longest(found.records, edges, DELAYS)
        slow = [key for key in keys if _delay(found.records[key], DELAYS) > 5]
        names = ", ".join(
            f"{found.records[key]['name']} {_delay(found.records[key], DELAYS):.0f} s"
            for key in slow
        )
        parts.append(f"- {stack}, {title}: {names}; {len(keys) - len(slow)} more of a few seconds")
    return parts
