"""The committed program under the rules: no false alarm, and no rule that finds nothing to judge."""

from __future__ import annotations

import copy
from dataclasses import replace

import pytest

from infra.domain.platform import Platform, TeamOutputs
from infra.domain.pools import Capacity, Network, Nodes
from policies.rules.model import Resource
from policies.rules.workloads import pod_templates
from tests.policy.policy_stacks import findings, rendered
from tests.unit.infra.gpu_pools import gpu_pool
from tests.unit.snapshots import Text
from training.job import manifests
from training.launchers import LAUNCHERS
from training.spec import Dataset, Resources, RunSpec

IMAGE = "sandbox.trainyard.dev/trainer@sha256:" + "0123456789abcdef" * 4


@pytest.fixture(scope="module")
def local() -> list[Resource]:
    return rendered("local")


def test_the_local_stack_as_committed_obeys_every_rule(local: list[Resource]) -> None:
    assert any(list(pod_templates(resource)) for resource in local)
    assert findings(local) == []


def test_an_image_by_tag_in_a_run_of_the_local_stack_is_found(local: list[Resource]) -> None:
    resources = copy.deepcopy(local)
    (run,) = [r for r in resources if r.type.endswith(":JobSet")]
    for template in pod_templates(run):
        template.spec["containers"][0]["image"] = "sandbox.trainyard.dev/trainer:latest"
    assert {finding.partition(":")[0] for finding in findings(resources)} == {"images-by-digest"}


def test_a_node_of_the_local_stack_without_taints_is_found(
    local: list[Resource], text: Text
) -> None:
    resources = copy.deepcopy(local)
    tainted = [r for r in resources if r.type.endswith(":Node") and r.props["spec"].get("taints")]
    tainted[0].props["spec"]["taints"].clear()
    text(findings(resources)[0])


def test_quota_of_a_local_pool_without_nodes_is_found(
    local: list[Resource],
    text: Text,
) -> None:
    (*_, last) = [r for r in local if "fleet-spot" in r.urn and r.type.endswith(":Node")]
    (finding,) = findings(
        [r for r in local if "fleet-spot" not in r.urn or r.type != last.type or r is last]
    )
    text(finding)


def platform() -> Platform:
    """Spot and on-demand GPU pools, and one team that may use both."""
    pools = tuple(
        gpu_pool(name=capacity.value, capacity=capacity, nodes=Nodes.EXISTING, network=Network.TCP)
        for capacity in Capacity
    )
    team = TeamOutputs(
        name="research",
        tier="research",
        namespace="team-research",
        local_queue="research",
        cluster_queue="team-research",
        flavors=tuple(pool.name for pool in pools),
        gpu_quota=64,
    )
    return Platform(
        stack="test",
        cluster="test",
        cohort="trainyard",
        pools=pools,
        teams={"research": team},
        launchers=frozenset(LAUNCHERS),
        priorities={"research": 1000, "production": 100_000},
        default_priority={"research": "research", "production": "production"},
        storage_class="shared",
    )


def run_with(launcher: str) -> RunSpec:
    return RunSpec(
        name="demo",
        version=1,
        team="research",
        tier="research",
        job_kind=launcher,
        nodes=1 if LAUNCHERS[launcher].support.single_node else 2,
        processes_per_node=8,
        image=IMAGE,
        config={},
        dataset=Dataset(name="text"),
        resources=Resources(cpu="8", memory="64Gi", shm="32Gi"),
    )


def made_of(run: RunSpec) -> list[Resource]:
    """The objects of a run."""
    return [
        Resource(type=f"kubernetes:{_group(m['apiVersion'])}:{m['kind']}", props=m)
        for m in manifests(run, platform(), "unknown")
    ]


@pytest.mark.parametrize("launcher", LAUNCHERS)
def test_a_run_of_every_launcher_obeys_every_rule(launcher: str) -> None:
    resources = made_of(run_with(launcher))
    assert any(list(pod_templates(resource)) for resource in resources)
    assert findings(resources) == []


@pytest.mark.parametrize("launcher", LAUNCHERS)
@pytest.mark.parametrize("capacity", [("on-demand",), ("on-demand", "spot")])
def test_a_production_run_that_opts_in_to_spot_obeys_every_rule(
    launcher: str, capacity: tuple[str, ...]
) -> None:
    run = replace(run_with(launcher), tier="production", capacity_types=capacity)
    assert findings(made_of(run)) == []


@pytest.mark.parametrize("launcher", LAUNCHERS)
def test_a_production_run_on_spot_without_opting_in_is_found(launcher: str) -> None:
    run = replace(run_with(launcher), tier="production")
    resources = made_of(replace(run, capacity_types=("on-demand", "spot")))
    (record,) = [r for r in resources if r.type.endswith(":ConfigMap")]
    record.props["data"]["run.json"] = record.props["data"]["run.json"].replace('"spot"', '"x"')
    violations = findings(resources)
    assert {finding.partition(":")[0] for finding in violations} == {"spot-for-production"}


def _group(api_version: str) -> str:
    """Pulumi writes the core group out."""
    return api_version if "/" in api_version else f"core/{api_version}"
