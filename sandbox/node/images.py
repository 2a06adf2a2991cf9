"""Container images of the sandbox: pinned by digest, backed by folders of this machine.

`sandbox.trainyard.dev/trainer@sha256:D` is a snapshot of the trainer's sources with content hash D, plus the
project's virtual environment; `sandbox.trainyard.dev/examples@sha256:D` is the same with the packages of
examples/requirements.txt, which are installed when the first container needs them;
`sandbox.trainyard.dev/ops@sha256:D` is a snapshot of the commands (ops/) and what they import;
`sandbox.trainyard.dev/host@sha256:...` is the bare system. Images of controllers that the toolchain builds,
`CONTROLLERS`, have the name and tag that upstream gives them; one by digest is the same program, whatever the
digest. Other images cannot be pulled.
"""

from __future__ import annotations

import compileall
import importlib.util
import os
import py_compile
import re
import shutil
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Final

from sandbox import example_environment, paths
from sandbox.node.rootfs import Bind, system_binds
from sandbox.reporting import SandboxError
from sandbox.toolchain.lookup import find_in_cache
from sandbox.toolchain.tools import ON_DEMAND_TOOLS, TOOLS

REGISTRY = "sandbox.trainyard.dev"
WORKSPACE = "/workspace"
EXAMPLES = "examples"
OPS = "ops"
_OPS_PACKAGES = ("infra", "ops", "training")
_PACKAGES = ("trainer", "trainyard")
_REFERENCE = re.compile(r"^(?P<repository>[^@]+)@sha256:(?P<digest>[0-9a-f]{64})$")
_SSH_FILES = {
    "sshd_config": "/home/trainer/.sshd_config",
    "ssh_config": "/etc/ssh/ssh_config",
}
"""Files of training/image that the trainer's image has, by name; mpijob needs them."""
_SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


class ImageError(Exception):
    """The image is not available; the message gives reason and remedy."""


@dataclass(frozen=True, kw_only=True)
class Image:
    reference: str
    """repository@digest, reported as `imageID`."""
    binds: list[Bind]
    symlinks: list[tuple[str, str]]
    env: Mapping[str, str]
    work_dir: str
    entrypoint: list[str] = field(default_factory=list)
    listens_everywhere: bool = False
    """Whether its servers ask for every interface; they get the pod's address (listening.py)."""


@dataclass(frozen=True)
class Controller:
    """A program of the toolchain as the image that upstream publishes of it."""

    tool: str
    binary: str
    entrypoint: str = "/manager"
    tag: str = "v{version}"


CONTROLLERS: Final[Mapping[str, Controller]] = {
    "registry.k8s.io/kueue/kueue": Controller("kueue", "kueue-manager"),
    "registry.k8s.io/jobset/jobset": Controller("jobset", "jobset-manager"),
    "ghcr.io/kubeflow/trainer/trainer-controller-manager": Controller(
        "kubeflow-trainer", "trainer-controller-manager"
    ),
    "docker.io/mpioperator/mpi-operator": Controller(
        "mpi-operator", "mpi-operator", "/opt/mpi-operator", "{version}"
    ),
    "ghcr.io/kubeflow/training-v1/training-operator": Controller(
        "training-operator", "training-operator", tag="v1-d6eb98e"
    ),
}
"""By repository, as in the images of `infra.addons.registry.ADD_ONS`, which takes a second to import."""


def resolve_image(reference: str, state: paths.State, project: Path = paths.PROJECT) -> Image:
    """Return the image that `reference` names; create it at first use. Raises ImageError."""
    repository, _, version = reference.partition("@")
    if repository not in CONTROLLERS:
        repository, _, version = reference.rpartition(":")
    if controller := CONTROLLERS.get(repository):
        return _controller_image(reference, version, controller)
    match = _REFERENCE.match(reference)
    if not match:
        raise ImageError(
            f"image {reference!r}: not pinned; use {REGISTRY}/NAME@sha256:DIGEST (64 hex digits)"
        )
    repository, digest = match["repository"], match["digest"]
    if repository == f"{REGISTRY}/host":
        return _host_image(reference)
    if repository == f"{REGISTRY}/trainer":
        return _python_image(reference, snapshot(digest, state, project))
    if repository == f"{REGISTRY}/{OPS}":
        return _python_image(reference, snapshot(digest, state, project, OPS))
    if repository == f"{REGISTRY}/{EXAMPLES}":
        return _examples_image(reference, snapshot(digest, state, project, EXAMPLES))
    raise ImageError(
        f"image {reference!r}: process nodes pull nothing; use {REGISTRY}/trainer,"
        f" {REGISTRY}/{EXAMPLES}, {REGISTRY}/{OPS} or {REGISTRY}/host"
    )


