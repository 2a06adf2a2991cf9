"""Origin of a checkpoint of a program: interpreter, packages, and the nodes that wrote it."""

from __future__ import annotations

import os
import platform
from importlib import metadata
from typing import Any, Final

from trainyard import contract

_PACKAGES: Final = (
    "torch",
    "numpy",
    "transformers",
    "accelerate",
    "deepspeed",
    "lightning",
    "torchtitan",
    "peft",
    "safetensors",
)
_NODE: Final = {
    "name": contract.NODE_NAME_ENV,
    "pool": contract.POOL_ENV,
    "instance_type": contract.INSTANCE_TYPE_ENV,
    "capacity_type": contract.CAPACITY_TYPE_ENV,
    "zone": contract.ZONE_ENV,
}


def describe_process() -> dict[str, Any]:
    """Return the version of Python and of the packages that training depends on."""
    packages = {}
    for name in _PACKAGES:
        try:
            packages[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return {"python": platform.python_version(), "packages": packages}


def describe_node() -> dict[str, str]:
    """Return what the platform tells about this node; only what is known."""
    found = {key: os.environ.get(name, "") for key, name in _NODE.items()}
    return {key: value for key, value in found.items() if value}
