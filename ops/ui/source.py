"""What the pages read, with one user's credentials, through short-lived caches."""

from __future__ import annotations

import datetime as dt
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeVar

from infra.domain import naming
from ops import collect, metrics, objects
from ops.cluster import Cluster, UnknownCallerError
from ops.collect import NoSuchRunError
from ops.ledger.model import Fact
from ops.ledger.record import Record
from ops.metrics import PrometheusClient
from ops.objects import Json
from ops.runs import compare_command, record
from ops.runs.listing import summary_of
from ops.runs.log_reader import LogReader, pod_of_rank
from ops.runs.record import RunRecordView
from ops.snapshot import Snapshot
from ops.ui import curves, run_view
from ops.ui.overview import Overview, read_overview
from ops.ui.recent import Recent
from ops.ui.run_view import RunView
from ops.watched import Watched

COMPARED_MAX: Final = 8
"""Runs that one page compares; more curves cannot be told apart."""
_LOG_TAIL: Final = 500
"""Lines with which a log begins."""

T = TypeVar("T")

Scope = Callable[[Cluster, Callable[[str | None], Any]], Any]
"""Calls a function with the namespace that the caller may read; None: all."""


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """Some runs side by side."""

    runs: Sequence[Json]
    records: dict[str, RunRecordView]
    configuration: dict[str, dict[str, str]]
    lineage: dict[str, dict[str, str]]
    losses: dict[str, tuple[int | None, float]]


class Source:
    """Reads for the pages. Methods raise ClusterError and NoSuchRunError."""

    def __init__(
        self,
        connect: Callable[[], Cluster],
        scope: Scope,
        prometheus: str = "",
        ledger: Path | None = None,
        *,
        share_lists: bool = True,
        metrics_of: Callable[[Cluster], PrometheusClient] | None = None,
    ) -> None:
        """`connect`: opens the kubeconfig; `prometheus`: URL, empty: the cluster's own; `ledger`: a record.

        `share_lists`: False where `connect` returns a cluster that does so itself.
        `metrics_of`: returns the Prometheus to ask, in place of `prometheus`.
        """
        self._connect = connect
        self._scope = scope
        self._ledger = ledger
        self._share_lists = share_lists
        self._metrics_of = metrics_of or (lambda cluster: metrics.connect(prometheus, cluster))
        self._cluster: Cluster | None = None
        self._connecting = threading.Lock()
        self._recent: Recent[Any] = Recent()

    def overview(self) -> Overview:
        found: Overview = self._recent.get("overview", self._read_overview)
        return found

    def run(self, namespace: str, run_id: str) -> RunView:
        """Return one run. Raises NoSuchRunError; ForbiddenError without a role in the namespace."""
        key = ("run", namespace, run_id)
        found: RunView = self._recent.get(key, lambda: self._read_run(namespace, run_id))
        return found

    def compare(self, wanted: Sequence[tuple[str, str]]) -> Comparison:
        found: Comparison = self._recent.get(
            ("compare", *wanted), lambda: self._read_comparison(wanted)
        )
        return found

    def curves(self, namespace: str, run_id: str) -> curves.Measured:
        return self.run(namespace, run_id).measured

    def log_reader(
        self, namespace: str, run_id: str, rank: int, last: str, group: int | None = None
    ) -> LogReader | None:
        """Return a reader of the newest pod with this rank; None if it is the pod `last`, or none exists.

        `group`: of a run with groups; None: the one that leads.
        """
        now = self._one_run(namespace, run_id)
        node_rank = record.node_of_rank(self._shared(), now.run, rank, "rank")
        pod = pod_of_rank(now, node_rank, group)
        if pod is None or objects.name(pod) == last:
            return None
        return LogReader.of(self._shared(), pod, _LOG_TAIL)

    def is_over(self, namespace: str, run_id: str) -> bool:
        return summary_of(self._one_run(namespace, run_id)).over

    def _one_run(self, namespace: str, run_id: str) -> Snapshot:
        return self._checked(
            lambda cluster: collect.read_run(cluster, self._find(cluster, namespace, run_id))
        )

    def _read_overview(self) -> Overview:
        def read(cluster: Cluster) -> Overview:
            found: Overview = self._scope(
                cluster,
                lambda namespace: read_overview(
                    cluster,
                    namespace,
                    self._metrics_of(cluster),
                    self._recorded(),
                    dt.datetime.now(dt.UTC),
                ),
            )
            return found

        return self._checked(read)

    def _read_run(self, namespace: str, run_id: str) -> RunView:
        def read(cluster: Cluster) -> RunView:
            run = self._find(cluster, namespace, run_id)
            return run_view.read_run_view(
                cluster,
                collect.list_runs(cluster, namespace),
                run,
                self._metrics_of(cluster),
                self._recorded(),
                dt.datetime.now(dt.UTC),
            )

        return self._checked(read)

    def _read_comparison(self, wanted: Sequence[tuple[str, str]]) -> Comparison:
        def read(cluster: Cluster) -> Comparison:
            runs = [self._find(cluster, namespace, run_id) for namespace, run_id in wanted]
            records = record.read_records(cluster, runs, compare_command.DEADLINE_S)
            configuration, lineage = compare_command.differences_between(records)
            prometheus = self._metrics_of(cluster)
            losses = compare_command.read_losses(cluster, runs, prometheus)
            return Comparison(
                runs=runs,
                records=records,
                configuration=configuration,
                lineage=lineage,
                losses=losses,
            )

        return self._checked(read)

    def _find(self, cluster: Cluster, namespace: str, run_id: str) -> Json:
        """Return a run by its exact id, from the namespaces of teams only."""
        known = collect.list_runs(cluster, namespace) if _is_team(namespace) else []
        for item in known:
            if objects.run_id_of(item) == run_id:
                return item
        raise NoSuchRunError(f"run {run_id}: not found in {namespace}; it may have been deleted")

    def _recorded(self) -> list[Fact]:
        return Record(self._ledger).read() if self._ledger else []

    def _shared(self) -> Cluster:
        with self._connecting:
            if self._cluster is None:
                found = self._connect()
                self._cluster = Watched(found) if self._share_lists else found
            return self._cluster

    def _checked(self, read: Callable[[Cluster], T]) -> T:
        """Return what `read` returns. After a refusal of the credentials the kubeconfig is opened again."""
        try:
            return read(self._shared())
        except UnknownCallerError:
            with self._connecting:
                self._cluster = None
            raise


def _is_team(namespace: str) -> bool:
    return namespace.startswith(naming.namespace(""))
