"""Who asks, and what that user may read: the page in the cluster, behind a proxy that signs users in.

The page reads with its own service account. Before each read it asks the API server, by a SubjectAccessReview,
whether the signed-in user may do exactly that read; so RBAC decides what is seen, and nothing is impersonated.
"""

from __future__ import annotations

import dataclasses
import re
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from starlette.datastructures import Headers

from infra.domain import naming
from ops import metrics
from ops.cluster import Cluster, ForbiddenError, Kind
from ops.collect import PODS
from ops.metrics import MetricsUnknownError, PrometheusClient
from ops.objects import Json
from ops.ui.source import Source
from ops.watched import Watched

GROUPS_HEADER: Final = "x-forwarded-groups"
USER_HEADER: Final = "x-forwarded-email"
"""Headers in which oauth2-proxy passes the claims that are the user's name and groups."""
DECISION_S: Final = 10.0
"""Seconds for which the API server's decision is used again."""
_DECISIONS_MAX: Final = 20_000
_USERS_MAX: Final = 200
"""Users whose answers are kept."""
_GROUPS_MAX: Final = 500
_LENGTH_MAX: Final = 1_000
_AUTHENTICATED: Final = "system:authenticated"
_REVIEWS: Final = Kind("authorization.k8s.io/v1", "subjectaccessreviews", "SubjectAccessReview")
_LOG: Final = re.compile(r"/api/v1/namespaces/([a-z0-9-]+)/pods/([a-z0-9.-]+)/log")


class UnknownUserError(Exception):
    """The request does not say who asks, or not in a way that can be trusted; the text says what is wrong."""


@dataclass(frozen=True)
class User:
    """A signed-in user, by the names that RBAC knows."""

    name: str
    groups: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Naming:
    """How the API server names the identity provider's users."""

    user_prefix: str = ""
    group_prefix: str = ""

    def user(self, headers: Headers) -> User:
        """Return who asks, by the headers of the proxy. Raises UnknownUserError."""
        # Proxies that do not know these spellings pass them through.
        if any(
            "_" in one and one.replace("_", "-") in (USER_HEADER, GROUPS_HEADER) for one in headers
        ):
            raise UnknownUserError("a header of the proxy is spelled with underscores; remove it")
        names = headers.getlist(USER_HEADER)
        if len(names) != 1 or not names[0].strip():
            raise UnknownUserError(
                f"{USER_HEADER}: got {len(names)} values; expected the signed-in user: open the page"
                " through its proxy"
            )
        claimed = [
            one.strip() for text in headers.getlist(GROUPS_HEADER) for one in text.split(",")
        ]
        groups = [f"{self.group_prefix}{one}" for one in claimed if one]
        found = User(f"{self.user_prefix}{names[0].strip()}", tuple(sorted(set(groups))))
        _check(found)
        return found


def _check(user: User) -> None:
    """Refuse names that Kubernetes gives to its own components: no identity provider may sign in as one."""
    if len(user.groups) > _GROUPS_MAX:
        raise UnknownUserError(f"{GROUPS_HEADER}: more than {_GROUPS_MAX} groups")
    for one in (user.name, *user.groups):
        if one.startswith("system:"):
            raise UnknownUserError("a name that begins with system: is Kubernetes' own")
        if len(one) > _LENGTH_MAX or not one.isprintable():
            raise UnknownUserError("a name is too long, or has characters that cannot be printed")


class Reviews:
    """Decisions of the API server about users, each used again for DECISION_S. Errors decide nothing."""

    def __init__(self, cluster: Cluster, clock: Callable[[], float] = time.monotonic) -> None:
        self._cluster = cluster
        self._clock = clock
        self._decided: OrderedDict[Any, tuple[float, bool]] = OrderedDict()
        self._lock = threading.Lock()

    def allowed(self, user: User, **attributes: str) -> bool:
        """Whether the user may do this. `attributes`: of `resourceAttributes`. Raises ClusterError."""
        key = (user, tuple(sorted(attributes.items())))
        with self._lock:
            until, decision = self._decided.get(key, (float("-inf"), False))
        if self._clock() < until:
            return decision
        spec = {
            "user": user.name,
            "groups": [*user.groups, _AUTHENTICATED],
            "resourceAttributes": attributes,
        }
        review = {"apiVersion": _REVIEWS.api, "kind": _REVIEWS.kind, "spec": spec}
        status = self._cluster.create(_REVIEWS, review).get("status") or {}
        decision = status.get("allowed") is True and status.get("denied") is not True
        with self._lock:
            self._decided[key] = (self._clock() + DECISION_S, decision)
            self._decided.move_to_end(key)
            while len(self._decided) > _DECISIONS_MAX:
                self._decided.popitem(last=False)
        return decision


