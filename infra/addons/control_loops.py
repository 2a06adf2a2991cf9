"""Control loops of this project in the cluster: a `trainyard` command as a Deployment of one pod.

Admission policies bound what its account may write, and come before its rights. A Lease keeps a second pod from
working at the same time.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from infra.addons import controllers, manifests
from infra.addons.isolation import isolation
from infra.addons.manifests import Rule, rule
from infra.addons.model import Installable
from infra.domain import naming
from infra.kubernetes.admission_policy import binding
from infra.kubernetes.objects import Manifest, manifest

LEASES: Final = rule("coordination.k8s.io", ["leases"], ["create", "get", "patch"])
"""Right in the loop's own namespace."""
SETTINGS: Final = "/etc/trainyard"
"""Folder of the settings file in the pod."""


@dataclass(frozen=True, kw_only=True)
class Settings:
    """A file that the loop reads at its start; a changed one starts a new pod."""

    name: str
    """Without its ending, which is `.json`."""
    text: str

    @property
    def path(self) -> str:
        return f"{SETTINGS}/{self.name}.json"


@dataclass(frozen=True, kw_only=True)
class Claim:
    name: str
    path: str
    """In the pod."""
    size: str
    """As a Kubernetes quantity."""
    storage_class: str
    """Empty: the cluster's default."""


@dataclass(frozen=True, kw_only=True)
class Loop:
    """What one loop has and may do."""

    add_on: str
    name: str
    """Of its objects and of its service account."""
    namespace: str
    image: str
    """Of ops/image/Dockerfile, by digest."""
    words: Sequence[str]
    """After `trainyard`, without those for the period, the Lease, metrics and Prometheus."""
    every_seconds: int
    lease: str
    admitted: Sequence[Manifest]
    """Admission policies that bound its writes."""
    everywhere: Sequence[Rule]
    """Rights in the whole cluster."""
    at_home: Sequence[Rule] = (LEASES,)
    cpu: str
    memory: str
    settings: Settings | None = None
    claim: Claim | None = None
    metrics_port: int | None = None
    prometheus: bool = False
    """Whether it asks the stack's Prometheus."""


def container(loop: Loop) -> dict[str, Any]:
    words = [*loop.words, "--every", str(loop.every_seconds)]
    words += ["--lease", f"{loop.namespace}/{loop.lease}"]
    more: dict[str, Any] = {}
    if loop.metrics_port:
        # Only on the pod's address: process nodes of the sandbox share the host's loopback.
        words += ["--metrics", f"$(POD_IP):{loop.metrics_port}"]
        address = {"fieldRef": {"fieldPath": "status.podIP"}}
        more["environment"] = [{"name": "POD_IP", "valueFrom": address}]
        more["ports"] = [{"name": naming.METRICS_PORT_NAME, "containerPort": loop.metrics_port}]
    if loop.prometheus:
        words += ["--prometheus", naming.PROMETHEUS_URL]
    mounts: list[dict[str, Any]] = []
    if loop.claim:
        mounts.append({"name": loop.claim.name, "mountPath": loop.claim.path})
    if loop.settings:
        mounts.append({"name": loop.settings.name, "mountPath": SETTINGS, "readOnly": True})
    return manifests.command(
        loop.name,
        loop.image,
        words,
        resources=controllers.resources(loop.cpu, loop.memory),
        volumeMounts=[*mounts, {"name": "tmp", "mountPath": "/tmp"}],
        **more,
    )


def _config_map(loop: Loop, settings: Settings) -> Manifest:
    return _here("v1/ConfigMap", loop, data={f"{settings.name}.json": settings.text})


def _volume_claim(loop: Loop, claim: Claim) -> Manifest:
    return _here(
        "v1/PersistentVolumeClaim",
        loop,
        # A class may make the volume only when the pod is there.
        annotations={naming.SKIP_AWAIT: "true"},
        spec={
            "accessModes": ["ReadWriteOnce"],
            **({"storageClassName": claim.storage_class} if claim.storage_class else {}),
            "resources": {"requests": {"storage": claim.size}},
        },
    )


def _here(kind: str, loop: Loop, **parts: Any) -> Manifest:
    return manifest(kind, loop.name, "operators", namespace=loop.namespace, **parts)


def installable(loop: Loop) -> Installable:
    before = [
        isolation(
            loop.name,
            loop.namespace,
            metrics=[loop.metrics_port] if loop.metrics_port else (),
            to_prometheus=loop.prometheus,
        )
    ]
    # Before the account has a right to write.
    for one in loop.admitted:
        before += [one, binding(one)]
    before += manifests.access(loop.name, loop.namespace, loop.everywhere, loop.at_home)
    volumes: list[dict[str, Any]] = []
    annotations = None
    if loop.settings:
        before.append(_config_map(loop, loop.settings))
        volumes.append({"name": loop.settings.name, "configMap": {"name": loop.name}})
        digest = hashlib.sha256(loop.settings.text.encode()).hexdigest()
        annotations = {f"{naming.DOMAIN}/{loop.settings.name}": digest}
    if loop.claim:
        before.append(_volume_claim(loop, loop.claim))
        source = {"claimName": loop.name}
        volumes.insert(0, {"name": loop.claim.name, "persistentVolumeClaim": source})
    deployment = manifests.deployment(
        loop.name,
        loop.namespace,
        [container(loop)],
        replicas=1,
        recreate=True,
        volumes=[*volumes, {"name": "tmp", "emptyDir": {}}],
        annotations=annotations,
    )
    return Installable(
        add_on=loop.add_on,
        before=tuple(before),
        objects=(deployment,),
        namespace_labels=controllers.pod_security("restricted"),
    )
