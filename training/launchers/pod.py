"""What the pods of every job kind have in common: the container of the ranks, its volumes, its securityContext."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from infra.domain import naming
from infra.domain.platform import Platform
from infra.kubernetes import pod_security
from infra.kubernetes.objects import Manifest, metadata
from training import needs, placement
from training.gangs import Gang, gang_backend
from training.launchers import gate, group, program
from training.spec import RunSpec
from trainyard import contract

CONTAINER: Final = "trainer"
COMPLETION_INDEX: Final = f"metadata.labels['{naming.JOB_INDEX}']"
"""Field of a pod of an Indexed Job with its index."""


def labels(run: RunSpec) -> dict[str, str]:
    return {
        naming.RUN_ID: run.run_id,
        naming.RUN: run.name,
        naming.RUN_VERSION: str(run.version),
        naming.TEAM: run.team,
        naming.TIER: run.tier,
        naming.LAUNCHER: run.job_kind,
        naming.PART_OF: naming.PROJECT,
        naming.MANAGED_BY: naming.PROJECT if run.sweep else "pulumi",
        **({naming.SWEEP: run.sweep} if run.sweep else {}),
        **group.number_label(run),
    }


def run_metadata(run: RunSpec, platform: Platform) -> Manifest:
    """Return ObjectMeta of the run's own object, or of a group's; Pulumi does not wait for runs to end."""
    return metadata(
        run.gang_id,
        namespace=platform.teams[run.team].namespace,
        labels=labels(run)
        | group.run_labels(run)
        | gang_backend(platform.scheduler).run_labels(gang(run, platform)),
        annotations={naming.SKIP_AWAIT: "true"},
    )


def environment(run: RunSpec, platform: Platform) -> list[dict[str, Any]]:
    """Return the container's environment, sorted by name."""
    pools = placement.eligible_pools(run, platform)
    compiled = f"{run.run_dir}/.compiled"
    variables = {
        # The root file system is read-only; libraries keep their caches under HOME.
        "HOME": "/tmp",
        # Not under HOME, which ends with the pod: the next attempt would compile again.
        "TORCHINDUCTOR_CACHE_DIR": f"{compiled}/inductor",
        "TRITON_CACHE_DIR": f"{compiled}/triton",
        **_queue_env(run),
        "OMP_NUM_THREADS": str(run.config.get("threads", 1)),
        "PYTHONUNBUFFERED": "1",
        "TOKENIZERS_PARALLELISM": "false",
        "TORCH_DISTRIBUTED_DEBUG": "INFO",
        **placement.network_env(run, pools),
        **placement.network_settings(run),
    }
    return [{"name": name, "value": variables[name]} for name in sorted(variables)]


def _queue_env(run: RunSpec) -> dict[str, str]:
    """Return the number of the GPU's hardware queues, if it is not left to CUDA.

    Tensor parallelism exchanges in each layer, between kernels that wait for the result: one queue keeps the order
    of issue. With several, as FSDP2 needs, gathers of the next layer overlap with the computation of this one.
    A program chooses by its own `env`.
    """
    in_order = run.program is None and run.parallelism.get("tensor", 1) > 1
    return {"CUDA_DEVICE_MAX_CONNECTIONS": "1"} if in_order else {}


def secret_environment(run: RunSpec, platform: Platform) -> list[dict[str, Any]]:
    """Return variables from the run's secrets; only the kubelet reads their values."""
    return secret_variables(run.secrets, platform.teams[run.team].secrets)


def secret_variables(
    names: Sequence[str], known: Mapping[str, tuple[str, ...]]
) -> list[dict[str, Any]]:
    """Return variables from these secrets of a team. `known`: the variables of each."""
    return named_variables({key: name for name in names for key in known[name]})


def named_variables(secrets: Mapping[str, str]) -> list[dict[str, Any]]:
    """Return variables from secrets of a team. `secrets`: the secret of each variable."""
    return [
        {"name": key, "valueFrom": {"secretKeyRef": {"name": name, "key": key}}}
        for key, name in secrets.items()
    ]


