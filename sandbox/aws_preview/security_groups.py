"""Default security groups of `eks.Cluster`: the cluster's and the nodes'."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from sandbox.aws_preview.child import PlannedResource, Tree, after_cluster, tags
from sandbox.aws_preview.properties import UNKNOWN

_RULE: Final = "aws:ec2/securityGroupRule:SecurityGroupRule"
_GROUP: Final = "aws:ec2/securityGroup:SecurityGroup"


def cluster_group(name: str, inputs: Mapping[str, Any]) -> Iterator[PlannedResource]:
    """Yield the control plane's group with unrestricted egress."""
    group = f"{name}-eksClusterSecurityGroup"
    yield PlannedResource(
        key="group", type=_GROUP, name=group, inputs=_group(group, inputs, "cluster")
    )
    yield PlannedResource(
        key="egress",
        type=_RULE,
        name=f"{name}-eksClusterInternetEgressRule",
        inputs=_rule("egress", 0, 0, "-1", cidrBlocks=["0.0.0.0/0"]),
        after=("group",),
    )


def node_group(name: str, inputs: Mapping[str, Any]) -> Iterator[PlannedResource]:
    """Yield the nodes' group: open to itself and the control plane, with unrestricted egress."""
    group = f"{name}-nodeSecurityGroup"
    yield after_cluster("node-group", _GROUP, group, _group(group, inputs, "node"))
    peer = {"sourceSecurityGroupId": UNKNOWN}
    rules = {
        "eksNodeIngressRule": _rule("ingress", 0, 0, "-1", self=True),
        "eksNodeClusterIngressRule": _rule("ingress", 1025, 65535, "tcp", **peer),
        "eksExtApiServerClusterIngressRule": _rule("ingress", 443, 443, "tcp", **peer),
        "eksNodeInternetEgressRule": _rule("egress", 0, 0, "-1", cidrBlocks=["0.0.0.0/0"]),
        "eksClusterIngressRule": _rule("ingress", 443, 443, "tcp", **peer),
    }
    for rule, fields in rules.items():
        after = ("node-group", "group")
        yield PlannedResource(
            key=rule, type=_RULE, name=f"{name}-{rule}", inputs=fields, after=after
        )


def _group(name: str, inputs: Mapping[str, Any], owner: str) -> Tree:
    named = {"Name": name, **tags(inputs, f"{owner}SecurityGroupTags")}
    return {"vpcId": inputs["vpcId"], "revokeRulesOnDelete": True, "tags": named}


def _rule(direction: str, first: int, last: int, protocol: str, **peer: Any) -> Tree:
    return {
        "type": direction,
        "fromPort": first,
        "toPort": last,
        "protocol": protocol,
        "securityGroupId": UNKNOWN,
        **peer,
    }
