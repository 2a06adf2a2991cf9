"""What the caller may read: lists of a cluster, and what is forbidden, remembered in one place."""

from __future__ import annotations

from ops.cluster import Cluster, ForbiddenError, Kind
from ops.objects import Json


class Reader:
    """Lists objects; of kinds that the caller may not read it returns none, and names them in `hidden`."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.hidden: set[str] = set()
        """Plurals."""

    def items(self, kind: Kind, namespace: str | None = None, selector: str = "") -> list[Json]:
        try:
            return self.cluster.items(kind, namespace, selector)
        except ForbiddenError:
            self.hidden.add(kind.plural)
            return []
