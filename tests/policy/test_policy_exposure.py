"""The rule against resources open to the internet."""

from __future__ import annotations

from typing import Any

import pytest

from policies.rules.exposure import NO_PUBLIC_ENDPOINTS
from policies.rules.model import UNKNOWN, Resource
from tests.policy.policy_examples import paths, violations
from tests.unit.snapshots import Text

CLUSTER = "aws:eks/cluster:Cluster"
COMPONENT = "eks:index:Cluster"
RULE = "aws:vpc/securityGroupIngressRule:SecurityGroupIngressRule"
OLD_RULE = "aws:ec2/securityGroupRule:SecurityGroupRule"
GROUP = "aws:ec2/securityGroup:SecurityGroup"
LOAD_BALANCER = "aws:lb/loadBalancer:LoadBalancer"
TEMPLATE = "aws:ec2/launchTemplate:LaunchTemplate"
NODE_CLASS = "kubernetes:karpenter.k8s.aws/v1:EC2NodeClass"
SERVICE = "kubernetes:core/v1:Service"
INGRESS = "kubernetes:networking.k8s.io/v1:Ingress"
OFFICE = ["203.0.113.0/24"]
LB = "service.beta.kubernetes.io/aws-load-balancer"
SCHEME, KIND = f"{LB}-scheme", f"{LB}-type"
PRIVATE = {f"{LB}-internal": "true"}
ALB = "alb.ingress.kubernetes.io/scheme"
RELEASE = "kubernetes:helm.sh/v3:Release"
CLASSIC = "aws:elb/loadBalancer:LoadBalancer"
CLASS_PARAMS = "kubernetes:elbv2.k8s.aws/v1beta1:IngressClassParams"
GATEWAY = "kubernetes:gateway.k8s.aws/v1beta1:LoadBalancerConfiguration"
FACING = "internet-facing"
CIDRS = "publicAccessCidrs"


def endpoint(public: Any, cidrs: Any = None) -> dict[str, Any]:
    return {"endpointPublicAccess": public, CIDRS: cidrs}


def service(kind: str, annotations: Any) -> dict[str, Any]:
    return {"metadata": {"annotations": annotations}, "spec": {"type": kind}}


def grafana(annotations: Any = None, **more: Any) -> dict[str, Any]:
    """Values of a chart that has a chart inside."""
    ours = {"type": "LoadBalancer", "annotations": annotations, **more}
    return {"values": {"grafana": {"service": ours}}}


def ingress(scheme: str) -> dict[str, Any]:
    return {"metadata": {"annotations": {"alb.ingress.kubernetes.io/scheme": scheme}}}


def interfaces(public: str) -> dict[str, Any]:
    return {"networkInterfaces": [{"associatePublicIpAddress": public}]}


@pytest.mark.parametrize(
    ("kind", "props"),
    [
        (CLUSTER, {"vpcConfig": endpoint(False)}),
        (CLUSTER, {"vpcConfig": endpoint(True, OFFICE)}),
        (CLUSTER, {"vpcConfig": endpoint(True, UNKNOWN)}),
        (CLUSTER, {"vpcConfig": UNKNOWN}),
        (COMPONENT, endpoint(True, OFFICE)),
        (COMPONENT, {}),
        (RULE, {"cidrIpv4": "10.0.0.0/16"}),
        (RULE, {"cidrIpv6": "fc00::/7"}),
        (RULE, {"referencedSecurityGroupId": UNKNOWN, "cidrIpv4": UNKNOWN}),
        (GROUP, {"ingress": [{"cidrBlocks": ["10.0.0.0/8"]}], "egress": [{}]}),
        (GROUP, {"egress": [{"cidrBlocks": ["0.0.0.0/0"]}]}),
        (OLD_RULE, {"type": "egress", "cidrBlocks": ["0.0.0.0/0"]}),
        (OLD_RULE, {"type": "ingress", "cidrBlocks": OFFICE}),
        (LOAD_BALANCER, {"internal": True}),
        (TEMPLATE, interfaces("false")),
        (NODE_CLASS, {"spec": {"associatePublicIPAddress": False}}),
        (SERVICE, service("ClusterIP", None)),
        (SERVICE, service("LoadBalancer", {SCHEME: "internal", KIND: "external"})),
        (SERVICE, service("LoadBalancer", PRIVATE)),
        (SERVICE, service("LoadBalancer", PRIVATE | {SCHEME: "internal"})),
        (RELEASE, grafana(PRIVATE)),
        (RELEASE, grafana({SCHEME: "internal"}, loadBalancerClass="service.k8s.aws/nlb")),
        (RELEASE, {"values": {"service": {"type": "ClusterIP"}, "hosts": [{ALB: "internal"}]}}),
        (RELEASE, {"values": UNKNOWN}),
        (CLASSIC, {"internal": True}),
        (CLASS_PARAMS, {"spec": {"scheme": "internal"}}),
        (GATEWAY, {"spec": {}}),
        ("aws:ec2/instance:Instance", {"associatePublicIpAddress": False}),
        ("aws:rds/instance:Instance", {}),
        (SERVICE, service("LoadBalancer", UNKNOWN)),
        (INGRESS, ingress("internal")),
    ],
)
def test_private_resources_pass(kind: str, props: dict[str, Any]) -> None:
    assert violations(NO_PUBLIC_ENDPOINTS, Resource(type=kind, props=props)) == []