def place_environment() -> list[dict[str, Any]]:
    """Return the node, name and address of the pod: a run names ranks by them, and its pods connect."""
    fields = {
        contract.NODE_NAME_ENV: "spec.nodeName",
        contract.POD_NAME_ENV: "metadata.name",
        contract.POD_IP_ENV: "status.podIP",
    }
    return [
        {"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}}
        for name, path in fields.items()
    ]


def metrics_environment() -> list[dict[str, Any]]:
    """Return the address and port on which the leading rank serves metrics: those of its own pod."""
    own = {"fieldRef": {"fieldPath": "status.podIP"}}
    return [
        {"name": contract.METRICS_ADDRESS_ENV, "valueFrom": own},
        {"name": contract.METRICS_PORT_ENV, "value": str(naming.METRICS_PORT)},
    ]


def resources(run: RunSpec, platform: Platform) -> dict[str, dict[str, str]]:
    pools = placement.eligible_pools(run, platform)
    sizes = placement.pod_resources(run, pools)
    amounts = {
        "cpu": sizes.cpu,
        "memory": sizes.memory,
        naming.GPU: str(run.processes_per_node),
    }
    devices = placement.network_devices(run, pools)
    amounts |= {name: str(number) for name, number in devices.items()}
    return {"requests": dict(amounts), "limits": dict(amounts)}


def gang(run: RunSpec, platform: Platform) -> Gang:
    return Gang(run=run, platform=platform, requests=resources(run, platform)["requests"])


def restricted() -> dict[str, Any]:
    """Return a container's securityContext for Pod Security's restricted level."""
    return {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
        "readOnlyRootFilesystem": True,
    }


def _volumes(run: RunSpec, platform: Platform) -> list[dict[str, Any]]:
    team = platform.teams[run.team]
    shm = placement.pod_resources(run, placement.eligible_pools(run, platform)).shm
    return [
        {"name": "config", "configMap": {"name": run.run_id}},
        {
            "name": "checkpoints",
            "persistentVolumeClaim": {"claimName": team.checkpoints_claim},
        },
        {"name": "datasets", "persistentVolumeClaim": {"claimName": team.datasets_claim}},
        {"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": shm}},
        {"name": "tmp", "emptyDir": {}},
        {"name": "scratch", "emptyDir": _scratch(run, platform)},
        *program.volumes(run),
    ]


def _scratch(run: RunSpec, platform: Platform) -> dict[str, str]:
    """Return the emptyDir on the node's disk: with a limit where every eligible pool has local NVMe.

    A limit of the volume instead of a request of ephemeral-storage: Kueue admits no run that requests what
    its queue has no quota of, and the disks of existing nodes are unknown.
    """
    size = placement.scratch_gib(run, placement.eligible_pools(run, platform))
    return {"sizeLimit": f"{size}Gi"} if size else {}


def _mounts(run: RunSpec) -> list[dict[str, Any]]:
    return [
        {"name": "config", "mountPath": contract.CONFIG_MOUNT, "readOnly": True},
        {"name": "checkpoints", "mountPath": contract.CHECKPOINT_MOUNT},
        {"name": "datasets", "mountPath": contract.DATA_MOUNT, "readOnly": True},
        {"name": "shm", "mountPath": "/dev/shm"},
        {"name": "tmp", "mountPath": "/tmp"},
        {"name": "scratch", "mountPath": contract.SCRATCH_MOUNT},
        *program.mounts(run),
    ]


def container(
    run: RunSpec,
    platform: Platform,
    words: Sequence[str],
    *,
    name: str = CONTAINER,
    more_env: Sequence[Mapping[str, Any]] = (),
) -> dict[str, Any]:
    """Return the container of the ranks; a program's image has a working directory of its own."""
    folder = {} if run.program else {"workingDir": contract.WORKSPACE}
    return {
        "name": name,
        "image": run.image,
        "imagePullPolicy": "IfNotPresent",
        "command": list(words),
        **folder,
        "env": [
            *environment(run, platform),
            *secret_environment(run, platform),
            *(dict(e) for e in more_env),
            *gate.environment(run),
            *group.environment(run),
            *metrics_environment(),
            *place_environment(),
            *_added(platform, "env"),
        ],
        "ports": [{"name": naming.METRICS_PORT_NAME, "containerPort": naming.METRICS_PORT}],
        "resources": resources(run, platform),
        "volumeMounts": [*_mounts(run), *_added(platform, "volumeMounts")],
        **group.readiness(run),
        "securityContext": restricted(),
    }


