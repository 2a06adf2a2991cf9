"""The run page behind a proxy: who asks, what the API server's reviews let that user see, and nothing else."""

from __future__ import annotations

from typing import Any

import pytest
from starlette.datastructures import Headers
from starlette.testclient import TestClient

from infra.addons import run_page
from infra.domain import naming
from infra.tenancy import shared_view
from infra.tenancy.access import PAGE_RULES, ROLE_RULES, group_of
from ops.cluster import ClusterError, ForbiddenError, Kind
from ops.objects import Json
from ops.ui import users
from ops.ui.server import create_shared_app
from ops.ui.users import Naming, Reviews, UnknownUserError, User, UsersCluster, UserSources
from tests.unit.ops.test_ops_commands import FakeCluster
from tests.unit.ops.ui_world import LOG, TEAMS, world

EMAIL, GROUPS = "X-Forwarded-Email", "X-Forwarded-Groups"


def allows(rules: Any, group: str, resource: str, verb: str) -> bool:
    return any(
        group in one["apiGroups"] and resource in one["resources"] and verb in one["verbs"]
        for one in rules
    )


class PagesCluster(FakeCluster):
    """The API server as the page's service account sees it: its RBAC, and reviews by the users' real rules."""

    def __init__(self) -> None:
        super().__init__(**world())
        self.texts["worker-0-0-x/log"] = LOG
        self.reviewed: list[Json] = []
        self.members = {
            group_of(role, team): (team, role) for team in TEAMS for role in ("researcher", "lead")
        }
        self.broken = False

    def _check(self, kind: Kind, namespace: str | None, verb: str) -> None:
        rules = (
            PAGE_RULES if namespace in [naming.namespace(t) for t in TEAMS] else run_page.EVERYWHERE
        )
        group = kind.api.rpartition("/")[0]
        if not allows(rules, group, kind.plural, verb):
            raise AssertionError(f"the page has no right to {verb} {kind} in {namespace}")

    def items(self, kind: Kind, namespace: str | None = None, selector: str = "") -> list[Json]:
        self._check(kind, namespace, "list")
        return super().items(kind, namespace, selector)

    def get(self, kind: Kind, name: str, namespace: str | None = None) -> Json | None:
        self._check(kind, namespace, "get")
        return super().get(kind, name, namespace)

    def create(self, kind: Kind, manifest: Json, **_: Any) -> Json:
        assert kind.plural == "subjectaccessreviews"
        if self.broken:
            raise ClusterError("POST subjectaccessreviews: HTTP 500")
        self.reviewed.append(manifest["spec"])
        return {"status": {"allowed": self._allowed(manifest["spec"])}}

    def _allowed(self, spec: Json) -> bool:
        asked = spec["resourceAttributes"]
        sub = f"/{asked['subresource']}" if "subresource" in asked else ""
        what = asked["group"], asked["resource"] + sub, asked["verb"]
        roles = [self.members[one] for one in spec["groups"] if one in self.members]
        if "namespace" not in asked:
            return bool(roles) and allows(shared_view.RULES[shared_view.FLEET], *what)
        return any(
            naming.namespace(team) == asked["namespace"] and allows(ROLE_RULES[role], *what)
            for team, role in roles
        )


@pytest.fixture
def api() -> PagesCluster:
    return PagesCluster()


def page_of(api: PagesCluster, prometheus: str = "") -> TestClient:
    found = UserSources(lambda: api, TEAMS, prometheus)  # type: ignore[arg-type, return-value]
    return TestClient(create_shared_app(lambda r: found.of(Naming().user(r.headers))))


def signed_in(team: str, role: str = "researcher", *more: str) -> dict[str, str]:
    return {EMAIL: f"ada@{team}", GROUPS: ",".join([group_of(role, team), *more])}


def paths_of(team: str, other: str) -> list[str]:
    both = f"run=team-{team}/{team}-model-v2-aaaaaaaa&run=team-{other}/{other}-model-v2-aaaaaaaa"
    foreign = f"/runs/team-{other}/{other}-model-v2-aaaaaaaa"
    log = f"/log?namespace=team-{other}&run={other}-model-v2-aaaaaaaa&rank=0"
    shared = ["/", f"/?q={other}", "/queues", "/nodes"]
    return [*shared, foreign, f"/compare?{both}", f"/curves?{both}", log]


@pytest.mark.parametrize("role", ["researcher", "lead"])
@pytest.mark.parametrize("team", TEAMS)
def test_a_member_sees_the_teams_runs_and_no_other(api: PagesCluster, team: str, role: str) -> None:
    other = next(one for one in TEAMS if one != team)
    page, who = page_of(api), signed_in(team, role)
    mine = f"/runs/team-{team}/{team}-model-v2-aaaaaaaa"
    assert page.get(mine, headers=who).status_code == 200
    assert f"{team}-model-v2" in page.get("/", headers=who).text
    # The other team's member fills every cache first.
    assert f"{other}-model-v2" in page.get("/", headers=signed_in(other)).text
    for path in paths_of(team, other):
        told = page.get(path, headers=who).text
        told = told.replace(f"{other}-model-v2-aaaaaaaa", "") if other in path else told
        for secret in (f"{other}-model", f"{other}-next", f"insufficient quota for {other}"):
            assert secret not in told, (path, secret)


