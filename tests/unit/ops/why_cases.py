"""Snapshots of runs and the symptom that explains each, by what the case shows. One table for all of `run why`.

TOLD: the whole answer is in snapshots/why.yaml. SYMPTOM_ONLY: neighbours of these that differ in one thing.
"""

from __future__ import annotations

import datetime as dt
from typing import Any, Final

from infra.domain import naming
from ops.logs import Log
from ops.metrics import GpuFault, Vitals
from ops.objects import Json
from ops.snapshot import Preparation, Snapshot
from tests.unit.ops.run_fixtures import (
    NOW,
    RUN_ID,
    at,
    cluster_queue,
    cohort,
    condition,
    ended,
    event,
    flavor,
    local_queue,
    log,
    node,
    pod,
    pod_spec,
    run,
    runs_on,
    snapshot,
    stuck,
    waiting,
    waits,
    workload,
)

Cases = dict[str, tuple[str, Snapshot]]
FAILED: Final = condition(
    "Failed", reason="FailedJobs", message="jobset failed due to job failures"
)
RESERVED: Final = condition("QuotaReserved")


# Runs that have ended or are ending.


def over(*pods: Json, conditions: tuple[Json, ...] = (FAILED,), **more: Any) -> Snapshot:
    """A run that has ended."""
    return snapshot(run=run(status={"conditions": list(conditions)}), pods=list(pods), **more)


def exited(code: int, *lines: str, reason: str = "Error", **more: Any) -> Snapshot:
    """A run that failed after its pod had written these lines and exited."""
    logs = [log("hello-0", *lines)] if lines else []
    return over(pod("hello-0", "Failed", **ended(code, reason)), logs=logs, **more)


def deactivated(reason: str, message: str = "") -> Snapshot:
    evicted = condition("Evicted", reason=reason, message=message)
    return snapshot(workload=workload(evicted, active=False))


def leaving(*pods: Json, **more: Any) -> Snapshot:
    going = run()
    going["metadata"] |= {"deletionTimestamp": at(10), "finalizers": ["example.com/hold"]}
    return snapshot(run=going, pods=list(pods), **more)


def failed_job(message: str) -> Json:
    status = {"conditions": [condition("Failed", message=message)]}
    return {"kind": "Job", "metadata": {"name": "hello-worker-0"}, "status": status}


LINES: Final = {
    "gpu-driver": "Failed to initialize NVML: Driver/library version mismatch",
    "gpu-out-of-memory": "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB",
    "disk-full": "OSError: [Errno 28] No space left on device: '/checkpoints/x'",
    "restore-failed": "rank 0: /checkpoints/x: none of the 3 checkpoints can be loaded; move",
    "hung": "launch: no progress for 3601 s: a rank hangs; 3600 s is program.progressTimeoutSeconds",
    "diverged": "rank 0: step 5: loss is nan; lower optimizer.learning_rate",
    "gpu-error": "RuntimeError: CUDA error: an illegal memory access was encountered",
    "rendezvous-failed": "launch: the nodes did not meet: timed out",
    "collective-timeout": "rank 1: another rank is gone or hangs: [gloo/transport/tcp/pair.cc]",
}
TIMED_OUT: Final = LINES["collective-timeout"]
XID: Final = (GpuFault(node="spot-0", gpu="3", what="XID 79"),)


def sick_node() -> Json:
    found = node("spot-0")
    found["status"]["conditions"].append(
        condition("AcceleratedHardwareReady", "False", "NvidiaXID79Error", "GPU has fallen off")
    )
    return found


def attempt(*pods: Json, **more: Any) -> Snapshot:
    """An admitted run with these pods, or that trains with both."""
    return snapshot(workload=runs_on(), pods=list(pods) or [pod("a"), pod("b")], **more)


