"""What upstream publishes of each tool: where its files lie and which checksum proves them.

Layouts: Kubernetes has one file per program and its SHA-256 beside it; etcd, Prometheus and Pulumi have an archive
and one list of checksums per release; Kueue, JobSet, KWOK and kube-state-metrics publish programs as images only,
whose layers are addressed by their SHA-256.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from sandbox.toolchain.tools import Tool

KUBERNETES = "https://dl.k8s.io"
GITHUB = "https://github.com"
PULUMI = "https://get.pulumi.com"
REGISTRY = "https://registry.k8s.io"
LOOK = {
    KUBERNETES: "release/stable.txt",
    GITHUB: "",
    PULUMI: "latest-version",
    REGISTRY: "v2/",
}
"""A small page of each site, that answers when its files can be had."""


@dataclass(frozen=True)
class Files:
    """One file per binary, `FOLDER/NAME`, and its SHA-256 in `FOLDER/NAME.sha256`."""

    site: str
    folder: str


@dataclass(frozen=True)
class Archive:
    """A `.tar.gz` and a list of checksums, one `SHA256  NAME` per line, in one folder of a site.

    `programs`: names of the files in the archive that are kept, the tool's binaries among them.
    """

    site: str
    folder: str
    name: str
    checksums: str
    programs: tuple[str, ...]


@dataclass(frozen=True)
class Image:
    """An image of a registry that needs no login. `program`: path of the tool's only binary in it."""

    site: str
    repository: str
    tag: str
    program: str


Release = Files | Archive | Image


def release_of(tool: Tool, machine: str) -> Release | None:
    """Return what upstream publishes of `tool` for Linux on `machine` (`amd64` or `arm64`); None if nothing."""
    made = _RELEASES.get(tool.name)
    return made(tool.version, machine) if made else None


def _kubernetes(version: str, machine: str) -> Release:
    return Files(KUBERNETES, f"release/v{version}/bin/linux/{machine}")


def _etcd(version: str, machine: str) -> Release:
    folder = f"etcd-io/etcd/releases/download/v{version}"
    return Archive(
        GITHUB, folder, f"etcd-v{version}-linux-{machine}.tar.gz", "SHA256SUMS", ("etcd",)
    )


def _prometheus(version: str, machine: str) -> Release:
    # Module version 0.3XX.Y is release 3.XX.Y.
    _, minor, patch = version.split(".")
    number = f"{minor[0]}.{int(minor[1:])}.{patch}"
    return Archive(
        GITHUB,
        f"prometheus/prometheus/releases/download/v{number}",
        f"prometheus-{number}.linux-{machine}.tar.gz",
        "sha256sums.txt",
        ("prometheus", "promtool"),
    )


def _pulumi(version: str, machine: str) -> Release:
    name = f"pulumi-v{version}-linux-{'x64' if machine == 'amd64' else machine}.tar.gz"
    return Archive(PULUMI, "releases/sdk", name, f"pulumi-{version}-checksums.txt", ("pulumi",))


def _pulumi_kubernetes(version: str, machine: str) -> Release:
    return Archive(
        GITHUB,
        f"pulumi/pulumi-kubernetes/releases/download/v{version}",
        f"pulumi-resource-kubernetes-v{version}-linux-{machine}.tar.gz",
        f"pulumi-kubernetes_{version}_checksums.txt",
        ("pulumi-resource-kubernetes",),
    )


def _image(repository: str, program: str) -> Callable[[str, str], Release]:
    return lambda version, _machine: Image(REGISTRY, repository, f"v{version}", program)


_RELEASES: dict[str, Callable[[str, str], Release]] = {
    "kubernetes": _kubernetes,
    "etcd": _etcd,
    "prometheus": _prometheus,
    "pulumi": _pulumi,
    "pulumi-kubernetes": _pulumi_kubernetes,
    "kueue": _image("kueue/kueue", "manager"),
    "jobset": _image("jobset/jobset", "manager"),
    "kwok": _image("kwok/kwok", "usr/local/bin/kwok"),
    "kube-state-metrics": _image("kube-state-metrics/kube-state-metrics", "kube-state-metrics"),
}
