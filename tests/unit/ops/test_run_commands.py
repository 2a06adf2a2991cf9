"""`trainyard run show`, `logs`, `wait` and `compare`."""

from __future__ import annotations

import json
from typing import Any

import pytest

from infra.domain import naming
from ops import watched
from ops.cluster import ForbiddenError, Kind, UnreachableError
from ops.objects import Json
from ops.runs import following, logs_command, wait_command
from ops.runs.log_reader import LogReader
from tests.unit.ops.conftest import Cli
from tests.unit.ops.run_fixtures import (
    NAMESPACE,
    RUN_ID,
    at,
    condition,
    ended,
    node,
    pod,
    run,
    runs_on,
)
from tests.unit.ops.test_ops_commands import FakeCluster
from tests.unit.ops.test_run_list import another
from tests.unit.snapshots import Text


def config_map(name: str = RUN_ID, steps: int = 1000, **changes: Any) -> Json:
    """The ConfigMap of a run."""
    record = {
        "run_id": name,
        "nodes": 2,
        "processes_per_node": 8,
        "world_size": 16,
        "git_commit": "c" * 40,
        "dirty": False,
        "launched_by": "ada",
        "dataset": {"name": "stdlib", "version": "latest"},
        "checkpoint_path": f"/checkpoints/{name}/checkpoints",
    }
    config = f"batch:\n  global_samples: 256\nsteps: {steps}\n"
    data = {"run.json": json.dumps(record | changes), "trainer.yaml": config}
    return {
        "kind": "ConfigMap",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "data": data,
    }


def numbered(index: int, **changes: Any) -> Json:
    """The pod of a node's rank."""
    found = pod(f"hello-worker-0-{index}", **changes)
    found["metadata"]["labels"] |= {naming.JOB_INDEX: str(index)}
    found["spec"]["nodeName"] = f"spot-{index}"
    found["status"]["containerStatuses"] = [{"name": "trainer", "state": {"running": {}}}]
    return found


def running(**items: Any) -> FakeCluster:
    """A cluster in which the run trains on two nodes."""
    spot = node("spot-0")
    spot["metadata"]["labels"] |= {naming.CAPACITY: "spot", naming.INSTANCE_TYPE: "p5.48xlarge"}
    usual: dict[str, Any] = {
        "jobsets": [run(status={"restarts": 1})],
        "workloads": [runs_on()],
        "pods": [numbered(1), numbered(0)],
        "nodes": [spot],
        "configmaps": [config_map()],
    }
    return FakeCluster(**(usual | items))


LOG = f"{at(20)} step 120/1000  loss 5.402  1,200 tokens/s  29 s left\n{at(19)} \x1b[31msaved\n"


def test_show(cli: Cli, text: Text) -> None:
    cluster = running()
    cluster.texts["hello-worker-0-0/log"] = LOG
    assert cli(cluster, "run", "show", "hello") == 0
    out = cli.out
    text([line for line in out.splitlines() if " ago)" not in line])


def test_show_as_json(cli: Cli) -> None:
    cluster = running()
    cluster.texts["hello-worker-0-0/log"] = LOG
    assert cli(cluster, "run", "show", "hello", "--json") == 0
    found = json.loads(cli.out)
    assert (found["state"], found["attempt"], found["progress"]["loss"]) == ("running", 2, 5.402)
    assert found["lineage"] == {"git_commit": "c" * 40, "dirty": "false", "launched_by": "ada"}
    assert found["configuration"]["config.batch.global_samples"] == "256"
    first, second = found["pods"]
    assert (first["rank"], first["capacity"], first["instance_type"]) == (0, "spot", "p5.48xlarge")
    assert (second["node"], second["capacity"]) == ("spot-1", "")
    assert found["interruptions"][0].startswith("restarted 1 time")


def test_show_says_what_a_role_may_not_read(cli: Cli) -> None:
    cluster = FakeCluster(("nodes", "clusterqueues"), jobsets=[run()], workloads=[runs_on()])
    assert cli(cluster, "run", "show", "hello") == 0
    out = cli.out
    assert "not readable with your role: clusterqueues, nodes" in out
    assert f"configuration: configmap/{RUN_ID} does not exist" in out


def test_logs_of_a_rank_are_those_of_its_node(cli: Cli) -> None:
    cluster = running()
    cluster.texts |= {"hello-worker-0-0/log": LOG, "hello-worker-0-1/log": f"{at(9)} from node 1"}
    assert cli(cluster, "run", "logs", "hello") == 0
    assert cli.out.splitlines()[1] == "saved"
    assert cli(cluster, "run", "logs", "hello", "--rank", "15") == 0
    assert cli.out == "from node 1\n"


@pytest.mark.parametrize(
    ("argv", "items"),
    [
        (["--rank", "16"], {}),
        (["--attempt", "7"], {}),
        ([], {"pods": []}),
        (["--rank", "3"], {"configmaps": []}),
    ],
)
def test_logs_that_do_not_exist(argv: list[str], items: Any, cli: Cli, text: Text) -> None:
    assert cli(running(**items), "run", "logs", "hello", *argv) == 2
    text(cli.err)