ENDED_TOLD: Final[Cases] = {
    "it reached its last step": ("finished", over(conditions=(condition("Completed"),))),
    "exit code 78": ("bad-configuration", exited(78, "optimizer.learning_rate: got -1")),
    "exit code 78 of a Job without pods": (
        "bad-configuration",
        over(jobs=[failed_job("Container trainer for pod a/b failed with exit code 78 matching")]),
    ),
    "another exit code": ("failed", exited(3, "one", "two", "ValueError: odd")),
    "restarts of its pod used up": (
        "failed",
        exited(1, "restarts: the ranks ended with 1; 3 restarts are used up", "a", "b", "c"),
    ),
    "out of memory": ("out-of-memory", exited(137, TIMED_OUT, reason="OOMKilled")),
    "it is being deleted": ("leaving", leaving(pod())),
    "over its hours": ("stopped", deactivated("DeactivatedDueToMaximumExecutionTimeExceeded")),
    "never ready": ("stopped", deactivated("DeactivatedDueToRequeuingLimitExceeded")),
    "deactivated": ("stopped", deactivated("Deactivated", "The workload is deactivated")),
    **{f"log: {name}": (name, exited(1, "step 1", line)) for name, line in LINES.items()},
    "ranks time out because of one that failed": (
        "gpu-out-of-memory",
        attempt(
            pod("a", "Failed", **ended(1, seconds_ago=12)),
            pod("b", "Failed", **ended(1)),
            logs=[
                log("b", TIMED_OUT, seconds_ago=12),
                log("a", LINES["gpu-out-of-memory"], seconds_ago=11),
            ],
        ),
    ),
    "of two pods the first to log it": (
        "rendezvous-failed",
        attempt(
            pod("a", "Failed", **ended(1)),
            pod("b", "Failed", **ended(1, seconds_ago=15)),
            logs=[
                log(name, LINES["rendezvous-failed"], seconds_ago=ago)
                for name, ago in (("a", 10), ("b", 15))
            ],
        ),
    ),
    "errors of ranks on a node with a sick GPU": (
        "gpu-fault",
        exited(1, TIMED_OUT, nodes=[sick_node()]),
    ),
    "errors of ranks on a GPU with an XID": (
        "gpu-fault",
        exited(1, TIMED_OUT, vitals=Vitals(gpu_faults=XID)),
    ),
}
ENDED_ONLY: Final[Cases] = {
    "Complete is an end": ("finished", over(conditions=(condition("Complete"),))),
    "Succeeded is an end": ("finished", over(conditions=(condition("Succeeded"),))),
    "exit code 78 while it goes on": ("restarting", attempt(pod("a", "Failed", **ended(78)))),
    "killed for another reason": ("failed", exited(137)),
    "errors of ranks on a sound node": (
        "collective-timeout",
        exited(1, TIMED_OUT, nodes=[node("spot-0")]),
    ),
    "lines of a shutdown": (
        "leaving",
        leaving(
            pod("a", "Failed", **ended(1)), workload=runs_on(), logs=[log("hello-0", TIMED_OUT)]
        ),
    ),
    "lines of a run that trains": ("running", attempt(logs=[log("a", TIMED_OUT)])),
    "lines of pods that saved and stopped": (
        "not-ready",
        attempt(pod("a", "Failed", **ended(75)), logs=[log("a", TIMED_OUT)]),
    ),
}


# Runs whose queue is the trouble, and runs that wait in it.

NOTHING: Final[Any] = {"local_queue": None, "cluster_queue": None, "cluster_queues": []}
NO_PLACE: Final = (
    "couldn't assign flavors: topology \"zone-host\" doesn't allow to fit any of 2 pod(s)"
)
OTHER_FLAVOR: Final = (
    'couldn\'t assign flavors to pod set worker: Flavor "ondemand" does not support '
    "TopologyAwareScheduling"
)


def unqueued(*, scheduler: str = "") -> Json:
    """A run that Kueue does not queue."""
    spec = {"containers": [], **({"schedulerName": scheduler} if scheduler else {})}
    found = run(spec={"template": {"spec": spec}})
    found["metadata"]["labels"].pop(naming.QUEUE_NAME)
    return found


def waits_for(message: str = "insufficient unused quota", /, **more: Any) -> Snapshot:
    """A run in its queue with this message; `spec`, `nodes_wanted`: of its Workload."""
    mine = workload(waits(message), spec=more.pop("spec", None), nodes=more.pop("gang", 2))
    return snapshot(workload=mine, **more)


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
    own = workload(RESERVED, run_id="big-v1-bbbbbbbb", uid="b", flavor="spot")
    other = workload(
        RESERVED,
        run_id="prod-v2-cccccccc",
        uid="c",
        nodes=1,
        namespace="team-production",
        flavor="ondemand",
    )
    return [own, other]


def among(*others: Json, **mine: Any) -> Snapshot:
    """A run for which the queues are full, with Workloads of others."""
    own = workload(waits(), **mine)
    return snapshot(workload=own, workloads=[own, *others], **full())


def borrows(limit: int, used: int, lender_used: int) -> Snapshot:
    limited = {"nominalQuota": "0", "borrowingLimit": str(limit)}
    own = cluster_queue(spot=0, ondemand=limited, used={"ondemand": used})
    other = cluster_queue("production", spot=0, ondemand=16, used={"ondemand": lender_used})
    return waits_for(gang=1, spec=pod_spec(("ondemand",)), **queues(own, other))


