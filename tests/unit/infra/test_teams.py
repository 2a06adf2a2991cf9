"""A team's namespace: limits, network policies and roles, each denial with its allowed counterpart."""

from __future__ import annotations

from typing import Any

import pytest

from infra.config import arguments, parse, platform_record
from infra.domain import naming
from infra.sections.teams import CapsConfig, DevCapsConfig
from infra.tenancy import access, limits, network_policies, team
from infra.tenancy.admission import caps
from tests.golden.example_runs import platform, run_of, stack_values
from training import job
from training.launchers import LAUNCHERS
from trainyard import contract


def test_caps_are_annotations_of_the_namespace_only_where_the_stack_file_has_them() -> None:
    assert "annotations" not in team.namespace("research")["metadata"]
    capped = caps.cap_annotations(CapsConfig(nodes=8, hours=1.5, gpu_hours=200.0), 8)
    assert team.namespace("research", capped=capped)["metadata"]["annotations"] == {
        "trainyard.dev/cap-nodes": "8",
        "trainyard.dev/cap-seconds": "5400",
        "trainyard.dev/cap-gpu-hours": "200.0",
        "trainyard.dev/cap-gpus-per-node": "8",
        "trainyard.dev/cap-dev-seconds": "5400",
        "trainyard.dev/cap-dev-gpu-hours": "200.0",
    }


def test_caps_of_dev_pods_are_annotations_and_a_quota_of_pods_with_a_deadline() -> None:
    dev = DevCapsConfig(number=3, gpus=0, hours=2.0, gpu_hours=50.0)
    capped = caps.cap_annotations(CapsConfig(dev_pods=dev), 8)
    assert team.namespace("research", capped=capped)["metadata"]["annotations"] == {
        "trainyard.dev/cap-dev-gpus": "0",
        "trainyard.dev/cap-dev-seconds": "7200",
        "trainyard.dev/cap-dev-gpu-hours": "50.0",
    }
    counted = limits.dev_pod_quota("research", 3)["spec"]
    assert counted == {"hard": {"pods": "3"}, "scopes": ["Terminating"]}


def test_dev_pods_have_the_hours_and_gpu_hours_of_runs_unless_the_stack_file_says_otherwise() -> (
    None
):
    def dev_caps(**wanted: Any) -> list[str | None]:
        values = stack_values()
        values["teams"][0]["caps"] = wanted
        config = parse(values)
        platform = platform_record.platform(config, "example")
        found = arguments._caps(config.teams[0], platform)
        assert found["trainyard.dev/cap-gpus-per-node"] == "8"
        keys = ("dev-gpus", "dev-seconds", "dev-gpu-hours")
        return [found.get(f"trainyard.dev/cap-{key}") for key in keys]

    assert dev_caps(hours=6, gpuHours=90) == [None, "21600", "90.0"]
    own = {"number": 2, "gpus": 1, "hours": 3, "gpuHours": 20}
    assert dev_caps(hours=6, gpuHours=90, devPods=own) == ["1", "10800", "20.0"]


def rules(role: str) -> set[tuple[str, str, str]]:
    """(group, resource, verb) of everything that a role allows."""
    return {
        (group, resource, verb)
        for rule in access.ROLE_RULES[role]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


@pytest.mark.parametrize("role", access.ROLE_RULES)
def test_no_role_may_read_secrets_attach_or_change_roles(role: str) -> None:
    allowed = rules(role)
    resources = {resource for _, resource, _ in allowed}
    assert not resources & {"secrets", "pods/attach", "pods/proxy", "pods/ephemeralcontainers", "*"}
    # An admission policy admits only those to one's own dev pods.
    shells = {r for r in resources if r in ("pods/exec", "pods/portforward")}
    assert bool(shells) == (role in ("researcher", "lead"))
    assert not {verb for _, _, verb in allowed} & {"*", "bind", "escalate", "impersonate"}
    changed = {r for g, r, v in allowed if v not in ("get", "list", "watch")}
    assert not changed & {"roles", "rolebindings", "localqueues", "workloads", "resourcequotas"}


@pytest.mark.parametrize("launcher", LAUNCHERS)
def test_ci_may_deploy_every_object_of_a_launcher(launcher: str) -> None:
    for manifest in LAUNCHERS[launcher].render(run_of(launcher), platform()):
        group = manifest["apiVersion"].rpartition("/")[0]
        resource = f"{manifest['kind'].lower()}s"
        needed = {(group, resource, verb) for verb in ("create", "get", "patch", "delete")}
        assert needed <= rules("deployer"), manifest["kind"]


@pytest.mark.parametrize("role", ["researcher", "lead"])
@pytest.mark.parametrize("launcher", LAUNCHERS)
def test_a_member_may_create_every_object_of_a_launcher(launcher: str, role: str) -> None:
    for manifest in job.manifests(run_of(launcher), platform(), "c" * 40):
        group = manifest["apiVersion"].rpartition("/")[0]
        resource = f"{manifest['kind'].lower()}s"
        needed = {(group, resource, verb) for verb in ("create", "get", "delete")}
        assert needed <= rules(role), manifest["kind"]


@pytest.mark.parametrize("direction", ["ingress", "egress"])
@pytest.mark.parametrize(
    ("port", "open_"),
    [
        *((port, True) for port in (29400, 29499, 29500, 32768, 60999, 2222)),
        # ssh, the API server and HTTPS, notebooks, the kubelet, NodePorts
        *((port, False) for port in (22, 443, 8080, 8888, 10250, 30000, 32767)),
    ],
)
def test_run_pods_reach_each_other_on_run_ports_only(
    direction: str, port: int, open_: bool
) -> None:
    ports = network_policies.allow_run_traffic("research")["spec"][direction][0]["ports"]
    assert {p["protocol"] for p in ports} == {"TCP"}
    assert any(p["port"] <= port <= p.get("endPort", p["port"]) for p in ports) == open_


def test_every_possible_run_port_is_open() -> None:
    first, last = naming.RENDEZVOUS_PORTS
    assert first <= contract.RENDEZVOUS_PORT_BASE
    assert last >= contract.RENDEZVOUS_PORT_BASE + contract.RENDEZVOUS_PORT_COUNT - 1


@pytest.mark.parametrize(
    ("cidr", "block"),
    [
        ("0.0.0.0/0", {"cidr": "0.0.0.0/0", "except": ["169.254.0.0/16"]}),
        ("10.0.0.0/16", {"cidr": "10.0.0.0/16"}),
        ("2600::/16", {"cidr": "2600::/16"}),
        ("::/0", {"cidr": "::/0", "except": ["fd00:ec2::/32"]}),
    ],
)
def test_object_storage_is_reachable_and_the_metadata_service_is_not(
    cidr: str, block: dict[str, Any]
) -> None:
    spec = network_policies.allow_object_storage("research", [cidr])["spec"]
    assert spec["egress"][0]["to"] == [{"ipBlock": block}]
    assert spec["egress"][0]["ports"] == [{"protocol": "TCP", "port": 443}]
