"""Policies of Jobs for failed pods (podFailurePolicy)."""

from __future__ import annotations

from typing import Any, Final

from training import spec
from training.deployment import needs
from training.deployment.launchers.pod import CONTAINER
from training.spec import RunSpec

_KILLED: Final = [137, 143]
"""Exit codes of a container that got SIGKILL, as for memory, or SIGTERM."""


def exit_code_rule(action: str, code: int, container: str = CONTAINER) -> dict[str, Any]:
    """Return a rule of podFailurePolicy for one exit code of one container."""
    codes = {"containerName": container, "operator": "In", "values": [code]}
    return {"action": action, "onExitCodes": codes}


def disruption_rule(action: str) -> dict[str, Any]:
    """Return a rule of podFailurePolicy for pods that the cluster evicts."""
    return {
        "action": action,
        "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}],
    }


def _unprepared(run: RunSpec) -> list[dict[str, Any]]:
    """Return a rule for each Job that a run waits for: its failure is the run's."""
    names = map(needs.container_name, needs.needs(run))
    return [exit_code_rule("FailJob", spec.EXIT_BAD_CONFIG, name) for name in names]


def standalone(run: RunSpec) -> dict[str, Any]:
    """Return the policy of Jobs outside of JobSets: pods are replaced one by one.

    A bad configuration ends the Job; preemption (by exit code or pod condition) does not count; anything else
    counts against backoffLimit.
    """
    return {
        "rules": [
            exit_code_rule("FailJob", spec.EXIT_BAD_CONFIG),
            exit_code_rule("Ignore", spec.EXIT_PREEMPTED),
            disruption_rule("Ignore"),
            *_unprepared(run),
        ]
    }


def in_place(run: RunSpec) -> dict[str, Any]:
    """Return the policy of a gang whose pods restart their ranks themselves.

    A pod that ends by a code of its own has given up for the gang; one that is killed counts against backoffLimit.
    """
    policy = standalone(run)
    codes = {"containerName": CONTAINER, "operator": "NotIn", "values": _KILLED}
    policy["rules"].append({"action": "FailJob", "onExitCodes": codes})
    return policy


def gang(run: RunSpec, container: str = CONTAINER) -> dict[str, Any]:
    """Return the policy of Jobs in a JobSet: each cause ends the Job, and the JobSet acts on the cause.

    A disrupted pod is not replaced alone: the others would wait for it in a dead collective.
    """
    return {
        "rules": [
            exit_code_rule("FailJob", spec.EXIT_BAD_CONFIG, container),
            exit_code_rule("FailJob", spec.EXIT_PREEMPTED, container),
            disruption_rule("FailJob"),
            *_unprepared(run),
        ]
    }
