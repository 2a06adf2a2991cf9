"""Stages that start a Job per pool: its nodes, and how its end is judged."""

from __future__ import annotations

from typing import Any

import pytest

from ops.cluster import ForbiddenError
from ops.objects import Json
from ops.ready import homogeneity, stack_facts
from ops.ready.jobs import SESSION_LABEL
from ops.ready.outcome import Check, Outcome
from ops.ready.pod_results import PodResult, parse_log
from ops.ready.probes import COLLECTIVE, MULTI_NODE, SINGLE_NODE, SMOKE, Probe
from tests.unit.ops.ready_cluster import (
    Clock,
    LiveFake,
    RunJob,
    add_pod,
    condition,
    ends,
    facts,
    job_result,
    make_session,
    nodes,
    passes,
    pool,
    template,
    templates,
    whole,
)
from tests.unit.snapshots import Text


def _look(cluster: LiveFake, probe: Probe, **changes: Any) -> list[Check]:
    return list(probe(make_session(cluster, **changes)))


def _one(cluster: LiveFake, probe: Probe, **changes: Any) -> Check:
    [check] = _look(cluster, probe, **changes)
    return check


def test_a_smoke_test_runs_on_all_nodes_and_reports_facts(text: Text) -> None:
    cluster = whole()
    check = _one(cluster, SMOKE)
    assert check.outcome is Outcome.PASSED
    text(check.seen)
    assert check.facts["nodes"] == ["spot-0", "spot-1"]


@pytest.mark.parametrize("probe", [SMOKE, COLLECTIVE, SINGLE_NODE, MULTI_NODE])
def test_what_passes_on_nodes_without_gpus_of_their_own_is_simulated(probe: Probe) -> None:
    cluster = whole()
    cluster.put(facts(pool("spot", nodes="process")))
    check = _one(cluster, probe)
    assert check.outcome is Outcome.SIMULATED and check.remedy == ""
    assert _one(whole(), probe).outcome is Outcome.PASSED


def test_what_one_pod_computed_on_its_cpu_is_simulated_on_machines_too() -> None:
    def run_job(cluster: LiveFake, job: Json) -> None:
        passes(cluster, job)
        cluster.logs["smoke-spot-c1-1"] = cluster.logs["smoke-spot-c1-1"].replace("cuda", "cpu")

    assert _one(whole(run_job), SMOKE).outcome is Outcome.SIMULATED


def test_a_job_follows_its_template_and_is_deleted_afterwards() -> None:
    cluster = whole()
    _one(cluster, SINGLE_NODE)
    [job] = cluster.created
    assert job["metadata"]["name"] == "train-single-spot-c1"
    assert job["metadata"]["labels"][SESSION_LABEL] == "c1"
    assert "ownerReferences" not in job["metadata"]
    assert cluster.jobs() == []


def test_the_lowest_bandwidth_of_all_nodes_is_recorded(text: Text) -> None:
    def run_job(cluster: LiveFake, job: Json) -> None:
        passes(cluster, job)
        cluster.logs["collective-spot-c1-1"] = cluster.logs["collective-spot-c1-1"].replace(
            "9.5", "2.25"
        )

    check = _one(whole(run_job), COLLECTIVE)
    assert check.facts["bandwidth_gbps"] == 2.25
    text(check.seen)


def test_the_network_of_the_collectives_and_the_lockable_memory_are_reported() -> None:
    def run_job(cluster: LiveFake, job: Json) -> None:
        common = {"validation": "collective", "ok": True, "transport": "efa", "memlock": 1 << 43}
        ends(cluster, job, [{**common, "node": f"spot-{index}"} for index in range(2)])

    check = _one(whole(run_job), COLLECTIVE)
    assert check.outcome is Outcome.PASSED
    assert check.seen.endswith(": transport efa, memlock 8.796 TB")
    assert check.facts["transport"] == "efa"


def test_nodes_beyond_the_templates_count_are_checked(text: Text) -> None:
    items = [facts(pool("spot", 1, 9)), *nodes("spot", 5), template("smoke", "spot", 1)]
    cluster = LiveFake(*items)
    text(_one(cluster, SMOKE).seen)
    spec = cluster.created[0]["spec"]
    assert (spec["parallelism"], spec["completions"]) == (5, 5)
    assert spec["template"]["spec"]["containers"][0]["env"][0]["value"] == "5"


def _busy(node: str) -> Json:
    limits = {"limits": {"nvidia.com/gpu": "1"}}
    return {
        "kind": "Pod",
        "metadata": {"name": f"run-on-{node}", "namespace": "team-research"},
        "spec": {"nodeName": node, "containers": [{"name": "trainer", "resources": limits}]},
        "status": {"phase": "Running"},
    }


