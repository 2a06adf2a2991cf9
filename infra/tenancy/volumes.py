"""A team's shared volumes: checkpoints, and datasets apart from them."""

from __future__ import annotations

from infra.domain.storage import Volume
from infra.kubernetes.objects import Manifest, in_team


def claim(team: str, name: str, volume: Volume) -> Manifest:
    """Return a ReadWriteMany claim: every pod of a gang writes its shards, and the next gang reads them."""
    spec: Manifest = {
        "accessModes": ["ReadWriteMany"],
        "storageClassName": volume.storage_class,
        "resources": {"requests": {"storage": volume.size}},
    }
    if volume.name is not None:
        spec["volumeName"] = volume.name
    return in_team("v1/PersistentVolumeClaim", name, "storage", team, spec=spec)
