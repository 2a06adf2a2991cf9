"""A real policy-controller with the stack's policy: only images that the key signed run in a team's namespace.

It is built from its module at first use, with cosign and a registry; KMS is the sandbox's.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import pytest
from rich.console import Console

from infra.addons import policy_controller
from infra.domain import naming
from infra.sections.signatures import SignaturesConfig
from infra.tenancy import access, team
from sandbox import toolchain
from sandbox.cluster import ClusterError
from sandbox.ports import free_port
from tests.golden.example_runs import PREPARED, platform, run_of
from tests.sandbox import signing_kit
from tests.sandbox.conftest import Cluster
from tests.sandbox.node_kit import until
from training.launchers import LAUNCHERS

# They build policy-controller, and cosign with the clients of all clouds.
pytestmark = [pytest.mark.sandbox, pytest.mark.full_only, pytest.mark.timeout(1800)]

SIGNED, OTHER = "signed", "unlabelled"
"""Teams of a stack with signatures, and of one without."""
REFUSED = "signature key validation failed for authority kms"

Json = dict[str, Any]


@dataclass(frozen=True)
class World:
    """Both teams, the registry, and the key that the stack trusts."""

    cluster: Cluster
    images: signing_kit.Registry
    key: SignaturesConfig
    controller: Callable[[], AbstractContextManager[None]]
    running: contextlib.ExitStack
    """Ends the controller that runs."""

    def signed_image(self, name: str) -> str:
        digest = self.images.new_image(name)
        self.images.sign(digest, self.key)
        return digest

    def create(self, manifest: Json) -> Json:
        """Ask the API server for all of admission; nothing is created."""
        options = ("--dry-run=server", "-o", "json", "-f", "-")
        found: Json = json.loads(
            self.cluster.kubectl("create", *options, stdin=json.dumps(manifest))
        )
        return found

    def is_admitted(self, manifest: Json) -> bool:
        try:
            self.create(manifest)
        except ClusterError as refusal:
            print(refusal)
            return False
        return True

    @contextlib.contextmanager
    def without_controller(self) -> Iterator[None]:
        """policy-controller runs again after the block."""
        self.running.close()
        try:
            yield
        finally:
            self.running.enter_context(self.controller())


@pytest.fixture(scope="module")
def world(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    tools = toolchain.ensure(Console(force_terminal=False), "policy-controller", "cosign", "crane")
    home = tmp_path_factory.mktemp("signing")
    port = free_port()
    teams: list[Json] = []
    for name in (SIGNED, OTHER):
        teams += [team.namespace(name, signed=name == SIGNED), access.service_account(name)]
    with contextlib.ExitStack() as stack:
        images = stack.enter_context(signing_kit.registry(cluster, tools, home))
        key = images.new_key()
        installable = policy_controller.plan(key)
        webhook = installable.values["webhook"]
        installed = signing_kit.install(cluster, tools, webhook, port)
        stack.callback(signing_kit.remove, cluster, installed)
        cluster.apply(*teams)
        stack.callback(cluster.delete, *teams)

        def controller() -> AbstractContextManager[None]:
            return signing_kit.controller(cluster, tools, images, webhook, port)

        running = stack.enter_context(contextlib.ExitStack())
        running.enter_context(controller())
        [manifest] = installable.objects
        cluster.apply(manifest)
        stack.callback(cluster.delete, manifest)
        made = World(cluster, images, key, controller, running)
        first = pod(made, f"@{made.signed_image('first')}")
        until(
            lambda: made.is_admitted(first),
            "the policy is in force",
            signing_kit.READY_S,
            every_s=0.5,
        )
        yield made


def template(world: World, image: str) -> Json:
    """The pod template of a run, with this tag or digest of the registry's image."""
    objects = LAUNCHERS["job"].render(run_of("job", dataset=PREPARED), platform())
    found: Json = objects[-1]["spec"]["template"]
    del found["spec"]["priorityClassName"]  # of a stack
    for container in found["spec"]["containers"]:
        container["image"] = f"{world.images.repository}{image}"
    return found


def pod(world: World, image: str, name: str = SIGNED) -> Json:
    about = {"name": "attempt", "namespace": naming.namespace(name)}
    spec = template(world, image)["spec"]
    return {"apiVersion": "v1", "kind": "Pod", "metadata": about, "spec": spec}


def images_of(spec: Json) -> set[str]:
    return {one["image"] for one in spec["containers"]}


def test_an_image_that_the_key_signed_runs(world: World) -> None:
    digest = world.signed_image("good")
    made = world.create(pod(world, f"@{digest}"))
    assert images_of(made["spec"]) == {f"{world.images.repository}@{digest}"}


