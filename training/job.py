"""One run on the platform: RunSpec and Platform in, Kubernetes objects out."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from infra.domain.platform import Platform
from infra.kubernetes.objects import Manifest, metadata
from infra.observability.dashboards import run_url
from training import needs, placement, preparation
from training.gangs import gang_backend
from training.launchers import LAUNCHERS, pod, program
from training.spec import NOT_KNOWN, Launch, RunSpec
from trainyard import contract


def config_map(run: RunSpec, platform: Platform, record: Mapping[str, Any]) -> Manifest:
    """Return the run's record with its hyperparameters or its program, mounted into every pod."""
    own = program.config_data(run)
    text = json.dumps(record, indent=2, sort_keys=True) + "\n"
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": metadata(
            run.run_id, namespace=platform.teams[run.team].namespace, labels=pod.labels(run)
        ),
        "immutable": True,
        **own,
        "data": {contract.RUN_RECORD_FILE: text, **own["data"]},
    }


def manifests(
    run: RunSpec, platform: Platform, git_commit: str, launch: Launch = NOT_KNOWN
) -> list[Manifest]:
    """Return every object of a run in the order of creation; the last is the run itself, which queues."""
    record = run.record(stack=platform.stack, git_commit=git_commit, launch=launch)
    return [
        config_map(run, platform, record),
        *program.source_config_maps(run, platform, pod.labels(run)),
        *gang_backend(platform.scheduler).groups(pod.gang(run, platform), pod.labels(run)),
        *LAUNCHERS[run.job_kind].render(run, platform),
    ]


def outputs(run: RunSpec, platform: Platform, queued: Manifest) -> dict[str, Any]:
    """Return a run's entry of the stack output `runs`. `queued`: the last of its manifests."""
    team = platform.teams[run.team]
    pools = placement.eligible_pools(run, platform)
    return {
        "runId": run.run_id,
        "name": run.run_id,
        "run": run.name,
        "version": run.version,
        "team": run.team,
        "namespace": team.namespace,
        "apiVersion": queued["apiVersion"],
        "kind": queued["kind"],
        "queue": team.local_queue,
        "checkpointUri": team.checkpoint_uri(run.run_id),
        "image": run.image,
        "nodes": run.nodes,
        "worldSize": run.world_size,
        "pools": [pool.name for pool in pools],
        "usdPerHour": placement.usd_per_hour(run, pools),
        **({"groups": [gang.gang_id for gang in run.gangs()]} if run.groups else {}),
        **({"dashboard": run_url(platform.grafana, run.run_id)} if platform.grafana else {}),
    }


def submitted(
    run: RunSpec, platform: Platform, git_commit: str, launch: Launch = NOT_KNOWN
) -> list[Manifest]:
    """Return every object of a run that is submitted without Pulumi; an existing one is left as it is.

    The first prepare the dataset and fetch the model, if they have sources; runs with the same data, model and
    code share them. The last is the run itself.
    """
    before = [preparation.job(need, platform) for need in needs.needs(run)]
    return [*before, *manifests(run, platform, git_commit, launch)]
