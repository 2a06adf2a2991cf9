"""Find the pod templates in a resource of any kind.

They are found by shape (an object with a list of `containers`) and not by a table of kinds, so that
unknown kinds cannot bypass the rules.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from .model import Resource, dig, elements, mapping

DAEMON_SET: Final = "DaemonSet"
TRAIN_JOB: Final = "TrainJob"
_NOT_WORKLOADS: Final = frozenset({"CustomResourceDefinition", "Release"})
"""Kinds that contain schemas and chart values, which look like pods but create none."""
_OVERLAYS: Final = frozenset(
    {TRAIN_JOB, "TrainingRuntime", "ClusterTrainingRuntime", "PodTemplate"}
)
"""Kinds whose pods are assembled from several objects, so that each may be incomplete."""
_SECONDS: Final = re.compile(r"[0-9]+s?;?")
_CONTAINER_LISTS: Final = ("initContainers", "containers", "ephemeralContainers")


@dataclass(frozen=True)
class Container:
    """One container of a pod template."""

    path: str
    image: Any
    """The reference; None if absent, UNKNOWN if not known yet."""


@dataclass(frozen=True, kw_only=True)
class PodTemplate:
    """One pod template of a resource."""

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
    if not resource.type.startswith("kubernetes:"):
        return
    kind = resource.type.rpartition(":")[2]
    if kind in _NOT_WORKLOADS:
        return
    if kind.endswith("List"):
        for index, item in enumerate(elements(resource.props.get("items"))):
            yield from _templates_of(
                str(mapping(item).get("kind", "")), mapping(item), f"items[{index}].", True
            )
        return
    patch = kind.endswith("Patch")
    yield from _templates_of(kind.removesuffix("Patch"), resource.props, "", not patch)


def namespace_of(props: Mapping[str, Any]) -> str:
    """Return the object's namespace, by default `default`."""
    return str(dig(props, "metadata", "namespace") or "default")


def _templates_of(
    kind: str, props: Mapping[str, Any], prefix: str, complete: bool
) -> Iterator[PodTemplate]:
    owner = props
    if kind == "CronJob":
        # Queues admit the CronJob's Jobs, which get their labels from the template.
        owner = mapping(dig(props, "spec", "jobTemplate"))
    found = [*_pod_specs(props, prefix)]
    if kind == TRAIN_JOB:
        found += [*_trainer(props, prefix)]
    for path, spec, containers in found:
        yield PodTemplate(
            kind=kind,
            path=path,
            spec=spec,
            containers=containers,
            owner_labels=dig(owner, "metadata", "labels"),
            namespace=namespace_of(props),
            complete=complete and kind not in _OVERLAYS,
        )


_Found = tuple[str, Mapping[str, Any], tuple[Container, ...]]


def _pod_specs(value: Any, path: str) -> Iterator[_Found]:
    """Depth first; `path` ends in a dot or is empty."""
    if isinstance(value, Mapping):
        if isinstance(value.get("containers"), (list, tuple)):
            yield path.removesuffix("."), value, _containers(value, path)
            return
        for key, child in value.items():
            if key not in ("metadata", "status"):
                yield from _pod_specs(child, f"{path}{key}.")
    elif isinstance(value, (list, tuple)):
        for index, child in enumerate(value):
            yield from _pod_specs(child, f"{path.removesuffix('.')}[{index}].")


def _trainer(props: Mapping[str, Any], prefix: str) -> Iterator[_Found]:
    """Yield the trainer of a Kubeflow TrainJob, which has the fields of one container."""
    trainer = mapping(dig(props, "spec", "trainer"))
    path = f"{prefix}spec.trainer"
    yield path, {}, (Container(path, trainer.get("image")),)


def _containers(spec: Mapping[str, Any], path: str) -> tuple[Container, ...]:
    return tuple(
        Container(f"{path}{name}[{index}]", dig(value, "image"))
        for name in _CONTAINER_LISTS
        for index, value in enumerate(elements(spec.get(name)))
    )
