"""Helm releases: previewed from their inputs, never created."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sandbox.provider.diff import Change, Difference
from sandbox.provider.errors import ProviderError

RELEASE = "kubernetes:helm.sh/v3:Release"

_FIXED = ("name", "namespace")
"""Inputs whose change replaces the release."""


def differences(old: Mapping[str, Any], new: Mapping[str, Any]) -> tuple[Difference, ...]:
    """Return the changed top-level inputs."""
    return tuple(
        Difference((key,), _change(old, new, key), key in _FIXED and key in old and key in new)
        for key in sorted({*old, *new})
        if old.get(key) != new.get(key)
    )


def planned(urn: str, news: dict[str, Any], *, dry_run: bool) -> dict[str, Any]:
    """Return the planned release; raises ProviderError outside a dry run."""
    if not dry_run:
        raise unsupported_release(urn.rpartition("::")[2])
    return news


def unsupported_release(name: str) -> ProviderError:
    """Return the error for a release that has to be created."""
    return ProviderError(
        f"Helm release {name}: the provider stand-in cannot fetch Helm charts, it only previews"
        " them; use the official plugin (SANDBOX_PROVIDER=official), or set `provided: true` for"
        " an add-on that the cluster already has"
    )


def _change(old: Mapping[str, Any], new: Mapping[str, Any], key: str) -> Change:
    if key not in old:
        return Change.ADD
    return Change.UPDATE if key in new else Change.DELETE