def worker(
    run: RunSpec,
    platform: Platform,
    rendezvous_host: str | None,
    *,
    name: str = CONTAINER,
    more_env: Sequence[Mapping[str, Any]] = (),
    node_rank: str = "",
) -> dict[str, Any]:
    """Return the container that runs the ranks of a node.

    `rendezvous_host`: the first pod's DNS name; None: a run of one node. `node_rank`: field of the pod with the
    node's index; default: it is the first.
    """
    own: list[Mapping[str, Any]] = [
        *more_env,
        *program.environment(run, platform, rendezvous_host),
        *program.node_rank_env(node_rank),
    ]
    words = [*program.COMMAND]
    if not run.program:  # whose image has no measurement
        words = gate.before(run, rendezvous_host, words)
    return container(run, platform, words, name=name, more_env=own)


def pod_spec(
    run: RunSpec, platform: Platform, main: Mapping[str, Any], *, restart: str = "Never"
) -> dict[str, Any]:
    pools = placement.eligible_pools(run, platform)
    sidecars = [one | {"image": run.image} for one in _added(platform, "initContainers")]
    initial = [*sidecars, *needs.init_containers(run, restricted())]
    return {
        "restartPolicy": restart,
        "serviceAccountName": platform.teams[run.team].service_account,
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "priorityClassName": run.priority or platform.default_priority[run.tier],
        "terminationGracePeriodSeconds": run.grace.termination_grace_s,
        "securityContext": pod_security.pod_security_with_volumes(),
        "tolerations": placement.tolerations(pools),
        "affinity": placement.affinity(
            run, pools, in_order=not gang_backend(platform.scheduler).orders_pools
        ),
        **({"initContainers": initial} if initial else {}),
        "containers": [dict(main)],
        "volumes": [*_volumes(run, platform), *_added(platform, "volumes")],
    }


def _added(platform: Platform, field: str) -> list[dict[str, Any]]:
    """Additions of the platform to a field of every pod, or of its trainer's container."""
    return list(platform.pod_additions.get(field, []))


def template(
    run: RunSpec, platform: Platform, main: Mapping[str, Any], *, restart: str = "Never"
) -> dict[str, Any]:
    pools = placement.eligible_pools(run, platform)
    spec = pod_spec(run, platform, main, restart=restart)
    gangs = gang_backend(platform.scheduler)
    member = gangs.membership(gang(run, platform), spec)
    near = gangs.topology(run, pools)
    return {
        "metadata": {
            "labels": {**labels(run), naming.WORKER_OF: run.gang_id, **member.labels},
            "annotations": {
                **near,
                **member.annotations,
                **({naming.DEADLINE: run.deadline} if run.deadline else {}),
            },
        },
        "spec": {**spec, **member.spec},
    }


def with_protocols(template: dict[str, Any]) -> dict[str, Any]:
    """Return the template with the protocol of each port, for kinds whose CRD sets no defaults.

    The API server sets it in Kueue's copy of the template. Kueue takes the difference for a change of the run: it
    deletes its Workload and makes a new one, for ever.
    """
    spec = template["spec"]
    for container in [*spec.get("initContainers", []), *spec["containers"]]:
        if "ports" in container:
            container["ports"] = [{"protocol": "TCP", **port} for port in container["ports"]]
    return template


def headless_service(run: RunSpec, platform: Platform, selector: Mapping[str, str]) -> Manifest:
    """Return the Service that names the pods, also before they are ready, which they become by rendezvous."""
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": metadata(
            run.run_id,
            namespace=platform.teams[run.team].namespace,
            labels=labels(run),
            annotations={naming.SKIP_AWAIT: "true"},
        ),
        "spec": {
            "clusterIP": "None",
            "publishNotReadyAddresses": True,
            "selector": dict(selector),
            "ports": [
                {
                    "name": "rendezvous",
                    "port": contract.rendezvous_port(run.run_id),
                    "protocol": "TCP",
                }
            ],
        },
    }
