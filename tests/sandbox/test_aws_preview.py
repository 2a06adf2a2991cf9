"""Stacks on AWS previewed by the real engine: no account, no cluster, and nothing that could be made."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from sandbox import environment, paths, toolchain
from sandbox.paths import PROJECT
from tests.policy.policy_resources import platform_record
from tests.policy.test_policy_prices import OURS, P4D, karpenter
from tests.sandbox.pulumi_project import Project

pytestmark = [pytest.mark.sandbox, pytest.mark.long(86)]

PLATFORM = """
import pulumi
import pulumi_aws.ec2 as ec2
import pulumi_aws.eks as aws_eks
import pulumi_aws.iam as iam
import pulumi_eks as eks
import pulumi_kubernetes as kubernetes
from pulumi import InvokeOptions, ResourceOptions
from pulumi_aws import Provider, get_caller_identity

aws = Provider("aws", region="eu-west-1", allowed_account_ids=["111122223333"])
on_aws, ask = ResourceOptions(provider=aws), InvokeOptions(provider=aws)
zones = ["eu-west-1a", "eu-west-1b"]
assert aws_eks.get_clusters(opts=ask).names == []
vpc = ec2.Vpc("vpc", cidr_block="10.20.0.0/16", opts=on_aws)
subnets = [
    ec2.Subnet(zone, vpc_id=vpc.id, cidr_block=f"10.20.{n}.0/24", availability_zone=zone, opts=on_aws)
    for n, zone in enumerate(zones)
]
ids = [subnet.id for subnet in subnets]
nodes = iam.Role("nodes", assume_role_policy="{}", opts=on_aws)
cluster = eks.Cluster(
    "cluster",
    name="training",
    version="1.35",
    vpc_id=vpc.id,
    private_subnet_ids=ids,
    authentication_mode="API",
    skip_default_node_group=True,
    skip_default_security_groups=True,
    create_instance_role=False,
    create_oidc_provider=False,
    use_default_vpc_cni=True,
    coredns_addon_options={"enabled": False},
    kube_proxy_addon_options={"enabled": False},
    opts=ResourceOptions(providers={"aws": aws}),
)
made = cluster.eks_cluster
aws_eks.Addon("cni", cluster_name=made.name, addon_name="vpc-cni", addon_version="v1.22.4-eksbuild.3", opts=on_aws)
aws_eks.NodeGroup("gpu", cluster_name=made.name, node_role_arn=nodes.arn, subnet_ids=ids,
    scaling_config={"min_size": 0, "desired_size": 0, "max_size": 8},
    instance_types=["p4d.24xlarge"], labels={"workload-type": "gpu-training"}, taints=TAINTS,
    opts=on_aws)
inside = ResourceOptions(provider=kubernetes.Provider("inside", kubeconfig=cluster.kubeconfig_json))
kubernetes.core.v1.ConfigMap("record", metadata={"name": "r"}, data={"at": made.endpoint}, opts=inside)
kubernetes.helm.v3.Release("kueue", chart="oci://registry.k8s.io/kueue/charts/kueue",
    version="0.20.3", namespace="kueue-system", opts=inside)
pulumi.export("account", get_caller_identity(opts=ask).account_id)
pulumi.export("name", made.name)
pulumi.export("endpoint", made.endpoint)
pulumi.export("group", made.vpc_config.cluster_security_group_id)
"""
ONE_VPC = """
import pulumi_aws.ec2 as ec2
from pulumi import ResourceOptions
from pulumi_aws import Provider

aws = Provider("aws", region="eu-west-1")
vpc = ec2.Vpc("vpc", cidr_block="10.20.0.0/16", opts=ResourceOptions(provider=aws))
ec2.Subnet("subnet", vpc_id=vpc.id, opts=ResourceOptions(provider=aws))
"""
OBJECTS = """
import json
import pathlib

import pulumi_kubernetes as kubernetes

for number, one in enumerate(json.loads(pathlib.Path("objects.json").read_text())):
    name = f"object-{number}"
    if one["kind"] == "ConfigMap":
        kubernetes.core.v1.ConfigMap(name, metadata=one["metadata"], data=one["data"])
    else:
        kubernetes.apiextensions.CustomResource(
            name,
            api_version=one["apiVersion"],
            kind=one["kind"],
            metadata=one["metadata"],
            spec=one["spec"],
        )
"""
TAINT = {"key": "dedicated", "value": "gpu-training", "effect": "NO_SCHEDULE"}
UNKNOWN = "04da6b54-80e4-46f7-96ec-b56ff0331ba9"


@pytest.fixture(scope="module")
def env(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """The environment that `python -m sandbox preview` gives the engine, with no cluster started."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SANDBOX_HOME", str(tmp_path_factory.mktemp("preview")))
        state = paths.state()
        tools = toolchain.ensure(Console(force_terminal=False), "pulumi", "pulumi-kubernetes")
        environment.install_for_previews(state, tools)
        yield environment.preview_variables(state)


@pytest.fixture
def project(env: dict[str, str], tmp_path: Path) -> Project:
    return Project.create(tmp_path, env)


def planned(project: Project) -> dict[str, dict[str, Any]]:
    steps = json.loads(project.succeed("preview", "--json"))["steps"]
    assert {step["op"] for step in steps} == {"create"}
    states = [step["newState"] for step in steps]
    return {f"{state['type']} {state['urn'].rpartition('::')[2]}": state for state in states}


