"""Root file system of a container as bubblewrap options.

An empty tmpfs with read-only binds of the image and the pod's volumes at their mountPaths. Nothing else of
the host is visible: no home folder, no sandbox state, no other processes, and of the host's /etc only what
name service, TLS and the dynamic linker need.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

HOST_ETC = (
    "ld.so.cache",
    "ld.so.conf",
    "ld.so.conf.d",
    "alternatives",
    "ssl/certs",
    "ssl/openssl.cnf",
    "ca-certificates",
    "pki/tls/certs",
    "pki/ca-trust/extracted",
    "localtime",
    "timezone",
    "mime.types",
    "protocols",
    "services",
    "gai.conf",
    "resolv.conf",
)
"""Files of the host's /etc that containers see; none holds private keys, passwords or tokens."""

_MERGED = ("bin", "sbin", "lib", "lib32", "lib64", "libx32")


class InvalidMount(Exception):
    """A mount is not possible; the message names path and reason."""


@dataclass(frozen=True)
class Bind:
    """A folder or file of the host, mounted at `target` in the container."""

    source: Path
    target: str
    writable: bool = False


@dataclass(frozen=True, kw_only=True)
class Root:
    image: Sequence[Bind]
    """Read-only folders of the image; one that lacks a mount point is bound child by child."""
    files: Sequence[Bind]
    """Files that the agent writes: /etc/hosts, /etc/passwd, the termination log."""
    mounts: Sequence[Bind]
    """The pod's volumes."""
    scratch: Path | None
    """Folder behind /tmp; None makes /tmp read-only with the root."""
    read_only: bool = False
    """readOnlyRootFilesystem: the root tmpfs is remounted read-only after all mounts."""
    work_dir: str = "/"
    symlinks: Sequence[tuple[str, str]] = field(default_factory=tuple)
    """(link text, path) pairs: /bin -> usr/bin on a host with a merged /usr."""


def system_binds() -> tuple[list[Bind], list[tuple[str, str]]]:
    """Return binds of the host's system folders, and the top-level links of a merged /usr."""
    binds, links = [Bind(Path("/usr"), "/usr")], []
    for name in _MERGED:
        path = Path("/") / name
        if path.is_symlink():
            links.append((os.readlink(path), str(path)))
        elif path.is_dir():
            binds.append(Bind(path, str(path)))
    for name in HOST_ETC:
        path = Path("/etc") / name
        if path.exists():
            binds.append(Bind(path.resolve() if path.is_symlink() else path, str(path)))
    if Path("/sys").is_dir():
        binds.append(Bind(Path("/sys"), "/sys"))
    return binds, links


def plan_root(root: Root) -> list[str]:
    """Return the bubblewrap options that build `root`, in order."""
    links = {path: text for text, path in root.symlinks}
    mounts = sorted(
        (Bind(m.source, _resolve_links(m.target, links), m.writable) for m in root.mounts),
        key=lambda m: PurePosixPath(m.target).parts,
    )
    _refuse_bad_targets(mounts)
    inner = [m.target for m in mounts] + [f.target for f in root.files]
    options = ["--proc", "/proc", "--dev", "/dev", "--dir", "/run", "--dir", "/var"]
    options += ["--symlink", "/tmp", "/var/tmp"]
    options += ["--bind", str(root.scratch), "/tmp"] if root.scratch else ["--dir", "/tmp"]
    # The checkout, and with it the image's Python, may be under /tmp or another mount: such folders are
    # bound after the mount, which would hide them.
    covers = ["/tmp", *(m.target for m in mounts)]
    image = _drop_nested(root.image)
    covered = [bind for bind in image if any(_inside(bind.target, c) for c in covers)]
    for bind in image:
        if bind not in covered:
            options += _bind_with_mount_points(bind, inner)
    for text, path in root.symlinks:
        options += ["--symlink", text, path]
    for bind in [*root.files, *mounts]:
        options += ["--bind" if bind.writable else "--ro-bind", str(bind.source), bind.target]
    for bind in covered:
        options += ["--ro-bind", str(bind.source), bind.target]
    work_dir = _resolve_links(root.work_dir, links)
    if not _inside_any(work_dir, [b.target for b in [*root.image, *mounts]]):
        options += ["--dir", work_dir]
    if root.read_only:
        options += ["--remount-ro", "/"]
    return [*options, "--chdir", work_dir]


def _bind_with_mount_points(bind: Bind, targets: Iterable[str]) -> list[str]:
    """Return a read-only bind of the folder, or of its children if it lacks a mount point.

    bubblewrap would create the mount point on the host; instead the folder is created in the container
    and its children are bound one by one, recursively.
    """
    missing = [t for t in targets if _inside(t, bind.target) and not _exists_in(bind, t)]
    if not missing or not bind.source.is_dir():
        return ["--ro-bind", str(bind.source), bind.target]
    options = ["--dir", bind.target]
    for child in sorted(bind.source.iterdir()):
        target = f"{bind.target.rstrip('/')}/{child.name}"
        if child.is_symlink():
            options += ["--symlink", os.readlink(child), target]
        else:
            options += _bind_with_mount_points(Bind(child, target), missing)
    return options


def _exists_in(bind: Bind, target: str) -> bool:
    return (bind.source / PurePosixPath(target).relative_to(bind.target)).exists()


def _drop_nested(binds: Iterable[Bind]) -> list[Bind]:
    """Sort outer folders before inner ones; drop folders that an outer bind already contains."""
    kept: list[Bind] = []
    for bind in sorted(binds, key=lambda b: PurePosixPath(b.target).parts):
        shown = any(
            _inside(bind.target, k.target)
            and k.source / PurePosixPath(bind.target).relative_to(k.target) == bind.source
            for k in kept
        )
        if not shown and bind not in kept:
            kept.append(bind)
    return kept


def _refuse_bad_targets(mounts: Sequence[Bind]) -> None:
    seen: set[str] = set()
    for mount in mounts:
        if mount.target == "/" or _inside(mount.target, "/proc") or mount.target == "/proc":
            raise InvalidMount(f"mountPath {mount.target}: / and /proc cannot be mount points")
        if mount.target in seen:
            raise InvalidMount(f"mountPath {mount.target}: used twice")
        seen.add(mount.target)


def _resolve_links(path: str, links: dict[str, str]) -> str:
    """Return the absolute, normalized path with top-level links resolved."""
    normal = os.path.normpath("/" + path.lstrip("/"))
    parts = PurePosixPath(normal).parts
    if len(parts) > 1 and f"/{parts[1]}" in links:
        text = links[f"/{parts[1]}"]
        return os.path.normpath(os.path.join("/", text, *parts[2:]))
    return normal


def _inside(path: str, folder: str) -> bool:
    return path != folder and PurePosixPath(path).is_relative_to(folder)


def _inside_any(path: str, folders: Iterable[str]) -> bool:
    return any(path == f or _inside(path, f) for f in folders)
