"""The run page, and costs and budgets, as Deployments with their service accounts on the real API server."""

from __future__ import annotations

import copy
import json
import socket
import urllib.error
import urllib.request
from collections.abc import Iterator

import pytest

from infra.addons import cost_control, run_page, steering
from infra.domain import naming
from infra.kubernetes.objects import Manifest
from infra.sections.programs import RunPageConfig, SteeringConfig
from infra.sites.simulated import storage
from infra.tenancy import access, shared_view
from sandbox.ports import free_port
from tests.sandbox import add_on_kit
from tests.sandbox.add_on_kit import applied, namespace, ops_image
from tests.sandbox.conftest import Cluster
from tests.sandbox.escape_kit import Asker, create, delete, patch
from tests.sandbox.node_kit import until
from tests.sandbox.ops_kit import WORK, Json, Live, Stage

pytestmark = [pytest.mark.sandbox, pytest.mark.long(45)]

STAGE = Stage(team="in-cluster")
OTHER = "in-cluster-two"
DEADLINE_S = 240.0
"""A pod that starts on a machine that may be busy with other tests."""


def _page(port: int) -> list[Manifest]:
    """What the add-on renders, without the proxy: the test stands in for it."""
    page = RunPageConfig.model_construct(
        image=ops_image(),
        proxy_image="",
        url="https://runs.test",
        issuer="https://id.test",
        client_id="page",
        secret_name="page",
    )
    teams = (STAGE.team, OTHER)
    found = copy.deepcopy(run_page.plan(page, teams, prometheus=False, replicas=1, port=port))
    for one in found.objects:
        if one["kind"] == "Deployment":
            one["spec"]["template"]["spec"]["containers"].pop()
    home = namespace(naming.RUN_PAGE_NAMESPACE, **found.namespace_labels)
    return [home, *found.before, *found.objects]


def _teams() -> list[Manifest]:
    found = [namespace(naming.namespace(OTHER), **{naming.TEAM: OTHER})]
    for team in (STAGE.team, OTHER):
        found += [access.role("researcher", team), access.role_binding("researcher", team)]
        found += access.page_access(team)
    fleet = shared_view.FLEET
    return [
        *found,
        shared_view.cluster_role(fleet),
        shared_view.cluster_role_binding(fleet, (STAGE.team, OTHER)),
    ]


def _runs() -> list[Manifest]:
    mine = STAGE.run("mine-v1-aaaaaaaa", "true", queued=False)
    mine["spec"]["suspend"] = True
    other = json.loads(json.dumps(mine).replace("mine-v1", "theirs-v1"))
    other["metadata"]["namespace"] = naming.namespace(OTHER)
    return [mine, other]


def _get(port: int, path: str, *groups: str) -> tuple[int, str]:
    headers = {"X-Forwarded-Email": "ada", "X-Forwarded-Groups": ",".join(groups)}
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}{path}", headers=headers if groups else {}
    )
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def _answers(port: int) -> bool | None:
    try:
        return _get(port, "/healthz")[0] == 200 or None
    except OSError:
        return None


@pytest.fixture(scope="module")
def port(staged_team: Cluster) -> Iterator[int]:
    """Port of the page; its pod and that of the budgets start, and end, at the same time."""
    number = free_port()
    spends = STAGE.run("spends", WORK)
    objects = [*_teams(), *_runs(), *_page(number), *_costs(), *_steering(), spends]
    with applied(staged_team, objects):
        yield number