def snapshot(
    digest: str, state: paths.State, project: Path = paths.PROJECT, image: str = "trainer"
) -> Path:
    """Return the folder with the sources of that digest; copy the working tree if absent.

    `image`: a key of `training.source.LAYERS`, whose pins are part of the digest, or `ops`.

    Raises ImageError when the tree's sources have another digest. Safe against kills and concurrent
    callers: the folder appears by one rename.
    """
    folder = state.images / f"sha256-{digest}"
    if folder.is_dir():
        return folder
    state.images.mkdir(parents=True, exist_ok=True)
    part = Path(tempfile.mkdtemp(prefix="pull-", dir=state.images))
    try:
        _copy_sources(project, part, everything=image == OPS)
        found = _digest(project, part, image)
        if found != digest:
            raise ImageError(
                f"no snapshot of trainer sources with digest sha256:{digest[:12]}, and the working "
                f"tree's digest is sha256:{found[:12]}; check out those sources, or run "
                "`pulumi up` to deploy the current ones"
            )
        for package in [name for name in (*_PACKAGES, *_OPS_PACKAGES) if (part / name).is_dir()]:
            compileall.compile_dir(
                part / package,
                quiet=2,
                stripdir=str(part),
                prependdir=WORKSPACE,
                invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH,
            )
        part.chmod(0o755)
        try:
            part.rename(folder)
        except OSError:
            if not folder.is_dir():  # else another caller created the same folder
                raise
    finally:
        shutil.rmtree(part, ignore_errors=True)
    return folder


def python_roots(prefixes: list[Path], home: Path) -> list[Path]:
    """Return the folders that the interpreter of a virtual environment needs.

    `prefixes`: sys.prefix and sys.base_prefix; links are followed. Raises ImageError for a prefix that
    contains the home folder.
    """
    roots: list[Path] = []
    for prefix in prefixes:
        hop = prefix / "bin" / "python"
        chain = [prefix, prefix.resolve()]
        while hop.is_symlink():
            hop = Path(os.path.normpath(hop.parent / os.readlink(hop)))
            chain += [hop.parent.parent, hop.parent.parent.resolve()]
        for root in chain:
            if root in roots or root == Path("/usr") or Path("/usr") in root.parents:
                continue
            if root == home or root in home.parents:
                raise ImageError(
                    f"{root}: Python's prefix contains the home folder, which containers must not see; "
                    "use a Python with a separate prefix"
                )
            roots.append(root)
    return roots


def _copy_sources(project: Path, target: Path, *, everything: bool) -> None:
    """Copy the trainer's folders; `everything`: also the commands'."""
    files = [
        path
        for name in (*_PACKAGES, *(_OPS_PACKAGES if everything else ()))
        for path in sorted((project / name).rglob("*"))
        if "__pycache__" not in path.parts
    ]
    for path in [*files, project / "requirements.txt", project / example_environment.REQUIREMENTS]:
        if path.is_file():
            copy = target / path.relative_to(project)
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, copy)


def _digest(project: Path, root: Path, image: str) -> str:
    """Return `training.source.digest(root, image)`, computed by the tree's current code, not the imported one."""
    path = project / "training" / "source.py"
    spec = importlib.util.spec_from_file_location("trainyard_training_source", path)
    if not path.is_file() or spec is None or spec.loader is None:
        raise ImageError(f"{path}: missing; it computes the digest of the trainer's image")
    module: ModuleType = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look up their module
    spec.loader.exec_module(module)
    return str(module.digest(root, image))


def _controller_image(reference: str, version: str, controller: Controller) -> Image:
    tool = next(one for one in (*TOOLS, *ON_DEMAND_TOOLS) if one.name == controller.tool)
    valid = controller.tag.format(version=tool.version)
    if version != valid and not version.startswith("sha256:"):
        raise ImageError(
            f"image {reference!r}: process nodes run the version that the toolchain has; valid: {valid}; use it"
        )
    found = find_in_cache(tool)
    if found is None:
        raise ImageError(
            f"image {reference!r}: {tool.name} is not built; run `python -m sandbox build {tool.name}`"
        )
    return Image(
        reference=reference,
        binds=[Bind(found.binaries[controller.binary], controller.entrypoint)],
        symlinks=[],
        env={"PATH": _SYSTEM_PATH},
        work_dir="/",
        entrypoint=[controller.entrypoint],
        listens_everywhere=True,
    )


def _host_image(reference: str) -> Image:
    binds, links = system_binds()
    base = python_roots([Path(sys.base_prefix)], Path.home())
    path = ":".join([*(f"{root}/bin" for root in base), _SYSTEM_PATH])
    return Image(
        reference=reference,
        binds=[*binds, *(Bind(root, str(root)) for root in base)],
        symlinks=links,
        env={"PATH": path, "HOME": "/tmp", "LANG": "C.UTF-8"},
        work_dir="/",
    )


def _examples_image(reference: str, folder: Path) -> Image:
    try:
        layer = example_environment.ensure(lambda _: None, folder)
    except (SandboxError, OSError) as error:
        raise ImageError(f"image {reference!r}: {error}") from error
    return _python_image(reference, folder, layer)


def _python_image(reference: str, folder: Path, *layers: Path) -> Image:
    """Return an image of sources, the project's virtual environment and those on top of it."""
    environments = [*layers, Path(sys.prefix)]
    binds, links = system_binds()
    roots = python_roots([*environments, Path(sys.base_prefix)], Path.home())
    image = paths.PROJECT / "training" / "image"
    ssh = [Bind(image / name, target) for name, target in _SSH_FILES.items()]
    return Image(
        reference=reference,
        binds=[*binds, *(Bind(r, str(r)) for r in roots), Bind(folder, WORKSPACE), *ssh],
        symlinks=links,
        env={
            "PATH": ":".join([*(f"{one}/bin" for one in environments), _SYSTEM_PATH]),
            "VIRTUAL_ENV": str(environments[0]),
            "PYTHONPATH": WORKSPACE,
            "HOME": "/tmp",
            "LANG": "C.UTF-8",
        },
        work_dir=WORKSPACE,
        entrypoint=["python"],
    )