def test_nodes_in_use_by_runs_are_skipped(text: Text) -> None:
    cluster = whole()
    cluster.put(_busy("spot-0"))
    text(_one(cluster, SMOKE).seen)
    check = _one(cluster, MULTI_NODE)
    assert check.outcome is Outcome.SKIPPED
    text(check.seen)


def test_a_pool_scaled_to_zero_is_skipped_unless_named(text: Text) -> None:
    cluster = LiveFake(facts(pool("spot", 0, 50)), *templates("spot"))
    check = _one(cluster, SMOKE)
    assert check.outcome is Outcome.SKIPPED
    text(check.seen)
    assert cluster.created == []
    assert _one(cluster, SMOKE, allow_scale_up=True).outcome is Outcome.PASSED


def test_pools_without_templates_are_reported_separately(text: Text) -> None:
    fake = LiveFake(facts(pool("fleet", nodes="kwok")))
    text(_one(fake, SMOKE).seen)
    single = LiveFake(facts(pool("one", 1, 1)), *nodes("one", 1))
    text(_one(single, MULTI_NODE).seen)
    check = _one(single, SMOKE)
    assert check.outcome is Outcome.FAILED
    text(check.seen)
    assert _look(LiveFake(facts(pool("cpu", workload="cpu"))), SMOKE) == []


def test_a_shared_gpu_pool_skips_gang_checks(text: Text) -> None:
    shared = pool("spot", sharing="timeSlicing")
    kept = [one for one in templates("spot") if "train-single" in one["metadata"]["name"]]
    cluster = LiveFake(facts(shared), *nodes("spot"), *kept)
    for probe in (COLLECTIVE, MULTI_NODE):
        check = _one(cluster, probe)
        assert check.outcome is Outcome.SKIPPED
        text(check.seen)
    assert _one(cluster, SINGLE_NODE).outcome is Outcome.PASSED
    assert _one(cluster, SMOKE).outcome is Outcome.FAILED


def test_a_failed_result_line_is_the_cause_with_node_and_remedy(text: Text) -> None:
    line = {"validation": "smoke", "node": "spot-1", "ok": False, "cause": "XID 79", "remedy": "go"}
    good = {"validation": "smoke", "node": "spot-0", "ok": True}
    check = _one(whole(job_result("smoke", good, line)), SMOKE)
    assert check.outcome == Outcome.FAILED
    text(check.seen)
    assert check.remedy == "go"


def test_a_job_that_fails_without_result_line_quotes_its_log_tail(text: Text) -> None:
    check = _one(whole(job_result("smoke", "Illegal instruction\x1b[2J")), SMOKE)
    assert check.outcome is Outcome.FAILED
    text(check.seen)


def test_succeeded_pods_without_result_line_fail(text: Text) -> None:
    check = _one(whole(job_result("smoke", "all fine", well=True)), SMOKE)
    assert check.outcome is Outcome.FAILED
    text(check.seen)


def test_a_job_rejected_by_a_policy_fails_and_leaves_nothing_to_delete(text: Text) -> None:
    def refuses(cluster: LiveFake, job: Json) -> None:
        del cluster.kept[("Job", stack_facts.NAMESPACE, job["metadata"]["name"])]
        raise ForbiddenError("POST jobs: images come by digest")

    cluster = whole(refuses)
    check = _one(cluster, SMOKE)
    assert check.outcome is Outcome.FAILED
    text(check.seen)
    assert cluster.deleted == []


def _held(**status: Any) -> RunJob:
    """Jobs wait in their queue, with Workloads of this status."""

    def run_job(cluster: LiveFake, job: Json) -> None:
        job["spec"]["suspend"] = True
        owner = {"name": job["metadata"]["name"], "uid": "u", "controller": True}
        metadata = {"name": "w", "namespace": stack_facts.NAMESPACE, "ownerReferences": [owner]}
        cluster.put({"kind": "Workload", "metadata": metadata, "status": status})

    return run_job


def test_a_job_held_by_its_queue_quotes_the_queue(text: Text) -> None:
    waits = condition("QuotaReserved", "False", message="no room")
    check = _one(whole(_held(conditions=[waits])), SMOKE)
    assert check.outcome == Outcome.FAILED
    text(check.seen)
    text(check.remedy)


def test_a_preempted_job_is_inconclusive(text: Text) -> None:
    stats = {"evictions": [{"reason": "Preempted", "count": 1}]}
    check = _one(whole(_held(schedulingStats=stats)), SMOKE)
    assert check.outcome is Outcome.SKIPPED
    text(check.seen)


def test_a_job_without_pods_quotes_the_rejection(text: Text) -> None:
    def run_job(cluster: LiveFake, job: Json) -> None:
        about = {"uid": job["metadata"]["uid"]}
        cluster.put(
            {
                "kind": "Event",
                "metadata": {"name": "e", "namespace": stack_facts.NAMESPACE},
                "reason": "FailedCreate",
                "message": "denied",
                "involvedObject": about,
            }
        )

    text(_one(whole(run_job), SMOKE).seen)


