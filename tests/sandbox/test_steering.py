"""Runs that `spot steer` moves between the pools of their queue, on the real Kueue with simulated nodes."""

from __future__ import annotations

import datetime as dt
import json
import random
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar

import pytest

from infra.addons import steering
from infra.domain import naming
from infra.sites.simulated import node_pools
from ops.cluster import Cluster as Api
from ops.steer import memory, settings
from ops.steer.control import Controller
from ops.steer.memory import Memory
from sandbox.node.api import node_path, object_path, pod_path
from tests.sandbox import add_on_kit
from tests.sandbox.add_on_kit import Named, applied
from tests.sandbox.conftest import Cluster
from tests.sandbox.escape_kit import Asker, create, delete, patch
from tests.sandbox.node_kit import until
from tests.sandbox.queue_kit import Fleet, Json, condition, held, holds_quota, pool, team_of
from tests.sandbox.test_in_cluster import may

pytestmark = [pytest.mark.sandbox, pytest.mark.long(95)]

RICH, POOR = "steered", "unsteered"
EMPTY, SPOT, BOUGHT = "steered-empty", "steered-spot", "steered-bought"
HOUR_S = 3600.0
BLOCK = "steered-block"
OPENS = time.time() + 100 * HOUR_S
SETTINGS = {
    "pools": [
        {"name": EMPTY, "place": "spot", "usdPerNodeHour": 10.0},
        {"name": SPOT, "place": "spot", "usdPerNodeHour": 10.0},
        {
            "name": BLOCK,
            "place": "reservation",
            "usdPerNodeHour": 20.0,
            "opens": OPENS,
            "closes": OPENS + 10 * HOUR_S,
        },
        {"name": BOUGHT, "place": "on-demand", "usdPerNodeHour": 30.0},
    ],
    "rules": {"losses": 2, "windowSeconds": 6 * HOUR_S, "emptySeconds": HOUR_S},
    "cordonNamedNodes": True,
}
T = TypeVar("T")
_EVICTION = {"apiVersion": "policy/v1", "kind": "Eviction"}


class Market(Fleet):
    """Three pools; one has quota, but no node ever comes. Kueue goes by quota alone, as with Karpenter."""

    def node_objects(self) -> list[Json]:
        return [n for n in super().node_objects() if n["metadata"]["labels"][naming.POOL] != EMPTY]

    def objects(self) -> list[Json]:
        found = super().objects()
        for one in found:
            if one["kind"] == "ResourceFlavor":
                one["spec"].pop("topologyName", None)
        return found

    def own(self, manifest: Json) -> Json:
        """Without the request for near nodes, which Kueue could not place by quota alone."""
        found = super().own(manifest)
        template = found.get("spec", {}).get("template", {})
        for key in list(template.get("metadata", {}).get("annotations") or {}):
            if key.startswith("kueue.x-k8s.io/podset-"):
                del template["metadata"]["annotations"][key]
        return found

    def await_nodes(self) -> None:
        there = f"{naming.POOL} in ({SPOT},{BLOCK},{BOUGHT})"
        self.cluster.kubectl(
            "wait", "nodes", "-l", there, "--for=condition=Ready", "--timeout=180s"
        )


