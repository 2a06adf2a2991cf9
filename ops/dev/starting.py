"""Create a dev pod and wait until it runs."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Final

from infra.domain import naming
from ops import objects
from ops.cluster import Cluster, ClusterError, ConflictError, context_namespace
from ops.collect import JOBS
from ops.dev import sessions
from ops.dev.sessions import ENDED, RUNNING, STOPPING, DevSession

_POLL_S: Final = 1.0
_PREFIX: Final = naming.namespace("")


def team_of(args: argparse.Namespace) -> str:
    """Return the team of --team, else of the context's namespace. Raises ClusterError."""
    if args.team:
        return str(args.team)
    namespace = context_namespace(args.kubeconfig, args.context)
    if not namespace.startswith(_PREFIX):
        raise ClusterError(
            "--team: is missing, and the kubeconfig's context has no team's namespace; pass --team, or once for "
            f"all commands: kubectl config set-context --current --namespace {_PREFIX}TEAM"
        )
    return namespace.removeprefix(_PREFIX)


def create(cluster: Cluster, job: objects.Json, name: str) -> None:
    """Create the Job; one of the same name that has ended is replaced.

    Raises ConflictError if one that has not ended has the name, ClusterError.
    """
    meta = job["metadata"]
    for _ in range(60):
        try:
            cluster.create(JOBS, job)
            return
        except ConflictError:
            pass
        known = sessions.read_sessions(cluster, meta["namespace"])
        session = next((one for one in known if one.job == meta["name"]), None)
        if session is None:
            continue
        if session.state not in (ENDED, STOPPING):
            raise ConflictError(
                f"dev pod {name}: exists; open it with trainyard dev shell, end it with trainyard dev stop, or "
                "start another with a NAME of its own"
            )
        if session.state == ENDED:
            cluster.delete(JOBS, meta["name"], meta["namespace"])
        time.sleep(_POLL_S)
    raise ClusterError(f"dev pod {name}: the previous one is still ending; start it again later")


def await_running(
    cluster: Cluster, meta: objects.Json, name: str, show: Callable[[str], None]
) -> DevSession | None:
    """Wait until the dev pod runs, and say what it waits for. None: it has ended instead. Raises ClusterError."""
    told = ""
    while True:
        found = sessions.read_sessions(cluster, meta["namespace"])
        session = next((one for one in found if one.job == meta["name"]), None)
        if session is None:
            raise ClusterError(f"dev pod {name}: it was deleted; start it again")
        text = f"{name}: {session.state}" + (f": {session.why}" if session.why else "")
        if text != told:
            show(text)
            told = text
        if session.state == RUNNING:
            return session
        if session.state == ENDED:
            return None
        time.sleep(_POLL_S)