def _pending(**status: Any) -> Any:
    def run_job(cluster: LiveFake, job: Json) -> None:
        add_pod(cluster, job, 0, "Pending")
        [pod] = [item for (kind, _, _), item in cluster.kept.items() if kind == "Pod"]
        pod["status"] |= status

    return run_job


def test_an_unschedulable_pod_quotes_the_scheduler(text: Text) -> None:
    placed = condition("PodScheduled", "False", message="0/3 nodes are available")
    check = _one(whole(_pending(conditions=[placed])), SMOKE)
    text(check.seen)


def test_an_image_that_cannot_be_pulled_ends_the_wait_at_once(text: Text) -> None:
    waiting = {"waiting": {"reason": "ImagePullBackOff", "message": "no such tag"}}
    clock = Clock()
    cluster = whole(_pending(containerStatuses=[{"name": "check", "state": waiting}]))
    check = _one(cluster, SMOKE, jobs=make_session(cluster, clock).jobs)
    text(check.seen)
    assert clock.now == 0


def test_a_job_that_times_out_is_deleted(text: Text) -> None:
    cluster = whole(lambda c, job: add_pod(c, job, 0, "Running"))
    check = _one(cluster, SMOKE)
    text(check.seen)
    assert cluster.jobs() == []


def test_a_job_deleted_by_others_is_reported(text: Text) -> None:
    def run_job(cluster: LiveFake, _: Json) -> None:
        del cluster.kept[("Job", stack_facts.NAMESPACE, "smoke-spot-c1")]

    cluster = whole(run_job)
    text(_one(cluster, SMOKE).seen)


def test_the_lowest_speed_of_all_ranks_is_reported(text: Text) -> None:
    line = {"validation": "train-multi", "ok": True, "device": "cuda", "world_size": 1}
    lines = [{**line, "node": f"spot-{n}", "tokens_per_s": 900 - n} for n in range(2)]
    check = _one(whole(job_result("train-multi", *lines, well=True)), MULTI_NODE)
    text(check.seen)


@pytest.mark.parametrize(
    ("facts", "shown"),
    [
        ({"runs": 1, "restored": 1, "bytes": 12_938_606}, "1 run, 1 restored, 12.94 MB"),
        ({"runs": 3, "restored": 2, "bytes": 1_400_000_000_000}, "3 runs, 2 restored, 1.4 TB"),
        ({"bytes": 999}, "999 bytes"),
        ({"bytes": 0, "runs": "x"}, "runs x, 0 bytes"),
    ],
)
def test_facts_are_formatted_in_readable_units(facts: Json, shown: str) -> None:
    line = PodResult(ok=True, pod="p", facts=facts)
    assert line.text("runs", "restored", "bytes") == shown


@pytest.mark.parametrize("log", ["", "no JSON", "{broken", '{"other": 1}', '["validation"]'])
def test_only_result_lines_of_a_validation_count(log: str) -> None:
    assert parse_log(log, "pod") is None
    found = parse_log(f'{{"validation": "smoke", "ok": true}}\n{log}', "pod")
    assert found is not None and found.ok


def test_ok_must_be_the_boolean_true() -> None:
    found = parse_log('{"validation": "smoke", "ok": "true"}', "pod")
    assert found is not None and not found.ok


def _lines(*drivers: str, **more: Any) -> list[PodResult]:
    return [
        PodResult(
            ok=True, pod=f"p{n}", node=f"n{n}", facts={"driver": driver, "model": "L4", **more}
        )
        for n, driver in enumerate(drivers)
    ]


def _alike(lines: list[PodResult], *types: str) -> Check:
    stack = facts(pool("spot", instanceTypes=list(types or ["g6.xlarge"])))
    return homogeneity.check_pool(stack_facts.parse(stack["data"][stack_facts.KEY]).pools[0], lines)


def test_homogeneous_nodes_pass_and_the_deviating_one_is_named(text: Text) -> None:
    check = _alike(_lines("580.1", "580.1"))
    assert check.outcome == Outcome.PASSED
    text(check.seen)
    check = _alike(_lines("580.1", "570.9", "580.1"))
    assert check.outcome is Outcome.FAILED


def test_pools_of_several_gpu_models_may_differ_in_the_model_only(text: Text) -> None:
    lines = [*_lines("580.1"), PodResult(ok=True, pod="x", node="x", facts={"model": "A10G"})]
    assert _alike(lines).outcome is Outcome.FAILED
    check = _alike(lines, "g6.xlarge", "g5.xlarge")
    assert check.outcome is Outcome.PASSED
    text(check.seen)


def test_a_single_node_is_homogeneous() -> None:
    assert _alike(_lines("580.1")).outcome is Outcome.SKIPPED
