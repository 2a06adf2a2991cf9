"""Find the pod templates in a resource of any kind.

They are found by shape (an object with a list of `containers`) and not by a table of kinds, so that
unknown kinds cannot bypass the rules.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from infra.domain.pools import Taint

from .model import Resource, dig, elements, mapping

DAEMON_SET: Final = "DaemonSet"
TRAIN_JOB: Final = "TrainJob"
_NOT_WORKLOADS: Final = frozenset({"CustomResourceDefinition", "Release"})
"""Kinds that contain schemas and chart values, which look like pods but create none."""
_OVERLAYS: Final = frozenset({TRAIN_JOB, "TrainingRuntime"})
"""Kinds whose pods are assembled from several objects, so that each may be incomplete."""
_CONTAINER_LISTS: Final = ("initContainers", "containers", "ephemeralContainers")


@dataclass(frozen=True)
class Container:
    """The image of one container of a pod template."""

    path: str
    """Path of the image inside the resource."""
    image: Any
    """The reference; None if absent, UNKNOWN if not known yet."""


@dataclass(frozen=True, kw_only=True)
class PodTemplate:
    kind: str
    """Kind of the resource: Job, JobSet ..."""
    path: str
    """Path of the pod spec inside the resource."""
    spec: Mapping[str, Any]
    containers: tuple[Container, ...]
    owner_labels: Any
    """Labels of the object that a queue admits."""
    namespace: str
    complete: bool
    """False for patches and overlays: absent fields may be set elsewhere."""


def pod_templates(resource: Resource) -> Iterator[PodTemplate]:
    """Yield every pod template of a Kubernetes resource; nothing for other resources."""
    props, kind = resource.props, resource.type.rpartition(":")[2]
    if not resource.type.startswith("kubernetes:") or kind in _NOT_WORKLOADS:
        return
    # Queues admit a CronJob's Jobs, which get their labels from the template.
    owner = dig(props, "spec", "jobTemplate") if kind == "CronJob" else props
    found = [*_pod_specs(props, "")]
    if kind == TRAIN_JOB:
        trainer = Container("spec.trainer.image", dig(props, "spec", "trainer", "image"))
        found.append(("spec.trainer", {}, (trainer,)))
    for path, spec, containers in found:
        yield PodTemplate(
            kind=kind,
            path=path,
            spec=spec,
            containers=containers,
            owner_labels=dig(owner, "metadata", "labels"),
            namespace=namespace_of(props),
            complete=kind not in _OVERLAYS and not kind.endswith("Patch"),
        )


def namespace_of(props: Mapping[str, Any]) -> str:
    return str(dig(props, "metadata", "namespace") or "default")


def _pod_specs(
    value: Any, path: str
) -> Iterator[tuple[str, Mapping[str, Any], tuple[Container, ...]]]:
    """Depth first; `path` ends in a dot or is empty."""
    if isinstance(value, Mapping):
        if isinstance(value.get("containers"), (list, tuple)):
            containers = tuple(
                Container(f"{path}{name}[{index}].image", dig(entry, "image"))
                for name in _CONTAINER_LISTS
                for index, entry in enumerate(elements(value.get(name)))
            )
            yield path.removesuffix("."), value, containers
            return
        for key, child in value.items():
            if key not in ("metadata", "status"):
                yield from _pod_specs(child, f"{path}{key}.")
    elif isinstance(value, (list, tuple)):
        for index, child in enumerate(value):
            yield from _pod_specs(child, f"{path.removesuffix('.')}[{index}].")


def tolerates(spec: Mapping[str, Any], taint: Taint) -> bool:
    """Whether a pod or flavor tolerates the taint, by the scheduler's rules."""
    return any(_tolerates(mapping(entry), taint) for entry in elements(spec.get("tolerations")))


def _tolerates(toleration: Mapping[str, Any], taint: Taint) -> bool:
    if toleration.get("effect") not in (None, "", taint.manifest()["effect"]):
        return False
    exists, key = toleration.get("operator") == "Exists", toleration.get("key")
    if not key:
        return exists
    return key == taint.key and (exists or (toleration.get("value") or "") == taint.value)