def intolerant() -> Json:
    return pod_spec() | {"tolerations": []}


def tolerant_flavor() -> Json:
    found = flavor("spot")
    found["spec"]["tolerations"] = [{"key": "dedicated", "operator": "Exists"}]
    return found


def inactive_queue() -> Json:
    broken = cluster_queue(spot=16)
    why = condition("Active", "False", "FlavorNotFound", "flavor spot is not found")
    broken["status"]["conditions"] = [why]
    return broken


def just_created() -> Json:
    new = run()
    new["metadata"]["creationTimestamp"] = NOW.isoformat()
    return new


def lost_node(name: str) -> Json:
    lost = node(name)
    lost["status"]["conditions"] = [condition("Ready", "False")]
    return lost


def requeued(until: dt.datetime) -> Snapshot:
    evicted = condition("Evicted", "True", "PodsReadyTimeout", "Exceeded the PodsReady timeout x")
    state = {"count": 2, "requeueAt": until.isoformat()}
    return snapshot(workload=workload(waits(""), evicted, requeueState=state))


def in_line() -> Snapshot:
    mine = workload(waits(""))
    first = workload(waits(""), run_id="urgent-v1-1", uid="u", priority=5000, age_s=10)
    older = workload(waits(""), run_id="older-v1-2", uid="o", age_s=900)
    younger = workload(waits(""), run_id="younger-v1-3", uid="y", age_s=20)
    foreign = workload(waits(""), run_id="f-v1-4", uid="f", age_s=999, namespace="team-production")
    return snapshot(workload=mine, workloads=[younger, mine, foreign, older, first])


def provisions() -> Snapshot:
    check = {"name": "gang-scale-up", "state": "Pending", "message": "waiting for capacity"}
    mine = workload(RESERVED, flavor="spot", admissionChecks=[check])
    request = {
        "kind": "ProvisioningRequest",
        "metadata": {
            "name": "request-1",
            "namespace": "team-research",
            "ownerReferences": [{"uid": mine["metadata"]["uid"]}],
        },
        "status": {"conditions": [condition("Accepted", message="accepted by the autoscaler")]},
    }
    return snapshot(workload=mine, provisioning=[request])


QUEUE_TOLD: Final[Cases] = {
    "no queue": ("no-queue", snapshot(run=unqueued())),
    "its queue does not exist": ("queue-missing", snapshot(local_queue=None, cluster_queue=None)),
    "its queue is held": (
        "queue-held",
        waits_for(cluster_queue=cluster_queue(spot=16, stop="Hold")),
    ),
    "its queue is drained": (
        "queue-held",
        waits_for(cluster_queue=cluster_queue(spot=16, stop="HoldAndDrain")),
    ),
    "its LocalQueue is held": ("queue-held", waits_for(local_queue=local_queue("Hold"))),
    "its queue lacks a flavor": ("queue-inactive", waits_for(cluster_queue=inactive_queue())),
    "a queue of another team": (
        "queue-closed",
        waits_for("Workload namespace doesn't match ClusterQueue selector"),
    ),
    "Kueue made no Workload": ("kueue-silent", snapshot()),
    "just created": ("just-created", snapshot(run=just_created())),
    "a kind that Kueue does not queue": ("not-queued", snapshot(run=run(spec={}))),
    "the quota is not readable": (
        "quota-exhausted",
        waits_for(
            "couldn't assign: insufficient unused quota for nvidia.com/gpu",
            cluster_queue=None,
            cluster_queues=[],
            hidden=frozenset({"clusterqueues"}),
        ),
    ),
    "quota is exhausted": ("quota-exhausted", among(*holders())),
    "no known cause": ("queued", waits_for("")),
    "more than its queue can ever have": ("too-big", waits_for(gang=3)),
    "its borrowing limit is reached": ("cost-cap", borrows(8, 8, 0)),
    "its affinity fits no pool": (
        "no-flavor",
        waits_for("flavor spot doesn't match node affinity", spec=pod_spec(("gone",)), **full()),
    ),
    "a taint of all pools": ("no-flavor", waits_for(spec=intolerant())),
    "quota, and nodes with problems": (
        "no-nodes",
        waits_for(
            NO_PLACE,
            nodes=[
                node("spot-0", "spot", {"key": "maintenance", "effect": "NoSchedule"}),
                node("spot-1", unschedulable=True),
                lost_node("spot-2"),
                node("cpu", "cpu"),
            ],
        ),
    ),
    "quota, and no nodes": ("no-nodes", waits_for(NO_PLACE, nodes=[])),
    "quota, and nodes are not readable": (
        "no-nodes",
        waits_for(NO_PLACE, nodes=[], hidden=frozenset({"nodes"})),
    ),
    "behind others, by priority, then age": ("behind-others", in_line()),
    "its backoff": ("backoff", requeued(NOW + dt.timedelta(seconds=40))),
    "nodes are provisioned": ("waiting-for-nodes", provisions()),
    "it preempts others": (
        "preempting",
        waits_for("couldn't assign flavors. Pending the preemption of 1 workload(s)", **full()),
    ),
}
QUEUE_ONLY: Final[Cases] = {
    "a pod without a queue runs": ("running", snapshot(run=unqueued(), pods=[pod("a")])),
    "no queue of a caller who reads queues": ("queue-missing", waits_for("", **NOTHING)),
    "queues are not readable": (
        "queued",
        waits_for("", hidden=frozenset({"localqueues", "clusterqueues"}), **NOTHING),
    ),
    "suspended by its run policy": (
        "kueue-silent",
        snapshot(run=run(kind="MPIJob", spec={"runPolicy": {"suspend": True}})),
    ),
    "a borrowing limit, but the lender is full": ("quota-exhausted", borrows(8, 0, 16)),
    "tolerations that a flavor adds": (
        "queued",
        waits_for("", spec=intolerant(), flavors=[tolerant_flavor()]),
    ),
    # Kueue goes on with the next flavor, and its message is about the last one.
    "a cordoned node, and Kueue reports on another flavor": (
        "no-nodes",
        waits_for(
            OTHER_FLAVOR,
            nodes=[node("spot-0"), node("spot-1", unschedulable=True)],
            **queues(cluster_queue(spot=16, ondemand=0)),
        ),
    ),
    "enough nodes, and Kueue reports on another flavor": (
        "queued",
        waits_for(
            OTHER_FLAVOR,
            nodes=[node("spot-0"), node("spot-1")],
            **queues(cluster_queue(spot=16, ondemand=0)),
        ),
    ),
    "its backoff is over": ("queued", requeued(NOW)),
}


