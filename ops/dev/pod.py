"""A dev pod as the Job that Kueue queues. What may be one: infra/tenancy/admission/dev_pods.py."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from infra.domain import naming
from infra.domain.dev_pods import ENDING_S, MAX_HOURS, NAME_MAX, home, job_name, lowest
from infra.domain.platform import Platform
from infra.domain.pools import NodePool, placed_alike
from infra.kubernetes import pod_security
from infra.kubernetes.objects import Manifest, metadata
from ops.dev import session as dev_session
from training import placement
from training.launchers import pod
from training.spec import Resources
from trainyard import contract

CONTAINER: Final = "dev"
_NAME: Final = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
_CPU_ONLY: Final = Resources(cpu="2", memory="4Gi", shm="1Gi")
_KEPT_S: Final = 24 * 3600
"""How long an ended dev pod is listed."""
_JOB_UID: Final = "batch.kubernetes.io/controller-uid"
"""Label that the Job controller puts on pods."""


class BadRequest(ValueError):
    """Options that cannot be met: one line per mistake."""


@dataclass(frozen=True, kw_only=True)
class DevRequest:
    """What a user asks for."""

    user: str
    """As the API server knows them."""
    team: str
    name: str
    image: str
    """By digest."""
    gpus: int
    gpu_model: str = ""
    """As in the label gpu.model of nodes; empty: any."""
    hours: float
    idle_minutes: float
    """0: never ends for being idle."""
    writes_data: bool = False
    """Whether it may change datasets, as transfer pods do."""

    @property
    def seconds(self) -> int:
        return round(self.hours * 3600)


def mistakes(request: DevRequest, platform: Platform) -> list[str]:
    found = []
    if len(request.name) > NAME_MAX or not _NAME.fullmatch(request.name):
        found.append(
            f"NAME: got {request.name!r}; must be at most {NAME_MAX} lower-case letters, digits and dashes; "
            "choose another"
        )
    if not 60 <= request.seconds <= MAX_HOURS * 3600:
        found.append(
            f"--hours: got {request.hours:g}; must be more than a minute and at most {MAX_HOURS}; lower it"
        )
    if request.idle_minutes < 0:
        found.append(f"--idle-minutes: got {request.idle_minutes:g}; must be 0 (never) or more")
    most = max((pool.gpus_per_node for pool in platform.gpu_pools(request.team)), default=0)
    if not 0 <= request.gpus <= most:
        found.append(
            f"--gpus: got {request.gpus}; a dev pod is on one node, so 0 to {most} are valid for team "
            f"{request.team}; lower it"
        )
    models = sorted({m for pool in platform.gpu_pools(request.team) for m in pool.gpu_models})
    if request.gpu_model and request.gpu_model not in models:
        found.append(
            f"--gpu-model: got {request.gpu_model!r}; must be one of {', '.join(models) or 'none'}; choose one"
        )
    elif request.gpus and 0 < request.gpus <= most and not _pools(request, platform):
        found.append(
            f"--gpus: got {request.gpus}; no {request.gpu_model} node has so many; lower it, or choose another "
            "--gpu-model"
        )
    if "@sha256:" not in request.image:
        found.append(
            f"--image: got {request.image!r}; must be a reference by digest; append @sha256:..."
        )
    elif not any(
        request.image.startswith((f"{one}/", f"{one}@", f"{one}:")) for one in platform.registries
    ):
        valid = ", ".join(platform.registries) or "none"
        found.append(
            f"--image: got {request.image!r}; allowed registries and repositories: {valid}; choose another"
        )
    if request.gpus and not platform.teams[request.team].cluster_queue:
        found.append(
            f"--gpus: this stack's scheduler is {platform.scheduler.value}; dev pods with GPUs require kueue; "
            "use --gpus 0"
        )
    return found


def job(request: DevRequest, platform: Platform) -> Manifest:
    """Return the Job. Raises BadRequest."""
    if found := mistakes(request, platform):
        raise BadRequest("\n".join(found))
    priority = lowest(platform.priorities)
    labels = {**naming.object_labels("dev", request.team), naming.DEV: "true"}
    labels[naming.MANAGED_BY] = naming.PROJECT
    owner = {naming.LAUNCHED_BY: request.user}
    deadline = min(request.seconds + ENDING_S, MAX_HOURS * 3600)
    queue = {
        naming.QUEUE_NAME: platform.teams[request.team].local_queue,
        naming.WORKLOAD_PRIORITY: priority,
        naming.MAX_EXEC_SECONDS: str(deadline),
    }
    pools = _pools(request, platform)
    packed = request.gpus and all(pool.topology for pool in pools)
    near = {naming.PREFERRED_TOPOLOGY: naming.ZONE} if packed else {}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": metadata(
            job_name(request.user, request.name),
            namespace=platform.teams[request.team].namespace,
            labels=labels | (queue if request.gpus else {}),
            annotations=owner,
        ),
        "spec": {
            "parallelism": 1,
            "completions": 1,
            "backoffLimit": 0,
            "activeDeadlineSeconds": deadline,
            "ttlSecondsAfterFinished": _KEPT_S,
            **({"suspend": True} if request.gpus else {}),
            "template": {
                "metadata": {"labels": labels, "annotations": {**owner, **near}},
                "spec": _pod_spec(request, platform, pools, priority)
                # Also of the pod: the team's quota of dev pods counts pods that have it.
                | {"activeDeadlineSeconds": deadline},
            },
        },
    }


def _pools(request: DevRequest, platform: Platform) -> tuple[NodePool, ...]:
    """Return the GPU pools whose nodes have enough GPUs of the model."""
    fitting = platform.gpu_pools(request.team) if request.gpus else ()
    return placed_alike(
        pool
        for pool in fitting
        if pool.gpus_per_node >= request.gpus and request.gpu_model in ("", *pool.gpu_models)
    )


def _pod_spec(
    request: DevRequest, platform: Platform, pools: tuple[NodePool, ...], priority: str
) -> dict[str, Any]:
    team = platform.teams[request.team]
    sizes = placement.share_of_node(request.gpus, pools) if request.gpus else _CPU_ONLY
    return {
        "restartPolicy": "Never",
        "serviceAccountName": team.service_account,
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "priorityClassName": priority,
        "terminationGracePeriodSeconds": 30,
        "securityContext": pod_security.pod_security_with_volumes(),
        **_place(request, platform, pools),
        "containers": [_container(request, sizes)],
        "volumes": [
            {"name": name, "persistentVolumeClaim": {"claimName": claim}}
            for name, claim in (
                ("checkpoints", team.checkpoints_claim),
                ("datasets", team.datasets_claim),
            )
        ]
        + [
            {"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": sizes.shm}},
            {"name": "tmp", "emptyDir": {}},
            {"name": "scratch", "emptyDir": {}},
        ],
    }


def _place(request: DevRequest, platform: Platform, pools: tuple[NodePool, ...]) -> dict[str, Any]:
    if pools:
        # Kueue may choose among the pools of the queue, of which some have smaller nodes or other GPUs.
        names = {"key": naming.POOL, "operator": "In", "values": [pool.name for pool in pools]}
        model = {"key": naming.GPU_MODEL, "operator": "In", "values": [request.gpu_model]}
        terms = [{"matchExpressions": [names, *([model] if request.gpu_model else [])]}]
        required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
        return {
            "tolerations": placement.tolerations(pools),
            "affinity": {"nodeAffinity": required},
        }
    cpu = platform.cpu_pool
    return {"nodeSelector": {naming.POOL: cpu.name}} if cpu else {}


def _container(request: DevRequest, sizes: Resources) -> dict[str, Any]:
    amounts = {"cpu": sizes.cpu, "memory": sizes.memory}
    if request.gpus:
        amounts[naming.GPU] = str(request.gpus)
    mounts = {
        "checkpoints": contract.CHECKPOINT_MOUNT,
        "shm": "/dev/shm",
        "tmp": "/tmp",
        "scratch": contract.SCRATCH_MOUNT,
    }
    program = Path(dev_session.__file__).read_text(encoding="utf-8")
    limits = [str(request.seconds), str(round(request.idle_minutes * 60))]
    return {
        "name": CONTAINER,
        "image": request.image,
        "imagePullPolicy": "IfNotPresent",
        "command": ["python3", "-c", program, *limits],
        "workingDir": "/tmp",
        "env": [
            {"name": "HOME", "value": f"{contract.CHECKPOINT_MOUNT}/{home(request.user)}"},
            {
                "name": dev_session.SESSION_ENV,
                "valueFrom": {"fieldRef": {"fieldPath": f"metadata.labels['{_JOB_UID}']"}},
            },
            {"name": "TRAINYARD_DATA", "value": contract.DATA_MOUNT},
            {"name": "TRAINYARD_SCRATCH", "value": contract.SCRATCH_MOUNT},
            {"name": "TRAINYARD_TEAM", "value": request.team},
        ],
        "resources": {"requests": dict(amounts), "limits": dict(amounts)},
        "volumeMounts": [
            *({"name": name, "mountPath": path} for name, path in mounts.items()),
            {"name": "datasets", "mountPath": contract.DATA_MOUNT}
            | ({} if request.writes_data else {"readOnly": True}),
        ],
        "securityContext": pod.restricted(),
    }
