"""The whole program under mocks: dependencies, protection and secrets."""

from __future__ import annotations

import copy
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from typing import Any

import pulumi
import pytest

from infra.cli.render import ROOT, Record, render
from infra.cli.render import main as render_main
from infra.config import stack_values
from infra.domain import naming
from tests import committed
from training import lineage
from training.spec import NOT_KNOWN

STACKS = ("local", "dev", "prod")


@cache
def rendered(stack: str) -> dict[str, Record]:
    """Every resource of a committed stack, by TYPE::NAME."""
    return {f"{r['type']}::{r['name']}": r for r in committed.rendered(stack)}


def of_kind(stack: str, kind: str) -> list[Record]:
    """Resources of a Kubernetes kind."""
    return [r for r in rendered(stack).values() if r["inputs"].get("kind") == kind]


def before(stack: str, record: Record) -> set[str]:
    """Everything that a resource depends on, transitively.

    A child waits for its component, and a component for what it depends on.
    """
    found: set[str] = set()
    open_ = [record]
    while open_:
        current = open_.pop()
        for name in [*current["dependsOn"], current["parent"]]:
            if name and name not in found:
                found.add(name)
                open_.append(rendered(stack)[name])
    return found


def kinds_before(stack: str, record: Record) -> set[str]:
    """Kubernetes kinds of everything that a resource depends on."""
    return {rendered(stack)[name]["inputs"].get("kind", "") for name in before(stack, record)}


def test_run_is_deleted_before_its_queue_and_the_queue_before_its_flavors() -> None:
    [run] = of_kind("local", "JobSet")
    assert {"LocalQueue", "ClusterQueue", "Cohort", "ResourceFlavor", "Topology"} <= kinds_before(
        "local", run
    )
    queue = of_kind("local", "LocalQueue")[0]
    assert {"ClusterQueue", "ResourceFlavor", "Namespace"} <= kinds_before("local", queue)
    cluster_queue = of_kind("local", "ClusterQueue")[0]
    assert {"Cohort", "ResourceFlavor", "Topology"} <= kinds_before("local", cluster_queue)
    assert "LocalQueue" not in kinds_before("local", cluster_queue)


def test_run_depends_on_its_data_volumes_policies_and_priority() -> None:
    [run] = of_kind("local", "JobSet")
    needed = {
        "Job",
        "PersistentVolumeClaim",
        "NetworkPolicy",
        "ResourceQuota",
        "ServiceAccount",
        "WorkloadPriorityClass",
        "ConfigMap",
        "Node",
    }
    assert needed <= kinds_before("local", run)


@pytest.mark.parametrize("stack", STACKS)
def test_namespace_is_deleted_after_everything_in_it(stack: str) -> None:
    for record in rendered(stack).values():
        space = record["inputs"].get("metadata", {}).get("namespace")
        if space:
            namespaces = {
                rendered(stack)[name]["inputs"]["metadata"]["name"]
                for name in before(stack, record)
                if rendered(stack)[name]["inputs"].get("kind") == "Namespace"
            }
            assert space in namespaces, record["name"]


def test_operators_are_created_before_their_objects() -> None:
    for queue in of_kind("dev", "ClusterQueue"):
        releases = [name for name in before("dev", queue) if "helm.sh/v3:Release" in name]
        assert {name.rpartition("::")[2] for name in releases} >= {
            "aws-autoscaler-controller",
            "operators-jobset",
            "operators-kubeflowTrainer",
            "operators-kueue",
        }


@pytest.mark.parametrize("stack", STACKS)
def test_every_resource_uses_the_explicit_provider_of_the_stack(stack: str) -> None:
    own = {
        "kubernetes": "pulumi:providers:kubernetes::cluster",
        "aws": "pulumi:providers:aws::aws-provider",
    }
    for record in rendered(stack).values():
        package = record["type"].partition(":")[0]
        if package in own:
            assert record["provider"] == own[package], record["name"]
    providers = {
        r["name"]: r for r in rendered(stack).values() if r["type"].startswith("pulumi:providers:")
    }
    assert providers["cluster"]["inputs"]["enableServerSideApply"] == "true"
    assert set(providers) == ({"cluster"} if stack == "local" else {"aws-provider", "cluster"})


def test_aws_stack_is_restricted_to_one_account() -> None:
    provider = rendered("prod")["pulumi:providers:aws::aws-provider"]["inputs"]
    assert provider["allowedAccountIds"] == '["111122223333"]'