# Admitted runs whose pods find no node.

TAINT: Final = {"key": "broken", "effect": "NoExecute"}


def unplaced(
    *nodes: Json, message: str = "", pods: list[Json] | None = None, **more: Any
) -> Snapshot:
    """An admitted run with a pod that finds none of these nodes."""
    found = [stuck(message=message)] if pods is None else pods
    return snapshot(workload=runs_on(), pods=found, nodes=list(nodes), **more)


def blind(message: str) -> Snapshot:
    return unplaced(message=message, hidden=frozenset({"nodes"}))


def of_earlier_admission(pool: str) -> Json:
    old = stuck(message="0/2 nodes are available: 2 node(s) didn't match Pod's node affinity")
    old["spec"]["nodeSelector"] = {naming.POOL: pool}
    return old


def others_on_the_node() -> list[Json]:
    other = pod("big-0")
    other["metadata"]["labels"] = other["metadata"]["labels"] | {naming.RUN_ID: "big-v1-1"}
    return [other, pod("old-0", "Succeeded"), stuck()]


def without_gpus(name: str, age_s: float = 3600, pool: str = "spot") -> Json:
    """A GPU node on which no device plugin runs."""
    found = node(name, pool)
    found["metadata"]["labels"][naming.ACCELERATOR] = "nvidia"
    found["metadata"]["creationTimestamp"] = at(age_s)
    found["status"]["allocatable"].pop(naming.GPU)
    return found


def cpu_node() -> Json:
    found = node("spot-0", "cpu")
    found["status"]["allocatable"].pop(naming.GPU)
    return found


def on(name: str, node_name: str) -> Json:
    found = pod(name)
    found["spec"]["nodeName"] = node_name
    return found


GANG_JOB: Final[Json] = {"metadata": {"name": "hello-worker-0"}, "spec": {"parallelism": 3}}

