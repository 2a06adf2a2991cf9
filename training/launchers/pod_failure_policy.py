"""Policies of Jobs for failed pods (podFailurePolicy)."""

from __future__ import annotations

from typing import Any, Final

from training import needs
from training.launchers import restarts
from training.launchers.pod import CONTAINER
from training.spec import RunSpec
from trainyard import contract
from trainyard.contract import REPLACED_CODES

DISRUPTED: Final = ("DisruptionTarget", "TerminatedByKueue")
"""Conditions of pods that ended because of their node, not of their program: those that the cluster evicts, and
those that Kueue ends because they wait for a node from which the gang was moved."""


def exit_code_rule(action: str, code: int, container: str = CONTAINER) -> dict[str, Any]:
    """Return a rule of podFailurePolicy for one exit code of one container."""
    codes = {"containerName": container, "operator": "In", "values": [code]}
    return {"action": action, "onExitCodes": codes}


def disruption_rule(action: str) -> dict[str, Any]:
    """Return a rule of podFailurePolicy for pods that ended because of their node."""
    return {
        "action": action,
        "onPodConditions": [{"type": kind, "status": "True"} for kind in DISRUPTED],
    }


def _unprepared(run: RunSpec) -> list[dict[str, Any]]:
    """Return a rule for each Job that a run waits for: its failure is the run's."""
    names = map(needs.container_name, needs.needs(run))
    return [exit_code_rule("FailJob", contract.EXIT_BAD_CONFIG, name) for name in names]


def in_place(run: RunSpec) -> dict[str, Any]:
    """Return the policy of Jobs outside of JobSets, whose pods restart their ranks themselves.

    A bad configuration ends the Job; preemption (by exit code or pod condition) does not count. A pod that ends by
    a code of its own has given up for the gang; one that is killed, or is to be replaced, counts against
    backoffLimit.
    """
    return {
        "rules": [
            exit_code_rule("FailJob", contract.EXIT_BAD_CONFIG),
            exit_code_rule("Ignore", contract.EXIT_PREEMPTED),
            disruption_rule("Ignore"),
            *_unprepared(run),
            _gave_up(),
        ]
    }


def _gave_up(container: str = CONTAINER) -> dict[str, Any]:
    """Return the rule for a pod that restarts its ranks, and does so no more."""
    codes = {"containerName": container, "operator": "NotIn", "values": [*REPLACED_CODES]}
    return {"action": "FailJob", "onExitCodes": codes}


def gang(run: RunSpec, container: str = CONTAINER) -> dict[str, Any]:
    """Return the policy of Jobs in a JobSet: each cause ends the Job, and the JobSet acts on the cause.

    A disrupted pod is not replaced alone: the others would wait for it in a dead collective. A gang of one pod
    restarts its ranks itself, and ends with a code of its own when it gives up.
    """
    return {
        "rules": [
            exit_code_rule("FailJob", contract.EXIT_BAD_CONFIG, container),
            exit_code_rule("FailJob", contract.EXIT_PREEMPTED, container),
            disruption_rule("FailJob"),
            *_unprepared(run),
            *([_gave_up(container)] if restarts.has_one_pod(run) else []),
        ]
    }
