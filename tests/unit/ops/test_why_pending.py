"""Why a queued run waits."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

import pytest

from ops import quota
from ops.objects import Json
from ops.symptoms import explain, history
from ops.symptoms.pending import runs_ahead
from ops.verdict import Verdict
from tests.unit.ops.run_fixtures import (
    NOW,
    RUN_ID,
    cluster_queue,
    cohort,
    condition,
    event,
    flavor,
    node,
    pod,
    pod_spec,
    run,
    snapshot,
    waits,
    workload,
)
from tests.unit.snapshots import Text

NO_PLACE = "couldn't assign flavors: topology \"zone-host\" doesn't allow to fit any of 2 pod(s)"

OTHER_FLAVOR = (
    'couldn\'t assign flavors to pod set worker: Flavor "ondemand" does not support '
    "TopologyAwareScheduling"
)


def queues(own: Json, *others: Json, **shared: Any) -> dict[str, Any]:
    """A cohort of these queues."""
    return {
        "cluster_queue": own,
        "cluster_queues": [own, *others],
        "cohort": cohort(**({"spot": 0, "ondemand": 0} | shared)),
    }


def full() -> dict[str, Any]:
    """Everything is taken: spot by the team's own run, on-demand by production's."""
    return queues(
        cluster_queue(spot=16, ondemand=0, used={"spot": 16}),
        cluster_queue("production", spot=0, ondemand=8, used={"ondemand": 8}),
    )


def holders() -> list[Json]:
    own = workload(condition("QuotaReserved"), run_id="big-v1-bbbbbbbb", uid="b", flavor="spot")
    other = workload(
        condition("QuotaReserved"),
        run_id="prod-v2-cccccccc",
        uid="c",
        nodes=1,
        namespace="team-production",
        flavor="ondemand",
    )
    return [own, other]


def quota_verdict(**changes: Any) -> Verdict:
    mine = workload(waits())
    return explain(snapshot(workload=mine, workloads=[mine, *holders()], **(full() | changes)))


def test_exhausted_quota_names_request_free_amount_and_holders(text: Text) -> None:
    verdict = quota_verdict()
    assert verdict.symptom == "quota-exhausted"
    text(verdict.headline)
    text(verdict.evidence)


def test_the_same_run_with_free_quota_is_only_queued() -> None:
    assert explain(snapshot(workload=workload(waits("")))).symptom == "queued"


def test_holders_of_unsuitable_flavors_are_not_listed() -> None:
    mine = workload(waits(), spec=pod_spec(("spot",)))
    taken = snapshot(workload=mine, workloads=[mine, *holders()], **full())
    text = " ".join(explain(taken).evidence)
    assert "big-v1-bbbbbbbb" in text
    assert "prod-v2-cccccccc" not in text


def test_a_finished_run_holds_no_quota() -> None:
    mine, (held, _) = workload(waits()), holders()
    over = workload(condition("Finished"), run_id="over-v1-dddddddd", uid="d", flavor="spot")
    taken = snapshot(workload=mine, workloads=[mine, held, over], **full())
    text = " ".join(explain(taken).evidence)
    assert "big-v1-bbbbbbbb" in text
    assert "over-v1-dddddddd" not in text


def test_a_request_above_the_maximum_quota_never_starts(text: Text) -> None:
    verdict = explain(snapshot(workload=workload(waits(), nodes=3)))
    assert verdict.symptom == "too-big"
    text(verdict.evidence)


def test_a_borrowing_limit_is_distinguished_from_exhausted_quota(text: Text) -> None:
    limited = {"nominalQuota": "0", "borrowingLimit": "8"}
    mine = workload(waits(), nodes=1, spec=pod_spec(("ondemand",)))
    own = cluster_queue(spot=0, ondemand=limited, used={"ondemand": 8})
    free = cluster_queue("production", spot=0, ondemand=16)
    verdict = explain(snapshot(workload=mine, **queues(own, free)))
    assert verdict.symptom == "cost-cap"
    text(verdict.evidence[0])
    taken = cluster_queue("production", spot=0, ondemand=16, used={"ondemand": 16})
    own = cluster_queue(spot=0, ondemand=limited)
    assert explain(snapshot(workload=mine, **queues(own, taken))).symptom == "quota-exhausted"


def test_quota_above_the_lending_limit_is_not_free_for_others() -> None:
    mine = workload(waits(), nodes=1, spec=pod_spec(("ondemand",)))
    own = cluster_queue(spot=0, ondemand=0)
    keeps = {"nominalQuota": "16", "lendingLimit": "8"}
    lender = cluster_queue("production", spot=0, ondemand=keeps, used={"ondemand": 8})
    (room,) = quota.flavor_capacities(snapshot(workload=mine, **queues(own, lender)))
    # The lender uses what it keeps first, so all that it lends is still there.
    assert (room.free, room.maximum) == (Decimal(8), Decimal(8))
    lender = cluster_queue("production", spot=0, ondemand=keeps, used={"ondemand": 16})
    (room,) = quota.flavor_capacities(snapshot(workload=mine, **queues(own, lender)))
    assert (room.free, room.maximum) == (Decimal(0), Decimal(8))


def test_quota_of_the_cohort_itself_is_free_for_all() -> None:
    mine = workload(waits(), nodes=1, spec=pod_spec(("ondemand",)))
    own = cluster_queue(spot=0, ondemand=8, used={"ondemand": 8})
    (room,) = quota.flavor_capacities(snapshot(workload=mine, **queues(own, ondemand=24)))
    assert (room.free, room.maximum) == (Decimal(24), Decimal(32))


def test_affinity_that_fits_no_pool_is_reported_before_quota(text: Text) -> None:
    mine = workload(waits("flavor spot doesn't match node affinity"), spec=pod_spec(("gone",)))
    verdict = explain(snapshot(workload=mine, **full()))
    assert verdict.symptom == "no-flavor"
    text(verdict.evidence)


def test_a_taint_that_is_not_tolerated_is_named(text: Text) -> None:
    spec = pod_spec()
    spec["tolerations"] = []
    verdict = explain(snapshot(workload=workload(waits(), spec=spec)))
    assert verdict.symptom == "no-flavor"
    text(verdict.evidence[0])


def test_tolerations_that_a_flavor_adds_count() -> None:
    spec = pod_spec()
    spec["tolerations"] = []
    kind = flavor("spot")
    kind["spec"]["tolerations"] = [{"key": "dedicated", "operator": "Exists"}]
    taken = snapshot(workload=workload(waits(""), spec=spec), flavors=[kind])
    assert explain(taken).symptom == "queued"


def test_quota_without_nodes_counts_nodes_by_problem(text: Text) -> None:
    bad = {"key": "maintenance", "effect": "NoSchedule"}
    lost = node("spot-2")
    lost["status"]["conditions"] = [condition("Ready", "False")]
    nodes = [
        node("spot-0", "spot", bad),
        node("spot-1", unschedulable=True),
        lost,
        node("cpu", "cpu"),
    ]
    verdict = explain(snapshot(workload=workload(waits(NO_PLACE)), nodes=nodes))
    assert verdict.symptom == "no-nodes"
    text(set(verdict.evidence[:3]))


@pytest.mark.parametrize(("cordoned", "symptom"), [(True, "no-nodes"), (False, "queued")])
def test_nodes_are_counted_where_kueue_reports_on_another_flavor(
    cordoned: bool, symptom: str
) -> None:
    """Kueue goes on with the next flavor, and its message is about the last one."""
    mine = workload(waits(OTHER_FLAVOR))
    own = queues(cluster_queue(spot=16, ondemand=0))
    nodes = [node("spot-0"), node("spot-1", unschedulable=cordoned)]
    assert explain(snapshot(workload=mine, nodes=nodes, **own)).symptom == symptom


def test_a_pool_without_nodes_is_reported_if_nodes_are_readable(text: Text) -> None:
    mine = workload(waits(NO_PLACE))
    verdict = explain(snapshot(workload=mine, nodes=[]))
    text(verdict.evidence[0])
    verdict = explain(snapshot(workload=mine, nodes=[], hidden=frozenset({"nodes"})))
    text(verdict.evidence)


def test_queue_position_is_by_priority_then_age(text: Text) -> None:
    mine = workload(waits(""))
    first = workload(waits(""), run_id="urgent-v1-1", uid="u", priority=5000, age_s=10)
    older = workload(waits(""), run_id="older-v1-2", uid="o", age_s=900)
    younger = workload(waits(""), run_id="younger-v1-3", uid="y", age_s=20)
    foreign = workload(waits(""), run_id="f-v1-4", uid="f", age_s=999, namespace="team-production")
    line = [younger, mine, foreign, older, first]
    verdict = explain(snapshot(workload=mine, workloads=line))
    text(verdict.headline)
    assert [e.split()[3] for e in verdict.evidence] == ["urgent-v1-1", "older-v1-2"]


@pytest.mark.parametrize(
    ("reason", "place"), [("PodsReadyTimeout", 2), ("AdmissionCheck", 2), ("Preempted", 1)]
)
def test_a_run_evicted_before_starting_is_requeued_behind_others(
    reason: str,
    place: int,
    text: Text,
) -> None:
    mine = workload(waits(""), condition("Evicted", "True", reason), age_s=900)
    other = workload(waits(""), run_id="other-v1-1", uid="o", age_s=500)
    taken = snapshot(workload=mine, workloads=[other, mine], **full())
    assert len(runs_ahead(taken)) == place - 1
    text(explain(taken).headline)


def test_a_run_that_was_not_ready_in_time_waits_for_its_backoff(text: Text) -> None:
    evicted = condition("Evicted", "True", "PodsReadyTimeout", "Exceeded the PodsReady timeout x")
    until = (NOW + dt.timedelta(seconds=40)).isoformat()
    mine = workload(waits(""), evicted, requeueState={"count": 2, "requeueAt": until})
    verdict = explain(snapshot(workload=mine))
    assert verdict.symptom == "backoff"
    text(verdict.headline)
    past = workload(waits(""), evicted, requeueState={"count": 2, "requeueAt": NOW.isoformat()})
    assert explain(snapshot(workload=past)).symptom == "queued"


def test_reserved_quota_without_admission_waits_for_provisioned_nodes(text: Text) -> None:
    check = {"name": "gang-scale-up", "state": "Pending", "message": "waiting for capacity"}
    mine = workload(condition("QuotaReserved"), flavor="spot", admissionChecks=[check])
    request = {
        "kind": "ProvisioningRequest",
        "metadata": {
            "name": "request-1",
            "namespace": "team-research",
            "ownerReferences": [{"uid": mine["metadata"]["uid"]}],
        },
        "status": {"conditions": [condition("Accepted", message="accepted by the autoscaler")]},
    }
    verdict = explain(snapshot(workload=mine, provisioning=[request]))
    assert verdict.symptom == "waiting-for-nodes"
    assert "provisioningrequest/request-1" in verdict.evidence[0]
    text(verdict.evidence[0])
    text(verdict.evidence[1])


def test_a_run_that_preempts_others_is_about_to_start() -> None:
    mine = workload(waits("couldn't assign flavors. Pending the preemption of 1 workload(s)"))
    assert explain(snapshot(workload=mine, **full())).symptom == "preempting"


def test_history_names_preemptors_and_reasons(text: Text) -> None:
    (_, preemptor) = holders()
    message = (
        f"Preempted to accommodate a workload (UID: {preemptor['metadata']['uid']}, JobUID: c) due"
        " to reclamation within the cohort; preemptor path: /t/p; preemptee path: /t/r"
    )
    stats = {"evictions": [{"reason": "Preempted", "count": 1, "underlyingCause": ""}]}
    mine = workload(
        waits(""),
        condition("Preempted", "True", "InCohortReclamation", message),
        schedulingStats=stats,
    )
    taken = snapshot(workload=mine, workloads=[mine, preemptor])
    text(history(taken))
    gone = snapshot(workload=mine)
    text(history(gone)[0])


def test_history_names_pods_that_their_node_evicted(text: Text) -> None:
    gone, other = pod(f"{RUN_ID}-worker-0-0-abcde"), pod("big-v1-bbbbbbbb-worker-0-0-abcde")
    events = [
        event(gone, "Evicted", "The node was low on resource: memory. Threshold quantity: 100Mi."),
        event(gone, "Killing", "Stopping container trainer"),
        event(other, "Evicted", "The node was low on resource: ephemeral-storage."),
    ]
    text(history(snapshot(events=events)))


def test_history_distinguishes_preemptions_from_failures(text: Text) -> None:
    status = {"restarts": 3, "restartsCountTowardsMax": 1}
    text(history(snapshot(run=run(status=status))))
