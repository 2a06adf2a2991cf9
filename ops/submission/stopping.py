"""Stop a run so that it saves, and start it again where it stopped.

Stopping deletes the run's object: its pods get SIGTERM and save within their grace period, and its queue place is
free. What the run consists of besides stays, if it was submitted, and with it all that `resume` needs.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from typing import Any, Final

from infra.domain import naming
from ops import groups, objects, stopped
from ops.cluster import Cluster, ClusterError, ConflictError, Kind
from ops.collect import CONFIG_MAPS, PODS
from ops.objects import Json
from ops.runs import states
from ops.snapshot import pluralize
from ops.submission import create
from ops.submission.create import kind_of

POLL_S: Final = 1.0
_SERVICES: Final = Kind("v1", "services", "Service")
_RUNTIMES: Final = Kind("trainer.kubeflow.org/v1alpha1", "trainingruntimes", "TrainingRuntime")


def stop(cluster: Cluster, run: Json) -> bool:
    """Stop a run; return whether `resume` can continue it. Raises ClusterError.

    The parts of a submitted run lose their owner first, or they would be deleted with it.
    """
    if states.has_ended(run):
        raise ClusterError(
            f"run {objects.name(run)}: has ended already; there is nothing to stop; trainyard run show "
            f"{objects.name(run)} shows its result"
        )
    if stopped.is_stopped(run):
        raise ClusterError(
            f"run {objects.name(run)}: is stopped already; trainyard run resume {objects.name(run)} continues it, "
            "and run stop --delete removes it"
        )
    namespace = str(objects.meta(run)["namespace"])
    parts = parts_of(cluster, namespace, objects.name(run))
    resumable = bool(_gangs_of(parts, objects.name(run)))
    for part in parts if resumable else ():
        labels = {naming.STOPPED: "true", naming.UNFINISHED: None}
        change = {"metadata": {"labels": labels, "ownerReferences": None}}
        cluster.patch(kind_of(part), objects.name(part), change, namespace)
    for gang in groups.gangs(run):
        cluster.delete(kind_of(gang), objects.name(gang), namespace)
    return resumable


def parts_of(cluster: Cluster, namespace: str, run_id: str) -> list[Json]:
    """Return the objects that name the run as their owner."""
    selector = f"{naming.RUN_ID}={run_id}"
    return [
        item
        for kind in (CONFIG_MAPS, _SERVICES)
        for item in cluster.items(kind, namespace, selector)
        if objects.name(item) == run_id or objects.name(item).startswith(f"{run_id}-")
    ]


def _gangs_of(parts: Sequence[Json], run_id: str) -> list[Json]:
    """Return the run's object, or those of its groups, as it was submitted; none for a run of a stack."""
    return stopped.gangs_in(_note(parts, run_id, naming.RUN_MANIFEST) or "")


def run_file_of(cluster: Cluster, namespace: str, run_id: str) -> Json | None:
    """Return the document that a run was submitted from; None for a run of a stack."""
    text = _note(parts_of(cluster, namespace, run_id), run_id, naming.RUN_FILE)
    return None if text is None else json.loads(text)


def _note(parts: Sequence[Json], run_id: str, name: str) -> str | None:
    for part in parts:
        if part["kind"] == "ConfigMap" and objects.name(part) == run_id:
            found = (objects.meta(part).get("annotations") or {}).get(name)
            return None if found is None else str(found)
    return None


def resume(cluster: Cluster, stopped: Json, user: str) -> Json:
    """Start a stopped run again; it continues from its newest checkpoint. Raises ClusterError."""
    namespace, run_id = str(objects.meta(stopped)["namespace"]), objects.name(stopped)
    parts = parts_of(cluster, namespace, run_id)
    gangs = _gangs_of(parts, run_id)
    if not gangs:
        raise ClusterError(
            f"run {run_id}: its ConfigMap has no {naming.RUN_MANIFEST}; submit its run file again"
        )
    made = []
    try:
        for gang in gangs:
            about = {key: gang[key] for key in ("apiVersion", "kind")}
            made.append(cluster.create(kind_of(gang), create.as_user(gang, user)) | about)
    except ClusterError as error:
        for gang in made:
            cluster.delete(kind_of(gang), objects.name(gang), namespace)
        if not isinstance(error, ConflictError):
            raise
        raise ClusterError(
            f"run {run_id}: exists, or its pods have not ended yet; wait, and run the command again"
        ) from None
    for part in parts:
        create.adopt(cluster, part, made)
    return groups.merged(made)[0]


def remove(cluster: Cluster, namespace: str, run_id: str) -> None:
    """Delete the parts of a run whose object is gone; its checkpoints stay."""
    for part in parts_of(cluster, namespace, run_id):
        cluster.delete(kind_of(part), objects.name(part), namespace)
    for item in cluster.items(_RUNTIMES, namespace, f"{naming.RUN_ID}={run_id}"):
        cluster.delete(_RUNTIMES, objects.name(item), namespace)


def wait_for_pods(
    cluster: Cluster,
    namespace: str,
    run_id: str,
    report: Callable[[str], None],
    sleep: Callable[[float], None] = time.sleep,
) -> None:
    """Return when the run has no more pods that run: all have saved, or their grace period is over."""
    said = -1
    while True:
        pods = cluster.items(PODS, namespace, f"{naming.RUN_ID}={run_id}")
        left = [p for p in pods if objects.status(p).get("phase") in ("Pending", "Running")]
        if len(left) != said:
            report(f"{pluralize(len(left), 'pod')} left")
            said = len(left)
        if not left:
            return
        sleep(POLL_S)


def provider_urn(stack: str, project: str = naming.PROJECT) -> str:
    """Return the URN of the Kubernetes provider of a stack on an existing cluster."""
    return f"urn:pulumi:{stack}::{project}::pulumi:providers:kubernetes::cluster"


def objects_of(cluster: Cluster, run: Json) -> list[Json]:
    """Return a run and its parts."""
    namespace, run_id = str(objects.meta(run)["namespace"]), objects.name(run)
    runtimes = cluster.items(_RUNTIMES, namespace, f"{naming.RUN_ID}={run_id}")
    return [*parts_of(cluster, namespace, run_id), *runtimes, *groups.gangs(run)]


def _type(part: Json) -> str:
    """Return the type token of an object, as infra/kubernetes/objects.py has it."""
    version = str(part["apiVersion"])
    return f"kubernetes:{'core/v1' if version == 'v1' else version}:{part['kind']}"


def import_file(parts: Sequence[Json], provider: str) -> str:
    """Return the import file, with the names of training/job.py; the last part is of the run's kind."""
    run_id = objects.run_id_of(parts[-1])
    resources: list[dict[str, Any]] = [
        {"type": naming.training_type("TrainingJob"), "name": run_id, "component": True}
    ]
    for part in parts:
        suffix = objects.name(part).removeprefix(run_id)
        resources.append(
            {
                "type": _type(part),
                "name": f"{run_id}{suffix}-{part['kind'].lower()}",
                "id": objects.full_name(part),
                "parent": run_id,
                "provider": "cluster",
            }
        )
    return json.dumps({"nameTable": {"cluster": provider}, "resources": resources}, indent=2)
