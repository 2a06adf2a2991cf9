"""Registry mirrors: a stack pulls everything from one registry, and the copy list is complete."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from infra.addons import mirror
from infra.addons.mirror import Copy
from infra.addons.registry import ADD_ONS
from infra.cli.mirror import main, required_copies
from infra.cli.render import ROOT, Record, render
from infra.config import parse, stack_values
from tests import committed
from tests.unit.infra import example_eks

MIRROR = "registry.example.com/mirror"
DIGEST = "@sha256:" + "1" * 64
PUBLIC = (
    *("registry.k8s.io", "ghcr.io", "docker.io", "quay.io", "nvcr.io", "cgr.dev", "gcr.io"),
    *("public.ecr.aws", "cr.fluentbit.io", "602401143452.dkr.ecr", ".github.io"),
    *("helm.ngc.nvidia.com", "us-central1-docker.pkg.dev"),
)


def on_aws(**changes: Any) -> dict[str, Any]:
    """An AWS stack with everything that can be installed together."""
    found = copy.deepcopy(example_eks.stack_values())
    names = (
        *("kueue", "jobset", "kubeflowTrainer", "trainingOperator", "mpiOperator"),
        *("externalSecrets", "kubePrometheusStack", "fluentBit", "gpuOperator", "efaDevicePlugin"),
    )
    found["operators"] = {name: {"provided": False} for name in names}
    found["operators"]["mpiOperator"]["image"] = f"docker.io/mpioperator/mpi-operator{DIGEST}"
    copied = f"{MIRROR}/kubeflow/training-v1/training-operator{DIGEST}"
    found["operators"]["trainingOperator"]["image"] = copied
    found["signatures"] = {"keyless": {"issuer": "https://issuer.example.com", "subject": "me"}}
    return found | {"mirror": MIRROR} | changes


def with_scheduler(name: str) -> dict[str, Any]:
    operators = {name: {"provided": False}}
    changes = {"mirror": MIRROR, "scheduler": name, "operators": operators, "runs": []}
    return committed.local_on_queueing_cluster() | changes


def of_file(name: str) -> dict[str, Any]:
    return stack_values(ROOT / name) | {"mirror": MIRROR}


STACKS = {
    "everything": on_aws(),
    "volcano": with_scheduler("volcano"),
    "yunikorn": with_scheduler("yunikorn"),
    "cluster-autoscaler": of_file("Pulumi.dev.yaml"),
}


def texts(value: Any) -> Iterator[str]:
    """Every text in nested inputs."""
    if isinstance(value, dict):
        for inner in value.values():
            yield from texts(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from texts(inner)
    elif isinstance(value, str):
        yield value


@cache
def rendered(name: str) -> list[Record]:
    return render("example", STACKS[name])


@pytest.mark.parametrize("name", STACKS)
def test_stack_with_a_mirror_uses_no_other_registry(name: str) -> None:
    found = [
        f"{record['name']}: {text[:100]}"
        for record in rendered(name)
        for text in texts(record["inputs"])
        if any(host in text for host in PUBLIC)
    ]
    assert found == []


@pytest.mark.parametrize("name", STACKS)
def test_every_chart_and_image_of_a_stack_is_listed(name: str) -> None:
    listed = required_copies(parse(STACKS[name]))
    charts = {(copy.target, copy.version) for copy in listed if copy.kind == "chart"}
    for record in rendered(name):
        if record["type"].endswith(":Release"):
            assert (record["inputs"]["chart"], record["inputs"]["version"]) in charts
            assert "repositoryOpts" not in record["inputs"]
    prefixes = tuple(copy.target for copy in listed)
    named = {t for r in rendered(name) for t in texts(r["inputs"]) if t.startswith(f"{MIRROR}/")}
    # Some charts take only a registry or a path prefix and append the rest.
    assert {
        t for t in named if not any(p.startswith(t.partition("@")[0]) for p in prefixes)
    } == set()


def test_mirrored_image_keeps_its_path_and_version() -> None:
    assert mirror.image("registry.k8s.io/kueue/kueue:v1", MIRROR) == f"{MIRROR}/kueue/kueue:v1"
    digest = "sha256:" + "1" * 64
    assert mirror.image(f"registry.k8s.io/pause@{digest}", MIRROR) == f"{MIRROR}/pause@{digest}"


def test_mirrored_images_do_not_collide() -> None:
    found = mirror.copies(ADD_ONS, MIRROR)
    homes: dict[tuple[str, str], Copy] = {}
    for one in found:
        assert homes.setdefault((one.target, one.version), one) == one
    assert {one.source for one in found if one.kind == "chart"} == {
        f"{a.repository}/{a.chart}" if a.repository else a.chart
        for a in ADD_ONS.values()
        if a.chart
    }


def test_yunikorns_placeholders_come_from_the_mirror_and_admission_allows_them() -> None:
    records = rendered("yunikorn")
    [config] = [r for r in records if r["name"].endswith("-config") and "queues" in r["name"]]
    image = config["inputs"]["data"]["service.placeHolderImage"]
    assert image.startswith(f"{MIRROR}/pause@sha256:")
    policies = json.dumps([r["inputs"] for r in records if r["name"].startswith("admission-")])
    assert f"{MIRROR}/pause" in policies


@pytest.fixture
def stack_file(tmp_path: Path) -> Path:
    path = tmp_path / "Pulumi.closed.yaml"
    path.write_text(yaml.safe_dump({"config": on_aws()}), encoding="utf-8")
    return path


def test_command_lists_one_copy_per_line(
    stack_file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([str(stack_file)]) == 0
    lines = capsys.readouterr().out.splitlines()
    kueue = ADD_ONS["kueue"]
    assert f"chart {kueue.version} {kueue.chart} oci://{MIRROR}/charts/kueue" in lines
    image = f"{kueue.images[0].registry}/{kueue.images[0].repository}"
    assert f"image {kueue.app_version} {image} {MIRROR}/kueue/kueue" in lines
    assert len(lines) == len(set(lines))
    assert {len(line.split()) for line in lines} == {4}


def test_command_writes_json(stack_file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(stack_file), "--json"]) == 0
    found = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert {"kind", "source", "target", "version"} == set(found[0])


def test_command_without_a_mirror_prints_a_placeholder(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main([str(ROOT / "Pulumi.prod.yaml")]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines and all(" MIRROR/" in line or " oci://MIRROR/" in line for line in lines)


def test_config_issue_is_reported_in_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([str(tmp_path / "nothing.yaml")]) == 1
    shown = capsys.readouterr()
    assert shown.out == ""
    assert len(shown.err.splitlines()) == 1
