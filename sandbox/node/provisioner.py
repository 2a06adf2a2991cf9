"""Provisioner of shared volumes: local folders behind PersistentVolumeClaims.

Claims whose StorageClass names the provisioner `sandbox.trainyard.dev/shared` get a PersistentVolume with a
hostPath in the sandbox's state, `volumes/NAMESPACE/CLAIM`. All process nodes are one machine, so
ReadWriteMany works. Capacity is not enforced.
"""

from __future__ import annotations

import logging
import shutil
import threading
from pathlib import Path

from infra.domain import naming
from sandbox import paths
from sandbox.node.api import ApiError, ApiUnavailable, Client, Json, object_path
from sandbox.node.rbac import PROVISIONER
from sandbox.node.watch import Informer

log = logging.getLogger("provisioner")

RETRY_S = 2.0
_PROVISIONED_BY = "pv.kubernetes.io/provisioned-by"
_SELECTED_NODE = "volume.kubernetes.io/selected-node"
_CLASSES = "/apis/storage.k8s.io/v1"


class Provisioner(threading.Thread):
    """Serves claims and released volumes until the process ends; retries on errors."""

    def __init__(self, state: paths.State) -> None:
        super().__init__(name="provisioner", daemon=True)
        self._client = client = Client(state.kubeconfig_of(PROVISIONER))
        self._state = state
        self._lock = threading.Lock()
        self._changed: dict[str, tuple[str, Json]] = {}
        self._wake = threading.Event()
        self._watches = [
            Informer(client, f"/api/v1/{kind}", self._handler(kind))
            for kind in ("persistentvolumeclaims", "persistentvolumes")
        ]
        # A claim may be older than its class: retry waiting claims when a class appears.
        self._watches.append(Informer(client, f"{_CLASSES}/storageclasses", self._class_changed))
        self._waiting: dict[str, Json] = {}

    def run(self) -> None:
        for watch in self._watches:
            watch.start()
        pause: float | None = None
        while True:
            self._wake.wait(pause)
            self._wake.clear()
            with self._lock:
                batch, self._changed = self._changed, {}
            pause = None
            for uid, (kind, item) in batch.items():
                if not self._serve(kind, item):
                    pause = RETRY_S
                    with self._lock:
                        self._changed.setdefault(uid, (kind, item))
            if pause is not None:
                self._wake.wait(pause)
                self._wake.set()

    def _handler(self, kind: str):  # type: ignore[no-untyped-def]
        def handle(event: str, item: Json) -> None:
            uid = item["metadata"]["uid"]
            with self._lock:
                self._waiting.pop(uid, None)
                if event == "DELETED":
                    self._changed.pop(uid, None)
                else:
                    self._changed[uid] = (kind, item)
            self._wake.set()

        return handle

    def _class_changed(self, event: str, _: Json) -> None:
        with self._lock:
            for uid, claim in self._waiting.items():
                self._changed.setdefault(uid, ("persistentvolumeclaims", claim))
        self._wake.set()

    def _serve(self, kind: str, item: Json) -> bool:
        """Reconcile one object; return False to retry."""
        try:
            if kind == "persistentvolumeclaims":
                self._claim(item)
            else:
                self._volume(item)
        except (ApiError, ApiUnavailable, OSError) as error:
            log.warning("%s %s: %s", kind, item["metadata"]["name"], error)
            return False
        return True

    def _claim(self, claim: Json) -> None:
        metadata, spec = claim["metadata"], claim["spec"]
        class_name = spec.get("storageClassName")
        if spec.get("volumeName") or not class_name or metadata.get("deletionTimestamp"):
            return
        storage_class = self._class(class_name)
        if storage_class is None:
            with self._lock:
                self._waiting[metadata["uid"]] = claim
            return
        if storage_class.get("provisioner") != naming.SIMULATED_PROVISIONER:
            return
        later = storage_class.get("volumeBindingMode") == "WaitForFirstConsumer"
        if later and _SELECTED_NODE not in (metadata.get("annotations") or {}):
            return
        folder = self._state.volumes / metadata["namespace"] / metadata["name"]
        folder.mkdir(parents=True, exist_ok=True)
        try:
            self._client.create(
                "/api/v1/persistentvolumes", build_volume(claim, storage_class, folder)
            )
            log.info("%s/%s: provisioned", metadata["namespace"], metadata["name"])
        except ApiError as error:
            if error.reason != "AlreadyExists":
                raise

    def _class(self, name: str) -> Json | None:
        try:
            return self._client.get(f"{_CLASSES}/storageclasses/{name}")
        except ApiError as error:
            if error.not_found:
                return None
            raise

    def _volume(self, volume: Json) -> None:
        """Delete a released volume with reclaim policy Delete, its folder first."""
        annotations = volume["metadata"].get("annotations") or {}
        if annotations.get(_PROVISIONED_BY) != naming.SIMULATED_PROVISIONER or volume[
            "metadata"
        ].get("deletionTimestamp"):
            return
        if (volume.get("status") or {}).get("phase") not in ("Released", "Failed"):
            return
        if volume["spec"].get("persistentVolumeReclaimPolicy") != "Delete":
            return
        folder = Path(volume["spec"]["hostPath"]["path"])
        if not folder.resolve().is_relative_to(self._state.volumes.resolve()):
            log.error("%s: %s is outside the sandbox; kept", volume["metadata"]["name"], folder)
            return
        if not self._in_use_by_another(volume, folder):
            shutil.rmtree(folder, ignore_errors=True)
        try:
            self._client.delete(f"/api/v1/persistentvolumes/{volume['metadata']['name']}")
        except ApiError as error:
            if not error.not_found:
                raise
        log.info("%s: removed", folder)

    def _in_use_by_another(self, volume: Json, folder: Path) -> bool:
        """Whether a new claim of the same name owns the folder now."""
        ref = volume["spec"].get("claimRef") or {}
        path = object_path(
            "/api/v1", ref.get("namespace"), "persistentvolumeclaims", ref.get("name", "")
        )
        try:
            claim = self._client.get(path)
        except ApiError as error:
            if error.not_found:
                return False
            raise
        return bool(claim["metadata"]["uid"] != ref.get("uid"))


def build_volume(claim: Json, storage_class: Json, folder: Path) -> Json:
    """Return the PersistentVolume of a claim, bound to it from the start."""
    metadata, spec = claim["metadata"], claim["spec"]
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {
            "name": f"pvc-{metadata['uid']}",
            "annotations": {_PROVISIONED_BY: naming.SIMULATED_PROVISIONER},
        },
        "spec": {
            "capacity": {"storage": spec["resources"]["requests"]["storage"]},
            "accessModes": spec["accessModes"],
            "volumeMode": spec.get("volumeMode") or "Filesystem",
            "storageClassName": spec["storageClassName"],
            "persistentVolumeReclaimPolicy": storage_class.get("reclaimPolicy") or "Delete",
            "hostPath": {"path": str(folder), "type": "DirectoryOrCreate"},
            "claimRef": {
                "apiVersion": "v1",
                "kind": "PersistentVolumeClaim",
                "namespace": metadata["namespace"],
                "name": metadata["name"],
                "uid": metadata["uid"],
            },
        },
    }