@dataclass
class Steered:
    """The fleet and the controller with the rights of its service account; its clock can be put forward."""

    fleet: Market
    controller: Controller
    api: Api
    """The API server as the controller may use it."""
    said: list[str] = field(default_factory=list)
    ahead_s: float = 0.0

    def look(self) -> None:
        self.controller.step(None, time.time() + self.ahead_s)

    def until(self, found: Callable[[], T | None], what: str) -> T:
        """Wait while the controller looks again and again."""

        def looked() -> T | None:
            self.look()
            return found()

        try:
            return until(looked, what, every_s=0.5)
        except AssertionError as error:
            shown = {
                run: (one["spec"].get("active"), one["status"])
                for run, one in self.fleet.workloads().items()
            }
            raise AssertionError(f"{error}; it said {self.said}; Kueue: {shown}") from None

    def workload(self, run: str) -> Json:
        return self.fleet.workloads()[run]

    def pool(self, run: str) -> str:
        """The pool in which all pods of the gang are ready; empty if there is none."""
        found = self.fleet.workloads().get(run)
        if found is None:
            return ""
        ready = condition(found, "PodsReady")
        if not holds_quota(found) or not ready or ready["status"] != "True":
            return ""
        return held(found)[0]

    def nodes(self, run: str) -> set[str] | None:
        there = {n["metadata"]["name"] for n in self.fleet.client.get(node_path())["items"]}
        pods = self.fleet.pods(run)
        on = {p["spec"].get("nodeName", "") for p in pods if p["status"].get("phase") == "Running"}
        return on if len(on & there) == 2 == len(pods) else None

    def allowed(self, run: str) -> set[str] | None:
        """What it may have; None: everything."""
        notes = self.workload(run)["metadata"].get("annotations") or {}
        text = notes.get(naming.ALLOWED_FLAVORS)
        return None if text is None else set(text.split(","))

    def remembered(self, run: str) -> Memory:
        notes = self.workload(run)["metadata"].get("annotations") or {}
        return memory.parse(notes.get(naming.STEERING, ""))

    def reclaim(self, run: str, chance: random.Random) -> None:
        """Take one of the gang's nodes with notice, and give the pool another one."""
        self.take(run, chance.choice(sorted(p["spec"]["nodeName"] for p in self.fleet.pods(run))))
        self.give(f"{SPOT}-{chance.randrange(10**6, 10**7)}")

    def take_pool(self, run: str, pool: str) -> None:
        """Take all nodes of a pool, with notice, and wait until the run has new pods if it had some there.

        Only one of its pods fails; the others go when Kueue gives the gang up. A Job makes new pods the later, the
        more have failed, and Kueue's time-out of the sandbox is short.
        """
        found = self.fleet.client.get(node_path(), labelSelector=f"{naming.POOL}={pool}")["items"]
        names = {str(node["metadata"]["name"]) for node in found}
        for one in names:
            self.announce(one)
        before = {p["metadata"]["uid"]: p["spec"].get("nodeName") for p in self.fleet.pods(run)}
        held = sorted(names & set(before.values()))
        for one in held[:1]:
            self.take(run, one)
        for one in [*held[1:], *(names - set(held))]:
            self._remove(one)
        if held:
            until(lambda: self._renewed(run, set(before)), "its Job has made new pods")

    def _renewed(self, run: str, before: set[str]) -> bool:
        uids = {pod["metadata"]["uid"] for pod in self.fleet.pods(run)}
        return bool(uids) and not uids & before

    def take(self, run: str, name: str) -> None:
        client = self.fleet.client
        self.announce(name)
        for pod in self.fleet.pods(run):
            where = pod["metadata"]["namespace"], pod["metadata"]["name"]
            if pod["spec"]["nodeName"] == name:
                about = {"metadata": {"name": where[1], "namespace": where[0]}}
                client.create(f"{pod_path(*where)}/eviction", _EVICTION | about)
                # KWOK only deletes a pod; its Job waits for the end that a kubelet reports.
                client.patch(f"{pod_path(*where)}/status", {"status": {"phase": "Failed"}})
        self._remove(name)

    def _remove(self, name: str) -> None:
        client = self.fleet.client
        pods, on = object_path("/api/v1", naming.namespace(RICH), "pods"), f"spec.nodeName={name}"
        until(lambda: not client.get(pods, fieldSelector=on)["items"], "its pods have ended")
        client.delete(node_path(name))

    def announce(self, name: str) -> None:
        """Mark a node that is going to be taken."""
        client = self.fleet.client
        node = client.get(node_path(name))
        taint = {"key": f"{naming.DOMAIN}/interruption", "value": "spot", "effect": "NoSchedule"}
        kept = [t for t in node["spec"].get("taints") or [] if t["key"] != taint["key"]]
        client.patch(node_path(name), {"spec": {"unschedulable": True, "taints": [*kept, taint]}})

    def give(self, name: str) -> None:
        """Give the spot pool a new node."""
        [spot] = [p for p in self.fleet.config.pools if p.name == SPOT]
        fresh = node_pools.node(spot, 0)
        fresh["metadata"]["name"] = name
        fresh["metadata"]["labels"][naming.HOSTNAME] = name
        self.fleet.client.create(node_path(), fresh)


