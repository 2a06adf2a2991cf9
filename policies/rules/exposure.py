"""Exposure: no endpoint of the platform is open to the internet. For buckets see storage.py."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from .model import (
    UNKNOWN,
    PropertyChecks,
    ResourceRule,
    Violation,
    check_by_type,
    dig,
    elements,
    show,
)
from .resource_types import CLUSTER, CLUSTER_COMPONENT, HELM_RELEASE, LAUNCH_TEMPLATE, NODE_CLASS

_Props = Mapping[str, Any]
_LB: Final = "service.beta.kubernetes.io/aws-load-balancer"
_SCHEME: Final = f"{_LB}-scheme"
_INTERNAL: Final = f"{_LB}-internal"
_TYPE: Final = f"{_LB}-type"
_CONTROLLER_TYPES: Final = ("external", "nlb-ip", UNKNOWN)
"""Types that assign a Service to the AWS Load Balancer Controller."""
_INTERNET_FACING: Final = "internet-facing"
_SHORTEST_PREFIX: Final = {4: 8, 6: 7}
"""By IP version, the shortest prefix of a private network: 10.0.0.0/8 and fc00::/7."""
_ALB_SCHEME: Final = "alb.ingress.kubernetes.io/scheme"


def _is_public_range(cidr: Any) -> bool:
    """Whether the range is the internet or larger than any private network."""
    if not isinstance(cidr, str):
        return False
    try:
        block = ipaddress.ip_network(cidr, strict=False)
    except ValueError:
        return False
    return block.prefixlen < _SHORTEST_PREFIX[block.version]


def _endpoint(path: str, config: Any) -> Iterator[Violation]:
    """Check the public endpoint, which by default is open to the internet."""
    public, cidrs = dig(config, "endpointPublicAccess"), dig(config, "publicAccessCidrs")
    if public in (False, "false", UNKNOWN) or cidrs is UNKNOWN:
        return
    if not elements(cidrs) or any(map(_is_public_range, elements(cidrs))):
        yield Violation(
            path=f"{path}publicAccessCidrs",
            got=show(list(elements(cidrs))),
            expected="the ranges of the cluster's users, or endpointPublicAccess: false",
            remedy="list the ranges; nodes and pods use the private endpoint",
        )


def _cluster(props: _Props) -> Iterator[Violation]:
    yield from _endpoint("vpcConfig.", props.get("vpcConfig"))


def _component(props: _Props) -> Iterator[Violation]:
    if props:
        yield from _endpoint("", props)


def _check_cidrs(path: str, cidrs: Iterable[Any]) -> Iterator[Violation]:
    for cidr in cidrs:
        if _is_public_range(cidr):
            yield Violation(
                path=path,
                got=show(cidr),
                expected="a range of the network, or a security group",
                remedy="list the allowed sources",
            )


def _ingress_rule(props: _Props) -> Iterator[Violation]:
    for name in ("cidrIpv4", "cidrIpv6"):
        yield from _check_cidrs(name, [props.get(name)])


def _blocks(prefix: str, rule: Any) -> Iterator[Violation]:
    for name in ("cidrBlocks", "ipv6CidrBlocks"):
        yield from _check_cidrs(f"{prefix}{name}", elements(dig(rule, name)))


def _group(props: _Props) -> Iterator[Violation]:
    for index, rule in enumerate(elements(props.get("ingress"))):
        yield from _blocks(f"ingress[{index}].", rule)


def _group_rule(props: _Props) -> Iterator[Violation]:
    if props.get("type") == "ingress":
        yield from _blocks("", props)


def _load_balancer(props: _Props) -> Iterator[Violation]:
    if props.get("internal") not in (True, "true", UNKNOWN):
        yield Violation(
            path="internal", got=show(props.get("internal")), expected="true", remedy="set it"
        )


def _check_service(path: str, annotations: Any, of_class: Any) -> Iterator[Violation]:
    """Check a LoadBalancer Service. The in-tree controller ignores the scheme annotation."""
    scheme = dig(annotations, _SCHEME)
    reads_scheme = of_class or dig(annotations, _TYPE) in _CONTROLLER_TYPES
    internal = dig(annotations, _INTERNAL) in ("true", UNKNOWN)
    if scheme == _INTERNET_FACING or not (
        internal or (reads_scheme and scheme in ("internal", UNKNOWN))
    ):
        yield Violation(
            path=path,
            got=f"a load balancer without {_INTERNAL}"
            if scheme != _INTERNET_FACING
            else _INTERNET_FACING,
            expected=f'{_INTERNAL}: "true", which every controller reads',
            remedy="add the annotation, or use a ClusterIP and `kubectl port-forward`",
        )


def _service(props: _Props) -> Iterator[Violation]:
    spec, annotations = props.get("spec"), dig(props, "metadata", "annotations")
    if dig(spec, "type") == "LoadBalancer":
        yield from _check_service(
            "metadata.annotations", annotations, dig(spec, "loadBalancerClass")
        )


def _check_scheme(path: str, scheme: Any) -> Iterator[Violation]:
    if scheme == _INTERNET_FACING:
        yield Violation(
            path=path,
            got=show(scheme),
            expected='"internal"',
            remedy="set it, or remove the annotation (the default is internal)",
        )


def _ingress(props: _Props) -> Iterator[Violation]:
    scheme = dig(props, "metadata", "annotations", _ALB_SCHEME)
    yield from _check_scheme(f"metadata.annotations[{_ALB_SCHEME}]", scheme)


def _scheme(props: _Props) -> Iterator[Violation]:
    yield from _check_scheme("spec.scheme", dig(props, "spec", "scheme"))


def _check_values(path: str, value: Any) -> Iterator[Violation]:
    """Check Services and annotations in a chart's values."""
    if isinstance(value, Mapping):
        if value.get("type") == "LoadBalancer":
            annotations, of_class = value.get("annotations"), value.get("loadBalancerClass")
            yield from _check_service(f"{path}.annotations", annotations, of_class)
            return
        for key in (_ALB_SCHEME, _SCHEME):
            yield from _check_scheme(f"{path}[{key}]", value.get(key))
        for key, child in value.items():
            yield from _check_values(f"{path}.{key}", child)
    for index, child in enumerate(elements(value)):
        yield from _check_values(f"{path}[{index}]", child)