PLACE_TOLD: Final[Cases] = {
    "a taint": (
        "missing-toleration",
        unplaced(node("spot-0", "spot", TAINT), message="0/1 nodes are available"),
    ),
    "a pod of an earlier admission": (
        "earlier-admission",
        unplaced(node("spot-0"), pods=[of_earlier_admission("ondemand")]),
    ),
    "labels without nodes": (
        "strict-affinity",
        unplaced(node("other-0", "other"), node("more-0", "more")),
    ),
    "occupied GPUs": (
        "no-gpu-capacity",
        unplaced(
            node("spot-0"),
            message="0/1 nodes are available: 1 Insufficient nvidia.com/gpu",
            others_pods=others_on_the_node(),
        ),
    ),
    "no GPU nodes, and none are added": (
        "no-gpu-capacity",
        unplaced(events=[event(stuck(), "NotTriggerScaleUp", "max size reached")]),
    ),
    "a part of the gang": (
        "partial-gang",
        unplaced(node("spot-0"), pods=[pod("a"), stuck("b")]),
    ),
    "a part of a gang without gang scheduling": (
        "partial-gang",
        snapshot(run=unqueued(), jobs=[GANG_JOB], pods=[pod("a"), stuck("b")]),
    ),
    "GPU nodes without GPUs": (
        "gpu-not-visible",
        unplaced(without_gpus("spot-0"), node("spot-1"), gpu_pods=[pod("plugin-x", "Pending")]),
    ),
    "its nodes have no GPUs": ("cpu-node", attempt(nodes=[cpu_node()])),
}
PLACE_ONLY: Final[Cases] = {
    "a pod of this admission": (
        "unschedulable",
        unplaced(node("spot-0"), pods=[of_earlier_admission("spot")]),
    ),
    "a taint of a node's condition": (
        "unschedulable",
        unplaced(
            node(
                "spot-0",
                "spot",
                {"key": "node.kubernetes.io/disk-pressure", "effect": "NoSchedule"},
            )
        ),
    ),
    "a taint, and nodes of other pools": (
        "missing-toleration",
        unplaced(node("spot-0", "spot", TAINT), node("other-0", "other")),
    ),
    "a cordoned node": ("unschedulable", unplaced(node("spot-0", unschedulable=True))),
    "message: GPUs": ("no-gpu-capacity", blind("2 Insufficient nvidia.com/gpu, 1 had untolerated")),
    "message: taint": (
        "missing-toleration",
        blind("3 node(s) had untolerated taint {dedicated: gpu}"),
    ),
    "message: condition": (
        "unschedulable",
        blind("1 had untolerated taint {node.kubernetes.io/not-ready: }"),
    ),
    "message: affinity": (
        "strict-affinity",
        blind("3 node(s) didn't match Pod's node affinity/selector"),
    ),
    "message: another": ("unschedulable", blind("pod group is not ready")),
    "a new GPU node without GPUs": ("unschedulable", unplaced(without_gpus("spot-0", age_s=60))),
    "GPU nodes of other pools": (
        "unschedulable",
        unplaced(without_gpus("x", pool="other"), node("spot-0")),
    ),
    "no topology, for GPUs are not visible": (
        "gpu-not-visible",
        waits_for(
            'topology "zone-rack-host" doesn\'t allow to fit any of 2 pod(s)',
            nodes=[without_gpus("spot-0")],
        ),
    ),
    "one of its nodes has GPUs": (
        "running",
        attempt(pod("a"), on("b", "spot-1"), nodes=[cpu_node(), node("spot-1")]),
    ),
}


# A node that lost its kubelet holds up its gang.

SILENT: Final = condition(
    "Ready", "Unknown", "NodeStatusUnknown", "Kubelet stopped posting node status."
)
NOT_READY: Final = condition("Ready", "False", "NodeNotReady")
EVICTED: Final = workload(
    waits("couldn't assign flavors"),
    condition("Evicted", reason="PodsReadyTimeout"),
    requeueState={"count": 3, "requeueAt": at(-60)},
)
HIDDEN_NODES: Final[Any] = {"nodes": [], "hidden": frozenset({"nodes"})}


def silent() -> Json:
    lost = node("spot-0")
    lost["status"]["conditions"] = [SILENT]
    return lost


def terminating(seconds_ago: float = 300) -> Json:
    found = pod("hello-0", conditions=[NOT_READY])
    found["metadata"]["deletionTimestamp"] = at(seconds_ago)
    return found


def evicted(*pods: Json, nodes: list[Json], **more: Any) -> Snapshot:
    return snapshot(workload=EVICTED, pods=list(pods), nodes=nodes, **more)


