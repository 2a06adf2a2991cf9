"""Everything that the production checks evaluate, read at one moment."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from infra.domain import naming
from infra.observability import dcgm, series
from ops import collect, objects
from ops.cluster import Cluster, Kind
from ops.collect import CONFIG_MAPS
from ops.metrics import MetricsUnknownError, PrometheusClient
from ops.objects import Json
from ops.readable import Reader
from ops.ready.jobs import CRON_JOBS
from ops.ready.results import Check, Outcome, Results
from ops.ready.stack_facts import NAMESPACE, Pool, Stack, Team
from ops.snapshot import pod_specs

_RBAC: Final = "rbac.authorization.k8s.io/v1"
SERVICE_ACCOUNTS: Final = Kind("v1", "serviceaccounts", "ServiceAccount")
QUOTAS: Final = Kind("v1", "resourcequotas", "ResourceQuota")
NETWORK_POLICIES: Final = Kind("networking.k8s.io/v1", "networkpolicies", "NetworkPolicy")
ROLE_BINDINGS: Final = Kind(_RBAC, "rolebindings", "RoleBinding")
CLUSTER_ROLE_BINDINGS: Final = Kind(_RBAC, "clusterrolebindings", "ClusterRoleBinding")
PRIORITY_CLASSES: Final = Kind("scheduling.k8s.io/v1", "priorityclasses", "PriorityClass")
ADMISSION_BINDINGS: Final = Kind(
    "admissionregistration.k8s.io/v1",
    "validatingadmissionpolicybindings",
    "ValidatingAdmissionPolicyBinding",
)
IMAGE_POLICIES: Final = Kind(naming.IMAGE_POLICY_API, "clusterimagepolicies", "ClusterImagePolicy")
WEBHOOKS: Final = Kind(
    "admissionregistration.k8s.io/v1",
    "validatingwebhookconfigurations",
    "ValidatingWebhookConfiguration",
)

TEAM_KINDS: Final = (
    collect.PODS,
    CONFIG_MAPS,
    CRON_JOBS,
    SERVICE_ACCOUNTS,
    QUOTAS,
    NETWORK_POLICIES,
    ROLE_BINDINGS,
    *collect.RUN_KINDS,
)
"""Read in each team's namespace."""
CLUSTER_KINDS: Final = (
    collect.NODES,
    collect.CLUSTER_QUEUES,
    collect.NAMESPACES,
    CLUSTER_ROLE_BINDINGS,
    PRIORITY_CLASSES,
    ADMISSION_BINDINGS,
    IMAGE_POLICIES,
    WEBHOOKS,
)

ItemsByPlural = Mapping[str, Sequence[Json]]
"""By plural."""


RECENT: Final = "1d"
"""Lookback for series of ended runs."""

GPU, TRAINING, KUBERNETES = "GPU", "training", "Kubernetes"
LAYER_QUERIES: Final = {
    GPU: f"count({' or '.join(dcgm.GPU_UTIL.names)})",
    TRAINING: f"count(count_over_time({series.STEPS}[{RECENT}]))",
    KUBERNETES: f"count({series.POD_INFO})",
}
"""Query for the number of series, by layer."""
_SINCE: Final = f"min(min_over_time(timestamp({series.UP})[{RECENT}:1m]))"


@dataclass(frozen=True, kw_only=True)
class PrometheusInventory:
    """Contents of a Prometheus. `place`: its name; `gap`: why nothing is known, else empty."""

    place: str
    gap: str = ""
    counts: dict[str, int] | None = None
    """Series by layer."""
    alerts: Sequence[str] = ()
    """Names of the loaded alerts."""
    firing: Sequence[str] = ()
    since: float | None = None
    """Unix seconds of its oldest scrape within RECENT; None: it has none."""


def read_inventory(metrics: PrometheusClient) -> PrometheusInventory:
    """Query the number of series and the alerts."""
    try:
        counts = {
            layer: int(sum(sample.value for sample in metrics.query(expression)))
            for layer, expression in LAYER_QUERIES.items()
        }
        rules = metrics.alerts()
        since = [sample.value for sample in metrics.query(_SINCE)]
    except MetricsUnknownError as error:
        return PrometheusInventory(place=metrics.place, gap=str(error))
    return PrometheusInventory(
        place=metrics.place,
        counts=counts,
        alerts=sorted(rules),
        firing=sorted(name for name, state in rules.items() if state == "firing"),
        since=min(since, default=None),
    )