class LogCluster:
    """Serves a growing log as the kubelet does: `sinceTime` is rounded down to a second."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.queries: list[dict[str, str]] = []

    def text(self, path: str, query: Any, timeout_s: float) -> str:
        asked = dict(query)
        self.queries.append(asked)
        since = asked.get("sinceTime", "")[:19]
        return "\n".join(line for line in self.lines if line[:19] >= since)


def test_each_line_of_a_growing_log_is_read_once() -> None:
    cluster = LogCluster()
    reader = LogReader(cluster=cluster, namespace="n", pod="p", container="c", tail=5)  # type: ignore[arg-type]
    seen: list[str] = []
    for more in (
        ["2026-11-21T12:00:00.5Z a", "2026-11-21T12:00:00.50001Z b"],
        [],
        ["2026-11-21T12:00:00.50001Z c", "2026-11-21T12:00:00.50001Z d"],
        ["2026-11-21T12:00:00.50001Z e", "2026-11-21T12:00:01.1Z f"],
        ["2026-11-21T12:00:01.12Z g"],
    ):
        cluster.lines += more
        found = reader.read()
        seen += [line.text for line in found or []]
    assert seen == list("abcdefg")
    assert cluster.queries[0]["tailLines"] == "5"
    assert cluster.queries[-1]["sinceTime"] == "2026-11-21T12:00:01Z"


class ChangingCluster(FakeCluster):
    """Another state with each read of the run; an exception in place of a state is raised."""

    def __init__(self, *states: Any) -> None:
        super().__init__(**states[0])
        self._left = list(states)

    def get(self, kind: Kind, name: str, namespace: str | None = None) -> Json | None:
        found = self._left.pop(0) if len(self._left) > 1 else self._left[0]
        if isinstance(found, Exception):
            raise found
        self._items = found
        return super().get(kind, name, namespace)


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """No pauses between reads."""
    monkeypatch.setattr(watched, "fresh_s", lambda took_s: 0.0)
    for module in (following, wait_command, logs_command):
        monkeypatch.setattr(f"{module.__name__}.time.sleep", lambda _: None)
    monkeypatch.setattr(following.read_again, "__defaults__", (lambda _: None,))


def states_of(*last: Any, **over: Any) -> list[Any]:
    running_now = {"jobsets": [run()], "workloads": [runs_on()], "pods": [pod("a"), pod("b")]}
    queued = {"jobsets": [run()], "workloads": [], "pods": []}
    return [
        queued,
        queued,
        running_now,
        *last,
        {"jobsets": [run(**over)], "pods": list(last_pods(over))},
    ]


def last_pods(over: Any) -> list[Json]:
    message = over["status"]["conditions"][0]["message"]
    return [pod("a", "Failed", **ended(int(message)))] if message.isdigit() else []


def test_wait_ends_with_the_exit_code_of_the_run(quick: None, cli: Cli, text: Text) -> None:
    lost = [UnreachableError("API server: no answer")] * 3
    failed = {"conditions": [condition("Failed", message="78")]}
    assert cli(ChangingCluster(*states_of(*lost, status=failed)), "run", "wait", "hello") == 78
    text(cli.out)
    training = ChangingCluster(*states_of(status=failed))
    training.texts["a/log"] = f"{at(20)} step 60/1000 loss 6.0\n{at(10)} step 120/1000 loss 5.402\n"
    assert cli(training, "run", "wait", "hello") == 78
    assert "; step 120/1000, loss 5.402, about 2 min left" in cli.out
    done = {"conditions": [condition("Completed", message="all")]}
    assert cli(ChangingCluster(*states_of(status=done)), "run", "wait", "hello") == 0
    bare = {"conditions": [condition("Failed", message="jobset failed: exit code 9 of a pod")]}
    assert cli(ChangingCluster(*states_of(status=bare)), "run", "wait", "hello") == 9


def test_wait_for_a_deleted_run_is_an_error(quick: None, cli: Cli, text: Text) -> None:
    cluster = ChangingCluster({"jobsets": [run()]}, {"jobsets": []})
    assert cli(cluster, "run", "wait", "hello") == 1
    text(cli.err)


def test_expired_credentials_end_a_wait(quick: None, cli: Cli) -> None:
    cluster = ChangingCluster({"jobsets": [run()]}, ForbiddenError("no"))
    assert cli(cluster, "run", "wait", "hello") == 2


def test_logs_are_followed_to_the_end_of_the_run(quick: None, cli: Cli) -> None:
    first, second = pod("a"), pod("b")
    second["metadata"]["creationTimestamp"] = at(1)
    alive = {"jobsets": [run()], "workloads": [runs_on()]}
    over = [run(status={"conditions": [condition("Completed")]})]
    cluster = ChangingCluster(
        {"jobsets": [run()]},
        {"jobsets": [run()]},
        alive | {"pods": [first]},
        alive | {"pods": []},
        alive | {"pods": [second]},
        {"jobsets": over, "pods": [second]},
    )
    cluster.texts |= {"/a/log": f"{at(9)} one", "/b/log": f"{at(8)} two"}
    assert cli(cluster, "run", "logs", "hello", "-f") == 0
    found = cli
    assert found.out == "one\ntwo\n"
    assert "is queued; waiting for its pods" in found.err
    assert found.err.endswith(f"-- {RUN_ID} is finished\n")


def test_compare(cli: Cli, text: Text) -> None:
    other = another("wide")
    name = other["metadata"]["name"]
    maps = [config_map(), config_map(name, steps=2000, git_commit="d" * 40, nodes=4)]
    cluster = running(jobsets=[run(), other], configmaps=maps)
    cluster.texts["hello-worker-0-0/log"] = LOG
    assert cli(cluster, "run", "compare", "hello", "wide") == 0
    text(cli.out)
    assert cli(cluster, "run", "compare", "hello", "wide", "--json") == 0
    found = json.loads(cli.out)
    assert found["configuration"]["nodes"] == {RUN_ID: "2", name: "4"}
    assert found["losses"] == {RUN_ID: {"step": 120, "loss": 5.402}}


@pytest.mark.parametrize("names", [["hello"], ["hello", RUN_ID]])
def test_compare_needs_different_runs(names: list[str], cli: Cli, text: Text) -> None:
    assert cli(running(), "run", "compare", *names) == 2
    text(cli.err)