LOST_TOLD: Final[Cases] = {
    "a pod that cannot end, evicted": (
        "lost-node",
        evicted(terminating(), nodes=[silent(), node("spot-1")]),
    ),
    "a pod that cannot end, of a deleted run": (
        "lost-node",
        leaving(terminating(), nodes=[silent()]),
    ),
    "a silent node, before its pods are deleted": (
        "lost-node",
        attempt(pod("hello-0", conditions=[NOT_READY]), pod("hello-1"), nodes=[silent()]),
    ),
}
LOST_ONLY: Final[Cases] = {
    "a pod that cannot end, admitted": ("lost-node", attempt(terminating(), nodes=[silent()])),
    "a late pod, nodes are not readable": ("lost-node", evicted(terminating(120), **HIDDEN_NODES)),
    "a pod in its grace period, not readable": (
        "backoff",
        evicted(terminating(30), **HIDDEN_NODES),
    ),
    "a pod in its grace period": ("backoff", evicted(terminating(-20), nodes=[silent()])),
    "a pod on a node that works": ("backoff", evicted(terminating(), nodes=[node("spot-0")])),
    "a pod that has ended": (
        "backoff",
        evicted(terminating() | {"status": {"phase": "Failed"}}, nodes=[silent()]),
    ),
    "a silent node without its pods": ("backoff", evicted(nodes=[silent()])),
    "a failed run": ("failed", over(terminating(), nodes=[silent()])),
}


# Jobs that prepare what its pods wait for.

JOB: Final = "prepare-web-01234567"


def waiting_pod(container: str = naming.DATASET_CONTAINER, /, **state: Any) -> Json:
    """A pod of the run whose init container is in this state."""
    found = pod(phase="Pending", initContainerStatuses=[{"name": container, "state": state}])
    variable = {"name": naming.PREPARATION_ENV, "value": JOB}
    found["spec"]["initContainers"] = [{"name": container, "env": [variable]}]
    return found


def prepares(
    *conditions: Json, container: str = naming.DATASET_CONTAINER, phase: str = "", says: str = ""
) -> Preparation:
    """A Job, its pod in this phase, and the end of its log."""
    meta = {"name": JOB, "namespace": "team-research"}
    of_job = "prepare" if container == naming.DATASET_CONTAINER else "fetch"
    return Preparation(
        container=container,
        name=JOB,
        job={"kind": "Job", "metadata": meta, "status": {"conditions": list(conditions)}},
        pods=[pod("prepare-0", phase)] if phase else [],
        logs=[Log(pod="prepare-0", container=of_job, lines=log("x", says).lines)] if says else [],
    )


def trains_with_a_dataset() -> Json:
    ready = pod(initContainerStatuses=[])
    ready["spec"] |= waiting_pod()["spec"]
    return ready


BAD_DATA: Final = condition("Failed", message="exit code 78 matching FailJob rule")
GAVE_UP: Final = condition("Failed", message="BackoffLimitExceeded")
GATED: Final = "weights: acme/tiny: HTTP 403 from hub.example: the model is gated"
WEIGHTS: Final = naming.WEIGHTS_CONTAINER

PREPARATION_TOLD: Final[Cases] = {
    "its dataset is prepared": (
        "dataset-preparing",
        attempt(
            waiting_pod(running={}),
            preparations=[prepares(phase="Running", says="tokenizing: 12 of 48 MB (25 %)")],
        ),
    ),
    "its dataset could not be prepared": (
        "dataset-failed",
        over(
            waiting_pod(terminated={"exitCode": 78, "reason": "Error"}),
            preparations=[
                prepares(BAD_DATA, phase="Failed", says="prepare: a.parquet: no column 'body'")
            ],
        ),
    ),
    "its model could not be fetched": (
        "model-failed",
        over(
            waiting_pod(WEIGHTS, terminated={"exitCode": 78}),
            preparations=[prepares(BAD_DATA, container=WEIGHTS, phase="Failed", says=GATED)],
        ),
    ),
    "its model is fetched": (
        "model-fetching",
        attempt(
            waiting_pod(WEIGHTS, running={}),
            preparations=[
                prepares(condition("Complete")),
                prepares(container=WEIGHTS, phase="Running", says="fetching: 1 of 2 GB"),
            ],
        ),
    ),
    "the Job gave up while its pods wait": (
        "dataset-failed",
        attempt(waiting_pod(running={}), preparations=[prepares(GAVE_UP)]),
    ),
}
PREPARATION_ONLY: Final[Cases] = {
    "it trains, and a later preparation failed": (
        "not-ready",
        attempt(trains_with_a_dataset(), preparations=[prepares(GAVE_UP)]),
    ),
    "it trains, and its dataset is complete": (
        "not-ready",
        attempt(trains_with_a_dataset(), preparations=[prepares(condition("Complete"))]),
    ),
}


# Pods that cannot start, restart, or train.


def pending(reason: str, message: str = "", **more: Any) -> Snapshot:
    return attempt(pod("a", "Pending", **waiting(reason, message)), **more)