def test_each_user_sees_the_runs_that_rbac_allows(staged_team: Cluster, port: int) -> None:
    until(lambda: _answers(port), "the page answers", deadline_s=DEADLINE_S)
    for team, own, foreign in (
        (STAGE.team, "mine-v1", "theirs-v1"),
        (OTHER, "theirs-v1", "mine-v1"),
    ):
        group = naming.group(team, "researcher")
        status, html = _get(port, "/", group)
        assert status == 200 and own in html and foreign not in html, html
    elsewhere = f"/runs/{naming.namespace(OTHER)}/theirs-v1-aaaaaaaa"
    assert _get(port, elsewhere, naming.group(OTHER, "researcher"))[0] == 200
    assert _get(port, elsewhere, naming.group(STAGE.team, "researcher"))[0] == 403
    assert "no role in a team" in _get(port, "/", "sales")[1]
    assert _get(port, "/")[0] == 403
    account = f"{naming.RUN_PAGE_NAMESPACE}:{run_page.NAME}"
    assert may(staged_team, account, "list", "pods", STAGE.namespace)
    for verb, resource, where in (
        ("get", "secrets", STAGE.namespace),
        ("list", "pods", "kube-system"),
        ("list", "pods", ""),
        ("delete", "pods", STAGE.namespace),
        ("create", "configmaps", STAGE.namespace),
        ("get", "pods/exec", STAGE.namespace),
        ("impersonate", "users", ""),
    ):
        assert not may(staged_team, account, verb, resource, where), (verb, resource, where)


CLASS = "in-cluster-shared"


def _costs() -> list[Manifest]:
    """What the add-on renders for a team that may use half a second of a GPU each month."""
    shared = storage.storage_class()
    shared["metadata"]["name"] = CLASS
    made = add_on_kit.objects(STAGE.team, STAGE.real, 0.5 / 3600, CLASS)
    return [shared, *made]


def _steering() -> list[Manifest]:
    """What the add-on renders for one pool, between which and others nothing is to be moved."""
    pool = {"name": STAGE.real, "place": "spot", "usdPerNodeHour": 1.0}
    rules = {"losses": 2, "windowSeconds": 3600.0, "emptySeconds": 3600.0}
    section = SteeringConfig.model_construct(image=ops_image(), every_seconds=5)
    settings = {"pools": [pool], "rules": rules}
    found = copy.deepcopy(steering.plan(section, settings, prometheus=False))
    home = namespace(naming.STEERING_NAMESPACE, **found.namespace_labels)
    return [home, *access.steering_access(STAGE.team), *found.before, *found.objects]


def test_the_program_that_steers_runs_looks_with_its_own_rights(
    staged_team: Cluster, port: int
) -> None:
    home = naming.STEERING_NAMESPACE

    def looked() -> bool | None:
        try:
            shown = add_on_kit.metrics(staged_team, home, naming.STEERING_METRICS_PORT)
        except (OSError, ValueError):  # It has no address yet, or does not listen.
            return None
        rate = f'trainyard_steering_losses_per_node_hour{{pool="{STAGE.real}"'
        return (rate in shown and "trainyard_steering_looked_timestamp_seconds" in shown) or None

    until(looked, "it has looked at the nodes", deadline_s=DEADLINE_S)
    lease = _read(staged_team, "lease", steering.LEASE, "-n", home)
    assert lease["spec"]["holderIdentity"].startswith(f"{steering.NAME}-")
    assert STAGE.real in _read(staged_team, "configmap", "rates", "-n", home)["data"]["rates"]


def _read(cluster: Cluster, *what: str) -> Json:
    found: Json = json.loads(cluster.kubectl("get", *what, "-o", "json"))
    return found


def test_a_budget_holds_drains_and_releases_and_nothing_else_can_be_written(
    live: Live, port: int
) -> None:
    cluster, queue_name = live.cluster, naming.cluster_queue(STAGE.team)

    def policy(wanted: str) -> bool | None:
        found = _read(cluster, "clusterqueue", queue_name)["spec"]["stopPolicy"]
        return found == wanted or None

    def workload() -> Json:
        found = _read(cluster, "workloads", "-n", STAGE.namespace)["items"]
        return next((one for one in found if "spends" in one["metadata"]["name"]), {})

    until(lambda: policy("Hold"), "the queue is held", deadline_s=DEADLINE_S)
    until(
        lambda: workload().get("spec", {}).get("active") is False,
        "the run is stopped",
        deadline_s=DEADLINE_S,
    )
    lease = _read(cluster, "lease", "costs", "-n", naming.COSTS_NAMESPACE)
    assert lease["spec"]["holderIdentity"].startswith("costs-")
    shown = add_on_kit.metrics(cluster)
    assert f'budget_state{{state="drained",team="{STAGE.team}"}} 1.0' in shown, shown
    labels = f'bucket="starting",capacity="",pool="{STAGE.real}",team="{STAGE.team}"'
    assert labels in shown, shown
    # On the host's loopback, which process nodes share, it does not listen.
    with pytest.raises(OSError), socket.create_connection(("127.0.0.1", 8643), timeout=60):
        pass
    _escapes(cluster, workload())
    words = ("cost", "override", "--team", STAGE.team, "--hours", "1", "--reason", "test")
    assert live.command(*words)[0] == 0
    until(lambda: policy("None"), "the queue is open again", deadline_s=DEADLINE_S)
    assert workload()["spec"].get("active") is not False


