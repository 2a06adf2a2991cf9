"""The rule that images are pinned by digest and come from an allowed registry."""

from __future__ import annotations

import pytest

from policies.rules.images import IMAGES_BY_DIGEST, repository
from policies.rules.model import UNKNOWN, Resource
from tests.policy.policy_examples import (
    DIGEST,
    IMAGE,
    WORKLOADS,
    cpu_pod,
    job,
    kubernetes,
    paths,
    train_job,
    violations,
)
from tests.unit.snapshots import Text


def with_image(image: object) -> Resource:
    return job(cpu_pod(containers=[{"name": "main", "image": image}]))


def test_an_image_by_digest_from_the_sandbox_registry_passes() -> None:
    assert violations(IMAGES_BY_DIGEST, with_image(IMAGE)) == []


@pytest.mark.parametrize("kind", WORKLOADS)
def test_an_image_by_tag_is_rejected_in_every_workload_kind(kind: str) -> None:
    tagged = cpu_pod(containers=[{"name": "main", "image": "sandbox.trainyard.dev/trainer:v1"}])
    found = violations(IMAGES_BY_DIGEST, kubernetes(kind, WORKLOADS[kind](tagged)))
    assert [violation.got for violation in found] == ["sandbox.trainyard.dev/trainer:v1"]


@pytest.mark.parametrize("kind", WORKLOADS)
def test_an_image_by_digest_passes_in_every_workload_kind(kind: str) -> None:
    assert violations(IMAGES_BY_DIGEST, kubernetes(kind, WORKLOADS[kind](cpu_pod()))) == []


@pytest.mark.parametrize("group", ["containers", "initContainers", "ephemeralContainers"])
def test_init_and_ephemeral_containers_are_checked_like_main_ones(group: str) -> None:
    pod = cpu_pod()
    pod[group] = [{"name": "extra", "image": "sandbox.trainyard.dev/tool:latest"}]
    assert paths(violations(IMAGES_BY_DIGEST, job(pod))) == [f"spec.template.spec.{group}[0].image"]


@pytest.mark.parametrize(
    ("reference", "where"),
    [
        (IMAGE, []),
        (UNKNOWN, []),
        ("sandbox.trainyard.dev/data:v1", ["spec.template.spec.volumes[1].image.reference"]),
    ],
)
def test_a_mounted_image_is_checked_like_a_container_image(
    reference: object, where: list[str]
) -> None:
    volumes = [{"name": "scratch", "emptyDir": {}}, {"image": {"reference": reference}}]
    assert paths(violations(IMAGES_BY_DIGEST, job(cpu_pod(volumes=volumes)))) == where


def test_the_message_gives_path_value_what_is_allowed_and_the_remedy(text: Text) -> None:
    found = violations(IMAGES_BY_DIGEST, with_image("sandbox.trainyard.dev/trainer:v1"))
    text(str(found[0]))


@pytest.mark.parametrize(
    "image",
    [
        f"docker.io/library/python@{DIGEST}",
        f"python@{DIGEST}",
        f"sandbox.trainyard.dev.evil.example/trainer@{DIGEST}",
        f"evil.example/sandbox.trainyard.dev/trainer@{DIGEST}",
        f"nvcr.io/nvidia-lookalike/pytorch@{DIGEST}",
        f"sandbox.trainyard.dev/../evil@{DIGEST}",
        f"sandbox.trainyard.dev@{DIGEST}",
    ],
)
def test_a_foreign_or_malformed_repository_is_rejected_even_by_digest(
    image: str, text: Text
) -> None:
    found = violations(IMAGES_BY_DIGEST, with_image(image))
    assert len(found) == 1
    text(found[0].expected)


@pytest.mark.parametrize(
    ("image", "registries"),
    [
        (f"nvcr.io/nvidia/pytorch:26.07-py3@{DIGEST}", ["nvcr.io/nvidia"]),
        (f"nvcr.io/nvidia/pytorch@{DIGEST}", ["nvcr.io/nvidia/"]),
        (f"python@{DIGEST}", ["docker.io/library"]),
        (f"localhost:5000/trainer@{DIGEST}", ["localhost:5000"]),
    ],
)
def test_a_configured_registry_or_folder_of_one_is_allowed(
    image: str, registries: list[str]
) -> None:
    assert violations(IMAGES_BY_DIGEST, with_image(image), registries=registries) == []


@pytest.mark.parametrize(
    "image", [f"sandbox.trainyard.dev/t@{DIGEST}0", "sandbox.trainyard.dev/t@sha256:abc", ""]
)
def test_a_malformed_or_empty_digest_is_rejected(image: str) -> None:
    assert paths(violations(IMAGES_BY_DIGEST, with_image(image))) != []


def test_a_container_without_an_image_is_rejected_outside_patches() -> None:
    pod = cpu_pod(containers=[{"name": "main"}])
    assert violations(IMAGES_BY_DIGEST, job(pod))[0].got == "no image"
    patch = kubernetes("apps/v1:DeploymentPatch", WORKLOADS["apps/v1:Deployment"](pod))
    assert violations(IMAGES_BY_DIGEST, patch) == []


def test_an_unknown_image_is_checked_on_update() -> None:
    assert violations(IMAGES_BY_DIGEST, with_image(UNKNOWN)) == []


def test_the_trainer_of_a_train_job_is_checked_and_its_overrides_need_no_image() -> None:
    found = violations(IMAGES_BY_DIGEST, train_job({"image": "sandbox.trainyard.dev/trainer:v1"}))
    assert paths(found) == ["spec.trainer.image"]
    overlay = train_job({"image": IMAGE})
    spec = overlay.props["spec"] | {
        "podTemplateOverrides": [{"spec": {"containers": [{"name": "node"}]}}]
    }
    assert violations(IMAGES_BY_DIGEST, Resource(type=overlay.type, props={"spec": spec})) == []


def test_items_of_a_list_are_checked_one_by_one() -> None:
    item = {"kind": "Pod", "spec": cpu_pod(containers=[{"name": "a", "image": "python:3"}])}
    found = violations(
        IMAGES_BY_DIGEST, Resource(type="kubernetes:core/v1:List", props={"items": [item]})
    )
    assert set(paths(found)) == {"items[0].spec.containers[0].image"}


@pytest.mark.parametrize(
    "type_token",
    [
        "kubernetes:apiextensions.k8s.io/v1:CustomResourceDefinition",
        "kubernetes:helm.sh/v3:Release",
        "aws:ecs/taskDefinition:TaskDefinition",
    ],
)
def test_objects_that_resemble_pods_are_ignored(type_token: str) -> None:
    props = {"values": cpu_pod(containers=[{"image": "python:3"}])}
    assert violations(IMAGES_BY_DIGEST, Resource(type=type_token, props=props)) == []


@pytest.mark.parametrize(
    ("reference", "expected"),
    [
        ("python", "docker.io/library/python"),
        ("bitnami/python:3", "docker.io/bitnami/python"),
        ("localhost/a/b:c", "localhost/a/b"),
        (f"ghcr.io/org/image:tag@{DIGEST}", "ghcr.io/org/image"),
        ("Registry.example/x", None),
        ("registry.example//x", None),
        ("registry.example/x y", None),
    ],
)
def test_references_are_parsed_like_container_runtimes_do(
    reference: str, expected: str | None
) -> None:
    assert repository(reference) == expected