def test_local_stack_imports_no_aws_modules() -> None:
    program = (
        "import sys; from infra.cli.render import main; main(['local']); "
        "sys.exit(any(name.partition('.')[0] in ('pulumi_aws', 'pulumi_eks', 'boto3') "
        "for name in sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True)
    assert done.returncode == 0, done.stderr.decode()


def test_resource_names_are_unique() -> None:
    names = [r["name"] for r in rendered("local").values()]
    assert len(names) == len(set(names))


def keys(value: Any) -> Iterator[str]:
    """Every key of nested inputs."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield key
            yield from keys(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from keys(inner)


@pytest.mark.parametrize("stack", STACKS)
def test_nothing_is_ever_created_suspended(stack: str) -> None:
    for record in rendered(stack).values():
        # A suspended CronJob is a template; Jobs created from it are not suspended.
        inputs = dict(record["inputs"])
        if inputs.get("kind") == "CronJob":
            inputs = inputs["spec"]["jobTemplate"]
        assert "suspend" not in set(keys(inputs)), record["name"]


@pytest.mark.parametrize("stack", STACKS)
def test_managed_objects_have_no_ttl(stack: str) -> None:
    for record in rendered(stack).values():
        # Pulumi does not manage the Jobs of a CronJob.
        if not record["type"].endswith(":CronJob"):
            assert "ttlSecondsAfterFinished" not in set(keys(record["inputs"])), record["name"]


def test_pulumi_waits_neither_for_data_nor_for_runs() -> None:
    [run] = of_kind("local", "JobSet")
    assert run["inputs"]["metadata"]["annotations"][naming.SKIP_AWAIT] == "true"
    [preparation] = of_kind("local", "Job")
    assert preparation["inputs"]["metadata"]["annotations"][naming.SKIP_AWAIT] == "true"


def test_run_objects_are_never_updated() -> None:
    for kind in ("JobSet", "ConfigMap"):
        [record] = [r for r in of_kind("local", kind) if "TrainingJob" in r["parent"]]
        assert {"spec", "data", "metadata"} <= set(record["ignoreChanges"])


def test_production_volumes_are_protected_and_retained() -> None:
    for claim in of_kind("prod", "PersistentVolumeClaim"):
        assert claim["protect"] and claim["retainOnDelete"]
    for claim in of_kind("local", "PersistentVolumeClaim"):
        assert not claim["protect"] and "retainOnDelete" not in claim


def test_every_namespaced_object_has_a_team_label() -> None:
    for record in rendered("local").values():
        meta = record["inputs"].get("metadata", {})
        if meta.get("namespace", "").startswith("team-"):
            assert meta["labels"][naming.TEAM] == meta["namespace"].removeprefix("team-")
            assert meta["labels"][naming.PART_OF] == naming.PROJECT


def test_local_stack_has_its_configured_nodes() -> None:
    nodes = [r["inputs"]["metadata"] for r in of_kind("local", "Node")]
    by_pool: dict[str, int] = {}
    for node in nodes:
        pool = node["labels"][naming.POOL]
        by_pool[pool] = by_pool.get(pool, 0) + 1
    assert by_pool == {"ondemand": 2, "spot": 2, "cpu": 1, "fleet-ondemand": 4, "fleet-spot": 8}
    running = [n for n in nodes if n["annotations"].get(naming.NODE_RUNTIME) == "process"]
    assert len(running) == 5


def test_added_run_version_leaves_earlier_runs_unchanged(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The record has the time of the update; the engine ignores that it differs in a later one.
    monkeypatch.setattr(lineage, "launch", lambda root: NOT_KNOWN)
    values = stack_values(ROOT / "Pulumi.local.yaml")
    text = (ROOT / "training/runs/hello.yaml").read_text()
    both = tmp_path / "both.yaml"
    both.write_text(f"{text}---\n{text.replace('version: 1', 'version: 2')}")
    alone = render("local", values)
    added = render("local", values | {"runs": [str(both)]})
    new = [r for r in added if r not in alone]
    assert [r for r in alone if r not in added] == []
    assert {r["inputs"].get("kind", "") for r in new} == {"", "ConfigMap", "JobSet"}
    assert all("hello-v2" in r["name"] for r in new)


def test_two_runs_share_one_dataset_preparation_job() -> None:
    values = stack_values(ROOT / "Pulumi.local.yaml") | {"runs": ["hello", "drill"]}
    kinds = [r["inputs"].get("kind") for r in render("local", values)]
    assert kinds.count("Job") == 1
    assert kinds.count("JobSet") == 2


def test_config_issue_ends_the_program_before_the_first_resource() -> None:
    values = copy.deepcopy(stack_values(ROOT / "Pulumi.local.yaml"))
    values["nodePools"][0]["min"] = 9
    values["runs"] = ["hallo"]
    with pytest.raises(pulumi.RunError) as caught:
        render("local", values)
    assert str(caught.value).splitlines()[0] == (
        "nodePools[0].min: 9 exceeds max (2); must be at most max; lower min or raise max"
    )
    assert "runs[0]: 'hallo' does not exist" in str(caught.value)


def test_unknown_stack_is_reported_in_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert render_main(["staging"]) == 1
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err == ("Pulumi.staging.yaml: no such file; must be a YAML file; check the name\n")


def test_local_encryption_salt_is_not_committed() -> None:
    """A committed salt prevents other clones from decrypting their state."""
    # A manual `pulumi` call writes it to the work tree and `make up` removes it: check git's version.
    shown = subprocess.run(["git", "show", ":Pulumi.local.yaml"], cwd=ROOT, capture_output=True)
    if shown.returncode:
        pytest.skip("not a git checkout")
    assert b"config:" in shown.stdout
    assert b"encryptionsalt" not in shown.stdout