def test_a_tag_becomes_the_digest_that_was_verified(world: World) -> None:
    digest = world.signed_image("tagged")
    made = world.create(pod(world, ":tagged"))
    assert {image.partition("@")[2] for image in images_of(made["spec"])} == {digest}


def test_an_image_without_a_signature_is_refused(world: World) -> None:
    digest = world.images.new_image("unsigned")
    with pytest.raises(ClusterError, match=REFUSED) as refused:
        world.create(pod(world, f"@{digest}"))
    assert "no signatures found" in str(refused.value)


def test_a_signature_of_another_key_does_not_count(world: World) -> None:
    digest = world.images.new_image("foreign")
    world.images.sign(digest, world.images.new_key())
    with pytest.raises(ClusterError, match=REFUSED) as refused:
        world.create(pod(world, f"@{digest}"))
    assert "no matching signatures" in str(refused.value)


@pytest.mark.parametrize("place", ["initContainers", "containers"])
def test_every_container_of_a_pod_needs_a_signed_image(world: World, place: str) -> None:
    digest, unsigned = (
        world.signed_image(f"beside-{place.lower()}"),
        world.images.new_image(place.lower()),
    )
    wanted = pod(world, f"@{digest}")
    world.create(wanted)
    [main] = wanted["spec"]["containers"]
    more = main | {"name": "more", "image": f"{world.images.repository}@{unsigned}"}
    wanted["spec"].setdefault(place, []).append(more)
    with pytest.raises(ClusterError, match=REFUSED):
        world.create(wanted)


def test_a_job_is_refused_before_it_has_pods(world: World) -> None:
    about = {"name": "attempt", "namespace": naming.namespace(SIGNED)}
    unsigned = world.images.new_image("job")
    job = {"apiVersion": "batch/v1", "kind": "Job", "metadata": about}
    made = world.create(
        job | {"spec": {"template": template(world, f"@{world.signed_image('good-job')}")}}
    )
    assert made["kind"] == "Job"
    with pytest.raises(ClusterError, match=REFUSED):
        world.create(job | {"spec": {"template": template(world, f"@{unsigned}")}})


def test_a_debugging_container_needs_a_signed_image(world: World) -> None:
    digest, unsigned = world.signed_image("debugged"), world.images.new_image("debugger")
    wanted = pod(world, f"@{digest}")
    wanted["spec"]["schedulingGates"] = [{"name": "tests.trainyard.dev/never"}]
    cluster, namespace = world.cluster, naming.namespace(SIGNED)
    cluster.kubectl("create", "-f", "-", stdin=json.dumps(wanted))
    try:
        [main] = wanted["spec"]["containers"]
        kept = ("image", "name", "securityContext")
        for image, admitted in ((digest, True), (unsigned, False)):
            added = main | {"name": "debug", "image": f"{world.images.repository}@{image}"}
            patch = {"spec": {"ephemeralContainers": [{key: added[key] for key in kept}]}}
            command = (
                *("patch", "pod", "attempt", "-n", namespace, "--subresource=ephemeralcontainers"),
                *("--dry-run=server", "--type=strategic", "-p", json.dumps(patch)),
            )
            if admitted:
                cluster.kubectl(*command)
                continue
            with pytest.raises(ClusterError, match=REFUSED):
                cluster.kubectl(*command)
    finally:
        cluster.kubectl("delete", "pod", "attempt", "-n", namespace, "--timeout=180s")


def test_other_namespaces_are_not_checked(world: World) -> None:
    digest = world.images.new_image("elsewhere")
    made = world.create(pod(world, f"@{digest}", OTHER))
    assert images_of(made["spec"]) == {f"{world.images.repository}@{digest}"}
    with pytest.raises(ClusterError, match=REFUSED):
        world.create(pod(world, f"@{digest}"))


def test_an_image_of_a_registry_that_does_not_answer_is_refused(world: World) -> None:
    wanted = pod(world, f"@{'sha256:' + '0' * 64}")
    for container in wanted["spec"]["containers"]:
        container["image"] = container["image"].replace(str(world.images.port), str(free_port()))
    with pytest.raises(ClusterError, match=REFUSED):
        world.create(wanted)


def test_without_the_controller_no_pod_is_admitted_in_a_signed_namespace(world: World) -> None:
    wanted = pod(world, f"@{world.signed_image('late')}")
    world.create(wanted)
    with world.without_controller():
        with pytest.raises(ClusterError, match="failed calling webhook"):
            world.create(wanted)
        world.create(pod(world, f"@{world.images.new_image('without')}", OTHER))
    until(
        lambda: world.is_admitted(wanted), "it is admitted again", signing_kit.READY_S, every_s=0.5
    )
