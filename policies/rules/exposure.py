"""Exposure: endpoints are closed to the internet, and metadata to pods. For buckets see storage.py."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from .model import (
    UNKNOWN,
    Config,
    Resource,
    ResourceRule,
    Violation,
    check_by_type,
    dig,
    elements,
    mapping,
    number,
    show,
)
from .resource_types import (
    CLUSTER,
    CLUSTER_COMPONENT,
    HELM_RELEASE,
    LAUNCH_TEMPLATE,
    NODE_CLASS,
)

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
            f"{path}publicAccessCidrs",
            show(list(elements(cidrs))),
            "the ranges of the cluster's users, or endpointPublicAccess: false",
            "list the ranges; nodes and pods use the private endpoint",
        )


def _cluster(props: _Props) -> Iterator[Violation]:
    yield from _endpoint("vpcConfig.", props.get("vpcConfig"))


def _component(props: _Props) -> Iterator[Violation]:
    if props:
        yield from _endpoint("", props)


def _cidrs(path: str, cidrs: Iterable[Any]) -> Iterator[Violation]:
    for cidr in filter(_is_public_range, cidrs):
        expected = "a range of the network, or a security group"
        yield Violation(path, show(cidr), expected, "list the allowed sources")


def _ingress_rule(props: _Props) -> Iterator[Violation]:
    for name in ("cidrIpv4", "cidrIpv6"):
        yield from _cidrs(name, [props.get(name)])


def _group(props: _Props) -> Iterator[Violation]:
    for index, rule in enumerate(elements(props.get("ingress"))):
        for name in ("cidrBlocks", "ipv6CidrBlocks"):
            yield from _cidrs(f"ingress[{index}].{name}", elements(dig(rule, name)))


def _load_balancer(path: str, annotations: Any, of_class: Any) -> Iterator[Violation]:
    """Check a LoadBalancer Service. The in-tree controller ignores the scheme annotation."""
    scheme = dig(annotations, _SCHEME)
    reads_scheme = of_class or dig(annotations, _TYPE) in _CONTROLLER_TYPES
    internal = dig(annotations, _INTERNAL) in ("true", UNKNOWN)
    faces = scheme == _INTERNET_FACING
    if faces or not (internal or (reads_scheme and scheme in ("internal", UNKNOWN))):
        yield Violation(
            path,
            _INTERNET_FACING if faces else f"a load balancer without {_INTERNAL}",
            f'{_INTERNAL}: "true", which every controller reads',
            "add the annotation, or use a ClusterIP and `kubectl port-forward`",
        )


def _service(props: _Props) -> Iterator[Violation]:
    spec, annotations = props.get("spec"), dig(props, "metadata", "annotations")
    if dig(spec, "type") == "LoadBalancer":
        of_class = dig(spec, "loadBalancerClass")
        yield from _load_balancer("metadata.annotations", annotations, of_class)


def _scheme(path: str, scheme: Any) -> Iterator[Violation]:
    if scheme == _INTERNET_FACING:
        remedy = "set it, or remove the annotation (the default is internal)"
        yield Violation(path, show(scheme), '"internal"', remedy)


def _ingress(props: _Props) -> Iterator[Violation]:
    scheme = dig(props, "metadata", "annotations", _ALB_SCHEME)
    yield from _scheme(f"metadata.annotations[{_ALB_SCHEME}]", scheme)


def _values(path: str, value: Any) -> Iterator[Violation]:
    """Check Services and annotations in a chart's values."""
    if isinstance(value, Mapping):
        if value.get("type") == "LoadBalancer":
            annotations, of_class = value.get("annotations"), value.get("loadBalancerClass")
            yield from _load_balancer(f"{path}.annotations", annotations, of_class)
            return
        for key in (_ALB_SCHEME, _SCHEME):
            yield from _scheme(f"{path}[{key}]", value.get(key))
        for key, child in value.items():
            yield from _values(f"{path}.{key}", child)
    for index, child in enumerate(elements(value)):
        yield from _values(f"{path}[{index}]", child)


def _release(props: _Props) -> Iterator[Violation]:
    yield from _values("values", props.get("values"))


NO_PUBLIC_ENDPOINTS: Final = ResourceRule(
    name="no-public-endpoints",
    description="API server, security groups and load balancers are not open to the internet.",
    check=check_by_type(
        {
            CLUSTER: _cluster,
            CLUSTER_COMPONENT: _component,
            "aws:vpc/securityGroupIngressRule:SecurityGroupIngressRule": _ingress_rule,
            "aws:ec2/securityGroup:SecurityGroup": _group,
            "aws:ec2/defaultSecurityGroup:DefaultSecurityGroup": _group,
            "kubernetes:core/v1:Service": _service,
            "kubernetes:networking.k8s.io/v1:Ingress": _ingress,
            HELM_RELEASE: _release,
        }
    ),
)


def _check_metadata(resource: Resource, config: Config) -> Iterable[Violation]:
    keys = {LAUNCH_TEMPLATE: ["metadataOptions"], NODE_CLASS: ["spec", "metadataOptions"]}
    at = keys.get(resource.type)
    options = dig(resource.props, *at) if at else UNKNOWN
    if at is None or options is UNKNOWN or mapping(options).get("httpEndpoint") == "disabled":
        return
    path, tokens, hops = ".".join(at), dig(options, "httpTokens"), "httpPutResponseHopLimit"
    if tokens not in ("required", UNKNOWN):
        remedy = "set it: otherwise a forged request from a pod gets the node's credentials"
        yield Violation(f"{path}.httpTokens", show(tokens), '"required"', remedy)
    limit = dig(options, hops)
    if limit is not UNKNOWN and not 0 < (number(limit) or 0) <= config["maxHopLimit"]:
        remedy = "lower it: pods are one hop further away and use Pod Identity instead"
        expected = f"at most {config['maxHopLimit']}"
        yield Violation(f"{path}.{hops}", show(limit), expected, remedy)


INSTANCE_METADATA: Final = ResourceRule(
    name="instance-metadata",
    description="Instance metadata requires a token and is not reachable from pods.",
    check=_check_metadata,
    schema={
        "maxHopLimit": {
            "type": "integer",
            "minimum": 1,
            "maximum": 2,
            "default": 1,
            "description": "Maximum hop limit; 2 allows pods without host network access",
        }
    },
)
