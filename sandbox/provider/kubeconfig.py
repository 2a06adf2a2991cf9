"""Read kubeconfigs: the selected cluster and a client configuration for it."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from kubernetes import client
from kubernetes.config import ConfigException
from kubernetes.config.kube_config import KubeConfigLoader

from sandbox.provider.errors import ProviderError

_FILE_KEYS = {"certificate-authority", "client-certificate", "client-key", "tokenFile"}


@dataclass(frozen=True)
class Choice:
    """A provider's kubeconfig (text or path), context and cluster; empty means default."""

    kubeconfig: str = ""
    context: str = ""
    cluster: str = ""


def contents(choice: Choice) -> dict[str, Any]:
    """Return the kubeconfig: the given text or file, else KUBECONFIG, else ~/.kube/config.

    Raises ProviderError when it is missing or unreadable.
    """
    given = choice.kubeconfig.strip()
    if given and not _is_path(given):
        return _parsed(given, "the provider's kubeconfig")
    named = given or os.environ.get("KUBECONFIG") or str(Path.home() / ".kube" / "config")
    paths = [Path(part).expanduser() for part in named.split(os.pathsep) if part]
    found = [path for path in paths if path.exists()]
    if not found:
        hint = "" if given else "; set KUBECONFIG"
        raise ProviderError(f"kubeconfig: {named} does not exist{hint}")
    return _merged([_read(path) for path in found])


def active_cluster(config: Mapping[str, Any], choice: Choice) -> dict[str, Any]:
    """Return the selected `cluster` entry; empty when the kubeconfig lacks it."""
    name = choice.cluster or _active_context(config, choice).get("cluster")
    return _named(config, "clusters", name).get("cluster") or {}


def default_namespace(config: Mapping[str, Any], choice: Choice) -> str:
    """Return the namespace of the active context, else `default`."""
    return str(_active_context(config, choice).get("namespace") or "default")


def configuration(config: dict[str, Any], choice: Choice) -> client.Configuration:
    """Return a client configuration. Raises ProviderError for a missing context or credential."""
    chosen = _with_cluster(config, choice)
    result = client.Configuration()
    try:
        KubeConfigLoader(  # type: ignore[no-untyped-call]
            config_dict=chosen, active_context=choice.context or None, config_base_path=None
        ).load_and_set(result)
    except (ConfigException, OSError, KeyError) as error:
        raise ProviderError(f"kubeconfig: {_line(error)}") from error
    return result


def _with_cluster(config: dict[str, Any], choice: Choice) -> dict[str, Any]:
    """Return the kubeconfig with its active context set to the chosen cluster."""
    if not choice.cluster:
        return config
    changed: dict[str, Any] = json.loads(json.dumps(config))
    _active_context(changed, choice)["cluster"] = choice.cluster
    return changed


def _active_context(config: Mapping[str, Any], choice: Choice) -> dict[str, Any]:
    name = choice.context or config.get("current-context")
    context = _named(config, "contexts", name).get("context")
    return context if isinstance(context, dict) else {}


def _named(config: Mapping[str, Any], section: str, name: object) -> dict[str, Any]:
    for entry in config.get(section) or []:
        if isinstance(entry, dict) and entry.get("name") == name:
            return entry
    return {}


def _read(path: Path) -> dict[str, Any]:
    """Read one file; make the relative paths in it absolute."""
    try:
        config = _parsed(path.read_text(), str(path))
    except (OSError, UnicodeDecodeError) as error:
        raise ProviderError(f"kubeconfig: cannot read {path}: {_line(error)}") from error
    for section, inner in (("clusters", "cluster"), ("users", "user")):
        for entry in config.get(section) or []:
            details = entry.get(inner) or {}
            for key in _FILE_KEYS & details.keys():
                details[key] = str(path.parent / details[key])
    return config


def _merged(configs: list[dict[str, Any]]) -> dict[str, Any]:
    """Merge several files; the first entry of a name and the first current-context win."""
    merged: dict[str, Any] = {"apiVersion": "v1", "kind": "Config"}
    merged["current-context"] = next(
        (config["current-context"] for config in configs if config.get("current-context")), ""
    )
    for section in ("clusters", "contexts", "users"):
        entries: dict[str, Any] = {}
        for entry in (entry for config in configs for entry in config.get(section) or []):
            entries.setdefault(entry.get("name"), entry)
        merged[section] = list(entries.values())
    return merged


def _is_path(text: str) -> bool:
    """Whether a text is a path: one line without `{` at its start or `: `."""
    return "\n" not in text and not text.startswith("{") and ": " not in text


def _parsed(text: str, source: str) -> dict[str, Any]:
    try:
        parsed = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise ProviderError(f"{source}: invalid YAML: {_line(error)}") from error
    if not isinstance(parsed, dict) or "clusters" not in parsed:
        raise ProviderError(f"{source}: has no clusters")
    return parsed


def _line(error: BaseException) -> str:
    return " ".join(str(error).split())
