"""Status of a pod, derived from its containers as a kubelet does; pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Literal

from sandbox.node.api import Json

Phase = Literal["Pending", "Running", "Succeeded", "Failed"]
STOPPED = "Pod was terminated in response to imminent node shutdown."
OWN_CONDITIONS = ("PodReadyToStartContainers", "Initialized", "ContainersReady", "Ready")
"""Condition types that a kubelet maintains. Others (PodScheduled, DisruptionTarget) are not touched."""


@dataclass(frozen=True, kw_only=True)
class ContainerView:
    name: str
    image: str
    image_id: str = ""
    container_id: str = ""
    waiting: tuple[str, str] | None = None
    """(reason, message) while it does not run."""
    running_since: float | None = None
    terminated: Json | None = None
    """A ContainerStateTerminated."""
    last: Json | None = None
    """End of the previous attempt: a ContainerStateTerminated."""
    restarts: int = 0
    ready: bool = False
    started: bool = False
    sidecar: bool = False
    """An init container with restartPolicy Always."""
    resources: Json | None = None

    @property
    def exit_code(self) -> int | None:
        return self.terminated["exitCode"] if self.terminated else None


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """A phase that overrides the containers' states: admission, deadline, node lost."""

    phase: Phase
    reason: str
    message: str


def stamp(seconds: float) -> str:
    """Unix seconds as metav1.Time."""
    return datetime.fromtimestamp(int(seconds), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def stamp_seconds(text: str) -> float:
    """metav1.Time as unix seconds."""
    return datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp()


def terminated(
    *, exit_code: int, started: float, finished: float, container_id: str, message: str, reason: str
) -> Json:
    state: Json = {
        "exitCode": exit_code,
        "reason": reason,
        "startedAt": stamp(started),
        "finishedAt": stamp(finished),
        "containerID": container_id,
    }
    if message:
        state["message"] = message
    return state


def phase(
    restart_policy: str,
    inits: Sequence[ContainerView],
    mains: Sequence[ContainerView],
    ended: bool = False,
) -> Phase:
    """Return the pod's phase. `ended`: no container will be started any more."""
    for view in inits:
        if view.sidecar:
            if not view.started and not ended:
                return "Pending"
        elif view.exit_code != 0:
            failed = view.exit_code is not None and restart_policy == "Never"
            return "Failed" if failed or ended else "Pending"
    if _any_running(mains):
        return "Running"
    stopped = [view for view in mains if view.terminated]
    if len(stopped) < len(mains):
        if ended:
            return "Failed"
        return "Running" if any(view.last for view in mains) else "Pending"
    if restart_policy == "Always" and not ended:
        return "Running"
    if all(view.exit_code == 0 for view in stopped):
        return "Succeeded"
    return "Failed" if restart_policy == "Never" or ended else "Running"


def pod_status(
    pod: Json,
    inits: Sequence[ContainerView],
    mains: Sequence[ContainerView],
    *,
    pod_ip: str | None,
    host_ip: str,
    started: float,
    now: float,
    previous: Sequence[Json] = (),
    verdict: Verdict | None = None,
    ended: bool = False,
    stopped: bool = False,
) -> Json:
    """Return the status patch: complete container lists and this agent's conditions.

    `previous`: the conditions reported before; one that stays keeps its lastTransitionTime.
    `stopped`: the containers were stopped with the sandbox, as at a node's shutdown.
    """
    policy = pod["spec"].get("restartPolicy", "Always")
    decided = verdict.phase if verdict else phase(policy, inits, mains, ended)
    if decided in ("Succeeded", "Failed") and _any_running([*inits, *mains]):
        decided, verdict = "Running", None  # a pod ends when no process of it runs
    status: Json = {
        "phase": decided,
        "startTime": stamp(started),
        "hostIP": host_ip,
        "hostIPs": [{"ip": host_ip}],
        "conditions": [
            _condition(kind, true, detail, previous, now)
            for kind, true, detail in _conditions(pod, inits, mains, decided, pod_ip is not None)
        ],
        "observedGeneration": pod["metadata"].get("generation", 1),
    }
    if stopped and decided == "Failed":
        # Lets a Job's podFailurePolicy distinguish this from a failure of the program.
        status["conditions"].append(disruption("TerminationByKubelet", STOPPED, now))
    if verdict and verdict.reason:
        status.update(reason=verdict.reason, message=verdict.message)
    if pod_ip:
        status.update(podIP=pod_ip, podIPs=[{"ip": pod_ip}])
    if mains:
        status["containerStatuses"] = [container_status(view) for view in mains]
    if inits:
        status["initContainerStatuses"] = [container_status(view) for view in inits]
    return status


def disruption(reason: str, message: str, now: float) -> Json:
    condition = {"type": "DisruptionTarget", "status": "True", "lastTransitionTime": stamp(now)}
    return {**condition, "reason": reason, "message": message}


def container_status(view: ContainerView) -> Json:
    status: Json = {
        "name": view.name,
        "image": view.image,
        "imageID": view.image_id,
        "ready": view.ready,
        "started": view.started,
        "restartCount": view.restarts,
        "state": _state(view),
        "lastState": {"terminated": view.last} if view.last else {},
    }
    if view.container_id:
        status["containerID"] = view.container_id
    if view.resources:
        # Reported, not enforced: a process node has no cgroups.
        status["resources"] = view.resources
        if view.resources.get("requests"):
            status["allocatedResources"] = view.resources["requests"]
    return status


def _state(view: ContainerView) -> Json:
    if view.terminated:
        return {"terminated": view.terminated}
    if view.running_since is not None:
        return {"running": {"startedAt": stamp(view.running_since)}}
    reason, message = view.waiting or ("ContainerCreating", "")
    return {"waiting": {"reason": reason, **({"message": message} if message else {})}}


def _conditions(
    pod: Json,
    inits: Sequence[ContainerView],
    mains: Sequence[ContainerView],
    decided: Phase,
    sandbox: bool,
) -> list[tuple[str, bool, Json]]:
    """Return (type, whether true, reason and message) of OWN_CONDITIONS."""
    over = decided in ("Succeeded", "Failed")
    not_inited = [v.name for v in inits if not (v.started if v.sidecar else v.exit_code == 0)]
    sidecars = [v for v in inits if v.sidecar]
    not_ready = [v.name for v in [*sidecars, *mains] if not v.ready]
    done: dict[str, Any] = {}
    if over:
        done = {"reason": "PodCompleted" if decided == "Succeeded" else "PodFailed"}
    inited = {
        "reason": "ContainersNotInitialized",
        **_names_message("incomplete status", not_inited),
    }
    ready = done or {"reason": "ContainersNotReady", **_names_message("unready status", not_ready)}
    return [
        ("PodReadyToStartContainers", sandbox and not over, {}),
        ("Initialized", not not_inited, inited if not_inited else done),
        ("ContainersReady", not (not_ready or over), ready if not_ready or over else {}),
        ("Ready", not (not_ready or over), ready if not_ready or over else {}),
    ]


def _condition(kind: str, true: bool, detail: Json, previous: Sequence[Json], now: float) -> Json:
    status = "True" if true else "False"
    since = stamp(now)
    for old in previous:
        if old["type"] == kind and old.get("status") == status and old.get("lastTransitionTime"):
            since = old["lastTransitionTime"]
    # In a strategic merge patch, null removes the earlier value.
    cleared = {"reason": None, "message": None}
    return {"type": kind, "status": status, "lastTransitionTime": since, **cleared, **detail}


def _any_running(views: Sequence[ContainerView]) -> bool:
    return any(view.running_since is not None for view in views)


def _names_message(what: str, names: list[str]) -> Json:
    return {"message": f"containers with {what}: [{' '.join(names)}]"} if names else {}
