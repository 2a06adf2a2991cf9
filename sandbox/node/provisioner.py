"""Provisioner of shared volumes: local folders behind PersistentVolumeClaims.

Claims whose StorageClass names the provisioner `sandbox.trainyard.dev/shared` get a PersistentVolume with a
hostPath in the sandbox's state, `volumes/NAMESPACE/CLAIM`. All process nodes are one machine, so
ReadWriteMany works. Capacity is not enforced.
"""

from __future__ import annotations

import functools
import logging
import shutil
import threading
from collections.abc import Sequence
from pathlib import Path

from infra.domain import naming
from sandbox import paths
from sandbox.node.api import ApiError, ApiUnavailable, Client, Json
from sandbox.node.watch import Informer
from sandbox.rbac import PROVISIONER

log = logging.getLogger("provisioner")

RETRY_S = 2.0
_PROVISIONED_BY = "pv.kubernetes.io/provisioned-by"
_SELECTED_NODE = "volume.kubernetes.io/selected-node"
_VOLUMES = "/api/v1/persistentvolumes"


class Provisioner(threading.Thread):
    """Serves claims and released volumes until the process ends; looks at all of them after each change."""

    def __init__(self, state: paths.State) -> None:
        super().__init__(name="provisioner", daemon=True)
        self._client = Client(state.kubeconfig_of(PROVISIONER))
        self._state = state
        self._wake = threading.Event()
        self._claims = self._watch("/api/v1/persistentvolumeclaims")
        self._volumes = self._watch(_VOLUMES)
        self._classes = self._watch("/apis/storage.k8s.io/v1/storageclasses")

    def _watch(self, path: str) -> Informer:
        return Informer(self._client, path, lambda *_: self._wake.set())

    def run(self) -> None:
        watches = (self._claims, self._volumes, self._classes)
        for watch in watches:
            watch.start()
        for watch in watches:
            watch.synced.wait()
        while True:
            self._wake.clear()
            self._wake.wait(None if self._reconcile() else RETRY_S)

    def _reconcile(self) -> bool:
        """Serve all claims and volumes; return False if a request failed."""
        claims, volumes = self._claims.items(), self._volumes.items()
        classes = {one["metadata"]["name"]: one for one in self._classes.items()}
        made = {one["metadata"]["name"] for one in volumes}
        due = [functools.partial(self._remove_released, one, claims) for one in volumes]
        for claim in claims:
            storage_class = classes.get(claim["spec"].get("storageClassName") or "")
            if storage_class and _volume_name(claim) not in made:
                due.append(functools.partial(self._provision, claim, storage_class))
        done = True
        for serve in due:
            try:
                serve()
            except (ApiError, ApiUnavailable, OSError) as error:
                log.warning("%s", error)
                done = False
        return done

    def _provision(self, claim: Json, storage_class: Json) -> None:
        metadata = claim["metadata"]
        if claim["spec"].get("volumeName") or metadata.get("deletionTimestamp"):
            return
        if storage_class.get("provisioner") != naming.SIMULATED_PROVISIONER:
            return
        later = storage_class.get("volumeBindingMode") == "WaitForFirstConsumer"
        if later and _SELECTED_NODE not in (metadata.get("annotations") or {}):
            return
        folder = self._state.volumes / metadata["namespace"] / metadata["name"]
        folder.mkdir(parents=True, exist_ok=True)
        try:
            self._client.create(_VOLUMES, build_volume(claim, storage_class, folder))
            log.info("%s/%s: provisioned", metadata["namespace"], metadata["name"])
        except ApiError as error:
            if error.reason != "AlreadyExists":
                raise

    def _remove_released(self, volume: Json, claims: Sequence[Json]) -> None:
        """Delete a released volume with reclaim policy Delete, its folder first."""
        metadata, spec = volume["metadata"], volume["spec"]
        annotations = metadata.get("annotations") or {}
        if annotations.get(_PROVISIONED_BY) != naming.SIMULATED_PROVISIONER:
            return
        if (volume.get("status") or {}).get("phase") not in ("Released", "Failed"):
            return
        if spec.get("persistentVolumeReclaimPolicy") != "Delete" or metadata.get(
            "deletionTimestamp"
        ):
            return
        folder = Path(spec["hostPath"]["path"])
        if not folder.resolve().is_relative_to(self._state.volumes.resolve()):
            log.error("%s: %s is outside the sandbox; kept", metadata["name"], folder)
            return
        owner = spec.get("claimRef") or {}
        place = {key: owner.get(key) for key in ("namespace", "name")}.items()
        others = [one for one in claims if one["metadata"]["uid"] != owner.get("uid")]
        # A new claim of the same name owns the folder.
        if not any(place <= one["metadata"].items() for one in others):
            shutil.rmtree(folder, ignore_errors=True)
        try:
            self._client.delete(f"{_VOLUMES}/{metadata['name']}")
        except ApiError as error:
            if not error.not_found:
                raise
        log.info("%s: removed", folder)


def _volume_name(claim: Json) -> str:
    return f"pvc-{claim['metadata']['uid']}"


def build_volume(claim: Json, storage_class: Json, folder: Path) -> Json:
    """Return the PersistentVolume of a claim, bound to it from the start."""
    metadata, spec = claim["metadata"], claim["spec"]
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {
            "name": _volume_name(claim),
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