@pytest.mark.parametrize(
    ("kind", "props", "where"),
    [
        (CLUSTER, {}, [f"vpcConfig.{CIDRS}"]),
        (CLUSTER, {"vpcConfig": endpoint(True)}, [f"vpcConfig.{CIDRS}"]),
        (CLUSTER, {"vpcConfig": endpoint(None, ["0.0.0.0/0"])}, [f"vpcConfig.{CIDRS}"]),
        (CLUSTER, {"vpcConfig": endpoint(True, [*OFFICE, "::/0"])}, [f"vpcConfig.{CIDRS}"]),
        (COMPONENT, endpoint(True, ["0.0.0.0/0"]), [CIDRS]),
        (COMPONENT, {"version": "1.35"}, [CIDRS]),
        (RULE, {"cidrIpv4": "0.0.0.0/0"}, ["cidrIpv4"]),
        (RULE, {"cidrIpv4": "10.0.0.0/0"}, ["cidrIpv4"]),
        (RULE, {"cidrIpv6": "::/0"}, ["cidrIpv6"]),
        # Two halves are the internet, too.
        (RULE, {"cidrIpv4": "128.0.0.0/1"}, ["cidrIpv4"]),
        (RULE, {"cidrIpv6": "2000::/3"}, ["cidrIpv6"]),
        (COMPONENT, endpoint(True, ["0.0.0.0/1", "128.0.0.0/1"]), [CIDRS]),
        (GROUP, {"ingress": [{}, {"cidrBlocks": ["0.0.0.0/0"]}]}, ["ingress[1].cidrBlocks"]),
        (OLD_RULE, {"type": "ingress", "ipv6CidrBlocks": ["::/0"]}, ["ipv6CidrBlocks"]),
        (LOAD_BALANCER, {}, ["internal"]),
        (LOAD_BALANCER, {"internal": False}, ["internal"]),
        (TEMPLATE, interfaces("true"), ["networkInterfaces[0].associatePublicIpAddress"]),
        (
            NODE_CLASS,
            {"spec": {"associatePublicIPAddress": True}},
            ["spec.associatePublicIPAddress"],
        ),
        (SERVICE, service("LoadBalancer", None), ["metadata.annotations"]),
        (SERVICE, service("LoadBalancer", {SCHEME: FACING}), ["metadata.annotations"]),
        (SERVICE, service("LoadBalancer", PRIVATE | {SCHEME: FACING}), ["metadata.annotations"]),
        # Kubernetes' own controller takes it, and knows no scheme.
        (SERVICE, service("LoadBalancer", {SCHEME: "internal"}), ["metadata.annotations"]),
        (RELEASE, grafana(), ["values.grafana.service.annotations"]),
        (
            RELEASE,
            {"values": {"ingress": [{"annotations": {ALB: FACING}}]}},
            [f"values.ingress[0].annotations[{ALB}]"],
        ),
        (
            RELEASE,
            {"values": {"controller": {"annotations": {SCHEME: FACING}}}},
            [f"values.controller.annotations[{SCHEME}]"],
        ),
        (CLASSIC, {}, ["internal"]),
        ("aws:alb/loadBalancer:LoadBalancer", {"internal": False}, ["internal"]),
        (CLASS_PARAMS, {"spec": {"scheme": FACING}}, ["spec.scheme"]),
        (GATEWAY, {"spec": {"scheme": FACING}}, ["spec.scheme"]),
        (
            "aws:ec2/instance:Instance",
            {"associatePublicIpAddress": True},
            ["associatePublicIpAddress"],
        ),
        ("aws:rds/instance:Instance", {"publiclyAccessible": True}, ["publiclyAccessible"]),
        (
            INGRESS,
            ingress("internet-facing"),
            ["metadata.annotations[alb.ingress.kubernetes.io/scheme]"],
        ),
    ],
)
def test_resources_open_to_the_internet_are_rejected(
    kind: str, props: dict[str, Any], where: list[str]
) -> None:
    assert paths(violations(NO_PUBLIC_ENDPOINTS, Resource(type=kind, props=props))) == where


def test_the_message_names_the_range(text: Text) -> None:
    rule = Resource(type=RULE, props={"cidrIpv4": "0.0.0.0/0"})
    (found,) = violations(NO_PUBLIC_ENDPOINTS, rule)
    text(str(found))


def test_the_message_names_the_common_annotation(text: Text) -> None:
    (found,) = violations(NO_PUBLIC_ENDPOINTS, Resource(type=RELEASE, props=grafana()))
    text(str(found))
