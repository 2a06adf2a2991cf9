"""Whether the kubeconfig of an existing cluster names a cluster at all."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import yaml

from infra.config.sections.cluster import ExistingClusterConfig

_DEFAULT: Final = "~/.kube/config"
_IN_CLUSTER: Final = "KUBERNETES_SERVICE_HOST"


def missing_cluster(
    cluster: ExistingClusterConfig, environment: Mapping[str, str] = os.environ
) -> str | None:
    """Return a warning if no kubeconfig names the stack's cluster; None if one does.

    Without one Pulumi's provider does not know its cluster, so that a preview over existing state
    shows every object as replaced.
    """
    named = cluster.kubeconfig_path or environment.get("KUBECONFIG", "")
    if "\n" in named or (not named and _IN_CLUSTER in environment):
        return None
    # As in kubectl, KUBECONFIG may list several files.
    paths = [named] if cluster.kubeconfig_path else named.split(os.pathsep)
    paths = [path for path in paths if path] or [_DEFAULT]
    files = [_read(Path(path).expanduser()) for path in paths]
    wanted = cluster.context or next(
        (f["current-context"] for f in files if f.get("current-context")), ""
    )
    if wanted and any(wanted == one.get("name") for f in files for one in _contexts(f)):
        return None
    context = f"the context {wanted!r}" if wanted else "a current context"
    key = "cluster.kubeconfigPath" if cluster.kubeconfig_path else "KUBECONFIG"
    return (
        f"{key}: {os.pathsep.join(paths)} has not {context}; must be the kubeconfig of the stack's cluster, "
        "or a preview of a deployed stack shows every object of the cluster as replaced; "
        "set it before you believe this preview"
    )


def _read(path: Path) -> dict[str, Any]:
    """Return a kubeconfig; empty if it is missing or not readable as one."""
    try:
        found = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, yaml.YAMLError):
        return {}
    return found if isinstance(found, dict) else {}


def _contexts(kubeconfig: Mapping[str, Any]) -> list[dict[str, Any]]:
    found = kubeconfig.get("contexts")
    return [one for one in found if isinstance(one, dict)] if isinstance(found, list) else []
