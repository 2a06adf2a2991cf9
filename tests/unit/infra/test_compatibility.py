"""The add-on version table is consistent with itself and with the rest of the repository."""

from __future__ import annotations

import importlib
import re
import typing
from collections.abc import Iterator
from pathlib import Path

import pulumi
import pytest

from infra.addons.cluster_autoscaler import AUTOSCALER_TAGS
from infra.addons.model import AddOn
from infra.addons.registry import ADD_ONS
from infra.cli.render import render
from infra.config import stack_values
from infra.domain import naming
from infra.queueing import yunikorn
from infra.sections.cluster import EksClusterConfig
from infra.sites.aws import (
    addon_versions,
    karpenter,
    machine_images,
)
from sandbox.node.images import CONTROLLERS
from sandbox.toolchain.tools import KUBERNETES_VERSION, ON_DEMAND_TOOLS, TOOLS
from tests import committed

ROOT = Path(__file__).resolve().parents[3]
EKS_VERSIONS = typing.get_args(EksClusterConfig.model_fields["version"].annotation)


def apis() -> dict[str, set[str]]:
    """apiVersions by kind, from the table."""
    found: dict[str, set[str]] = {}
    for add_on in ADD_ONS.values():
        for kind, version in add_on.apis.items():
            found.setdefault(kind, set()).add(version)
    return found


def test_eks_versions_are_known_everywhere() -> None:
    assert EKS_VERSIONS == ("1.34", "1.35", "1.36")
    assert all(machine_images.release(version) for version in EKS_VERSIONS)


def test_every_eks_version_has_the_same_add_ons_and_its_own_kube_proxy() -> None:
    table = addon_versions.load()
    assert tuple(table) == EKS_VERSIONS
    assert len({frozenset(versions) for versions in table.values()}) == 1
    assert all(table[version]["kube-proxy"].startswith(f"v{version}.") for version in table)
    assert all(
        re.fullmatch(r"v\d+\.\d+\.\d+-eksbuild\.\d+", pinned)
        for versions in table.values()
        for pinned in versions.values()
    )


def test_version_whose_support_ends_soon_is_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    monkeypatch.setattr(pulumi.log, "warn", said.append)
    values = stack_values(ROOT / "Pulumi.dev.yaml")
    for version in EKS_VERSIONS:
        values["cluster"]["version"] = version
        render("dev", values)
    [warning] = [text for text in said if text.startswith("cluster.version: ")]
    assert "standard support of 1.34 on 2026-12-02" in warning


def test_the_sandbox_runs_a_version_that_eks_stacks_may_have() -> None:
    assert KUBERNETES_VERSION.rpartition(".")[0] in EKS_VERSIONS


@pytest.mark.parametrize("stack", ["dev", "prod"])
def test_stacks_use_stable_apis_that_every_eks_version_serves(stack: str) -> None:
    used = {
        (inputs["apiVersion"], inputs["kind"])
        for inputs in (record["inputs"] for record in committed.rendered(stack))
        if re.fullmatch(r"([a-z]+|[a-z.]+\.k8s\.io)/v.*|v1", inputs.get("apiVersion", ""))
    }
    assert {kind for _, kind in used} >= {"Namespace", "ValidatingAdmissionPolicy"}
    assert {api for api, _ in used if not re.fullmatch(r"(.*/)?v\d+", api)} == set()
    # Stable since 1.30; later kinds of this group are not in every version.
    admission = {kind for api, kind in used if api.startswith("admissionregistration.k8s.io/")}
    assert admission == {"ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"}
    assert not {api for api, _ in used if api.startswith("resource.k8s.io/")}, "stable since 1.34"


def test_default_kubernetes_version_is_in_every_supported_range() -> None:
    default = EksClusterConfig.model_fields["version"].default
    assert [name for name, add_on in ADD_ONS.items() if not add_on.supports(default)] == []


