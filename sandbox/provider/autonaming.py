"""Automatic names of objects without a name: `RESOURCE-xxxxxxxx`, kept across updates."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Mapping
from enum import Enum
from typing import Any

from sandbox.provider.errors import ProviderError
from sandbox.provider.objects import AUTONAMED, Object, is_annotated, metadata, name_of, put

SUFFIX_LENGTH = 8
"""Hexadecimal digits after the resource's own name."""


class Mode(Enum):
    """Autonaming mode of the engine."""

    PROPOSE = 0
    ENFORCE = 1
    DISABLE = 2


def random_suffix(seed: bytes) -> str:
    """Return `SUFFIX_LENGTH` hexadecimal digits, derived from the seed; random without one."""
    if not seed:
        return secrets.token_hex(SUFFIX_LENGTH // 2)
    return hashlib.sha512(seed).hexdigest()[:SUFFIX_LENGTH]


def name_new(
    obj: Object, resource_name: str, seed: bytes, proposal: tuple[Mode, str] | None
) -> None:
    """Name a new object that has no name and mark it as autonamed.

    `proposal`: the engine's mode and name. Raises ProviderError where a name is required.
    """
    meta = obj.get("metadata", {})
    if not isinstance(meta, dict) or meta.get("name") or meta.get("generateName"):
        return
    name = f"{resource_name}-{random_suffix(seed)}"
    if proposal is not None:
        mode, proposed = proposal
        if mode is Mode.DISABLE:
            raise ProviderError("metadata.name: missing, and automatic naming is off; set it")
        name = proposed or name
    put(obj, ("metadata", "name"), name)
    _mark(obj)


def keep_old(obj: Object, old: Mapping[str, Any]) -> None:
    """Keep the automatic name of an existing object."""
    if not metadata(obj).get("name") and is_annotated(old, AUTONAMED):
        put(obj, ("metadata", "name"), name_of(old))
        _mark(obj)


def _mark(obj: Object) -> None:
    if isinstance(metadata(obj).get("annotations", {}), dict):
        put(obj, ("metadata", "annotations", AUTONAMED), "true")