@dataclass(frozen=True, kw_only=True)
class StackSnapshot:
    """The stack as configured and its objects in the cluster."""

    stack: Stack
    teams: tuple[Team, ...]
    """Teams to check."""
    now: dt.datetime
    cluster_items: ItemsByPlural
    team_items: Mapping[str, ItemsByPlural]
    """By namespace."""
    templates: Sequence[Json]
    """CronJob templates of the readiness check."""
    results: Results
    prometheus: PrometheusInventory
    hidden: frozenset[str] = field(default_factory=frozenset)
    """Plurals that the caller may not read."""

    def cluster(self, kind: Kind) -> Sequence[Json]:
        return self.cluster_items.get(kind.plural, ())

    def team(self, kind: Kind, team: Team) -> Sequence[Json]:
        return self.team_items.get(team.namespace, {}).get(kind.plural, ())

    def all_teams(self, kind: Kind) -> Iterator[Json]:
        for team in self.teams:
            yield from self.team(kind, team)

    def namespace(self, team: Team) -> Json | None:
        found = self.cluster(collect.NAMESPACES)
        return next((one for one in found if objects.name(one) == team.namespace), None)

    def nodes(self, pool: Pool) -> list[Json]:
        return [
            node
            for node in self.cluster(collect.NODES)
            if objects.label(node, naming.POOL) == pool.name
        ]

    def runs(self) -> list[Json]:
        """Return the teams' runs, newest first."""
        found = [
            item
            for kind in collect.RUN_KINDS
            for item in self.all_teams(kind)
            if objects.label(item, naming.RUN_ID) and not objects.owner(item)
        ]
        return objects.newest_first(found)

    def row(self, area: str, check: str, *kinds: Kind) -> RowBuilder:
        """Return a new row, in which these kinds are unknown if the caller may not read them."""
        notes = RowBuilder(area=area, check=check)
        for missing in self.unreadable(*kinds):
            notes.add_unknown(missing)
        return notes

    def unreadable(self, *kinds: Kind) -> list[str]:
        """Return a line for each of these kinds that the caller may not read."""
        hidden = [kind.plural for kind in kinds if kind.plural in self.hidden]
        return [f"you may not read {plural}" for plural in hidden]


def take_snapshot(
    cluster: Cluster,
    stack: Stack,
    teams: tuple[Team, ...],
    results: Results,
    prometheus: PrometheusInventory,
    now: dt.datetime,
) -> StackSnapshot:
    """Read all objects; kinds that the caller may not read are recorded."""
    reader = Reader(cluster)
    return StackSnapshot(
        stack=stack,
        teams=teams,
        now=now,
        cluster_items={kind.plural: reader.items(kind) for kind in CLUSTER_KINDS},
        team_items={
            team.namespace: {kind.plural: reader.items(kind, team.namespace) for kind in TEAM_KINDS}
            for team in teams
        },
        templates=reader.items(CRON_JOBS, NAMESPACE),
        results=results,
        prometheus=prometheus,
        hidden=frozenset(reader.hidden),
    )


@dataclass(frozen=True, kw_only=True)
class RowBuilder:
    """Collects the findings of one row."""

    area: str
    check: str
    good: list[str] = field(default_factory=list)
    simulated: list[str] = field(default_factory=list)
    """Passed, but without the hardware."""
    unknown: list[str] = field(default_factory=list)
    bad: list[str] = field(default_factory=list)
    remedies: list[str] = field(default_factory=list)

    def add_failure(self, what: str, remedy: str) -> None:
        self.bad.append(what)
        if remedy not in self.remedies:
            self.remedies.append(remedy)

    def add_unknown(self, what: str, remedy: str = "") -> None:
        self.unknown.append(what)
        if remedy and remedy not in self.remedies:
            self.remedies.append(remedy)

    def row(self) -> Check:
        """Build the row: failed if anything failed, else unknown or simulated if anything is; worst first."""
        found = {
            Outcome.FAILED: self.bad,
            Outcome.UNKNOWN: self.unknown,
            Outcome.SIMULATED: self.simulated,
        }
        outcome = next((one for one, lines in found.items() if lines), Outcome.PASSED)
        return Check(
            subject=self.area,
            outcome=outcome,
            seen=self.check,
            evidence=(*_truncate(self.bad), *_truncate(self.unknown), *self.simulated, *self.good),
            remedy="\n".join(self.remedies),
        )


SHOWN_MAX: Final = 5


def _truncate(lines: Sequence[str]) -> list[str]:
    """Return the first lines and the number of omitted ones."""
    more = [f"and {len(lines) - SHOWN_MAX} more"] if len(lines) > SHOWN_MAX else []
    return [*lines[:SHOWN_MAX], *more]


def abbreviate(names: Sequence[str]) -> str:
    """Join names; only the first SHOWN_MAX if there are more."""
    shown = ", ".join(names[:SHOWN_MAX])
    return f"{shown} and {len(names) - SHOWN_MAX} more" if len(names) > SHOWN_MAX else shown


def containers(item: Json) -> Iterator[Json]:
    """Yield all containers of an object's pod specs."""
    for spec in pod_specs(item):
        yield from [*(spec.get("initContainers") or []), *spec["containers"]]
