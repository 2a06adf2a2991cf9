"""Mistakes about add-ons: versions of Kubernetes that their makers do not support, mirrors for nothing."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from infra.cli.render import ROOT
from infra.config import ConfigError, parse, stack_values
from tests.unit.infra import example_eks

REMEDY = (
    "choose such a version, or install that add-on in a version of your own and say provided: true"
)


def on_aws(version: str, **changes: Any) -> dict[str, Any]:
    found = copy.deepcopy(example_eks.stack_values())
    found["cluster"]["version"] = version
    found["operators"] |= changes.pop("operators", {})
    return found | changes


def local(**changes: Any) -> dict[str, Any]:
    return stack_values(ROOT / "Pulumi.local.yaml") | {"runs": []} | changes


def lines(values: dict[str, Any]) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        parse(values)
    return list(caught.value.lines)


def secrets(provided: bool) -> dict[str, Any]:
    return {"kueue": {"provided": False}, "externalSecrets": {"provided": provided}}


def test_an_add_on_that_is_not_made_for_the_clusters_version_is_a_mistake() -> None:
    assert lines(on_aws("1.33", operators=secrets(False))) == [
        "cluster.version: got '1.33'; allowed 1.34 or newer for externalSecrets 2.13.0; " + REMEDY
    ]


def test_its_twins_are_none() -> None:
    parse(on_aws("1.34", operators=secrets(False)))
    parse(on_aws("1.33", operators=secrets(True)))


def test_a_cluster_that_exists_is_held_to_the_same_where_its_version_is_known() -> None:
    cluster = {"provider": "existing", "name": "sandbox"}
    volcano = {"scheduler": "volcano", "operators": {"volcano": {"provided": False}}}
    assert lines(local(cluster=cluster | {"version": "1.36"}, **volcano)) == [
        "cluster.version: got '1.36'; allowed 1.23 to 1.35 for volcano 1.15.1; " + REMEDY
    ]
    parse(local(cluster=cluster | {"version": "1.35"}, **volcano))
    parse(local(cluster=cluster, **volcano))


IMAGE = "docker.io/mpioperator/mpi-operator@sha256:" + "1" * 64


def mpi(**chosen: Any) -> dict[str, Any]:
    return {"kueue": {"provided": False}, "mpiOperator": chosen}


def test_a_controller_without_a_chart_needs_an_image_by_digest() -> None:
    assert lines(on_aws("1.35", operators=mpi(provided=False))) == [
        "operators.mpiOperator.image: got nothing; allowed "
        "docker.io/mpioperator/mpi-operator@sha256:DIGEST, or a copy of it; add it: "
        "`crane digest docker.io/mpioperator/mpi-operator:0.8.2` prints the digest"
    ]
    parse(on_aws("1.35", operators=mpi(provided=False, image=IMAGE)))
    parse(on_aws("1.35", operators=mpi(provided=True)))


def test_no_other_add_on_is_given_an_image() -> None:
    refused = "allowed no image: the chart or the cluster has its own; remove it"
    found = lines(on_aws("1.35", operators=mpi(provided=True, image=IMAGE)))
    assert [line.split(": ", 1)[0] for line in found] == ["operators.mpiOperator.image"]
    chart = {"kueue": {"provided": False, "image": IMAGE}}
    found += lines(on_aws("1.35", operators=chart))
    assert found[1].startswith("operators.kueue.image: got ")
    assert all(line.endswith(refused) for line in found)


def test_a_mirror_that_nothing_comes_from_is_a_mistake() -> None:
    assert lines(local(mirror="registry.example.com/mirror")) == [
        "mirror: got 'registry.example.com/mirror'; allowed it where the stack installs an add-on, "
        "whose chart and images come from there; remove it"
    ]


@pytest.mark.parametrize(
    "given", ["https://registry.example.com", "mirror", "Registry.example.com"]
)
def test_a_mirror_is_a_registry_and_no_url(given: str) -> None:
    assert lines(on_aws("1.35", mirror=given)) == [
        f"mirror: got '{given}'; allowed a registry, or a folder in one, such as "
        "registry.example.com/mirror, without a scheme; correct it"
    ]


@pytest.mark.parametrize(
    "given", ["registry.example.com", "localhost:5000", "r.example.com:80/a/b-c"]
)
def test_a_mirror_may_have_a_port_and_a_path(given: str) -> None:
    parse(on_aws("1.35", mirror=given))
