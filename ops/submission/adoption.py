"""The import file with which a stack adopts a submitted run: `pulumi import --file`."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, Final

from infra.domain import naming
from ops import groups, objects
from ops.cluster import Cluster, Kind
from ops.objects import Json
from ops.submission.stopping import parts_of

_RUNTIMES: Final = Kind("trainer.kubeflow.org/v1alpha1", "trainingruntimes", "TrainingRuntime")


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
