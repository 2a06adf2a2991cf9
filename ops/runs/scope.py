"""Whose runs a command reads: one team's namespace, or all that the caller may list."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Final, TypeVar

from infra.domain import naming
from ops import collect
from ops.cluster import Cluster, ClusterError, ForbiddenError, context_namespace
from ops.collect import NAMESPACES
from ops.objects import Json

_TEAM_PREFIX: Final = naming.namespace("")

T = TypeVar("T")


def read_in_scope(args: argparse.Namespace, cluster: Cluster, read: Callable[[str | None], T]) -> T:
    """Return what `read` returns for the namespace of --team; without it, for all namespaces (None).

    A caller who may not list all namespaces gets the namespace of the kubeconfig's context, if that is a
    team's. Raises ClusterError where the team does not exist or is not known.
    """
    if args.team:
        return _of_team(args.team, cluster, read)
    try:
        return read(None)
    except ForbiddenError as error:
        namespace = context_namespace(args.kubeconfig, args.context)
        if namespace.startswith(_TEAM_PREFIX):
            return read(namespace)
        raise ClusterError(
            f"{error}; select your team with --team, or once for all commands:"
            f" kubectl config set-context --current --namespace {_TEAM_PREFIX}TEAM"
        ) from None


def named_run(args: argparse.Namespace, cluster: Cluster) -> Json:
    """Return the run that `args.run_name` names. Raises NoSuchRunError, ClusterError."""
    known = read_in_scope(args, cluster, lambda space: collect.list_runs(cluster, space))
    return collect.find_run(known, args.run_name)


def _of_team(team: str, cluster: Cluster, read: Callable[[str | None], T]) -> T:
    namespace = naming.namespace(team)
    try:
        found = read(namespace)
    except ForbiddenError as error:
        raise ForbiddenError(
            f"--team: got {team!r}: you have no role in {namespace}: {error}"
        ) from None
    if not found and not _exists(cluster, namespace):
        raise ClusterError(
            f"--team: got {team!r}; namespace {namespace} not found; pass an existing team"
        )
    return found


def _exists(cluster: Cluster, namespace: str) -> bool:
    """Whether a namespace exists; true if the caller may not read it."""
    try:
        return cluster.get(NAMESPACES, namespace) is not None
    except ForbiddenError:
        return True