class UsersCluster(Cluster):
    """The cluster as one user may read it, read with the page's own rights. Nothing can be written."""

    def __init__(self, shared: Watched, reviews: Reviews, user: User, teams: Sequence[str]) -> None:
        """`shared`: reads of the page's service account; `teams`: all that may be shown."""
        self._shared = shared
        self._reviews = reviews
        self._user = user
        self._homes = tuple(naming.namespace(team) for team in teams)

    def namespaces(self) -> tuple[str, ...]:
        """Return the namespaces of the user's teams. Raises ForbiddenError for a user without a team."""
        found = tuple(home for home in self._homes if self._may(PODS, "list", namespace=home))
        if not found:
            raise ForbiddenError(
                f"{self._user.name}: no role in a team; ask a platform engineer to add you, or one of"
                " your groups, to the team's members, and sign in again"
            )
        return found

    def items(self, kind: Kind, namespace: str | None = None, selector: str = "") -> list[Json]:
        """As of `Cluster`; without a namespace, of those in which the user may list."""
        if namespace is not None:
            self._require(kind, "list", namespace=namespace)
            return self._shared.items(kind, namespace, selector)
        if kind.plural in CLUSTER_SCOPED:
            self._require(kind, "list")
            return self._shared.items(kind, None, selector)
        homes = [one for one in self.namespaces() if self._may(kind, "list", namespace=one)]
        if not homes:
            raise ForbiddenError(f"{self._user.name} may not list {kind.plural}")
        return [item for one in homes for item in self._shared.items(kind, one, selector)]

    def get(self, kind: Kind, name: str, namespace: str | None = None) -> Json | None:
        place = {} if namespace is None else {"namespace": namespace}
        self._require(kind, "get", name=name, **place)
        return self._shared.get(kind, name, namespace)

    def text(self, path: str, query: Any, timeout_s: float = 30.0) -> str | None:
        """Return a pod's log; nothing else is read as text."""
        log = _LOG.fullmatch(path)
        if log is None:
            raise ForbiddenError(f"{path}: the page reads logs of pods only")
        self._require(PODS, "get", namespace=log[1], name=log[2], subresource="log")
        return self._shared.text(path, query, timeout_s)

    def create(self, kind: Kind, manifest: Json, *, dry_run: bool = False) -> Json:
        raise _read_only()

    def patch(self, kind: Kind, name: str, change: Any, namespace: str | None = None) -> Json:
        raise _read_only()

    def delete(self, kind: Kind, name: str, namespace: str | None = None) -> None:
        raise _read_only()

    def _may(self, kind: Kind, verb: str, **attributes: str) -> bool:
        group, _, version = kind.api.rpartition("/")
        namespace = attributes.get("namespace")
        if namespace is not None and namespace not in self._homes:
            return False
        return self._reviews.allowed(
            self._user,
            group=group,
            version=version,
            resource=kind.plural,
            verb=verb,
            **attributes,
        )

    def _require(self, kind: Kind, verb: str, **attributes: str) -> None:
        if not self._may(kind, verb, **attributes):
            place = attributes.get("namespace", "the cluster")
            raise ForbiddenError(f"{self._user.name} may not {verb} {kind.plural} in {place}")


def _read_only() -> ForbiddenError:
    return ForbiddenError("the page only reads")


CLUSTER_SCOPED: Final = frozenset(
    {
        *("nodes", "clusterqueues", "cohorts", "resourceflavors", "topologies"),
        *("workloadpriorityclasses", "priorityclasses"),
    }
)
"""Plurals of what belongs to no namespace."""


class UserSources:
    """What each user reads. Lists are shared among users, answers are not."""

    def __init__(
        self, connect: Callable[[], Cluster], teams: Sequence[str], prometheus: str = ""
    ) -> None:
        """`prometheus`: URL; empty: no metrics."""
        self._connect = connect
        self._teams = tuple(teams)
        self._prometheus = prometheus
        self._sources: OrderedDict[User, Source] = OrderedDict()
        self._shared: tuple[Watched, Reviews] | None = None
        self._lock = threading.Lock()

    def of(self, user: User) -> Source:
        with self._lock:
            found = self._sources.pop(user, None) or self._make(user)
            self._sources[user] = found
            while len(self._sources) > _USERS_MAX:
                self._sources.popitem(last=False)
            return found

    def _make(self, user: User) -> Source:
        def connect() -> Cluster:
            shared, reviews = self._cluster()
            return UsersCluster(shared, reviews, user, self._teams)

        def scope(cluster: Cluster, read: Callable[[str | None], Any]) -> Any:
            homes = _of_user(cluster).namespaces()
            return read(homes[0] if len(homes) == 1 else None)

        def metrics_of(cluster: Cluster) -> PrometheusClient:
            homes = _of_user(cluster).namespaces()
            if not self._prometheus:
                return PrometheusClient("this page", _no_metrics)
            asked = metrics.connect(self._prometheus, cluster)
            return dataclasses.replace(asked, namespaces=homes)

        return Source(connect, scope, share_lists=False, metrics_of=metrics_of)

    def _cluster(self) -> tuple[Watched, Reviews]:
        with self._lock:
            if self._shared is None:
                cluster = self._connect()
                self._shared = Watched(cluster), Reviews(cluster)
            return self._shared


def _no_metrics(_path: str, _query: metrics.Query) -> None:
    raise MetricsUnknownError("the page has no Prometheus")


def _of_user(cluster: Cluster) -> UsersCluster:
    assert isinstance(cluster, UsersCluster)
    return cluster
