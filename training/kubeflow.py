"""The TrainingRuntime of a team: runs by Kubeflow's SDK get the pods that a run file would give them.

The function that a client sends is started by `trainyard.launch`, see trainyard/adapters/torchrun.bash; the labels
of a run come from trainyard/adapters/kubeflow.py.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from infra.domain import naming
from infra.domain.platform import Platform
from infra.kubernetes.objects import Manifest, metadata
from training import placement
from training.gangs import gang_backend
from training.launchers import pod, trainjob
from training.program import Program
from training.spec import RunSpec
from trainyard import contract

IMAGE: Final = "trainer"
"""Name of the default image in the stack file's `images`."""
_RUN_ID: Final = f"$({contract.RUN_ID_ENV})"
"""Expanded by the kubelet."""
_OF_CLIENT: Final = frozenset(
    contract.PLACEHOLDERS[name].variable
    for name in (
        *("run_id", "nodes", "gpus_per_node", "world_size"),
        *("rendezvous", "rendezvous_host", "rendezvous_port", "run_record"),
    )
)
"""Variables that the client decides, or that a run without a run file lacks."""
_OF_RUN: Final = frozenset({naming.RUN_ID, naming.RUN, naming.RUN_VERSION, naming.WORKER_OF})
"""Labels that the client sets."""


def runtime(team: str, platform: Platform, image: str) -> Manifest | None:
    """Return the TrainingRuntime of a team; None without a queue by label, or a pool with a GPU for a pod.

    A client's `resources_per_node` replaces the requests of one GPU's share of a node, and `num_nodes` the number.
    """
    run = RunSpec(
        name="kubeflow",
        version=1,
        team=team,
        tier=platform.teams[team].tier,
        job_kind="trainjob",
        nodes=1,
        processes_per_node=1,
        image=image,
        config={},
        program=Program(launcher="torchrun", command=("train.py",)),
    )
    queue = gang_backend(platform.scheduler).run_labels(pod.gang(run, platform))
    if naming.QUEUE_NAME not in queue or not placement.eligible_pools(run, platform):
        return None
    found = trainjob.runtime(run, platform)
    found["metadata"] = metadata(
        contract.SDK_RUNTIME,
        namespace=platform.teams[team].namespace,
        labels={
            **_without_run(pod.labels(run)),
            **queue,
            "trainer.kubeflow.org/framework": "torch",
        },
    )
    found["spec"]["mlPolicy"] = {"numNodes": 1, "torch": {}}
    [node] = found["spec"]["template"]["spec"]["replicatedJobs"]
    job = node["template"]
    for labelled in (job, job["spec"]["template"]):
        labelled["metadata"]["labels"] = _without_run(labelled["metadata"]["labels"])
    spec = job["spec"]["template"]["spec"]
    del spec["affinity"]["podAntiAffinity"]  # which names the run
    spec["volumes"] = [one for one in spec["volumes"] if one["name"] != "config"]
    [main] = spec["containers"]
    del main["command"]
    main["volumeMounts"] = [one for one in main["volumeMounts"] if one["name"] != "config"]
    main["workingDir"] = contract.SCRATCH_MOUNT
    main["env"] = _environment(main["env"], run.run_id)
    return found


def _without_run(labels: Mapping[str, str]) -> dict[str, str]:
    return {key: value for key, value in labels.items() if key not in _OF_RUN}


def _environment(rendered: Sequence[Mapping[str, Any]], run_id: str) -> list[dict[str, Any]]:
    """Return the variables of a run file's pod, with the id of the client's run in place of `run_id`."""
    own = f"metadata.labels['{naming.RUN_ID}']"
    adapters = f"{contract.WORKSPACE}/trainyard/adapters"
    return [
        # The first, since others are expanded with it.
        {"name": contract.RUN_ID_ENV, "valueFrom": {"fieldRef": {"fieldPath": own}}},
        {"name": "BASH_ENV", "value": f"{adapters}/torchrun.bash"},
        {"name": "PYTHONPATH", "value": contract.WORKSPACE},
        *(
            {**one, "value": one["value"].replace(run_id, _RUN_ID)} if "value" in one else {**one}
            for one in rendered
            if one["name"] not in (*_OF_CLIENT, "PYTHONPATH")
        ),
    ]
