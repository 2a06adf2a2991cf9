"""Runs by Kubeflow's SDK: what `TrainerClient.train` needs so that the run is one of the caller's team.

    from kubeflow.trainer import CustomTrainer, TrainerClient
    from trainyard.adapters.kubeflow import run_options

    TrainerClient().train(
        trainer=CustomTrainer(func=train, num_nodes=2, resources_per_node={"gpu": 1, "cpu": 8, "memory": "32Gi"}),
        options=run_options("my-run", hours=4),
    )

The pods follow the TrainingRuntime `torch-distributed` that the stack keeps in the team's namespace.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping
from typing import Any, Final

from kubeflow.trainer import options
from kubernetes import client, config

from trainyard.contract import RUN_ID_HASH_CHARS, SDK_RUNTIME

_DOMAIN: Final = "trainyard.dev"
_TIME_LIMIT: Final = "kueue.x-k8s.io/max-exec-time-seconds"


def run_options(
    name: str, *, version: int = 1, hours: float | None = None, context: str | None = None
) -> list[Any]:
    """Return the options of a run: its id, its team's queue, its time limit, and who launches it.

    `hours`: limit of the time that it is admitted; None: none, which a team's caps may refuse. `context`: of the
    kubeconfig; None: the current one, as for the SDK. Each call is a run of its own. Raises LookupError if the
    namespace has no runtime of a stack, ApiException if the caller may not read it.
    """
    load: Callable[..., None] = config.load_kube_config
    load(context=context)
    review: Any = client.AuthenticationV1Api().create_self_subject_review(
        client.V1SelfSubjectReview()
    )
    labels = _of_runtime(_namespace(context)) | {
        "app.kubernetes.io/managed-by": "kubeflow-sdk",
        f"{_DOMAIN}/run": name,
        f"{_DOMAIN}/run-version": str(version),
        f"{_DOMAIN}/run-id": f"{name}-v{version}-{secrets.token_hex(RUN_ID_HASH_CHARS // 2)}",
    }
    limit = {} if hours is None else {_TIME_LIMIT: str(round(hours * 3600))}
    run_id = labels[f"{_DOMAIN}/run-id"]
    return [
        options.Name(run_id),
        options.Labels({**labels, **limit}),
        options.Annotations({f"{_DOMAIN}/launched-by": review.status.user_info.username}),
        options.RuntimePatch(_labelled_pods({**_own(labels), f"{_DOMAIN}/worker-of": run_id})),
    ]


def _namespace(context: str | None) -> str:
    """Return the namespace of a context, in which the SDK creates TrainJobs."""
    listed: Callable[[], Any] = config.list_kube_config_contexts
    contexts, current = listed()
    chosen = next((one for one in contexts if one["name"] == context), current)
    return str(chosen["context"].get("namespace", "default"))


def _of_runtime(namespace: str) -> dict[str, str]:
    """Return the labels that the stack gives to runs of this namespace: team, tier, queue, priority."""
    place = ("trainer.kubeflow.org", "v1alpha1", namespace, "trainingruntimes", SDK_RUNTIME)
    try:
        runtime: Any = client.CustomObjectsApi().get_namespaced_custom_object(*place)
    except client.ApiException as error:
        if error.status != 404:
            raise
        raise LookupError(
            f"namespace {namespace}: has no TrainingRuntime {SDK_RUNTIME}; the SDK requires a team's namespace of "
            "a stack with the add-on kubeflowTrainer; select one by "
            "kubectl config set-context --current --namespace"
        ) from None
    return dict(runtime["metadata"].get("labels") or {})


def _own(labels: Mapping[str, str]) -> dict[str, str]:
    return {key: value for key, value in labels.items() if key.startswith(f"{_DOMAIN}/")}


def _labelled_pods(labels: dict[str, str]) -> options.TrainingRuntimeSpecPatch:
    """Return the patch that gives the run's pods its labels: pods do not inherit those of a TrainJob."""
    metadata = {"labels": labels}
    pods = options.JobSpecPatch(template=options.PodTemplatePatch(metadata=metadata))
    job = options.JobTemplatePatch(metadata=metadata, spec=pods)
    node = options.ReplicatedJobPatch(name="node", template=job)
    return options.TrainingRuntimeSpecPatch(
        template=options.JobSetTemplatePatch(spec=options.JobSetSpecPatch(replicated_jobs=[node]))
    )
