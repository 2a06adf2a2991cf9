"""Field managers of live objects, read from managedFields."""

from __future__ import annotations

import copy
import re
import secrets
from collections.abc import Iterable

from sandbox.provider.objects import (
    PATCH_FIELD_MANAGER,
    Object,
    annotation,
    at,
    drop,
    metadata,
    put,
)

MANAGER_PREFIX = "pulumi-kubernetes-"
_OURS = re.compile(rf"^{MANAGER_PREFIX}[0-9a-f]{{8}}$")


def manager_for(manifest: Object, previous: str = "") -> str:
    """Return a resource's field manager: from its annotation, the previous one, or a new one."""
    named = annotation(manifest, PATCH_FIELD_MANAGER)
    return named or previous or MANAGER_PREFIX + secrets.token_hex(4)


def applied_by_pulumi(live: Object) -> str:
    """Return the Pulumi field manager that applied a live object; empty without one."""
    for entry in metadata(live).get("managedFields") or []:
        manager = str(entry.get("manager"))
        if entry.get("operation") == "Apply" and _OURS.match(manager):
            return manager
    return ""


def keep_ignored(manifest: Object, live: Object, manager: str, ignored: Iterable[str]) -> Object:
    """Return the manifest to apply when changes of some paths are ignored.

    Fields there that only other managers own are removed from it; otherwise the live value is applied
    again. Paths into lists keep the inputs' values.
    """
    result = copy.deepcopy(manifest)
    for path in ignored:
        steps = _steps(path)
        if steps is None:
            continue
        ours, others = _owners(live, manager, steps)
        value = at(live, steps)
        if others and not ours:
            drop(result, steps)
        elif value is not None:
            put(result, steps, copy.deepcopy(value))
    return result


def _owners(live: Object, manager: str, steps: list[str]) -> tuple[bool, bool]:
    """Return whether our manager, and whether another one, owns something at a path."""
    ours = others = False
    fields = [f"f:{step}" for step in steps]
    for entry in metadata(live).get("managedFields") or []:
        if at(entry.get("fieldsV1") or {}, fields) is None:
            continue
        if entry.get("manager") == manager and entry.get("operation") == "Apply":
            ours = True
        else:
            others = True
    return ours, others


def _steps(path: str) -> list[str] | None:
    """Return the keys of a property path; None if it enters a list."""
    found = re.findall(r'\["((?:[^"\\]|\\.)*)"\]|\[([^\]"]+)\]|([^.\[\]]+)', path)
    if any(index for _, index, _ in found):
        return None
    return [quoted.replace('\\"', '"') or plain for quoted, _, plain in found]
