"""The status of a pod, from the state of its containers."""

from __future__ import annotations

from typing import Any

import pytest

from sandbox.node.api import Json
from sandbox.node.status import ContainerView, Verdict, phase, pod_status


def view(name: str = "main", **fields: Any) -> ContainerView:
    return ContainerView(name=name, image="image", **fields)


def ended(code: int, **fields: Any) -> ContainerView:
    return view(terminated={"exitCode": code}, **fields)


RUNNING = view(running_since=1.0, ready=True, started=True)
WAITING = view()
INIT_DONE = ended(0, ready=True)
SIDECAR = view("side", running_since=1.0, ready=True, started=True, sidecar=True)


@pytest.mark.parametrize(
    ("policy", "inits", "mains", "wanted"),
    [
        ("Always", [], [WAITING], "Pending"),
        ("Always", [], [RUNNING, WAITING], "Running"),
        ("Always", [], [ended(0)], "Running"),
        ("Never", [], [ended(0), ended(0)], "Succeeded"),
        ("Never", [], [ended(0), ended(3)], "Failed"),
        ("Never", [], [ended(3), RUNNING], "Running"),
        ("OnFailure", [], [ended(3)], "Running"),
        ("OnFailure", [], [ended(0)], "Succeeded"),
        ("OnFailure", [], [view(last={"exitCode": 1})], "Running"),
        ("Never", [view("i", running_since=1.0)], [WAITING], "Pending"),
        ("Never", [ended(1)], [WAITING], "Failed"),
        ("OnFailure", [ended(1)], [WAITING], "Pending"),
        ("Never", [INIT_DONE], [RUNNING], "Running"),
        ("Never", [view("side", sidecar=True)], [WAITING], "Pending"),
        ("Never", [SIDECAR], [ended(0)], "Succeeded"),
    ],
)
def test_the_phase_follows_from_the_containers_and_the_restart_policy(
    policy: str, inits: list[ContainerView], mains: list[ContainerView], wanted: str
) -> None:
    assert phase(policy, inits, mains) == wanted


@pytest.mark.parametrize(
    ("mains", "wanted"),
    [([ended(0)], "Succeeded"), ([ended(75)], "Failed"), ([WAITING], "Failed")],
)
def test_a_pod_that_is_being_deleted_ends_whatever_its_restart_policy(
    mains: list[ContainerView], wanted: str
) -> None:
    assert phase("Always", [], mains, ended=True) == wanted


def _status(
    inits: list[ContainerView], mains: list[ContainerView], pod: Json | None = None, **more: Any
) -> Json:
    default: Json = {"metadata": {"generation": 3}, "spec": {"restartPolicy": "Never"}}
    times = {"pod_ip": "127.1.0.1", "host_ip": "127.0.0.1", "started": 0.0, "now": 60.0}
    return pod_status(pod or default, inits, mains, **{**times, **more})


def _conditions(status: Json) -> dict[str, str]:
    return {c["type"]: c["status"] for c in status["conditions"]}


def test_waiting_pod_lists_its_unready_containers() -> None:
    status = _status([view("prepare")], [WAITING])
    ready = next(c for c in status["conditions"] if c["type"] == "Ready")
    inited = next(c for c in status["conditions"] if c["type"] == "Initialized")
    assert (ready["reason"], ready["message"]) == (
        "ContainersNotReady",
        "containers with unready status: [main]",
    )
    assert inited["message"] == "containers with incomplete status: [prepare]"


def test_a_condition_that_stays_keeps_its_transition_time() -> None:
    first = _status([], [RUNNING], now=60.0)
    second = _status([], [RUNNING], now=120.0, previous=first["conditions"])
    assert second["conditions"] == first["conditions"]
    third = _status([], [ended(0)], now=180.0, previous=second["conditions"])
    ready = next(c for c in third["conditions"] if c["type"] == "Ready")
    assert ready["lastTransitionTime"] == "1970-01-01T00:03:00Z"


def test_conditions_of_others_are_never_written() -> None:
    pod: Json = {
        "metadata": {},
        "spec": {},
        "status": {"conditions": [{"type": "DisruptionTarget", "status": "True"}]},
    }
    assert "DisruptionTarget" not in _conditions(_status([], [RUNNING], pod))


def test_final_phase_waits_until_all_containers_ended() -> None:
    verdict = Verdict(phase="Failed", reason="DeadlineExceeded", message="too long")
    assert _status([], [RUNNING], verdict=verdict)["phase"] == "Running"
    status = _status([], [ended(0)], verdict=verdict)
    assert (status["phase"], status["reason"]) == ("Failed", "DeadlineExceeded")