@pytest.fixture(scope="module")
def steered(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Steered]:
    pools = [
        pool(EMPTY, 4),
        pool(SPOT, 4),
        pool(BLOCK, 2, "on-demand"),
        pool(BOUGHT, 4, "on-demand"),
    ]
    teams = [team_of(RICH), team_of(POOR, onDemandUsdPerHour=0)]
    fleet = Market(cluster, "steered", pools, teams)
    with fleet.deployed(), applied(cluster, add_on_kit.add_on(SETTINGS, RICH, POOR)):
        said: list[str] = []
        controller = Controller(
            api := add_on_kit.api(cluster, tmp_path_factory.mktemp("steering")),
            settings.parse(SETTINGS),
            said.append,
            home=naming.STEERING_NAMESPACE,
        )
        yield Steered(fleet, controller, api, said)


def test_a_gang_that_spot_keeps_losing_moves_to_on_demand_and_back_and_an_empty_pool_is_left(
    steered: Steered,
) -> None:
    seed = random.randrange(10**6)
    print(f"seed {seed}")
    chance = random.Random(seed)
    fleet = steered.fleet
    waits = fleet.start(RICH, "empty", [EMPTY, SPOT], hold=False, keeps_running=True)
    often = fleet.start(RICH, "often", [SPOT, BOUGHT], nodes=2, hold=False, keeps_running=True)
    steered.until(lambda: steered.pool(often) == SPOT, "it starts on spot")
    for number in (1, 2):
        nodes = steered.until(lambda: steered.nodes(often), "both pods run")
        steered.reclaim(often, chance)
        if number == 1:
            steered.until(partial(_changed, steered, often, nodes), "it runs again")
            steered.until(lambda: steered.remembered(often).down is None, "its loss is over")
            assert steered.pool(often) == SPOT, steered.said
    steered.until(lambda: steered.pool(often) == BOUGHT, "two losses, and it is on demand")
    assert steered.allowed(often) == {BOUGHT}
    events = fleet.client.get(
        object_path("/api/v1", naming.namespace(RICH), "events"), fieldSelector="reason=Steered"
    )["items"]
    [why] = [e["message"] for e in events if f"leaves {SPOT}" in e["message"]]
    assert "its nodes were lost too often" in why
    # The losses of another run are not its own.
    calm = fleet.start(RICH, "calm", [SPOT, BOUGHT], hold=False, keeps_running=True)
    steered.until(lambda: steered.pool(calm) == SPOT, "another run starts on spot")

    # Six hours later, spot pays again.
    steered.until(lambda: steered.pool(waits) == SPOT, "the run has left the empty pool")
    assert steered.allowed(waits) == {SPOT}
    steered.ahead_s = 0.9 * HOUR_S
    for _ in range(3):
        steered.look()
    assert (steered.pool(often), steered.allowed(waits)) == (BOUGHT, {SPOT})
    steered.ahead_s = 7 * HOUR_S
    steered.until(lambda: steered.pool(often) == SPOT, "it is back on spot")
    steered.until(lambda: steered.allowed(waits) is None, "the empty pool may be tried again")
    assert steered.pool(waits) == SPOT
    fleet.stop_all()


def _changed(steered: Steered, run: str, before: set[str]) -> bool:
    return steered.nodes(run) not in (None, before)


@pytest.mark.full_only
def test_a_run_with_slack_waits_for_spot_until_it_has_to_go_on_demand(steered: Steered) -> None:
    begun, hours, slack = time.time(), 10, 20
    end = dt.datetime.fromtimestamp(begun + (hours + slack) * HOUR_S, dt.UTC)
    run = steered.fleet.start(
        RICH,
        "patient",
        [EMPTY, BOUGHT],
        hold=False,
        keeps_running=True,
        max_hours=hours,
        deadline=end.strftime("%Y-%m-%dT%H:%M:%SZ"),
    )

    def waits() -> bool:
        return steered.allowed(run) == {""} and not holds_quota(steered.workload(run))

    steered.until(lambda: run in steered.fleet.workloads(), "it has a Workload")
    steered.until(waits, "no node came in time")
    assert "worth waiting for" in steered.remembered(run).reason
    steered.ahead_s = 0.9 * HOUR_S
    for _ in range(3):
        steered.look()
    assert waits()
    steered.ahead_s = (slack - 0.5) * HOUR_S
    steered.until(lambda: steered.pool(run) == BOUGHT, "its slack is used up")
    assert steered.allowed(run) == {BOUGHT}
    steered.ahead_s = 0.0
    steered.fleet.stop_all()


