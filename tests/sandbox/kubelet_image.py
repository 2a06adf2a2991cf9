"""Images for nodes with a kubelet: the trainer's from the committed Dockerfile, and what a cluster brings.

buildah builds them once per content; containerd keeps them unpacked in a folder of the cache, of which each node
gets a copy of hard links. Two things differ from the workflow that publishes the trainer's image: the base is a
Debian from its mirror instead of Docker Hub's `python`, and the stage of EFA, which compiles sources from GitHub,
leaves an empty folder.
"""

from __future__ import annotations

import hashlib
import re
import shutil
from dataclasses import dataclass
from pathlib import Path

from sandbox import paths
from sandbox.toolchain import Toolchain
from tests.sandbox.kubelet_node import Node, only_containerd, run
from training import source

REGISTRY = "registry.sandbox.trainyard.dev"
"""Nodes pull nothing: whatever they run is in their store under this name."""
PAUSE = f"{REGISTRY}/pause:1"
COREDNS = f"{REGISTRY}/coredns:1"
TRAINER = f"{REGISTRY}/trainer:1"
_SUITE = "bookworm"
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_PACKAGES = "python3,python3-venv,python3-pip,python-is-python3,ca-certificates"
_WAIT = '["python3", "-c", "import signal; signal.pause()"]'
_HOST_FILES = ("/etc/ssl/certs", "/etc/pip.conf")
"""How this machine reaches package registries; mounted while the image is built."""


@dataclass(frozen=True)
class Images:
    """A store of containerd's with all images. `trainer`: its reference by digest."""

    store: Path
    trainer: str


def dockerfile() -> str:
    """Return the committed Dockerfile without what needs EFA's sources."""
    text = (paths.PROJECT / "training/image/Dockerfile").read_text()
    stage = re.compile(r"(FROM \$\{BASE\} AS efa\n).*?(?=\nFROM )", re.DOTALL)
    text, stages = stage.subn(r"\1RUN mkdir -p /opt/efa/lib\n", text)
    check = "&& ldconfig -p | grep -q libnccl-net.so "
    assert stages == 1 and text.count(check) == 1, "the Dockerfile has changed; adapt this function"
    return text.replace(check, "")


def images(tools: Toolchain) -> Images:
    """Return the store; build it if a file that is in an image has changed."""
    content = hashlib.sha256((dockerfile() + source.digest(paths.PROJECT)).encode())
    for path in sorted((paths.PROJECT / "training/image").iterdir()):
        content.update(path.read_bytes())
    for name in ("containerd", "coredns"):
        content.update(str(tools.binaries[name].parent.parent.name).encode())
    folder = paths.cache() / "node-images" / content.hexdigest()[:16]
    if not (folder / "trainer").exists():
        shutil.rmtree(folder.parent, ignore_errors=True)
        folder.mkdir(parents=True)
        _build(folder, tools)
    return Images(folder / "lib/containerd", (folder / "trainer").read_text())


def _build(folder: Path, tools: Toolchain) -> None:
    """Build and import all images; the file `trainer` appears when everything is there."""
    scratch = folder / "build"
    scratch.mkdir()
    _build_with_buildah(scratch, tools.binaries["coredns"])
    node = Node("images", folder, tools.binaries, PAUSE)
    with only_containerd(node):
        for archive in sorted(scratch.glob("*.tar")):
            node.ctr("images", "import", "--local", "--discard-unpacked-layers", str(archive))
        listed = node.ctr("images", "ls").splitlines()
        (digest,) = [one.split()[2] for one in listed if one.startswith(TRAINER)]
        trainer = f"{TRAINER.partition(':')[0]}@{digest}"
        node.ctr("images", "tag", TRAINER, trainer)
        # What is removed with `--sync` takes the archives' blobs along.
        node.ctr("images", "rm", "--sync", TRAINER)
    shutil.rmtree(scratch)
    (folder / "trainer").write_text(trainer)


def _build_with_buildah(scratch: Path, coredns: Path) -> None:
    root = scratch / "rootfs"
    run("debootstrap", "--variant=minbase", f"--include={_PACKAGES}", _SUITE, str(root))
    # In a mount namespace: a build that is killed leaves no mounts.
    own = ("--storage-driver=overlay", f"--root={scratch}/storage", f"--runroot={scratch}/run")
    buildah = ("unshare", "--mount", "env", f"TMPDIR={scratch}", "buildah", *own)

    def image(name: str, base: str, option: str, *files: str) -> None:
        container = run(*buildah, "from", "--pull-never", base).strip()
        if files:
            run(*buildah, "copy", container, *files)
        run(*buildah, "config", option, container)
        run(*buildah, "commit", "--rm", container, name)

    image("localhost/python", "scratch", f"--env=PATH={_PATH}", str(root), "/")
    shutil.rmtree(root)
    image(PAUSE, "localhost/python", f"--entrypoint={_WAIT}")
    image(COREDNS, "scratch", '--entrypoint=["/coredns"]', str(coredns), "/coredns")
    file = scratch / "Dockerfile"
    file.write_text(dockerfile())
    mounted = [f"--volume={path}:{path}:ro" for path in _HOST_FILES if Path(path).exists()]
    run(
        *(*buildah, "build", "--pull-never", "--isolation=oci", "--runtime=runc"),
        *("--network=host", *mounted, "--build-arg=BASE=localhost/python"),
        *("--ignorefile=training/image/Dockerfile.dockerignore", f"--file={file}"),
        *(f"--tag={TRAINER}", "."),
        cwd=paths.PROJECT,
    )
    for number, name in enumerate((PAUSE, COREDNS, TRAINER)):
        run(*buildah, "push", name, f"docker-archive:{scratch}/{number}.tar:{name}")
