"""A small team on the real API server, scheduler, Kueue and JobSet, and `python -m ops` on it."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from infra.domain import naming
from ops import __main__ as ops
from tests.sandbox.conftest import Cluster
from tests.sandbox.node_kit import HOST, node_manifest, platform_in, until

WORK = "trap 'exit 75' TERM; sleep 600 & wait"
"""As a trainer does, it ends on SIGTERM with its own exit code."""
STEP_S = 180.0
WHY_EVERY_S = 0.5
"""Between two answers of `why`: each takes CPU that a run needs to get to its symptom."""

Json = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Stage:
    """A team and its pools: two process nodes of one GPU, and one node that has a taint."""

    team: str

    @property
    def namespace(self) -> str:
        return naming.namespace(self.team)

    @property
    def real(self) -> str:
        """The pool that Kueue places pods on."""
        return f"{self.team}-real"

    @property
    def bare(self) -> str:
        """The pool that no run may use, left to the scheduler."""
        return f"{self.team}-bare"

    def nodes(self) -> list[str]:
        return [f"{self.real}-{number}" for number in range(2)]

    def platform(self) -> list[Json]:
        levels = [{"nodeLabel": naming.ZONE}, {"nodeLabel": naming.HOSTNAME}]
        namespace = {"name": self.namespace, "labels": {naming.TEAM: self.team}}
        behind = {"clusterQueue": naming.cluster_queue(self.team)}
        return [
            {"apiVersion": "v1", "kind": "Namespace", "metadata": namespace},
            *(self._node(name, self.real) for name in self.nodes()),
            self._node(f"{self.bare}-0", self.bare),
            self._object("Topology", f"{self.team}-topology", {"levels": levels}),
            self._flavor(self.real, topologyName=f"{self.team}-topology"),
            self._flavor(self.bare),
            self.queue(),
            self._object("LocalQueue", self.team, behind),
        ]

    def queue(self) -> Json:
        covered = {"cpu": 100, "memory": "100Gi"}

        def quotas(pool: str, gpus: int) -> Json:
            amounts = covered | {naming.GPU: gpus}
            return {
                "name": pool,
                "resources": [{"name": n, "nominalQuota": str(v)} for n, v in amounts.items()],
            }

        group = {
            "coveredResources": [*covered, naming.GPU],
            "flavors": [quotas(self.real, 2), quotas(self.bare, 1)],
        }
        selector = {"matchLabels": {naming.TEAM: self.team}}
        spec = {"namespaceSelector": selector, "resourceGroups": [group], "stopPolicy": "None"}
        labels = {naming.TEAM: self.team, naming.PART_OF: naming.PROJECT}
        return self._object("ClusterQueue", naming.cluster_queue(self.team), spec, **labels)

    def _object(self, kind: str, name: str, spec: Json, **labels: str) -> Json:
        metadata: Json = {"name": name, "labels": labels}
        if kind == "LocalQueue":
            metadata["namespace"] = self.namespace
        return {"apiVersion": naming.KUEUE_API, "kind": kind, "metadata": metadata, "spec": spec}

    def _flavor(self, pool: str, **more: str) -> Json:
        return self._object("ResourceFlavor", pool, {"nodeLabels": {naming.POOL: pool}, **more})

    def _node(self, name: str, pool: str) -> Json:
        node = node_manifest(name)
        node["metadata"]["labels"] |= {naming.POOL: pool, naming.ZONE: f"{self.team}-zone"}
        if pool == self.bare:
            node["metadata"]["annotations"] = {naming.KWOK_NODE: "fake"}
            node["spec"] = {"taints": [{"key": "ops-maintenance", "effect": "NoSchedule"}]}
        return node

    def run(
        self,
        name: str,
        script: str,
        *,
        nodes: int = 1,
        pool: str = "",
        queued: bool = True,
        image: str = HOST,
        **container: Any,
    ) -> Json:
        """A JobSet as the launcher makes it, with a shell in the trainer's place.

        `pool`: default the real one. `queued` False: it is neither admitted nor scheduled as a gang.
        """
        labels = {
            naming.RUN: name,
            naming.RUN_ID: name,
            naming.TEAM: self.team,
            naming.LAUNCHER: "jobset",
        }
        codes = {"containerName": "trainer", "operator": "In", "values": [78]}
        main = {"image": image, "command": ["sh", "-c", script], **container}
        job = {
            "parallelism": nodes,
            "completions": nodes,
            "completionMode": "Indexed",
            "backoffLimit": 0,
            "podFailurePolicy": {"rules": [{"action": "FailJob", "onExitCodes": codes}]},
            "podReplacementPolicy": "Failed",
            "template": self._template(main, pool or self.real, labels, queued=queued),
        }
        queue = {naming.QUEUE_NAME: self.team} if queued else {}
        return {
            "apiVersion": "jobset.x-k8s.io/v1alpha2",
            "kind": "JobSet",
            "metadata": {"name": name, "namespace": self.namespace, "labels": labels | queue},
            "spec": {
                "replicatedJobs": [{"name": "worker", "replicas": 1, "template": {"spec": job}}]
            },
        }

    def _template(self, main: Json, pool: str, labels: Json, *, queued: bool) -> Json:
        term = {"key": naming.POOL, "operator": "In", "values": [pool]}
        required = {"nodeSelectorTerms": [{"matchExpressions": [term]}]}
        amounts = {"cpu": "100m", "memory": "64Mi", naming.GPU: "1"}
        placed = {naming.PREFERRED_TOPOLOGY: naming.ZONE} if queued and pool == self.real else {}
        return {
            "metadata": {"labels": labels, "annotations": placed},
            "spec": {
                "restartPolicy": "Never",
                "terminationGracePeriodSeconds": 5,
                "automountServiceAccountToken": False,
                "affinity": {
                    "nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}
                },
                "containers": [
                    {
                        "name": "trainer",
                        "resources": {"requests": amounts, "limits": amounts},
                        "volumeMounts": [{"name": "work", "mountPath": "/work"}],
                        **main,
                    }
                ],
                "volumes": [{"name": "work", "emptyDir": {}}],
            },
        }


@contextlib.contextmanager
def staged(cluster: Cluster, stage: Stage) -> Iterator[Cluster]:
    pools, queues = (stage.real, stage.bare), (naming.cluster_queue(stage.team),)
    made = {stage.namespace: "jobsets"}
    with platform_in(cluster, stage.platform(), pools, queues, made) as ready:
        yield ready


@dataclass(frozen=True)
class Live:
    """The team on the cluster, and our commands on it."""

    cluster: Cluster
    capsys: pytest.CaptureFixture[str]
    stage: Stage

    def command(self, *argv: str) -> tuple[int, str]:
        self.capsys.readouterr()
        code = ops.main([*argv, "--kubeconfig", str(self.cluster.kubeconfig)])
        return code, self.capsys.readouterr().out

    def why(self, run: str, *options: str) -> Json:
        code, text = self.command("run", "why", run, "--json", *options)
        assert code == 0, text
        answer: Json = json.loads(text)
        return answer

    def attempt(self, run: str) -> int:
        code, text = self.command("run", "show", run, "--json")
        assert code == 0, text
        return int(json.loads(text)["attempt"])

    def await_symptom(
        self, run: str, symptom: str, *options: str, deadline_s: float = STEP_S
    ) -> Json:
        """The answer, once it is this symptom; fails with the last answer otherwise."""
        last: Json = {}

        def found() -> Json | None:
            last.update(self.why(run, *options))
            return last if last["symptom"] == symptom else None

        try:
            return until(found, f"{run} is {symptom}", deadline_s, every_s=WHY_EVERY_S)
        except AssertionError as error:
            logs = self.cluster.kubectl(
                *("logs", "-n", self.stage.namespace, "-l", f"{naming.RUN_ID}={run}"),
                *("--tail=20", "--ignore-errors"),  # a Pending pod has none
            )
            raise AssertionError(f"{error}; the last answer was {last}; {logs}") from None

    def start(self, name: str, script: str, **options: Any) -> None:
        manifest = self.stage.run(name, script, **options)
        self.cluster.kubectl("create", "-f", "-", stdin=json.dumps(manifest))

    def stop(self, *runs: str) -> None:
        namespace = self.stage.namespace
        self.cluster.kubectl("delete", "jobset", "-n", namespace, "--timeout=180s", *runs)

    def pods(self, run: str = "") -> list[Json]:
        selector = ["-l", f"{naming.RUN_ID}={run}"] if run else []
        listed = self.cluster.kubectl(
            "get", "pods", "-n", self.stage.namespace, "-o", "json", *selector
        )
        return [
            pod
            for pod in json.loads(listed)["items"]
            if pod["status"].get("phase") in ("Pending", "Running")
        ]
