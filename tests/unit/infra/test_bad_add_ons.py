"""Mistakes in add-ons: unsupported Kubernetes versions, unused mirrors and images."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from infra.config import parse
from tests import committed
from tests.unit.infra import example_eks
from tests.unit.infra.config_issues import check_issues


def on_aws(version: str, **changes: Any) -> dict[str, Any]:
    found = copy.deepcopy(example_eks.stack_values())
    found["cluster"]["version"] = version
    found["operators"] |= changes.pop("operators", {})
    return found | changes


def local(**changes: Any) -> dict[str, Any]:
    return committed.local_on_queueing_cluster() | {"runs": []} | changes


def secrets(provided: bool) -> dict[str, Any]:
    return {"kueue": {"provided": False}, "externalSecrets": {"provided": provided}}


def test_add_on_that_does_not_support_the_kubernetes_version_is_rejected() -> None:
    volcano = {"volcano": {"provided": False}}
    values = on_aws("1.36", scheduler="volcano")
    values["operators"] = {
        name: one for name, one in values["operators"].items() if name != "kueue"
    } | volcano
    check_issues("add-ons", "version on EKS", values, "cluster.version: addon-version")


def test_add_ons_that_support_the_kubernetes_version_are_accepted() -> None:
    parse(on_aws("1.34", operators=secrets(False)))


def test_existing_cluster_is_checked_where_its_version_is_known() -> None:
    cluster = {"provider": "existing", "name": "sandbox"}
    volcano = {"scheduler": "volcano", "operators": {"volcano": {"provided": False}}}
    values = local(cluster=cluster | {"version": "1.36"}, **volcano)
    check_issues("add-ons", "version", values, "cluster.version: addon-version")
    parse(local(cluster=cluster | {"version": "1.35"}, **volcano))
    parse(local(cluster=cluster, **volcano))


IMAGE = "docker.io/mpioperator/mpi-operator@sha256:" + "1" * 64


def mpi(**chosen: Any) -> dict[str, Any]:
    return {"kueue": {"provided": False}, "mpiOperator": chosen}


def test_controller_without_a_chart_requires_an_image_digest() -> None:
    values = on_aws("1.35", operators=mpi(provided=False))
    check_issues("add-ons", "no image", values, "operators.mpiOperator.image: missing")
    parse(on_aws("1.35", operators=mpi(provided=False, image=IMAGE)))
    parse(on_aws("1.35", operators=mpi(provided=True)))


def test_other_add_ons_accept_no_image() -> None:
    for name, chosen in (
        ("mpiOperator", mpi(provided=True, image=IMAGE)),
        ("kueue", {"kueue": {"provided": False, "image": IMAGE}}),
    ):
        expected = f"operators.{name}.image: addon-image-unused"
        check_issues("add-ons", f"image of {name}", on_aws("1.35", operators=chosen), expected)


def test_unused_mirror_is_rejected() -> None:
    values = local(mirror="registry.example.com/mirror")
    check_issues("add-ons", "mirror", values, "mirror: mirror-unused")


@pytest.mark.parametrize(
    "given", ["https://registry.example.com", "mirror", "Registry.example.com"]
)
def test_mirror_must_be_a_registry_without_scheme(given: str) -> None:
    check_issues("add-ons", f"mirror {given}", on_aws("1.35", mirror=given), "mirror: registry")


@pytest.mark.parametrize(
    "given", ["registry.example.com", "localhost:5000", "r.example.com:80/a/b-c"]
)
def test_mirror_may_have_a_port_and_a_path(given: str) -> None:
    parse(on_aws("1.35", mirror=given))


def test_timeouts_of_a_kueue_that_is_not_installed_are_rejected() -> None:
    values = local(gangTimeouts={"startSeconds": 60})
    check_issues("add-ons", "gang timeouts", values, "gangTimeouts: timeouts-unused")
