"""Whether a stack's cluster answers. Previews say so: Pulumi's provider does not as long as nothing changes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Final

import pulumi
from pulumi.runtime.mocks import MockMonitor
from pulumi.runtime.settings import get_monitor

from ops.cluster import Cluster, ClusterError

TIMEOUT_S: Final = 5.0


def warn_if_unreachable(
    content: pulumi.Input[str] | None, path: str | None, context: str | None
) -> None:
    """Ask the cluster in a preview, once the kubeconfig is known. `content`: a kubeconfig in place of the path."""

    def ask(content: str | None) -> None:
        if warning := unreachable_warning(content, path, context):
            pulumi.log.warn(warning)

    if pulumi.runtime.is_dry_run() and not isinstance(get_monitor(), MockMonitor):
        pulumi.Output.from_input(content).apply(ask)


def unreachable_warning(content: str | None, path: str | None, context: str | None) -> str | None:
    """Return a warning if the API server does not answer or does not accept the credentials; else None."""
    try:
        found = json.loads(content) if content else Path(path) if path else None
        Cluster(found, context).text("/apis", [], TIMEOUT_S)
    except ClusterError as error:
        problem = str(error).partition("; ")[0]
        return (
            f"cluster: {problem}; must answer, or this preview compares with the recorded state only; "
            "`kubectl get --raw /apis` must work with the stack's kubeconfig"
        )
    return None