def test_a_team_without_on_demand_never_gets_there(steered: Steered, cluster: Cluster) -> None:
    fleet, seed = steered.fleet, random.randrange(10**6)
    print(f"seed {seed}")
    run = fleet.start(POOR, "poor", [SPOT, BOUGHT], hold=False, keeps_running=True)
    steered.until(lambda: steered.pool(run) == SPOT, "it starts on spot")
    workload = steered.workload(run)
    ask, mine = Asker(cluster.kubeconfig), _account()
    # Even the account itself can only keep a run from pools.
    only = {"metadata": {"annotations": {naming.ALLOWED_FLAVORS: BOUGHT}}}
    for change in (only, {"spec": {"active": False}}):
        assert not ask.refusal(patch(workload, change).by(*mine).for_real())
    until(lambda: not holds_quota(steered.workload(run)), "it has let go")
    ask(patch(workload, {"spec": {"active": True}}).by(*mine).for_real())
    message = until(
        lambda: (condition(steered.workload(run), "QuotaReserved") or {}).get("message", ""),
        "Kueue says why it waits",
    )
    until(lambda: "skipping flavor" in str(steered.workload(run)), f"skipped, not {message}")
    assert not holds_quota(steered.workload(run))
    fleet.stop_all()


def _account() -> tuple[str, ...]:
    name = f"system:serviceaccount:{naming.STEERING_NAMESPACE}:{steering.NAME}"
    return (name, "system:serviceaccounts", "system:authenticated")


def test_a_capacity_block_has_a_clock(steered: Steered) -> None:
    fleet = steered.fleet
    fits = fleet.start(RICH, "fits", [BLOCK], hold=False, keeps_running=True, max_hours=5)
    long = fleet.start(RICH, "long", [BLOCK], hold=False, keeps_running=True, max_hours=50)
    drained = fleet.start(RICH, "drained", [SPOT, BLOCK], hold=False, keeps_running=True)
    steered.ahead_s = OPENS - time.time() - HOUR_S
    nothing: set[str] = {""}
    steered.until(lambda: steered.allowed(fits) == nothing, "it waits for the block to begin")
    steered.until(lambda: steered.pool(drained) == SPOT, "the other one does not wait")
    assert steered.allowed(drained) == {SPOT}
    assert "has not begun" in steered.remembered(fits).reason

    steered.ahead_s = OPENS - time.time()
    steered.until(lambda: steered.pool(fits) == BLOCK, "it starts in the block")
    steered.until(lambda: steered.allowed(drained) is None, "the block is open to others")
    # Both may have started before the first look; then they have left, and only one has come back.
    steered.until(
        lambda: "would not end before" in steered.remembered(long).reason, "too long for the block"
    )
    steered.until(lambda: not holds_quota(steered.workload(long)), "it has not come back")
    assert steered.allowed(long) == nothing

    # What still runs when EC2 is about to take the nodes saves before.
    steered.ahead_s = OPENS - time.time() + 10 * HOUR_S - 1
    steered.until(lambda: not holds_quota(steered.workload(fits)), "it has left the block")
    steered.until(lambda: steered.workload(fits)["spec"].get("active") is not False, "it waits")
    assert steered.allowed(fits) == nothing and steered.pool(drained) == SPOT
    fleet.stop_all()


