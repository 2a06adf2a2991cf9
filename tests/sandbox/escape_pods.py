"""Pod fields that could evade the admission policies, each with its closest allowed variant."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

from infra.domain import naming
from infra.domain.scheduler import MAX_GRACE_S
from tests.sandbox.escape_attempts import Attempt, asking, first, main
from tests.sandbox.escape_kit import Ask, create
from tests.sandbox.escape_objects import (
    GPU_TAINT,
    IMAGE,
    PRODUCTION,
    RESEARCH,
    claims,
    job,
    metadata,
    other_run,
    pod,
    queued,
    template,
)


def to_other_places() -> Iterator[Attempt]:
    """Placement on nodes that are not meant for this pod."""
    only = ("placement",)
    chosen: dict[str, Any] = {"nodeSelector": {naming.HOSTNAME: "some-node"}}
    yield Attempt(
        "a pod that names its node", only, create(pod(nodeName="n")), create(pod(**chosen))
    )
    yield Attempt(
        "a job that names its node",
        only,
        create(job(template=template(nodeName="n"))),
        create(job(template=template(**chosen))),
    )
    system = {"key": "node-role.kubernetes.io/control-plane", "operator": "Exists"}
    condition = {"key": "node.kubernetes.io/not-ready", "operator": "Exists"}
    yield Attempt(
        "a pod on the control plane",
        only,
        create(pod(tolerations=[system])),
        create(pod(tolerations=[condition])),
    )
    exact = create(job(gpu=True))
    for name, toleration in (
        ("every taint", {"operator": "Exists"}),
        ("every value of the taint's key", {"key": "dedicated", "operator": "Exists"}),
        ("another value", {**GPU_TAINT, "value": "inference"}),
        ("every effect", {"key": "dedicated", "value": naming.GPU_TRAINING}),
        ("cordoned nodes", {"key": "node.kubernetes.io/unschedulable", "operator": "Exists"}),
    ):
        widened = job(gpu=True, template=template(gpu=True, tolerations=[toleration]))
        yield Attempt(f"a queued run that tolerates {name}", only, create(widened), exact)
    yield Attempt(
        "a pod that tolerates everything",
        ("placement", "queue"),
        create(pod(tolerations=[{"operator": "Exists"}])),
        create(pod(tolerations=[condition])),
    )
    yield Attempt(
        "another runtime class",
        only,
        create(job(template=template(runtimeClassName="nvidia"))),
        create(job()),
    )


def without_counting() -> Iterator[Attempt]:
    """Resources that neither quota nor queue counts."""
    only = ("requests",)
    good = create(job(template=template(containers=asking(cpu="1", memory="1Gi"))))
    for name, containers in (
        ("nothing", main(resources={})),
        ("no memory", asking(cpu="1")),
        ("no cpu at all", asking(cpu="0", memory="1Gi")),
        ("limits only", main(resources={"limits": {"cpu": "3", "memory": "6Gi"}})),
        ("an uncounted resource", asking(cpu="1", memory="1Gi", **{"example.com/fpga": "1"})),
    ):
        asked = create(job(template=template(containers=containers)))
        yield Attempt(f"a container that asks for {name}", only, asked, good)
    for seconds in (MAX_GRACE_S + 1, 10**9):
        stays = create(job(template=template(terminationGracePeriodSeconds=seconds)))
        goes = create(job(template=template(terminationGracePeriodSeconds=MAX_GRACE_S)))
        yield Attempt(f"a pod that stays for {seconds} s when it is evicted", only, stays, goes)
    silent = [one | {"resources": {}} for one in first()]
    yield Attempt(
        "an init container that asks for nothing",
        only,
        create(job(template=template(initContainers=silent))),
        create(job(template=template(initContainers=first()))),
    )
    yield Attempt(
        "a slice of a GPU",
        ("requests", "queue"),
        create(pod(containers=asking(cpu="1", memory="1Gi", **{"nvidia.com/mig-1g.10gb": "1"}))),
        create(pod()),
    )
    claimed = [{"name": "gpu", "resourceClaimName": "escape"}]
    yield Attempt("a pod with a claim", only, create(pod(resourceClaims=claimed)), create(pod()))
    for kind in ("ResourceClaim", "ResourceClaimTemplate"):
        elsewhere = copy.deepcopy(claims(kind))
        elsewhere["metadata"]["namespace"] = "default"
        yield Attempt(f"a {kind}", ("claims",), create(claims(kind)), create(elsewhere))


def with_other_images() -> Iterator[Attempt]:
    """Images that are not pinned or from registries that are not allowed."""
    digest = IMAGE.rpartition("@")[2]
    good = create(pod(containers=main(image=f"sandbox.trainyard.dev/team/tool:v1@{digest}")))
    for image in (
        "sandbox.trainyard.dev/host:latest",
        f"registry.example.com/host@{digest}",
        f"sandbox.trainyard.dev.example.com/host@{digest}",
        f"sandbox.trainyard.dev:5000/host@{digest}",
        f"sandboxxtrainyard.dev/host@{digest}",
        f"sandbox.trainyard.dev/host@{digest[:-1]}",
        f"evil/sandbox.trainyard.dev/host@{digest}",
    ):
        bad = create(pod(containers=main(image=image)))
        yield Attempt(f"image {image[:48]}", ("images",), bad, good)
        if "latest" in image:
            tagged = [one | {"image": image} for one in first()]
            inside = create(job(template=template(initContainers=tagged)))
            yield Attempt("an init container by tag", ("images",), inside, good)


def with_other_code() -> Iterator[Attempt]:
    """Variables and files that change what a run starts."""
    once = [{"name": "TRAINYARD_TEAM", "value": RESEARCH}]
    twice = [*once, {"name": "TRAINYARD_TEAM", "value": PRODUCTION}]
    good = create(job(template=template(containers=main(env=once))))
    yield Attempt(
        "a variable of the platform, set again",
        ("environment",),
        create(job(template=template(containers=main(env=twice)))),
        good,
    )
    for name in ("LD_PRELOAD", "LD_AUDIT"):
        loaded = [{"name": name, "value": "/scratch/own.so"}]
        yield Attempt(
            f"{name} for the launcher",
            ("environment",),
            create(pod(containers=main(env=loaded))),
            create(pod(containers=main(env=once))),
        )

    def files(**fields: Any) -> Ask:
        labels = {naming.RUN_ID: "escape-v1-0a1b2c3d"}
        files = {"apiVersion": "v1", "kind": "ConfigMap", "data": {"program.json": "{}"}}
        return create({**files, "metadata": metadata(RESEARCH, labels=labels), **fields})

    yield Attempt(
        "code of a run that can be changed", ("run-files",), files(), files(immutable=True)
    )


def before_others() -> Iterator[Attempt]:
    """Priorities of a higher tier."""
    only = ("priority",)

    def of_class(name: str, team: str = RESEARCH) -> Ask:
        return create(job(team=team, template=template(team=team, priorityClassName=name)))

    def labelled(name: str) -> Ask:
        return create(job(gpu=True, meta=queued(**{naming.WORKLOAD_PRIORITY: name})))

    own = "research-training"
    top = "production-training"
    yield Attempt("a class of production", only, of_class(top), of_class(own))
    yield Attempt(
        "production's class, where it is allowed", only, of_class(top), of_class(top, PRODUCTION)
    )
    yield Attempt("a class of the system", only, of_class("system-node-critical"), of_class(own))
    yield Attempt(
        "a pod that is critical for the system",
        only,
        create(pod(priorityClassName="system-cluster-critical")),
        create(pod(priorityClassName=own)),
    )
    yield Attempt("production's place in the queue", only, labelled(top), labelled(own))

    def scheduled(name: str) -> Ask:
        run = other_run("PyTorchJob", gpu=True, meta=queued())
        run["spec"]["runPolicy"]["schedulingPolicy"] = {"priorityClass": name}
        return create(run)

    yield Attempt("production's class by an operator", only, scheduled(top), scheduled(own))


def every() -> list[Attempt]:
    return [
        *to_other_places(),
        *without_counting(),
        *with_other_images(),
        *with_other_code(),
        *before_others(),
    ]
