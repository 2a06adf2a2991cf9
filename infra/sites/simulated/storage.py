"""Simulated shared storage: a StorageClass that the sandbox's node agent provisions."""

from __future__ import annotations

import pulumi

from infra.domain import naming
from infra.domain.storage import TeamVolumes, VolumeSizes, provisioned
from infra.kubernetes.objects import Manifest, manifest
from infra.kubernetes.resources import KubernetesObject


def storage_class() -> Manifest:
    """Return the class: ReadWriteMany folders of the machine, bound immediately, deleted with the claim."""
    return manifest(
        "storage.k8s.io/v1/StorageClass",
        naming.SIMULATED_STORAGE_CLASS,
        "storage",
        provisioner=naming.SIMULATED_PROVISIONER,
        reclaimPolicy="Delete",
        volumeBindingMode="Immediate",
    )


class SimulatedStorage(pulumi.ComponentResource):
    """The class, with a folder per claim, which has no size limit."""

    def __init__(self, name: str, sizes: VolumeSizes, opts: pulumi.ResourceOptions) -> None:
        super().__init__(naming.infra_type("SimulatedStorage"), name, None, opts)
        self._sizes = sizes
        KubernetesObject(f"{name}-class", storage_class(), pulumi.ResourceOptions(parent=self))
        self.register_outputs({"storageClass": naming.SIMULATED_STORAGE_CLASS})

    def volumes(self, team: str) -> TeamVolumes:
        return provisioned(naming.SIMULATED_STORAGE_CLASS, self._sizes)
