"""`AddOn`, the record of one add-on, and `Installable`, what a stack installs of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final

from infra.kubernetes.objects import Manifest

WHOLE: Final = "{registry}/{repository}"
PARENT: Final = "{registry}/{parent}"


@dataclass(frozen=True, kw_only=True)
class Image:
    """An image, and the values of its add-on's chart that name its registry."""

    registry: str
    """Host, such as registry.k8s.io."""
    repository: str
    """Path in the registry."""
    tag: str = ""
    """Tag, or digest as sha256:...; empty: the one that the chart names, which `helm template` shows."""
    values: Mapping[str, str] = field(default_factory=dict)
    """By dotted path in the chart's values, the text to set: may contain {registry}, {repository}, and {parent}
    (the repository without its last part). Empty for images that only this project's manifests name."""

    @classmethod
    def parse(cls, reference: str) -> Image:
        path, _, digest = reference.partition("@")
        registry, _, repository = path.partition("/")
        return cls(registry=registry, repository=repository, tag=digest)

    @property
    def reference(self) -> str:
        return f"{self.registry}/{self.repository}{self.version}"

    @property
    def version(self) -> str:
        """The part of the reference after the repository."""
        if not self.tag:
            return ""
        return f"@{self.tag}" if self.tag.startswith("sha256:") else f":{self.tag}"


@dataclass(frozen=True, kw_only=True)
class ChartSource:
    """A Go module that contains a chart: the sandbox packs it, and tests render it."""

    module: str
    path: str
    """Folder of the chart in the module."""


@dataclass(frozen=True, kw_only=True)
class PlacedBy:
    """Values of a chart that place one of its controllers, as dotted paths."""

    tolerations: str
    node_selector: str


def placed(*parts: str) -> tuple[PlacedBy, ...]:
    """Return the values of charts with the usual keys below each part; an empty part is the chart's top."""
    above = [f"{part}." if part else "" for part in parts]
    return tuple(
        PlacedBy(tolerations=f"{one}tolerations", node_selector=f"{one}nodeSelector")
        for one in above
    )


class Section(StrEnum):
    """The section of the stack file that decides whether an add-on is installed."""

    OPERATORS = "operators"
    SIGNATURES = "signatures"
    RUN_PAGE = "runPage"
    COSTS = "costs"
    STEERING = "steering"
    ELASTIC_RUNS = "elasticRuns"
    AUTOSCALER = "autoscaler"
    NONE = ""
    """Part of every cluster on AWS."""


@dataclass(frozen=True, kw_only=True)
class Installable:
    add_on: str
    """Name in `registry.ADD_ONS`."""
    needs: tuple[str, ...] = ()
    """Add-ons that precede it in this stack, beyond those of `AddOn.needs`."""
    values: Mapping[str, Any] = field(default_factory=dict)
    """Values of the chart, without image registries: `mirror` sets those."""
    before: tuple[Manifest, ...] = ()
    """Objects in its namespace that precede the release, such as ConfigMaps that its pods mount."""
    objects: tuple[Manifest, ...] = ()
    """Objects that follow the release, such as its custom resources."""
    namespace_labels: Mapping[str, str] = field(default_factory=dict)
    """Labels of its namespace in addition to the platform's, such as those of Pod Security."""


@dataclass(frozen=True, kw_only=True)
class AddOn:
    """One add-on: versions, images, APIs, and how it is installed."""

    name: str
    """Key in the stack file's `operators`, in camel case, and in `registry.ADD_ONS`."""
    summary: str = ""
    """Meaning of its key in the reference of the stack file."""
    section: Section = Section.OPERATORS
    chart: str = ""
    """OCI reference; a name where there is a `repository`; empty: no chart, objects only."""
    repository: str = ""
    """URL of a chart index."""
    version: str = "of this repository"
    """Exact version of the chart; of the add-on itself where it has no chart."""
    app_version: str = "of this repository"
    namespace: str
    kubernetes: tuple[str, str] = ("1.30", "")
    """First and last minor version that upstream supports or tests; an empty last one: not stated upstream.
    Default: that of this project's own programs."""
    apis: Mapping[str, str] = field(default_factory=dict)
    """apiVersion by kind, of its custom resources that this project writes or reads."""
    images: tuple[Image, ...] = ()
    """Images that a mirror must have."""
    placed: tuple[PlacedBy, ...] = ()
    """Values that place each controller of its chart on system nodes. Its DaemonSets follow the pools' taints."""
    toolchain: str = ""
    """Version that the sandbox can build (sandbox/toolchain); empty: none."""
    chart_source: ChartSource | None = None
    needs: tuple[str, ...] = ()
    """Add-ons that precede it, where the stack installs them."""
    objects_need: tuple[str, ...] = ()
    """Add-ons that precede `Installable.objects` only: its release does not wait for them."""
    release: str = ""
    """Name of its Helm release; empty: `name` in lower case. Charts derive object names from it."""
    plan: Callable[..., Installable] | None = None
    """What a stack installs of it; infra/config/add_ons.py passes the arguments. None: the cluster's site installs
    it (infra/sites)."""

    @property
    def release_name(self) -> str:
        return self.release or self.name.lower()

    def supports(self, minor: str) -> bool:
        """Whether upstream supports this version of Kubernetes, such as 1.35."""
        first, last = self.kubernetes
        return _number(first) <= _number(minor) and (not last or _number(minor) <= _number(last))


def _number(minor: str) -> tuple[int, ...]:
    return tuple(int(part) for part in minor.split("."))
