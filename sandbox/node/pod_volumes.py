"""Volumes of a pod on disk, and their bind mounts into containers."""

from __future__ import annotations

import logging
import os
import stat
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from sandbox import paths
from sandbox.node.api import ApiError, Client, Json, object_path
from sandbox.node.env import Fetch, InvalidReference, object_data, pod_field
from sandbox.node.records import PodFolder, memory_folder
from sandbox.node.rootfs import Bind

log = logging.getLogger("volumes")

FILE_MODE = 0o644
TOKEN_SECONDS = 3600
TOKEN_REFRESH = 0.8
"""A token is renewed after this fraction of its lifetime, as the kubelet does."""


class VolumeNotReady(Exception):
    """A volume is not ready yet. The message goes to the FailedMount event."""


@dataclass
class PodVolumes:
    """Creates the volumes of one pod. `fetch`: reads ConfigMaps and Secrets of its namespace."""

    client: Client
    state: paths.State
    pod: Json
    folder: PodFolder
    pod_ip: str
    fetch: Fetch
    sources: dict[str, Path] = field(default_factory=dict)
    """Volume name -> host folder, after `prepare`."""
    tokens_until: float | None = None
    """When (time.time()) `refresh_tokens` is due; None without tokens."""

    def prepare(self) -> None:
        """Create every volume; idempotent. Raises VolumeNotReady or InvalidReference."""
        for volume in self.pod["spec"].get("volumes") or []:
            self.sources[volume["name"]] = self._make(volume)

    def binds(self, container: Json) -> list[Bind]:
        read_only = {
            v["name"]
            for v in self.pod["spec"].get("volumes") or []
            if {"configMap", "secret", "projected", "downwardAPI"} & v.keys()
            or (v.get("persistentVolumeClaim") or {}).get("readOnly")
        }
        found = []
        for mount in container.get("volumeMounts") or []:
            source = self.sources[mount["name"]]
            if mount.get("subPath"):
                source = _sub_path(source, mount["subPath"])
            writable = not mount.get("readOnly") and mount["name"] not in read_only
            found.append(Bind(source, mount["mountPath"], writable))
        return found

    def refresh_tokens(self) -> None:
        """Replace service account tokens that expire soon."""
        self.tokens_until = None
        for volume in self._volumes_of("projected"):
            self._make(volume)

    @property
    def follows_sources(self) -> bool:
        return bool(self._volumes_of("configMap", "secret"))

    def refresh_sources(self) -> None:
        """Update the files of ConfigMaps and Secrets; those mounted by a subPath stay as they were."""
        for volume in self._volumes_of("configMap", "secret"):
            self._make(volume)

    def _volumes_of(self, *kinds: str) -> list[Json]:
        return [v for v in self.pod["spec"].get("volumes") or [] if not v.keys().isdisjoint(kinds)]

    def _make(self, volume: Json) -> Path:
        name = volume["name"]
        writers: dict[str, Callable[[str, Json], Path]] = {
            "persistentVolumeClaim": lambda _, v: self._claim(v["claimName"]),
            "emptyDir": self._empty,
            "configMap": self._keyed,
            "secret": self._keyed,
            "projected": self._projected,
            "downwardAPI": self._downward,
        }
        for kind, writer in writers.items():
            if kind in volume:
                return writer(name, volume[kind] or {})
        return self._empty(name, {})

    def _claim(self, name: str) -> Path:
        """Return the folder of a PersistentVolumeClaim's PersistentVolume."""
        namespace = self.pod["metadata"]["namespace"]
        try:
            claim = self.client.get(
                object_path("/api/v1", namespace, "persistentvolumeclaims", name)
            )
        except ApiError as error:
            if error.not_found:
                raise VolumeNotReady(f"persistentvolumeclaim {name!r} not found") from error
            raise
        bound = claim["spec"].get("volumeName")
        if not bound or (claim.get("status") or {}).get("phase") != "Bound":
            raise VolumeNotReady(f"persistentvolumeclaim {name!r} is not bound yet")
        volume = self.client.get(object_path("/api/v1", None, "persistentvolumes", bound))
        source = volume["spec"].get("hostPath") or volume["spec"].get("local")
        if not source:
            raise InvalidReference(
                f"persistentvolume {bound}: only hostPath and local are supported"
            )
        folder = Path(source["path"])
        folder.mkdir(parents=True, exist_ok=True)
        return folder

    def _empty(self, name: str, source: Json) -> Path:
        if source.get("medium") == "Memory" and Path("/dev/shm").is_dir():
            folder = memory_folder(self.state, self.pod["metadata"]["uid"]) / name
        else:
            folder = self.folder.volumes / name
        folder.mkdir(parents=True, exist_ok=True)
        folder.chmod(0o1777)
        return folder

    def _keyed(self, name: str, source: Json) -> Path:
        files = self._files(source)
        if "secretName" not in source:
            return self._write(name, files, source.get("defaultMode"))
        # Here the files belong to the container's own user, elsewhere to root: ssh refuses a key of its user
        # that others may read.
        default = source.get("defaultMode", FILE_MODE)
        private = {
            path: (content, (default if mode is None else mode) & stat.S_IRWXU)
            for path, (content, mode) in files.items()
        }
        return self._write(name, private, None)

    def _files(self, source: Json) -> dict[str, tuple[bytes, int | None]]:
        """Return path -> (content, mode or None) of a ConfigMap or Secret."""
        kind = "secrets" if "secretName" in source or source.get("_secret") else "configmaps"
        item_name = source.get("secretName") or source["name"]
        item = self.fetch(kind, item_name)
        if item is None:
            if source.get("optional"):
                return {}
            raise VolumeNotReady(f"{kind[:-1]} {item_name!r} not found")
        data = object_data(kind, item)
        items = source.get("items")
        if items is None:
            return {key: (value, None) for key, value in data.items()}
        files: dict[str, tuple[bytes, int | None]] = {}
        for entry in items:
            if entry["key"] in data:
                files[entry["path"]] = (data[entry["key"]], entry.get("mode"))
            elif not source.get("optional"):
                raise VolumeNotReady(f"{kind[:-1]} {item_name!r} has no key {entry['key']!r}")
        return files

    def _downward(self, name: str, source: Json) -> Path:
        return self._write(name, self._downward_files(source), source.get("defaultMode"))

    def _downward_files(self, source: Json) -> dict[str, tuple[bytes, int | None]]:
        files: dict[str, tuple[bytes, int | None]] = {}
        for item in source.get("items") or []:
            if "fieldRef" not in item:
                raise InvalidReference(f"downwardAPI {item['path']}: only fieldRef is supported")
            text = pod_field(self.pod, item["fieldRef"]["fieldPath"], self.pod_ip)
            files[item["path"]] = (text.encode(), item.get("mode"))
        return files

    def _projected(self, name: str, source: Json) -> Path:
        files: dict[str, tuple[bytes, int | None]] = {}
        for part in source.get("sources") or []:
            if "serviceAccountToken" in part:
                token = part["serviceAccountToken"]
                files[token["path"]] = (self._token(token), 0o600)
            elif "configMap" in part:
                files.update(self._files(part["configMap"]))
            elif "secret" in part:
                files.update(self._files({**part["secret"], "_secret": True}))
            elif "downwardAPI" in part:
                files.update(self._downward_files(part["downwardAPI"]))
            else:
                raise InvalidReference(
                    f"volume {name}: projected source {sorted(part)} not supported"
                )
        return self._write(name, files, source.get("defaultMode"))

    def _token(self, source: Json) -> bytes:
        """Request a token of the pod's service account, bound to the pod."""
        metadata, spec = self.pod["metadata"], self.pod["spec"]
        account = spec.get("serviceAccountName") or "default"
        seconds = int(source.get("expirationSeconds") or TOKEN_SECONDS)
        bound = {"apiVersion": "v1", "kind": "Pod", "name": metadata["name"]}
        request: Json = {"expirationSeconds": seconds}
        request["boundObjectRef"] = {**bound, "uid": metadata["uid"]}
        if source.get("audience"):
            request["audiences"] = [source["audience"]]
        path = object_path("/api/v1", metadata["namespace"], "serviceaccounts", account)
        answer = self.client.create(
            f"{path}/token",
            {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": request},
        )
        due = time.time() + seconds * TOKEN_REFRESH
        self.tokens_until = min(self.tokens_until or due, due)
        return str(answer["status"]["token"]).encode()

    def _write(
        self, name: str, files: dict[str, tuple[bytes, int | None]], default_mode: int | None
    ) -> Path:
        folder = self.folder.volumes / name
        folder.mkdir(parents=True, exist_ok=True)
        for relative, (content, mode) in files.items():
            chosen = mode if mode is not None else default_mode
            _write_file(folder, relative, content, FILE_MODE if chosen is None else chosen)
        return folder


def _write_file(folder: Path, relative: str, content: bytes, mode: int) -> None:
    path = _safe_path(folder, relative)
    if path.is_file() and path.read_bytes() == content:
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f"..{path.name}.part")
    part.unlink(missing_ok=True)
    fd = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with os.fdopen(fd, "wb") as file:
        file.write(content)
        os.fchmod(fd, mode | stat.S_IRUSR)  # the sandbox's user must be able to read it
    part.replace(path)


def _sub_path(source: Path, sub: str) -> Path:
    """Return source/sub; create it as a folder if absent. Raises InvalidReference outside the volume."""
    path = _safe_path(source, sub)
    if not path.exists():
        path.mkdir(parents=True)
    resolved = path.resolve()
    if not resolved.is_relative_to(source.resolve()):
        raise InvalidReference(f"subPath {sub!r}: a link leads out of the volume")
    return resolved


def _safe_path(folder: Path, relative: str) -> Path:
    parts = PurePosixPath(relative)
    if parts.is_absolute() or ".." in parts.parts:
        raise InvalidReference(f"path {relative!r}: must be relative and without '..'")
    return folder / parts