def test_a_member_of_both_teams_sees_both(api: PagesCluster) -> None:
    first, second = TEAMS
    who = signed_in(first, "lead", group_of("researcher", second))
    told = page_of(api).get("/", headers=who).text
    assert f"{first}-model-v2" in told and f"{second}-model-v2" in told


def test_who_has_no_role_sees_one_line_and_no_run(api: PagesCluster) -> None:
    answer = page_of(api).get("/", headers={EMAIL: "eve@example.com", GROUPS: "sales"})
    assert answer.status_code == 403
    assert "no role in a team" in answer.text and "-model" not in answer.text


@pytest.mark.parametrize(
    "headers",
    [
        [],
        [(EMAIL, "")],
        [(GROUPS, "trainyard:research:lead")],
        [("X-Forwarded-User", "ada")],
        [(EMAIL, "ada"), (EMAIL, "bob")],
        [(EMAIL, "system:admin")],
        [(EMAIL, "ada"), (GROUPS, "system:masters")],
        [(EMAIL, "ada"), (GROUPS, "a, system:masters")],
        [(EMAIL, "ada"), ("X_Forwarded_Groups", "trainyard:research:lead")],
        [(EMAIL, "ada"), (GROUPS, ",".join(f"g{n}" for n in range(501)))],
        [(EMAIL, "a" * 1001)],
    ],
)
def test_without_one_plain_user_nothing_is_asked_or_shown(
    api: PagesCluster, headers: list[tuple[str, str]]
) -> None:
    page = page_of(api)
    for path in ("/", "/events", "/curves", "/log", "/queues", "/static/page.js"):
        answer = page.get(path, headers=headers)
        assert answer.status_code == 403
        assert "research-model" not in answer.text
    assert api.reviewed == []


def test_health_needs_no_user_and_shows_nothing(api: PagesCluster) -> None:
    answer = page_of(api).get("/healthz")
    assert (answer.status_code, answer.text, api.reviewed) == (200, "ok\n", [])


def test_the_prefixes_of_the_api_server_come_before_names_and_never_make_a_component() -> None:
    named = Naming(user_prefix="oidc:", group_prefix="oidc:")
    headers = Headers({EMAIL: "system:admin", GROUPS: "a,b"})
    assert named.user(headers) == User("oidc:system:admin", ("oidc:a", "oidc:b"))
    with pytest.raises(UnknownUserError, match="begins with system:"):
        Naming(user_prefix="sys").user(Headers({EMAIL: "tem:admin"}))


def reader(api: PagesCluster, clock: list[float], team: str = "research") -> UsersCluster:
    who = User("ada", (group_of("researcher", team),))
    return UsersCluster(api, Reviews(api, lambda: clock[0]), who, TEAMS)  # type: ignore[arg-type]


def test_a_decision_is_asked_for_again_when_it_is_old(api: PagesCluster) -> None:
    clock = [0.0]
    mine = reader(api, clock)
    assert mine.items(metrics_kind(), "team-research")
    number = len(api.reviewed)
    assert mine.items(metrics_kind(), "team-research")
    assert len(api.reviewed) == number
    api.members.clear()
    clock[0] = users.DECISION_S - 0.1
    assert mine.items(metrics_kind(), "team-research")
    clock[0] = users.DECISION_S
    with pytest.raises(ForbiddenError, match="ada may not list pods in team-research"):
        mine.items(metrics_kind(), "team-research")


def metrics_kind() -> Kind:
    return Kind("v1", "pods", "Pod")


def test_an_error_of_the_review_decides_nothing(api: PagesCluster) -> None:
    clock = [0.0]
    mine = reader(api, clock)
    api.broken = True
    with pytest.raises(ClusterError, match="HTTP 500"):
        mine.items(metrics_kind(), "team-research")
    api.broken = False
    assert mine.items(metrics_kind(), "team-research")


def test_only_namespaces_of_teams_and_logs_of_pods_are_read(api: PagesCluster) -> None:
    mine = reader(api, [0.0])
    for namespace in ("kube-system", "trainyard-page", "team-other"):
        with pytest.raises(ForbiddenError):
            mine.items(metrics_kind(), namespace)
    for path in (
        "/api/v1/namespaces/monitoring/services/http:prometheus-operated:9090/proxy/api/v1/query",
        "/api/v1/namespaces/team-research/pods/x/exec",
        "/api/v1/namespaces/team-research/pods/x/../../../secrets/x/log",
        "/api/v1/secrets",
    ):
        with pytest.raises(ForbiddenError):
            mine.text(path, [])
    for write in (
        lambda: mine.create(metrics_kind(), {}),
        lambda: mine.patch(metrics_kind(), "x", {}),
        lambda: mine.delete(metrics_kind(), "x"),
    ):
        with pytest.raises(ForbiddenError, match="only reads"):
            write()


def test_reviews_name_the_user_and_exactly_what_is_read(api: PagesCluster) -> None:
    reader(api, [0.0]).get(Kind("v1", "configmaps", "ConfigMap"), "x", "team-research")
    [asked] = api.reviewed
    assert asked["user"] == "ada"
    assert asked["groups"] == [group_of("researcher", "research"), "system:authenticated"]
    assert asked["resourceAttributes"] == {
        "group": "",
        "version": "v1",
        "resource": "configmaps",
        "verb": "get",
        "name": "x",
        "namespace": "team-research",
    }
