"""Launchers and placement: what every run's pods must and must not say."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from infra.config import StackConfig, platform_record
from infra.domain import catalog, naming, quantity
from infra.domain.platform import Platform
from infra.domain.pools import Nodes
from infra.sites.aws import imds_sidecar
from tests.golden.example_runs import LAUNCHERS, platform, run, run_of, stack_values
from tests.unit.training import pods
from training import placement, spec
from training.gangs import kueue
from training.job import manifests, outputs
from training.launchers import LAUNCHERS as KNOWN
from training.launchers import pod as pods_of_runs
from training.launchers import pytorchjob
from training.launchers.program import started
from training.needs import Preparation
from training.preparation import job as preparation_job
from training.spec import RunSpec


def test_every_launcher_has_an_example() -> None:
    assert set(KNOWN) == set(LAUNCHERS)


@pytest.mark.parametrize("launcher", LAUNCHERS)
def test_every_worker_gets_the_secrets_that_the_run_names_by_reference_and_no_others(
    launcher: str,
) -> None:
    teams = stack_values()["teams"]
    teams[0]["secrets"] = [
        {"name": "hub", "env": ["HF_TOKEN", "HF_USER"]},
        {"name": "tracking", "env": ["WANDB_API_KEY"]},
    ]
    here = platform(teams=teams)
    named = replace(run_of(launcher), secrets=("hub",))
    found = list(pods.templates(manifests(named, here, "c" * 40)))
    assert found
    for pod in found:
        env = {one["name"]: one for one in pod["spec"]["containers"][0]["env"]}
        for key in ("HF_TOKEN", "HF_USER"):
            assert env[key]["valueFrom"] == {"secretKeyRef": {"name": "hub", "key": key}}
        assert "WANDB_API_KEY" not in env
    assert "secretKeyRef" not in str(manifests(run_of(launcher), here, "c" * 40))


def test_research_may_go_to_spot_and_on_demand_in_this_order() -> None:
    pools = placement.eligible_pools(run(), platform())
    assert [pool.name for pool in pools] == ["spot", "ondemand"]
    assert outputs(run(), platform(), manifests(run(), platform(), "c0ffee")[-1])["pools"] == [
        "spot",
        "ondemand",
    ]


def test_a_run_without_spot_neither_selects_nor_tolerates_it() -> None:
    only = run(capacity_types=("on-demand",))
    pools = placement.eligible_pools(only, platform())
    assert [pool.name for pool in pools] == ["ondemand"]
    assert [t["key"] for t in placement.tolerations(pools)] == ["dedicated"]


def test_a_run_of_several_nodes_takes_whole_nodes() -> None:
    assert placement.eligible_pools(run(processes_per_node=4), platform()) == ()
    assert placement.eligible_pools(run(nodes=1, processes_per_node=4), platform()) != ()


def test_a_wanted_model_is_selected_on_the_node() -> None:
    wanted = run(gpu_model="a100")
    pools = placement.eligible_pools(wanted, platform())
    affinity = placement.affinity(wanted, pools)["nodeAffinity"]
    [term] = affinity["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    assert {"key": "gpu.model", "operator": "In", "values": ["a100"]} in term["matchExpressions"]
    assert placement.eligible_pools(run(gpu_model="l4"), platform()) == ()


def test_network_settings_follow_from_the_pools_network() -> None:
    efa = placement.eligible_pools(run(), platform())
    assert placement.network_env(run(), efa)["FI_PROVIDER"] == "efa"
    assert placement.network_devices(run(), efa) == {naming.EFA: 4}
    assert kueue.BACKEND.topology(run(), efa) == {naming.REQUIRED_TOPOLOGY: naming.ZONE}

    plain = [p | {"network": "tcp"} for p in stack_values()["nodePools"]]
    tcp = placement.eligible_pools(run(), platform(nodePools=plain))
    assert placement.network_env(run(), tcp)["NCCL_IB_DISABLE"] == "1"
    assert placement.network_devices(run(), tcp) == {}
    assert kueue.BACKEND.topology(run(), tcp) == {naming.PREFERRED_TOPOLOGY: naming.ZONE}

    assert placement.network_env(run(nodes=1), efa) == {}
    mixed = (efa[0], tcp[1])
    assert placement.network_env(run(), mixed) == {"NCCL_DEBUG": "WARN"}


def test_a_run_costs_its_nodes_on_the_dearest_pool_it_may_use() -> None:
    said = outputs(run(), platform(), manifests(run(), platform(), "c0ffee")[-1])
    one = catalog.price("p4d.24xlarge").on_demand_usd_hour
    assert one and said["usdPerHour"] == round(2 * one, 4)
    assert said["checkpointUri"] == f"pvc://team-research/checkpoints/{run().run_id}/checkpoints"
    assert (said["kind"], said["queue"], said["namespace"]) == (
        "JobSet",
        "research",
        "team-research",
    )
    assert (said["nodes"], said["worldSize"]) == (2, 16)


def test_pods_of_a_run_wait_for_the_file_that_the_preparation_writes() -> None:
    preparation = Preparation.for_run(run())
    assert preparation is not None
    job = preparation_job(preparation, platform())
    assert job["metadata"]["annotations"][naming.SKIP_AWAIT] == "true"
    command = job["spec"]["template"]["spec"]["containers"][0]["command"]
    for launcher in LAUNCHERS:
        found = list(pods.templates(manifests(run_of(launcher), platform(), "c")))
        assert found
        for one in found:
            waiting, *after = one["spec"]["initContainers"]
            assert [c["name"] for c in after] in ([], [pytorchjob.WAITING])
            assert waiting["command"][-1] == command[command.index("--state") + 1]
            assert naming.GPU not in waiting["resources"]["requests"]


def test_a_dataset_is_prepared_as_its_run_file_says() -> None:
    wanted = spec.Dataset(
        name="web",
        source="s3://corpora/research/web",
        format="jsonl",
        column="body",
        tokenizer="train:8192",
        resources=spec.PreparationResources(cpu="3500m", memory="8Gi"),
    )
    found = replace(
        platform(),
        teams={
            name: replace(team, secrets={"s3": ("AWS_ACCESS_KEY_ID",)})
            for name, team in platform().teams.items()
        },
    )
    preparation = Preparation.for_run(run(dataset=wanted, secrets=("s3",)))
    assert preparation is not None
    [main] = preparation_job(preparation, found)["spec"]["template"]["spec"]["containers"]
    words = main["command"]
    given = dict(zip(words[3::2], words[4::2], strict=True))
    assert given["--source"] == "s3://corpora/research/web"
    assert (given["--format"], given["--column"]) == ("jsonl", "body")
    assert (given["--tokenizer"], given["--processes"]) == ("train:8192", "4")
    assert main["resources"]["limits"] == {"cpu": "3500m", "memory": "8Gi"}
    assert "AWS_ACCESS_KEY_ID" in {e["name"] for e in main["env"]}
    local = Preparation.for_run(run(dataset=replace(wanted, source="/data/raw"), secrets=("s3",)))
    assert local is not None and local.secrets == ()


def test_a_version_that_a_run_names_is_the_one_it_reads() -> None:
    pinned = run(dataset=spec.Dataset(name="web", version="0123456789abcdef"))
    assert "data.version=0123456789abcdef" in started(pinned).command
    assert not any("data.version" in word for word in started(run()).command)


def test_a_preparation_is_named_by_its_content() -> None:
    one = Preparation.for_run(run())
    assert one == Preparation.for_run(run(seed=99))
    other = Preparation.for_run(run(image="registry.example.com/trainer@sha256:" + "7" * 64))
    assert one is not None and other is not None
    assert one.name != other.name
    assert Preparation.for_run(run(dataset=spec.Dataset(name="stdlib"))) is None


def test_a_run_queued_for_nodes_that_karpenter_makes_is_placed_by_the_scheduler() -> None:
    pools = stack_values()["nodePools"]
    mixed = [pools[0] | {"nodes": "karpenter"}, *pools[1:]]
    found = platform_record.platform(
        StackConfig.model_validate(stack_values() | {"nodePools": mixed}), "x"
    )
    assert kueue.BACKEND.topology(run(), found.gpu_pools("research")) == {}


def test_a_stack_that_asks_for_it_has_a_sidecar_that_polls_for_notices() -> None:
    found = replace(platform(), pod_additions=imds_sidecar.pod_additions())
    main = pods_of_runs.container(run(), found, ["train"])
    body = pods_of_runs.pod_spec(run(), found, main)
    sidecar, waiting = body["initContainers"]
    assert waiting["name"] == "dataset"
    assert (sidecar["restartPolicy"], sidecar["image"]) == ("Always", run().image)
    [notice] = [e["value"] for e in main["env"] if e["name"] == "TRAINYARD_NOTICE_FILE"]
    [mount] = [m["mountPath"] for m in sidecar["volumeMounts"]]
    assert notice.startswith(mount)
    assert mount in {m["mountPath"] for m in main["volumeMounts"]}
    prepared = run(dataset=spec.Dataset(name="stdlib"))
    assert "initContainers" not in pods_of_runs.pod_spec(prepared, platform(), main)


def test_on_a_pool_of_several_types_a_model_is_asked_for_by_type() -> None:
    pools = stack_values()["nodePools"]
    types = ["p4d.24xlarge", "p3dn.24xlarge"]
    mixed = [pools[0], pools[1] | {"instanceTypes": types, "network": "tcp"}, *pools[2:]]
    found = platform(nodePools=mixed)
    wanted = run(gpu_model="a100")
    affinity = placement.affinity(wanted, placement.eligible_pools(wanted, found))
    terms = affinity["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    keys = {t["key"]: t["values"] for t in terms["nodeSelectorTerms"][0]["matchExpressions"]}
    assert keys[naming.INSTANCE_TYPE] == ["p4d.24xlarge"]
    assert naming.GPU_MODEL not in keys


def scratch_volume(example: RunSpec, target: Platform) -> dict[str, Any]:
    """The pod's volume on the node's disk."""
    (found,) = [
        volume["emptyDir"]
        for pod in pods.templates(manifests(example, target, "c" * 40))
        for volume in pod["spec"]["volumes"]
        if volume["name"] == "scratch"
    ]
    return dict(found)


def on_nodes(nodes: Nodes) -> Platform:
    """The example platform with nodes from this source."""
    known = platform()
    return replace(known, pools=tuple(replace(pool, nodes=nodes) for pool in known.pools))


def test_scratch_on_local_nvme_leaves_room_for_images_and_for_other_pods_of_the_node() -> None:
    disk = catalog.load().types["p4d.24xlarge"].nvme_gb * 1e9
    managed = on_nodes(Nodes.MANAGED)
    whole = quantity.bytes_(scratch_volume(run(), managed)["sizeLimit"])
    assert 0.75 * disk < whole < 0.85 * disk
    single = run(nodes=1, processes_per_node=1, job_kind="job")
    part = quantity.bytes_(scratch_volume(single, managed)["sizeLimit"])
    assert 8 * part <= whole


def test_scratch_has_no_limit_where_the_disk_is_unknown() -> None:
    assert scratch_volume(run(), on_nodes(Nodes.EXISTING)) == {}
