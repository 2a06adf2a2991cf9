"""Protected state: storage survives a mistaken `pulumi destroy`, in stacks that require it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from .model import Config, Resource, ResourceRule, Violation
from .resource_types import BUCKET, EFS, FSX, KMS_KEY

_VOLUMES: Final = (
    "kubernetes:core/v1:PersistentVolume",
    "kubernetes:core/v1:PersistentVolumeClaim",
    "aws:ebs/volume:Volume",
)
_STATE: Final = frozenset({*BUCKET, *FSX, *_VOLUMES, EFS, KMS_KEY})


def _check(resource: Resource, config: Config) -> Iterable[Violation]:
    if config["required"] and resource.type in _STATE and not resource.protected:
        yield Violation(
            path="the resource option protect",
            got="false",
            expected="true on buckets, keys, file systems and volumes",
            remedy="set trainyard:storage.protect to true",
        )


PROTECTED_STATE: Final = ResourceRule(
    name="protected-state",
    description="Storage and keys are protected from deletion, in stacks that require it.",
    check=_check,
    schema={
        "required": {
            "type": "boolean",
            "default": False,
            "description": "Whether storage and keys must be protected",
        }
    },
)