def platform(*taints: dict[str, str]) -> str:
    return PLATFORM.replace("TAINTS", repr(list(taints)))


def test_aws_platform_preview_includes_objects_in_the_cluster(project: Project) -> None:
    project.write_whole(platform(TAINT))
    found = planned(project)
    assert sorted(kind for kind in found if not kind.startswith("pulumi:pulumi:Stack")) == [
        "aws:ec2/subnet:Subnet eu-west-1a",
        "aws:ec2/subnet:Subnet eu-west-1b",
        "aws:ec2/vpc:Vpc vpc",
        "aws:eks/addon:Addon cni",
        "aws:eks/cluster:Cluster cluster-eksCluster",
        "aws:eks/nodeGroup:NodeGroup gpu",
        "aws:iam/role:Role cluster-eksRole-role",
        "aws:iam/role:Role nodes",
        "aws:iam/rolePolicyAttachment:RolePolicyAttachment cluster-eksRole-4b490823",
        "eks:index:Cluster cluster",
        "eks:index:ServiceRole cluster-eksRole",
        "kubernetes:core/v1:ConfigMap record",
        "kubernetes:helm.sh/v3:Release kueue",
        "pulumi:providers:aws aws",
        "pulumi:providers:kubernetes cluster-eks-k8s",
        "pulumi:providers:kubernetes inside",
    ]
    control_plane = found["aws:eks/cluster:Cluster cluster-eksCluster"]
    assert control_plane["inputs"]["version"] == "1.35"
    assert control_plane["inputs"]["vpcConfig"] == {"subnetIds": [UNKNOWN, UNKNOWN]}
    assert "::aws::" in control_plane["provider"]
    assert found["aws:eks/nodeGroup:NodeGroup gpu"]["inputs"]["clusterName"] == "training"
    assert found["kubernetes:core/v1:ConfigMap record"]["inputs"]["data"] == {"at": UNKNOWN}


def test_policies_apply_to_previews_with_unknown_aws_values(project: Project) -> None:
    project.write_whole(platform())
    output = project.fail("preview", "--policy-pack", str(PROJECT / "policies"))
    assert "[mandatory]  gpu-pool-taints  (aws:eks:NodeGroup: gpu)" in output
    for line in (
        'account : "111122223333"',
        "endpoint: [unknown]",
        "group   : [unknown]",
        'name    : "training"',
    ):
        assert line in output


@pytest.mark.parametrize("paid", [11.5, None])
def test_reserved_nodes_count_in_the_budget_as_the_platform_record_says_they_were_paid(
    project: Project, paid: float | None
) -> None:
    objects = [
        {**one.props, "apiVersion": one.type.split(":")[1], "kind": one.type.split(":")[2]}
        for one in (platform_record((OURS, paid)), *karpenter({"id": OURS}))
    ]
    (project.folder / "objects.json").write_text(json.dumps(objects))
    limits = project.folder / "policies.json"
    limits.write_text(json.dumps({"hourly-budget": {"limitUsdPerHour": (P4D + 11.5) / 2}}))
    project.write_whole(OBJECTS)
    pack = ("--policy-pack", str(PROJECT / "policies"), "--policy-pack-config", str(limits))
    output = project.run("preview", *pack).text
    over = [line for line in output.splitlines() if "all node pools: got" in line]
    assert [f"{P4D:.2f} USD" in line for line in over] == ([] if paid else [True]), output
    assert "trainyard@v0.1.0" in output


def test_update_is_rejected_in_one_line_and_creates_nothing(project: Project) -> None:
    project.write_whole(ONE_VPC)
    output = project.fail("up", "--yes", "--skip-preview")
    assert (
        "error: the preview stand-in of aws cannot create aws:ec2/vpc:Vpc vpc: it only previews;"
        " run `pulumi preview` with an account and the official plugin (pulumi plugin install resource aws 7.51.1)"
    ) in output
    assert {kept["type"] for kept in project.resources().values()} <= {
        "pulumi:pulumi:Stack",
        "pulumi:providers:aws",
    }


def test_unsupported_stand_in_lookup_is_a_one_line_error(project: Project) -> None:
    project.write_whole("from pulumi_aws.ec2 import get_vpc\nget_vpc(default=True)\n")
    output = project.run("preview", "--config", "aws:region=eu-west-1").text
    assert (
        "the preview stand-in of aws has no answer for the invoke aws:ec2/getVpc:getVpc;"
        " run `pulumi preview` with an account and the official plugin"
    ) in output


@pytest.mark.parametrize("stack", ["dev", "prod"])
def test_stack_preview_runs_policies_and_leaves_the_stack_file_unchanged(
    env: dict[str, str], stack: str
) -> None:
    file = PROJECT / f"Pulumi.{stack}.yaml"
    before = file.read_bytes()
    done = subprocess.run(
        [sys.executable, "-m", "sandbox", "preview", stack],
        cwd=PROJECT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "stand-ins of the plugins aws and eks;" in done.stdout
    assert "trainyard@v0.1.0" in done.stdout and "to create" in done.stdout
    assert done.stdout.rstrip().splitlines()[-1].startswith("Next: nothing was created.")
    assert file.read_bytes() == before
