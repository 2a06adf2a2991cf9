"""Shared storage without a cloud: a StorageClass that the sandbox's node agent provisions."""

from __future__ import annotations

import pulumi

from infra import naming
from infra.objects import KubernetesObject, Manifest, metadata


def storage_class() -> Manifest:
    """ReadWriteMany by folders of the machine, bound at once, deleted with the claim."""
    return {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": metadata(
            naming.SIMULATED_STORAGE_CLASS, labels=naming.object_labels("storage")
        ),
        "provisioner": naming.SIMULATED_PROVISIONER,
        "reclaimPolicy": "Delete",
        "volumeBindingMode": "Immediate",
    }


class SimulatedStorage(pulumi.ComponentResource):
    """The class, under the name that claims use."""

    def __init__(self, name: str, opts: pulumi.ResourceOptions) -> None:
        super().__init__(naming.infra_type("SimulatedStorage"), name, None, opts)
        self.storage_class = naming.SIMULATED_STORAGE_CLASS
        self.object = KubernetesObject(
            f"{name}-class", storage_class(), pulumi.ResourceOptions(parent=self)
        )
        self.register_outputs({"storageClass": self.storage_class})
