"""Compose the start of a container: environment, root file system, command."""

from __future__ import annotations

from collections.abc import Iterable

from infra.domain import naming
from sandbox.node.api import Json
from sandbox.node.container import container_user
from sandbox.node.env import Fetch, all_containers, container_argv, environment
from sandbox.node.hosts import host_name
from sandbox.node.images import Image
from sandbox.node.pod_volumes import PodVolumes
from sandbox.node.records import Attempt, PodFolder
from sandbox.node.rootfs import Bind, Root, plan_root
from sandbox.node.runtime import Launch

ETC_FILES = ("hosts", "hostname", "passwd", "group", "nsswitch.conf")


def write_etc(folder: PodFolder, pod: Json, hosts: str) -> None:
    folder.etc.mkdir(parents=True, exist_ok=True)
    users = sorted({container_user(pod, container) for container in all_containers(pod)})
    texts = {
        "hostname": host_name(pod) + "\n",
        "passwd": _lines("root:x:0:0:root:/tmp:/bin/sh", (_user(u, g) for u, g in users if u)),
        "group": _lines("root:x:0:", (f"group{g}:x:{g}:" for g in {g for _, g in users} if g)),
        "nsswitch.conf": "passwd: files\ngroup: files\nhosts: files dns\n",
        "hosts": hosts,
    }
    for name, text in texts.items():
        (folder.etc / name).write_text(text)


def compose_launch(
    pod: Json,
    container: Json,
    *,
    image: Image,
    volumes: PodVolumes,
    attempt: Attempt,
    server: tuple[str, int],
    fetch: Fetch,
) -> Launch:
    """Return the launch of a container. `server`: the API server's address.

    Raises InvalidReference, VolumeNotReady or InvalidMount.
    """
    base = {**image.env, "HOSTNAME": host_name(pod), **_server_env(*server)}
    values = environment(pod, container, base, volumes.pod_ip, fetch)
    security = container.get("securityContext") or {}
    uid, gid = container_user(pod, container)
    etc = volumes.folder.etc
    message = container.get("terminationMessagePath") or "/dev/termination-log"
    read_only = bool(security.get("readOnlyRootFilesystem"))
    root = Root(
        image=image.binds,
        symlinks=image.symlinks,
        files=[
            *(Bind(etc / name, f"/etc/{name}") for name in ETC_FILES),
            Bind(attempt.path / "message", message, writable=True),
        ],
        mounts=volumes.binds(container),
        scratch=None if read_only else attempt.path / "tmp",
        read_only=read_only,
        work_dir=container.get("workingDir") or image.work_dir,
    )
    variables = [word for item in values.items() for word in ("--setenv", *item)]
    options = ["--uid", str(uid), "--gid", str(gid), "--hostname", host_name(pod)]
    options += [*plan_root(root), "--clearenv", *variables]
    return Launch(
        options=options,
        command=container_argv(container, image.entrypoint, values),
        listen_at=volumes.pod_ip if image.listens_everywhere else "",
    )


def _server_env(host: str, port: int) -> dict[str, str]:
    return {
        "KUBERNETES_SERVICE_HOST": host,
        "KUBERNETES_SERVICE_PORT": str(port),
        "KUBERNETES_SERVICE_PORT_HTTPS": str(port),
    }


def _user(uid: int, gid: int) -> str:
    """Return a line of /etc/passwd; the training user is that of the trainer's image, whom sshd admits by name."""
    if uid == naming.TRAINING_USER:
        return f"trainer:x:{uid}:{gid}::/home/trainer:/bin/sh"
    return f"user{uid}:x:{uid}:{gid}::/tmp:/bin/sh"


def _lines(first: str, more: Iterable[str]) -> str:
    return "\n".join([first, *more, ""])
