"""The invariant checker accepts correct histories and finds each violation."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from bench.invariants import InvariantChecker
from infra.domain import naming

FLAVOR = "spot"
NAMESPACE = "team-vision"


class History:
    """Events of one etcd: each has the next revision."""

    def __init__(self, gpus: int = 16) -> None:
        self.checker = InvariantChecker({FLAVOR: gpus})
        self._revisions = itertools.count(100)

    def workload(
        self,
        run: str,
        *,
        size: int = 2,
        admitted: int | None = None,
        kind: str = "MODIFIED",
        **status: Any,
    ) -> None:
        """A run of `size` pods with 8 GPUs each; `admitted`: of how many pods."""
        if admitted is not None:
            usage = {naming.GPU: str(8 * admitted)}
            assignment = {
                "name": "main",
                "count": admitted,
                "flavors": {naming.GPU: FLAVOR},
                "resourceUsage": usage,
            }
            status["admission"] = {"podSetAssignments": [assignment | status.pop("assigned", {})]}
        self.checker.workload(
            kind,
            {
                "metadata": {
                    "uid": f"uid-{run}",
                    "name": f"job-{run}",
                    "namespace": NAMESPACE,
                    "resourceVersion": str(next(self._revisions)),
                    "ownerReferences": [{"name": run}],
                },
                "spec": {"podSets": [{"name": "main", "count": size}]},
                "status": status,
            },
            0.0,
        )

    def pods(self, run: str, *names: str, node: str = "n0", phase: str = "Succeeded") -> None:
        for name in names:
            metadata = {
                "uid": f"{run}-{name}",
                "namespace": NAMESPACE,
                "resourceVersion": str(next(self._revisions)),
                "labels": {naming.RUN_ID: run},
            }
            item = {"metadata": metadata, "spec": {"nodeName": node}, "status": {"phase": phase}}
            self.checker.pod(item)

    def finish(self, run: str, reason: str = "Succeeded") -> None:
        self.workload(run, conditions=[_condition("Finished", reason)])

    def verdict(self) -> list[str]:
        self.checker.close()
        return self.checker.messages


def _condition(kind: str, reason: str, since: str = "t0") -> dict[str, str]:
    return {"type": kind, "status": "True", "reason": reason, "lastTransitionTime": since}


def _good(history: History, run: str = "a") -> None:
    history.workload(run)
    history.workload(run, admitted=2)
    history.pods(run, "0", "1")
    history.finish(run)


def test_a_gang_admitted_as_a_whole_that_finishes_once_is_valid() -> None:
    history = History()
    _good(history)
    assert history.verdict() == []
    assert history.checker.used[FLAVOR] == 0
    assert history.checker.peak_total == 16


def test_two_gangs_one_after_the_other_share_a_quota() -> None:
    history = History(gpus=16)
    _good(history, "a")
    _good(history, "b")
    assert history.verdict() == []


def test_two_gangs_at_once_over_the_quota_are_found() -> None:
    history = History(gpus=16)
    history.workload("a", admitted=2)
    history.workload("b", admitted=2)
    assert history.checker.messages == [
        f"{NAMESPACE}/b is admitted to flavor spot, which has then 32 GPUs in use of 16;"
        " held by a x16, b x16"
    ]


def test_an_admission_over_quota_after_a_restart_is_counted_separately() -> None:
    history = History(gpus=16)
    history.checker.restarting(1.0)
    history.workload("a", admitted=2)
    history.workload("b", admitted=2)
    assert len(history.checker.over_after_restart) == 1
    assert history.checker.violations == 0


def test_quota_of_succeeded_pods_may_be_reused() -> None:
    history = History(gpus=24)
    history.workload("a", admitted=2)
    history.workload("a", admitted=2, reclaimablePods=[{"name": "main", "count": 1}])
    history.workload("b", admitted=2)
    assert history.checker.messages == []


def test_an_admission_in_a_flavor_without_quota_is_found() -> None:
    history = History()
    history.workload("a", admitted=2, assigned={"flavors": {naming.GPU: "stolen"}})
    assert history.checker.messages == [
        f"{NAMESPACE}/a is admitted to flavor stolen, which has then 16 GPUs in use of 0; held by a x16"
    ]


def test_a_partial_admission_is_found() -> None:
    history = History(gpus=32)
    history.workload("a", size=4, admitted=2)
    assert history.checker.messages == [f"{NAMESPACE}/a is admitted in part"]


@pytest.mark.parametrize(
    ("topology", "whole"),
    [
        ({"domains": [{"count": 1}, {"count": 1}]}, True),
        ({"domains": [{"count": 1}]}, False),
        ({"slices": [{"domainCount": 2, "podCounts": {"universal": 1}}]}, True),
        ({"slices": [{"domainCount": 2, "podCounts": {"individual": [1, 1]}}]}, True),
        ({"slices": [{"domainCount": 1, "podCounts": {"universal": 1}}]}, False),
    ],
)
def test_a_partial_placement_is_found(topology: dict[str, Any], whole: bool) -> None:
    history = History()
    history.workload("a", admitted=2, assigned={"topologyAssignment": topology})
    assert (history.checker.messages == []) is whole


def test_a_scheduled_pod_without_admission_is_found() -> None:
    history = History()
    history.workload("a")
    history.pods("a", "placed", phase="Running")
    history.pods("a", "stray", node="", phase="Pending")
    history.workload("a", admitted=2)
    history.pods("a", "0", "1")
    history.finish("a")
    assert history.verdict() == [
        f"{NAMESPACE}/a had a pod on a node (revision 101) without an admission"
    ]


def test_a_pod_scheduled_just_after_an_eviction_is_late() -> None:
    history = History()
    history.workload("a", admitted=2)
    history.workload("a", conditions=[_condition("Evicted", "Preempted")])
    history.pods("a", "late", phase="Running")
    history.workload("a", admitted=2)
    history.pods("a", "0", "1")
    history.finish("a")
    assert history.verdict() == []
    assert history.checker.late_pods == 1


def test_a_gang_that_finishes_with_too_few_pods_is_found() -> None:
    history = History()
    history.workload("a", admitted=2)
    history.pods("a", "0")
    history.pods("a", "1", phase="Failed")
    history.finish("a")
    assert history.verdict() == [f"{NAMESPACE}/a finished, but 1 of its 2 pods succeeded"]


def test_a_gang_that_was_evicted_starts_with_new_pods() -> None:
    history = History()
    history.workload("a", admitted=2)
    history.pods("a", "0", "1")
    evicted = [_condition("Evicted", "Preempted")]
    history.workload("a", admitted=2, conditions=evicted)
    history.workload("a", conditions=evicted)
    history.workload("a", admitted=2)
    history.pods("a", "2", "3")
    history.finish("a")
    assert history.verdict() == []
    assert history.checker.gangs[NAMESPACE, "a"].evictions == {"Preempted": 1}


def test_a_gang_evicted_half_finished_restarts_the_unfinished_pods() -> None:
    history = History(gpus=16)
    half: dict[str, Any] = {"reclaimablePods": [{"name": "main", "count": 1}]}
    history.workload("a", admitted=2)
    history.pods("a", "0", "1")
    history.workload("a", **half)
    history.workload("a", admitted=1, **half)
    assert history.checker.used[FLAVOR] == 8
    history.pods("a", "2")
    history.finish("a")
    assert history.verdict() == []


def test_evictions_are_counted_once_each() -> None:
    history = History()
    for since in ("t1", "t1", "t2"):
        evicted = [_condition("Evicted", "Preempted", since)]
        history.workload("a", admitted=2, conditions=evicted)
    assert history.checker.gangs[NAMESPACE, "a"].evictions == {"Preempted": 2}


def test_a_gang_that_fails_or_never_finishes_is_found() -> None:
    history = History()
    history.workload("a", admitted=2)
    history.pods("a", "0", "1")
    history.finish("a", "Failed")
    history.workload("b")
    assert history.verdict() == [
        f"{NAMESPACE}/a finished 1 times, not once and well",
        f"{NAMESPACE}/b finished 0 times, not once and well",
    ]


def test_a_deleted_workload_releases_its_quota() -> None:
    history = History(gpus=16)
    history.workload("a", admitted=2)
    history.workload("a", admitted=2, kind="DELETED")
    history.workload("b", admitted=2)
    assert history.checker.messages == []