def pull(reason: str, seconds_ago: float) -> Json:
    about = event(pod("a", "Pending"), reason, f'{reason} image "trainer@sha256:1"')
    return about | {"lastTimestamp": at(seconds_ago)}


REFUSED: Final[Json] = {
    "kind": "Job",
    "metadata": {"name": "hello-worker-0", "uid": "j"},
    "status": {},
}
QUOTA: Final[Any] = {
    "jobs": [REFUSED],
    "events": [event(REFUSED, "FailedCreate", "pods is forbidden: exceeded quota")],
}
MOUNT: Final = event(pod("a", "Pending"), "FailedMount", 'configmap "hello" not found')
ONE_RESTART: Final = {"restarts": 1, "restartsCountTowardsMax": 1}
VOLCANO: Final = unqueued(scheduler="volcano")

PODS_TOLD: Final[Cases] = {
    "all pods are ready": ("running", attempt()),
    "a pod is not ready": ("not-ready", attempt(pod("a"), pod("b", "Pending"))),
    "its image cannot be pulled": ("image", pending("ErrImagePull", "no such manifest")),
    "it pulls its image": (
        "pulling-image",
        pending("ContainerCreating", events=[pull("Pulling", 400)]),
    ),
    "a missing secret": ("setup", pending("CreateContainerConfigError", 'secret "x" not found')),
    "a volume that cannot be mounted": ("setup", pending("ContainerCreating", events=[MOUNT])),
    "its Jobs are rejected": (
        "pods-refused",
        snapshot(
            workload=runs_on(), events=[event(run(), "JobCreationFailed", "jobs is forbidden")]
        ),
    ),
    "its pods are rejected": ("pods-refused", snapshot(workload=runs_on(), **QUOTA)),
    "a failed attempt": (
        "restarting",
        attempt(pod("a", "Failed", **ended(1)), run=run(status=ONE_RESTART)),
    ),
    "its ranks never made a step": (
        "restarting",
        attempt(pod("hello-0", "Failed", **ended(71)), pod("hello-1", "Pending")),
    ),
    "out of memory, and it restarts": (
        "out-of-memory",
        attempt(pod("a", "Failed", **ended(137, "OOMKilled"))),
    ),
    "a container without its GPUs": (
        "gpu-driver",
        pending(
            "RunContainerError", "nvidia-container-cli: initialization error: nvml error: driver"
        ),
    ),
    "a gang of another scheduler": ("not-ready", snapshot(run=VOLCANO)),
}
PODS_ONLY: Final[Cases] = {
    "a pod is missing": ("not-ready", attempt(pod("a"))),
    "it began to pull its image": (
        "not-ready",
        pending("ContainerCreating", events=[pull("Pulling", 60)]),
    ),
    "it has pulled its image": (
        "not-ready",
        pending("ContainerCreating", events=[pull("Pulling", 400), pull("Pulled", 200)]),
    ),
    "ImagePullBackOff": ("image", pending("ImagePullBackOff")),
    "InvalidImageName": ("image", pending("InvalidImageName")),
    "a container that is being created": ("not-ready", pending("ContainerCreating")),
    "another setup error": ("setup", pending("RunContainerError", "no such file")),
    "pods were rejected before": ("running", attempt(**QUOTA)),
    "the next attempt trains": (
        "running",
        attempt(pod("a", "Failed", **ended(1)), pod("b"), pod("c")),
    ),
    "an attempt that saved and stopped": ("not-ready", attempt(pod("a", "Failed", **ended(75)))),
    "out of memory before": (
        "running",
        attempt(pod("a", "Failed", **ended(137, "OOMKilled")), pod("b"), pod("c")),
    ),
    "another scheduler finds no place": (
        "unschedulable",
        snapshot(run=VOLCANO, pods=[stuck("a", "pod group is not ready")]),
    ),
    "another scheduler's gang trains": ("running", snapshot(run=VOLCANO, pods=[pod("a")])),
}


# Runs that train, by their metrics.

WELL: Final[Any] = {
    "steps_per_s": 2.0,
    "reported": True,
    "tokens_per_s": 18_230.0,
    "loader": 0.02,
    "collective": 0.05,
    "gpu_busy": 0.93,
}
UNMEASURED: Final[Any] = dict.fromkeys(WELL) | {"reported": False}


def trains(
    *logs: Log, grace_s: int = 50, nodes: Any = None, age_s: float = 30, **vitals: Any
) -> Snapshot:
    """A run that trains with these numbers, those of a healthy one unless they are given."""
    pods = [pod("a"), pod("b")]
    for one in pods:
        one["spec"]["terminationGracePeriodSeconds"] = grace_s
        one["status"]["startTime"] = at(age_s)
    more = {} if nodes is None else {"nodes": nodes}
    return attempt(*pods, logs=list(logs), vitals=Vitals(**(WELL | vitals)), **more)