def test_a_node_that_a_run_has_named_is_cordoned_and_nothing_else_of_nodes_is_changed(
    steered: Steered, cluster: Cluster
) -> None:
    run = steered.fleet.start(RICH, "named", [SPOT], hold=False, keeps_running=True)
    until(lambda: run in steered.fleet.workloads(), "it has a Workload")
    until(lambda: steered.pool(run) == SPOT, "it runs")
    node = steered.fleet.pods(run)[0]["spec"]["nodeName"]
    other = next(
        name
        for one in steered.fleet.client.get(node_path())["items"]
        if (name := one["metadata"]["name"]) != node
        and one["metadata"]["labels"].get(naming.POOL) == BOUGHT
    )
    for named in (other, node):  # the run is not on the first
        prometheus: Any = Named(RICH, run, named, "corrupt-rank")
        steered.controller.step(prometheus, time.time())
    found = steered.fleet.client.get(node_path(node))
    assert found["spec"]["unschedulable"] is True
    assert "wrong values" in found["metadata"]["annotations"][naming.CORDONED]
    assert not steered.fleet.client.get(node_path(other))["spec"].get("unschedulable")
    ask, mine = Asker(cluster.kubeconfig), _account()
    found |= {"apiVersion": "v1", "kind": "Node"}
    changes: list[Json] = [
        {"spec": {"unschedulable": False}},
        {"spec": {"taints": []}},
        {"metadata": {"labels": {"a": "b"}}},
        {"metadata": {"annotations": {"a": "b"}}},
        {"metadata": {"finalizers": ["test.dev/kept"]}},
    ]
    for change in changes:
        assert ask.refusal(patch(found, change).by(*mine)), change
    note = {"metadata": {"annotations": {naming.CORDONED: "{}"}}}
    assert not ask.refusal(patch(found, note).by(*mine))
    steered.fleet.client.patch(node_path(node), {"spec": {"unschedulable": None}})
    steered.fleet.stop_all()


def test_what_the_account_cannot_do(steered: Steered, cluster: Cluster) -> None:
    run = steered.fleet.start(RICH, "walls", [SPOT])
    until(lambda: run in steered.fleet.workloads(), "it has a Workload")
    workload, ask, mine = steered.workload(run), Asker(cluster.kubeconfig), _account()
    notes = {naming.ALLOWED_FLAVORS: SPOT, naming.STEERING: "{}"}
    assert not ask.refusal(patch(workload, {"metadata": {"annotations": notes}}).by(*mine))
    changes: list[Json] = [
        {"spec": {"priority": 987}},
        {"spec": {"queueName": POOR}},
        {"spec": {"podSets": []}},
        {"metadata": {"annotations": {"kueue.x-k8s.io/priority-boost": "9"}}},
        {"metadata": {"annotations": {f"{naming.DOMAIN}/budget": "{}"}}},
        {"metadata": {"labels": {"a": "b"}}},
        {"metadata": {"ownerReferences": None}},
        {"metadata": {"finalizers": ["test.dev/kept"]}},
    ]
    for change in changes:
        assert ask.refusal(patch(workload, change).by(*mine)), change
    # Others cannot write what Kueue reads, nor what the program remembers.
    team = ("ada", naming.group(RICH, "researcher"), "system:authenticated")
    for change in ({"metadata": {"annotations": {key: "x"}}} for key in notes):
        assert ask.refusal(patch(workload, change).by(*team)), change
    for request in (delete(workload), create(workload)):
        assert "forbidden" in ask.refusal(request.by(*mine)), request
    home = f"{naming.STEERING_NAMESPACE}:{steering.NAME}"
    team_space = naming.namespace(RICH)
    for verb, resource, where in (
        ("get", "secrets", ""),
        ("patch", "clusterqueues.kueue.x-k8s.io", ""),
        ("patch", "workloads.kueue.x-k8s.io/status", team_space),
        ("patch", "workloads.kueue.x-k8s.io", "default"),
        ("patch", "jobs.batch", team_space),
        ("create", "pods", team_space),
        ("delete", "pods", team_space),
        ("update", "nodes", ""),
        ("patch", "nodes/status", ""),
        ("patch", "configmaps", team_space),
        ("patch", "events", team_space),
        ("impersonate", "users", ""),
    ):
        assert not may(cluster, home, verb, resource, where), (verb, resource, where)
    rates = json.loads(
        cluster.kubectl("get", "configmap", "rates", "-n", naming.STEERING_NAMESPACE, "-o", "json")
    )
    assert SPOT in rates["data"]["rates"]
    steered.fleet.stop_all()
