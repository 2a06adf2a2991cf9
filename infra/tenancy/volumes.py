"""A team's shared volumes: checkpoints, and datasets apart from them."""

from __future__ import annotations

from infra import naming
from infra.objects import Manifest, metadata


def claim(team: str, name: str, size: str, storage_class: str) -> Manifest:
    """A ReadWriteMany claim: every pod of a gang writes its shards, and the next gang reads them."""
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": metadata(
            name, namespace=naming.namespace(team), labels=naming.object_labels("storage", team)
        ),
        "spec": {
            "accessModes": ["ReadWriteMany"],
            "storageClassName": storage_class,
            "resources": {"requests": {"storage": size}},
        },
    }