def program(age_s: float = 3600, **vitals: Any) -> Snapshot:
    """A run with a program that reports only these numbers."""
    taken = trains(age_s=age_s, **(UNMEASURED | vitals))
    for one in taken.pods:
        one["spec"]["containers"][0]["env"] = [{"name": "TRAINYARD_RUN_ID", "value": RUN_ID}]
    return taken


def scaled(**speeds: tuple[float, float]) -> Snapshot:
    """Tokens/s and GPUs of this run (`mine`) and of other versions."""
    known = {RUN_ID if name == "mine" else name: one for name, one in speeds.items()}
    zones = [node("spot-0"), node("spot-1")]
    for one, zone in zip(zones, "ab", strict=True):
        one["metadata"]["labels"][naming.ZONE] = zone
    taken = trains(speeds=known, nodes=zones)
    taken.pods[1]["spec"]["nodeName"] = "spot-1"
    return taken


MINE: Final = (16_000.0, 16.0)
NO_SPACE: Final = "checkpoint not written: [Errno 28] No space left on device"
ECC: Final = (GpuFault(node="spot-0", gpu="3", what="uncorrectable memory errors"),)

HEALTH_TOLD: Final[Cases] = {
    "it waits for data": ("slow-loader", trains(loader=0.62, gpu_busy=0.3)),
    "it waits for its checkpoints": ("slow-storage", trains(checkpoint_write_s=1.0, stall=0.3)),
    "a checkpoint slower than planned": ("slow-storage", trains(checkpoint_write_s=31.0)),
    "a checkpoint that was not written": ("checkpoint-failing", attempt(logs=[log("a", NO_SPACE)])),
    "no steps": ("stalled", trains(steps_per_s=0.0, age_s=3600)),
    "a program that stopped reporting": ("stalled", program(reported=True, steps_per_s=0.0)),
    "GPUs wait for ranks": ("low-utilization", trains(gpu_busy=0.4, collective=0.5)),
    "idle GPUs of a program": ("low-utilization", program(gpu_busy=0.3)),
    "slower per GPU than a smaller run": (
        "slow-after-scaling",
        scaled(mine=MINE, b=(12_000.0, 8.0), c=(400.0, 8.0)),
    ),
    "a GPU with errors, before other slowness": ("gpu-fault", trains(loader=0.9, gpu_faults=ECC)),
}
HEALTH_ONLY: Final[Cases] = {
    "healthy": ("running", trains()),
    "numbers of a run that does not train": (
        "not-ready",
        attempt(pod("a"), vitals=Vitals(loader=0.9)),
    ),
    "a little data wait": ("running", trains(loader=0.19)),
    "a checkpoint as planned": ("running", trains(checkpoint_write_s=29.0)),
    "a little wait for checkpoints": ("running", trains(checkpoint_write_s=1.0, stall=0.04)),
    "saves that failed, by metrics": ("checkpoint-failing", trains(saves_failed=1.0)),
    "no steps of a new run": ("running", trains(steps_per_s=0.0)),
    "a program without metrics": ("running", program()),
    "zeros of what a program does not report": (
        "running",
        program(reported=True, steps_per_s=0.5, tokens_per_s=0.0, loader=0.0, collective=0.0),
    ),
    "idle GPUs": ("low-utilization", trains(gpu_busy=0.59)),
    "busy GPUs": ("running", trains(gpu_busy=0.61)),
    "alone": ("running", scaled(mine=MINE)),
    "as fast per GPU": ("running", scaled(mine=MINE, b=(9_000.0, 8.0))),
    "a larger run": ("running", scaled(mine=MINE, b=(64_000.0, 32.0))),
    "no speed of its own": ("running", scaled(b=(64_000.0, 8.0))),
}

TOLD: Final[Cases] = {
    **ENDED_TOLD,
    **QUEUE_TOLD,
    **PLACE_TOLD,
    **LOST_TOLD,
    **PREPARATION_TOLD,
    **PODS_TOLD,
    **HEALTH_TOLD,
}
SYMPTOM_ONLY: Final[Cases] = {
    **ENDED_ONLY,
    **QUEUE_ONLY,
    **PLACE_ONLY,
    **LOST_ONLY,
    **PREPARATION_ONLY,
    **PODS_ONLY,
    **HEALTH_ONLY,
}