def _escapes(cluster: Cluster, workload: Json) -> None:
    """What the service account cannot do, beside its two writes."""
    ask = Asker(cluster.kubeconfig)
    account = f"system:serviceaccount:{naming.COSTS_NAMESPACE}:{cost_control.NAME}"
    mine = (account, "system:serviceaccounts", "system:authenticated")
    queue = STAGE.queue()
    held = {"metadata": {"annotations": {cost_control.STATE: "{}"}}, "spec": {"stopPolicy": "Hold"}}
    assert not ask.refusal(patch(queue, held).by(*mine))
    assert not ask.refusal(patch(workload, {"spec": {"active": True}}).by(*mine))
    foreign = {"metadata": {"annotations": {f"{naming.DOMAIN}/budget-override": "{}"}}}
    for target, change in (
        (queue, {"spec": {"stopPolicy": "HoldAndDrain"}}),
        (queue, {"spec": {"cohortName": "another"}}),
        (queue, {"spec": {"resourceGroups": []}}),
        (queue, {"spec": {"namespaceSelector": None}}),
        (queue, foreign),
        (queue, {"metadata": {"labels": {naming.TEAM: "another"}}}),
        (queue, {"metadata": {"finalizers": ["test.dev/kept"]}}),
        (workload, {"spec": {"priority": 1000}}),
        (workload, {"spec": {"queueName": "another"}}),
        (workload, {"metadata": {"labels": {"a": "b"}}}),
        (workload, {"metadata": {"ownerReferences": None}}),
    ):
        assert "this account may" in ask.refusal(patch(target, change).by(*mine)), change
    for request in (delete(queue), delete(workload), create(queue), create(STAGE.run("x", WORK))):
        assert "forbidden" in ask.refusal(request.by(*mine)), request
    home = f"{naming.COSTS_NAMESPACE}:{cost_control.NAME}"
    for verb, resource, where in (
        ("get", "secrets", ""),
        ("patch", "workloads.kueue.x-k8s.io/status", STAGE.namespace),
        ("patch", "workloads.kueue.x-k8s.io", "default"),
        ("delete", "pods", STAGE.namespace),
        ("patch", "nodes", ""),
        ("patch", "leases.coordination.k8s.io", STAGE.namespace),
        ("impersonate", "users", ""),
    ):
        assert not may(cluster, home, verb, resource, where), (verb, resource, where)


def may(cluster: Cluster, account: str, verb: str, resource: str, namespace: str = "") -> bool:
    """The API server's answer about a service account, as NAMESPACE:NAME."""
    name, _, sub = resource.partition("/")
    plural, _, group = name.partition(".")
    asked = {"verb": verb, "group": group, "resource": plural, "subresource": sub}
    home = account.partition(":")[0]
    review = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SubjectAccessReview",
        "spec": {
            "user": f"system:serviceaccount:{account}",
            "groups": [
                "system:serviceaccounts",
                f"system:serviceaccounts:{home}",
                "system:authenticated",
            ],
            "resourceAttributes": asked | ({"namespace": namespace} if namespace else {}),
        },
    }
    out = cluster.kubectl("create", "-o", "json", "-f", "-", stdin=json.dumps(review))
    return bool(json.loads(out)["status"]["allowed"])
