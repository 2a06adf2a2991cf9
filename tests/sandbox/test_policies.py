"""The policy pack under the real engine: violations block before creation, compliant objects pass."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from sandbox.paths import PROJECT
from tests.sandbox import pulumi_project
from tests.sandbox.pulumi_project import Result

pytestmark = [pytest.mark.sandbox, pytest.mark.long(65)]

IMAGE = "sandbox.trainyard.dev/trainer@sha256:" + "0123456789abcdef" * 4
GOOD_POD: dict[str, Any] = {
    "restartPolicy": "Never",
    "tolerations": [
        {"key": "dedicated", "value": "gpu-training", "effect": "NoSchedule"},
        {"key": "spot", "value": "true", "effect": "NoSchedule"},
    ],
    "containers": [
        {
            "name": "trainer",
            "image": IMAGE,
        }
    ],
}
PROGRAM = """
import json
import pathlib

import pulumi_kubernetes as kubernetes

for name, pod in json.loads(pathlib.Path("pods.json").read_text()).items():
    kubernetes.batch.v1.Job(
        name,
        metadata={
            "name": name,
            "namespace": "default",
            "labels": {"trainyard.dev/tier": pod.pop("tier", "research")},
            "annotations": {"pulumi.com/skipAwait": "true"},
        },
        spec={"suspend": True, "template": {"spec": pod}},
    )
"""


class Project(pulumi_project.Project):
    """A project whose program creates one suspended Job per pod of `pods.json`."""

    def pods(self, **pods: dict[str, Any]) -> None:
        (self.folder / "pods.json").write_text(json.dumps(pods))

    def with_policies(self, command: str, config: dict[str, Any] | None = None) -> Result:
        """`pulumi COMMAND --policy-pack policies`, with a policy configuration if one is given."""
        extra = ["--yes", "--skip-preview"] if command == "up" else []
        if config is not None:
            file = self.folder / "policies.json"
            file.write_text(json.dumps(config))
            extra += ["--policy-pack-config", str(file)]
        return self.run(command, "--policy-pack", str(PROJECT / "policies"), *extra)


@pytest.fixture(scope="module")
def stack(cluster: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Project]:
    """One stack for all tests of this file: most only preview it."""
    made = Project.create(tmp_path_factory.mktemp("policies"), cluster.env)
    yield made
    made.destroy()


@pytest.fixture
def project(stack: Project) -> Project:
    """The project with its own program and one Job that obeys every rule."""
    stack.write_whole(PROGRAM)
    stack.pods(good=GOOD_POD)
    return stack


def with_container(**changes: Any) -> dict[str, Any]:
    return GOOD_POD | {"containers": [GOOD_POD["containers"][0] | changes]}


TAGGED = with_container(image="sandbox.trainyard.dev/trainer:v1")


def test_each_violation_blocks_the_preview_with_its_message(project: Project) -> None:
    project.pods(
        tagged=TAGGED,
        production=GOOD_POD | {"tier": "production"},
    )
    done = project.with_policies("preview")
    assert done.code != 0
    for line in (
        "[mandatory]  images-by-digest  (kubernetes:batch/v1:Job: tagged)",
        "spec.template.spec.containers[0].image: got sandbox.trainyard.dev/trainer:v1; expected",
        "[mandatory]  spot-for-production  (kubernetes:batch/v1:Job: production)",
        "spec.template.spec: got a run of tier production that may be placed on spot; expected",
    ):
        assert line in done.text
    assert "Traceback" not in done.text


def test_a_violation_stops_an_update_before_the_object_exists(
    project: Project, cluster: Any
) -> None:
    project.pods(tagged=TAGGED)
    assert project.with_policies("up").code != 0
    assert "tagged" not in cluster.kubectl("get", "jobs", "-n", "default", "-o", "name")


def test_a_configured_registry_is_allowed(project: Project) -> None:
    image = IMAGE.replace("sandbox.trainyard.dev", "ghcr.io/o")
    project.pods(mirrored=with_container(image=image))
    assert project.with_policies("preview").code != 0
    allowed = {"images-by-digest": {"registries": ["ghcr.io/o"]}}
    assert project.with_policies("preview", allowed).code == 0


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (
            {"images-by-digest": {"registrys": []}},
            "images-by-digest.registrys: got an unknown property; expected enforcementLevel,"
            " registries; did you mean registries?",
        ),
        (
            {"gpu-pool-taints": {"gpuTaint": "dedicated"}},
            "gpu-pool-taints: gpuTaint: Does not match",
        ),
        ({"aws-tags": "loud"}, '"loud" is not a valid enforcement level'),
    ],
)
def test_invalid_policy_configuration_is_a_one_line_error(
    project: Project, config: dict[str, Any], message: str
) -> None:
    done = project.with_policies("preview", config)
    assert done.code != 0
    assert message in done.text
    assert "Traceback" not in done.text


def test_values_known_only_at_update_cause_no_preview_violations(project: Project) -> None:
    program = PROGRAM + (
        "\nclaim = kubernetes.core.v1.ConfigMap('made', data={'a': 'b'})\n"
        "kubernetes.core.v1.Pod('late', metadata={'annotations': {'pulumi.com/skipAwait': 'true'}},\n"
        "    spec={'containers': [{'name': 'a', 'image': claim.id}]})\n"
    )
    project.write_whole(program)
    done = project.with_policies("preview")
    assert done.code == 0, done.text
    assert "can't run policy" not in done.text


def test_an_edited_document_is_refused_until_its_run_was_removed(stack: Project) -> None:
    """The engine keeps what a version was launched with; without the version it forgets it."""
    program = "import pulumi\n\npulumi.Stash('hello-v1', input={'runDocument': 'HASH'})\n"
    try:
        for document, passes in (("1" * 64, True), ("2" * 64, False)):
            stack.write_whole(program.replace("HASH", document))
            previewed = stack.with_policies("preview")
            assert (previewed.code == 0) is passes, previewed.text
            assert ("[mandatory]  run-documents" in previewed.text) is not passes
            if passes:
                assert stack.with_policies("up").code == 0
        stack.write_whole("import pulumi\n")
        assert stack.with_policies("up").code == 0
        stack.write_whole(program.replace("HASH", "2" * 64))
        assert stack.with_policies("preview").code == 0
    finally:
        stack.write_whole(PROGRAM)