def test_minor_versions_are_compared_as_numbers() -> None:
    add_on = AddOn(
        name="a", version="1", app_version="1", namespace="n", kubernetes=("1.9", "1.35")
    )
    assert [v for v in ("1.8", "1.9", "1.10", "1.35", "1.36") if add_on.supports(v)] == [
        "1.9",
        "1.10",
        "1.35",
    ]


def test_sandbox_builds_the_versions_that_stacks_install() -> None:
    built = {tool.name.replace("-", ""): tool.version for tool in (*TOOLS, *ON_DEMAND_TOOLS)}
    named = {name: add_on for name, add_on in ADD_ONS.items() if add_on.toolchain}
    assert {
        *("kueue", "jobset", "kubeflowTrainer", "mpiOperator", "trainingOperator"),
        *("policyController", "karpenter", "externalSecrets"),
    } == set(named)
    others = set[str]()
    for name, add_on in named.items():
        assert built[name.lower()] == add_on.toolchain
        if add_on.app_version.removeprefix("v") != add_on.toolchain:
            others.add(name)
    assert others == {"externalSecrets"}  # docs/sandbox.md says so


def test_process_nodes_have_the_controllers_that_stacks_install() -> None:
    named = {f"{i.registry}/{i.repository}": i.tag for a in ADD_ONS.values() for i in a.images}
    versions = {tool.name: tool.version for tool in (*TOOLS, *ON_DEMAND_TOOLS)}
    assert {
        repository: one.tag.format(version=versions[one.tool])
        for repository, one in CONTROLLERS.items()
    }.items() <= named.items()


_API = re.compile(r'"((?:[a-z0-9-]+\.)+[a-z]+)/(v\d[a-z0-9]*)"')


def written_apis() -> Iterator[tuple[str, str, str]]:
    """File, group and version of every apiVersion that is written out in a source file."""
    for room in ("infra", "training", "sandbox", "ops"):
        for path in (ROOT / room).rglob("*.py"):
            for group, version in _API.findall(path.read_text(encoding="utf-8")):
                yield str(path.relative_to(ROOT)), group, version


def test_source_files_use_the_api_versions_of_the_table() -> None:
    groups: dict[str, set[str]] = {}
    for versions in apis().values():
        for version in versions:
            groups.setdefault(version.partition("/")[0], set()).add(version)
    assert {
        f"{path}: {group}/{version}"
        for path, group, version in written_apis()
        if group in groups and f"{group}/{version}" not in groups[group]
    } == set()


def test_add_on_names_elsewhere_are_in_the_table() -> None:
    assert ADD_ONS["externalSecrets"].namespace == naming.EXTERNAL_SECRETS
    assert ADD_ONS["policyController"].namespace == naming.SIGNATURES_NAMESPACE
    assert ADD_ONS["karpenter"].namespace == karpenter.NAMESPACE
    assert ADD_ONS["yunikorn"].namespace == yunikorn.NAMESPACE


def test_every_eks_version_has_a_cluster_autoscaler_release() -> None:
    assert tuple(AUTOSCALER_TAGS) == EKS_VERSIONS
    first, last = ADD_ONS["clusterAutoscaler"].kubernetes
    assert (first, last) == (EKS_VERSIONS[0], EKS_VERSIONS[-1])


def test_versions_are_written_in_add_on_files_only() -> None:
    versions = {f'"{add_on.version}"' for add_on in ADD_ONS.values() if add_on.version}
    home = ROOT / "infra" / "addons"
    offenders = [
        f"{path.relative_to(ROOT)}: {version}"
        for path in (ROOT / "infra").rglob("*.py")
        if path.parent != home
        for version in sorted(versions)
        if version in path.read_text(encoding="utf-8")
    ]
    assert offenders == []


def test_every_file_of_an_add_on_is_in_the_registry() -> None:
    defined = {
        value.name
        for path in (ROOT / "infra" / "addons").glob("*.py")
        if path.stem != "__init__"
        for value in vars(importlib.import_module(f"infra.addons.{path.stem}")).values()
        if isinstance(value, AddOn)
    }
    assert defined == set(ADD_ONS)
