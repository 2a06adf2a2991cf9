"""`mpijob`: MPI Operator v2beta1; mpirun starts the ranks, as Horovod requires."""

from __future__ import annotations

from typing import Any, Final

from infra.domain import naming
from infra.domain.launcher_support import MPI_JOB
from infra.domain.platform import Platform
from infra.kubernetes.objects import Manifest
from training.gangs import gang_backend
from training.launchers import pod, program, restarts
from training.spec import RunSpec
from trainyard import contract

_KILL_TIMEOUT: Final = "OMPI_MCA_odls_base_sigkill_timeout"


def _launcher(run: RunSpec, platform: Platform) -> dict[str, Any]:
    variables = [*pod.environment(run, platform), *pod.secret_environment(run, platform)]
    names = ",".join(one["name"] for one in variables)
    more = [{"name": contract.EXPORTED_ENV, "value": names}]
    return pod.worker(run, platform, _first(run), name="launcher", more_env=more)


def _first(run: RunSpec) -> str:
    return f"{run.run_id}-worker-0.{run.run_id}"


def _launcher_template(run: RunSpec, platform: Platform) -> dict[str, Any]:
    """mpirun's own pod: without GPUs, so it can share any node of the run's pools with a worker."""
    main = _launcher(run, platform)
    main["command"] = restarts.counted(run, main["command"], leader=True)
    # mpirun kills ranks one second after SIGTERM otherwise.
    timeout = {"name": _KILL_TIMEOUT, "value": str(run.grace.shutdown_timeout_s)}
    main["env"] = [*main["env"], timeout]
    small = {"cpu": "500m", "memory": "512Mi"}
    main["resources"] = {"requests": small, "limits": small}
    del main["ports"]
    template = pod.template(run, platform, main)
    # Anti-affinity keeps workers apart; the launcher must not need a node of its own.
    del template["spec"]["affinity"]["podAntiAffinity"]
    del template["metadata"]["labels"][naming.WORKER_OF]
    for key in gang_backend(platform.scheduler).worker_annotations:
        template["metadata"]["annotations"].pop(key, None)
    return pod.with_protocols(template)


def render(run: RunSpec, platform: Platform) -> list[Manifest]:
    """Return one MPIJob: a launcher with mpirun, and a worker per node with sshd.

    The launcher repeats mpirun by exit code; its Job only replaces a lost launcher, and ends the run after a
    final code as soon as its container has restarted `max_restarts` times (seconds).
    """
    sshd = [
        *("python3", "-m", "trainyard.mpi_worker", "--"),
        "/usr/sbin/sshd",
        "-De",
        "-p",
        str(naming.MPI_SSH_PORT),
        "-f",
        "/home/trainer/.sshd_config",
        # The pod's own address, which the container has for its metrics.
        *("-o", f"ListenAddress=$({contract.METRICS_ADDRESS_ENV})"),
    ]
    # Ranks that mpirun starts here find the source unpacked.
    words = [*program.UNPACK, "--", *sshd] if run.program else sshd
    env = program.environment(run, platform, _first(run))
    worker = pod.container(run, platform, words, name="worker", more_env=env)
    return [
        {
            **MPI_JOB.header,
            "metadata": pod.run_metadata(run, platform),
            "spec": {
                "slotsPerWorker": run.processes_per_node,
                "sshAuthMountPath": "/home/trainer/.ssh",
                "launcherCreationPolicy": "WaitForWorkersReady",
                # A worker that failed must go when the queue suspends the run, or it is never replaced.
                "runPolicy": {"backoffLimit": run.max_restarts, "cleanPodPolicy": "All"},
                "mpiReplicaSpecs": {
                    "Launcher": {
                        "replicas": 1,
                        "restartPolicy": "OnFailure",
                        "template": _launcher_template(run, platform),
                    },
                    "Worker": {
                        "replicas": run.nodes,
                        # The operator replaces deleted workers only, not failed ones.
                        "restartPolicy": "OnFailure",
                        "template": pod.with_protocols(pod.template(run, platform, worker)),
                    },
                },
            },
        }
    ]