def _release(props: _Props) -> Iterator[Violation]:
    yield from _check_values("values", props.get("values"))


def _check_address(path: str, value: Any) -> Iterator[Violation]:
    if value in (True, "true"):
        yield Violation(
            path=path,
            got="true",
            expected="false: nodes have private addresses only",
            remedy="set it to false; nodes use the NAT gateway and the VPC endpoints",
        )


def _template(props: _Props) -> Iterator[Violation]:
    for index, interface in enumerate(elements(props.get("networkInterfaces"))):
        path = f"networkInterfaces[{index}].associatePublicIpAddress"
        yield from _check_address(path, dig(interface, "associatePublicIpAddress"))


def _instance(props: _Props) -> Iterator[Violation]:
    value = props.get("associatePublicIpAddress")
    yield from _check_address("associatePublicIpAddress", value)


def _database(props: _Props) -> Iterator[Violation]:
    if props.get("publiclyAccessible") in (True, "true"):
        yield Violation(
            path="publiclyAccessible", got="true", expected="false", remedy="set it to false"
        )


def _node_class(props: _Props) -> Iterator[Violation]:
    value = dig(props, "spec", "associatePublicIPAddress")
    yield from _check_address("spec.associatePublicIPAddress", value)


_CHECKS: Final[PropertyChecks] = {
    CLUSTER: _cluster,
    CLUSTER_COMPONENT: _component,
    "aws:vpc/securityGroupIngressRule:SecurityGroupIngressRule": _ingress_rule,
    "aws:ec2/securityGroup:SecurityGroup": _group,
    "aws:ec2/defaultSecurityGroup:DefaultSecurityGroup": _group,
    "aws:ec2/securityGroupRule:SecurityGroupRule": _group_rule,
    "aws:lb/loadBalancer:LoadBalancer": _load_balancer,
    "aws:alb/loadBalancer:LoadBalancer": _load_balancer,
    "aws:elb/loadBalancer:LoadBalancer": _load_balancer,
    "kubernetes:core/v1:Service": _service,
    "kubernetes:networking.k8s.io/v1:Ingress": _ingress,
    "kubernetes:elbv2.k8s.aws/v1beta1:IngressClassParams": _scheme,
    "kubernetes:gateway.k8s.aws/v1beta1:LoadBalancerConfiguration": _scheme,
    HELM_RELEASE: _release,
    "aws:ec2/instance:Instance": _instance,
    "aws:rds/instance:Instance": _database,
    LAUNCH_TEMPLATE: _template,
    NODE_CLASS: _node_class,
}


NO_PUBLIC_ENDPOINTS: Final = ResourceRule(
    name="no-public-endpoints",
    description="API server, security groups, load balancers and nodes are not open to the internet.",
    check=check_by_type(_CHECKS),
)
