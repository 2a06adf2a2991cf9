"""The provider's configuration: validated, compared and parsed into settings."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sandbox.provider import kubeconfig
from sandbox.provider.errors import ProviderError
from sandbox.provider.kubeconfig import Choice
from sandbox.provider.properties import Unknown, has_unknown, reveal

DEFAULT_TIMEOUT_SECONDS = 32.0
"""Timeout of one request, as in the official plugin."""

_SWITCHES = {
    "deleteUnreachable": "PULUMI_K8S_DELETE_UNREACHABLE",
    "skipUpdateUnreachable": "PULUMI_K8S_SKIP_UPDATE_UNREACHABLE",
    "enableConfigMapMutable": "PULUMI_K8S_ENABLE_CONFIGMAP_MUTABLE",
    "enableSecretMutable": "PULUMI_K8S_ENABLE_SECRET_MUTABLE",
    "enablePatchForce": "PULUMI_K8S_ENABLE_PATCH_FORCE",
    "upsertExistingObjects": "PULUMI_K8S_UPSERT_EXISTING_OBJECTS",
    "suppressDeprecationWarnings": "PULUMI_K8S_SUPPRESS_DEPRECATION_WARNINGS",
}
"""Options that default to off, with their environment variables."""


@dataclass(frozen=True)
class Settings:
    """Settings of a configured provider.

    choice: which kubeconfig, context and cluster; None while the kubeconfig is not known yet.
    namespace: default of objects; empty means the context's.
    timeout: of one request, in seconds.
    """

    choice: Choice | None
    namespace: str = ""
    timeout: float = DEFAULT_TIMEOUT_SECONDS
    delete_unreachable: bool = False
    skip_update_unreachable: bool = False
    config_map_mutable: bool = False
    secret_mutable: bool = False
    patch_force: bool = False
    upsert: bool = False
    suppress_deprecation_warnings: bool = False


def failures(news: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return errors in a provider's inputs as (property, text)."""
    plain = reveal(dict(news))
    found = []
    if _switch(plain, "enableServerSideApply", default=True) is False:
        found.append(
            (
                "enableServerSideApply",
                "the provider stand-in supports server-side apply only; remove the option, "
                "or use the official plugin (SANDBOX_PROVIDER=official)",
            )
        )
    if plain.get("renderYamlToDirectory"):
        found.append(
            (
                "renderYamlToDirectory",
                "the provider stand-in does not render YAML; use the official plugin "
                "(SANDBOX_PROVIDER=official)",
            )
        )
    text = plain.get("kubeconfig")
    if isinstance(text, str | dict) and not has_unknown(text):
        try:
            kubeconfig.contents(_choice(plain))
        except ProviderError as error:
            found.append(("kubeconfig", str(error)))
    return found


def settings(arguments: Mapping[str, Any], variables: Mapping[str, str]) -> Settings:
    """Parse settings from the provider's inputs, else from the stack's `kubernetes:` configuration."""
    plain = {**_stack_config(), **_unprefixed(variables), **reveal(dict(arguments))}
    named = [plain.get(key) for key in ("kubeconfig", "context", "cluster")]
    on = {option: _switch(plain, option, environment=name) for option, name in _SWITCHES.items()}
    return Settings(
        choice=None if any(isinstance(value, Unknown) for value in named) else _choice(plain),
        namespace=_text(plain, "namespace"),
        timeout=_timeout(plain),
        delete_unreachable=on["deleteUnreachable"],
        skip_update_unreachable=on["skipUpdateUnreachable"],
        config_map_mutable=on["enableConfigMapMutable"],
        secret_mutable=on["enableSecretMutable"],
        patch_force=on["enablePatchForce"],
        upsert=on["upsertExistingObjects"],
        suppress_deprecation_warnings=on["suppressDeprecationWarnings"],
    )


def replacing_properties(olds: Mapping[str, Any], news: Mapping[str, Any]) -> list[str]:
    """Return the changed properties that select another cluster, which replaces every object.

    `clusterIdentifier` decides alone if both sides have it; else the active cluster does.
    """
    old, new = reveal(dict(olds)), reveal(dict(news))
    if "clusterIdentifier" in old and "clusterIdentifier" in new:
        changed = old["clusterIdentifier"] != new["clusterIdentifier"]
        return ["clusterIdentifier"] if changed else []
    differing = [
        key for key in ("kubeconfig", "context", "cluster") if old.get(key) != new.get(key)
    ]
    if not differing or has_unknown([new.get(key) for key in differing]):
        return []
    try:
        clusters = [
            kubeconfig.active_cluster(kubeconfig.contents(_choice(side)), _choice(side))
            for side in (old, new)
        ]
    except ProviderError:
        return differing
    return differing if clusters[0] != clusters[1] else []


def _choice(plain: Mapping[str, Any]) -> Choice:
    given = plain.get("kubeconfig")
    text = json.dumps(given) if isinstance(given, dict) else str(given or "")
    return Choice(text, _text(plain, "context"), _text(plain, "cluster"))


def _text(plain: Mapping[str, Any], key: str) -> str:
    value = plain.get(key)
    return value if isinstance(value, str) else ""


def _switch(
    plain: Mapping[str, Any], key: str, *, environment: str = "", default: bool = False
) -> bool:
    value = plain.get(key)
    if value is None and environment:
        value = os.environ.get(environment)
    if value is None or isinstance(value, Unknown):
        return default
    return value if isinstance(value, bool) else str(value).lower() in ("true", "1")


def _timeout(plain: Mapping[str, Any]) -> float:
    tuning = plain.get("kubeClientSettings")
    if isinstance(tuning, str):
        tuning = json.loads(tuning)
    given = tuning.get("timeout") if isinstance(tuning, dict) else None
    given = given or os.environ.get("PULUMI_K8S_CLIENT_TIMEOUT")
    return float(given) if given else DEFAULT_TIMEOUT_SECONDS


def _unprefixed(variables: Mapping[str, str]) -> dict[str, Any]:
    return {key.rpartition(":")[2]: value for key, value in variables.items()}


def _stack_config() -> dict[str, Any]:
    """Return the `kubernetes:` part of the stack's configuration, which the engine passes to plugins."""
    try:
        parsed = json.loads(os.environ.get("PULUMI_CONFIG") or "{}")
    except ValueError:
        return {}
    return _unprefixed(parsed) if isinstance(parsed, dict) else {}
