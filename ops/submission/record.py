"""The Platform record of a team, and the name of the caller, as the cluster has them."""

from __future__ import annotations

from infra.domain import naming
from infra.domain.published_record import PublishedRecord, RecordError, from_text
from ops.cluster import Cluster, ClusterError, ForbiddenError
from ops.collect import CONFIG_MAPS
from ops.ledger.clock import REVIEWS


def read_record(cluster: Cluster, team: str) -> PublishedRecord:
    """Return what the team's runs are rendered for. Raises ClusterError."""
    namespace = naming.namespace(team)
    try:
        found = cluster.get(CONFIG_MAPS, naming.PLATFORM_RECORD, namespace)
    except ForbiddenError:
        raise ForbiddenError(
            f"team {team}: you may not read its Platform record; you must be a researcher or lead of the team; "
            "correct `team` in the run file, or ask a platform engineer"
        ) from None
    if found is None:
        raise ClusterError(
            f"team {team}: namespace {namespace} has no Platform record; it must be a team of the stack on this "
            "cluster; correct `team`, select the cluster with --context, or deploy the stack again"
        )
    try:
        record = from_text(str((found.get("data") or {}).get(naming.PLATFORM_RECORD_KEY)))
    except RecordError as error:
        raise ClusterError(f"Platform record of team {team}: {error}") from None
    if team not in record.platform.teams:
        raise ClusterError(
            f"Platform record of team {team}: it is another team's; deploy the stack again"
        )
    return record


def caller(cluster: Cluster) -> str:
    """Return the caller's name, as the API server knows it. Raises ClusterError."""
    review = {"apiVersion": REVIEWS.api, "kind": REVIEWS.kind, "metadata": {}}
    return str(cluster.create(REVIEWS, review)["status"]["userInfo"]["username"])
