"""CronJobs on a team's volume under admission policies: its restore drill, and the copies of its results."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from infra.config import StackConfig, parse
from infra.config.arguments import admission as admission_arguments
from infra.domain import naming
from infra.domain.storage import Volume
from infra.kubernetes.admission_policy import binding
from infra.kubernetes.objects import Manifest
from infra.sites.simulated import node_pools, storage
from infra.tenancy import (
    access,
    admission,
    limits,
    network_policies,
    restore_drill,
    results_copy,
    team,
    volumes,
)
from sandbox import paths
from sandbox.cluster import ClusterError
from sandbox.node.api import Client, object_path
from sandbox.node.images import REGISTRY, snapshot
from sandbox.ports import LOOPBACK
from tests.s3.bucket import environment
from tests.sandbox.conftest import Cluster
from tests.sandbox.escape_kit import Asker, create
from tests.sandbox.node_kit import until
from tests.trainer.tiny_checkpoints import damage, run_in
from training.source import digest
from trainyard.objects import Objects
from trainyard.store.factory import find_checkpoints
from trainyard.store.posix import PosixStore

pytestmark = [pytest.mark.sandbox, pytest.mark.long(31)]

TEAM = "drills"
BUCKET = "drills"
NAMESPACE = naming.namespace(TEAM)
CLASS = "drills-shared"
DRILL_S = 240.0
"""A pod that loads torch, on a machine that may be busy with other tests."""


def _access(port: int) -> dict[str, str]:
    """Return what the Secret of the copies has."""
    return {
        "AWS_ACCESS_KEY_ID": "tests",
        "AWS_SECRET_ACCESS_KEY": "tests",
        "AWS_ENDPOINT_URL_S3": f"http://{LOOPBACK}:{port}",
    }


def _config(image: str) -> StackConfig:
    values: dict[str, Any] = {
        "cluster": {"provider": "existing", "name": "drills"},
        "taintKey": "dedicated",
        "cohort": "drills",
        "nodePools": [
            {
                "name": "drills-cpu",
                "workload": "cpu",
                "capacity": "on-demand",
                "instanceTypes": ["m6i.xlarge"],
                "min": 1,
                "max": 1,
                "zone": "drills-zone",
                "nodes": "process",
            }
        ],
        "storage": {"checkpoints": "1Gi", "datasets": "1Gi"},
        "operators": {"kueue": {"provided": True}},
        "images": {"trainer": image},
        "teams": [
            {
                "name": TEAM,
                "tier": "production",
                "quota": {"cpu": "8", "memory": "32Gi", "gpus": 0},
                "restoreDrill": {"largest": "1Gi"},
                "secrets": [{"name": "bucket", "env": sorted(_access(0))}],
                "results": {
                    "store": f"s3://{BUCKET}/{TEAM}",
                    "secretName": "bucket",
                    "schedule": "17 3 * * *",
                },
            }
        ],
    }
    return parse(values)


def _objects(config: StackConfig) -> list[Manifest]:
    [own], [pool] = config.teams, config.pools
    shared = storage.storage_class()
    shared["metadata"]["name"] = CLASS
    policies = admission.policies(admission_arguments(config))
    image, nodes = config.images["trainer"], {naming.POOL: pool.name}
    return [
        node_pools.node(pool, 0),
        shared,
        *policies,
        *(binding(policy) for policy in policies),
        team.namespace(TEAM, "production"),
        access.service_account(TEAM),
        limits.resource_quota(TEAM, own.quota),
        limits.limit_range(TEAM),
        *network_policies.policies(TEAM, ()),
        volumes.claim(TEAM, naming.CHECKPOINTS_CLAIM, Volume(size="1Gi", storage_class=CLASS)),
        results_copy.cron_job(own, image, "", nodes),
        restore_drill.cron_job(TEAM, own.restore_drill, image, nodes),
    ]


@dataclass(frozen=True)
class Drills:
    """A team with its policies, a volume and a drill."""

    cluster: Cluster
    client: Client
    volume: Path

    def run(self, name: str) -> tuple[bool, list[dict[str, Any]]]:
        """Makes a Job of the drill, as it would be made at night; whether it passed, and its lines."""
        return self.run_of(restore_drill.NAME, restore_drill.CONTAINER, name)

    def run_of(self, cron_job: str, container: str, name: str) -> tuple[bool, list[dict[str, Any]]]:
        """The same of a CronJob with this container."""
        found = json.loads(self._kubectl("get", "cronjob", cron_job, "-o", "json"))
        template = found["spec"]["jobTemplate"]
        job = {"metadata": {"name": name, **template["metadata"]}, "spec": template["spec"]}
        jobs = object_path("/apis/batch/v1", NAMESPACE, "jobs")
        self.client.create(jobs, {"apiVersion": "batch/v1", "kind": "Job", **job})

        def ended() -> str | None:
            status = self.client.get(f"{jobs}/{name}").get("status", {})
            kinds = {c["type"] for c in status.get("conditions", []) if c["status"] == "True"}
            return next((kind for kind in ("Complete", "Failed") if kind in kinds), None)

        verdict = until(ended, f"job {name} has ended", DRILL_S)
        text = self._kubectl("logs", f"job/{name}", "-c", container)
        return verdict == "Complete", [json.loads(line) for line in text.splitlines()]

    def termination_message(self, job: str) -> str:
        where = "{.items[0].status.containerStatuses[0].state.terminated.message}"
        selector = f"batch.kubernetes.io/job-name={job}"
        return self._kubectl("get", "pods", "-l", selector, "-o", f"jsonpath={where}")

    def _kubectl(self, *args: str) -> str:
        return self.cluster.kubectl("-n", NAMESPACE, *args)


@pytest.fixture(scope="module")
def drills(cluster: Cluster) -> Iterator[Drills]:
    sources = digest(paths.PROJECT)
    # Now, so that no edit of the sources intervenes.
    snapshot(sources, cluster.state)
    image = f"{REGISTRY}/trainer@sha256:{sources}"
    objects = _objects(_config(image))
    cluster.apply(*objects)
    try:
        asker = Asker(cluster.kubeconfig)
        tagged = json.loads(json.dumps(objects[-1]).replace(image, f"{REGISTRY}/any:v1"))
        tagged["metadata"]["name"] = "tagged"
        until(
            lambda: "REPOSITORY@sha256" in asker.refusal(create(tagged)),
            "the policies are in force",
        )
        cluster.kubectl("wait", "node/drills-cpu-0", "--for=condition=Ready", "--timeout=180s")
        claim = f"pvc/{naming.CHECKPOINTS_CLAIM}"
        bound = "--for=jsonpath={.status.phase}=Bound"
        cluster.kubectl("-n", NAMESPACE, "wait", claim, bound, "--timeout=180s")
        volume = cluster.state.volumes / NAMESPACE / naming.CHECKPOINTS_CLAIM
        yield Drills(cluster, Client(cluster.kubeconfig), volume)
    finally:
        cluster.delete(*objects[::-1])


def test_drill_passes_for_a_valid_checkpoint_and_fails_for_a_corrupt_one(drills: Drills) -> None:
    store: PosixStore = run_in(drills.volume, "llama-v1-0a1b2c3d", 10, 20)
    passed, [line, summary] = drills.run("by-hand-1")
    assert passed, line
    assert (line["run"], line["step"], line["how"]) == ("llama-v1-0a1b2c3d", 20, "restored")
    assert (summary["ok"], summary["runs"], summary["passed"]) == (True, 1, 1)

    name = damage(store, 20)
    passed, [line, summary] = drills.run("by-hand-2")
    assert not passed
    assert f"step-00000020 is corrupt: {name}" in summary["cause"]
    assert "trainer.checkpoint verify" in summary["remedy"]
    # The drill only reads: what it found is as it was.
    assert store.steps() == [10, 20]


def test_results_are_copied_to_a_bucket_with_the_credentials_of_a_secret(drills: Drills) -> None:
    port = drills.cluster.settings.ports["s3"]
    secret = {"metadata": {"name": "bucket"}, "stringData": _access(port)}
    secrets = object_path("/api/v1", NAMESPACE, "secrets")
    drills.client.create(secrets, {"apiVersion": "v1", "kind": "Secret", **secret})
    store = run_in(drills.volume, "copied-v1-0a1b2c3d", 10)
    with environment(f"http://{LOOPBACK}:{port}"):
        to = Objects.at(f"s3://{BUCKET}/{TEAM}/copied-v1-0a1b2c3d")
        to.connection.client().create_bucket(Bucket=BUCKET)
        _, lines = drills.run_of(naming.RESULTS_COPY, results_copy.CONTAINER, "copy-by-hand")
        copied, steps = find_checkpoints(str(to.location))
        assert steps == store.steps() == [10]
        assert copied.verify(10) == []
    assert lines[-1]["runs"] >= 1 and "copied-v1-0a1b2c3d" not in lines[-1]["causes"]
    # `run why` reads the termination message of the newest pod.
    assert json.loads(drills.termination_message("copy-by-hand")) == lines[-1]


def test_kubectl_create_job_from_cronjob_is_rejected_by_admission(drills: Drills) -> None:
    wanted = ("create", "job", "by-kubectl", f"--from=cronjob/{restore_drill.NAME}")
    with pytest.raises(
        ClusterError, match=r"(?s)'trainyard-changes' with binding.*ownerReferences"
    ):
        drills.cluster.kubectl("-n", NAMESPACE, *wanted)
