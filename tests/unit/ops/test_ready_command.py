"""`trainyard stack ready`: exit codes, what scripts read."""

from __future__ import annotations

import datetime as dt
import json

import pytest

from ops.cluster import ClusterError, UnreachableError
from ops.objects import Json
from ops.ready import results, stack_facts
from ops.ready.results import Check, StageResult, failed, passed, skipped
from tests.unit.ops.conftest import Cli
from tests.unit.ops.ready_cluster import (
    LiveFake,
    condition,
    facts,
    job_result,
    kind_of,
    passes,
    whole,
)
from tests.unit.snapshots import Text


def ready(cli: Cli, cluster: LiveFake, *argv: str) -> int:
    return cli(cluster, "stack", "ready", *argv)


def test_text_output_lists_each_stage(cli: Cli, text: Text) -> None:
    ready(cli, whole())
    output = cli.out.splitlines()
    text(output[0])
    text(output[1])
    text(output[2].split(None, 1))
    assert any(
        line.startswith("9 production the stack is ready for production: ") for line in output
    )
    assert (
        "  failed      Cost controls: Quotas, priority classes, and queueing are configured"
        in output
    )


def test_json_output_is_one_object_and_nothing_else_on_stdout(cli: Cli) -> None:
    bad = {"validation": "smoke", "ok": False, "cause": "XID 79", "remedy": "replace it"}
    assert ready(cli, whole(job_result("smoke", bad)), "--json") == 1
    captured = cli
    answer = json.loads(captured.out)
    assert (answer["stack"], answer["cluster"], answer["sound"]) == ("local", "sandbox", False)
    stage = answer["stages"][1]
    assert (stage["stage"], stage["outcome"]) == ("gpu-smoke", "failed")
    assert stage["checks"][0]["remedy"] == "replace it"
    last = answer["stages"][-1]
    assert (last["stage"], len(last["checks"])) == ("production", 14)
    assert all(check["evidence"] for check in last["checks"])
    assert "2 gpu-smoke" in captured.err


def test_results_before_an_interruption_are_stored(cli: Cli) -> None:
    def cut_off(cluster: LiveFake, job: Json) -> None:
        if kind_of(job) == "collective":
            raise UnreachableError("the API server does not answer")
        passes(cluster, job)

    cluster = whole(cut_off)
    assert ready(cli, cluster) == 2
    known = results.read(cluster)  # type: ignore[arg-type]
    assert {"gpu-smoke", "capacity"} <= set(known) and "collective" not in known


def test_look_changes_nothing(cli: Cli) -> None:
    cluster = whole()
    ready(cli, cluster, "--look")
    assert (cluster.created, cluster.deleted) == ([], [])
    assert "it starts Jobs, which --look disables" in cli.out


@pytest.mark.parametrize("runs", [True, False])
def test_jobs_of_another_check_are_named_while_they_run_and_deleted_when_they_have_ended(
    cli: Cli, runs: bool
) -> None:
    cluster = whole()
    labels = {"trainyard.dev/ready": "other"}
    metadata = {"name": "old", "namespace": stack_facts.NAMESPACE, "labels": labels}
    status = {} if runs else {"conditions": [condition("Failed")]}
    cluster.put({"kind": "Job", "metadata": metadata, "spec": {}, "status": status})
    code = ready(cli, cluster, "--until", "capacity")
    if runs:
        assert code == 2 and cluster.deleted == []
        assert "job/old -n trainyard-validation: is of another readiness check" in cli.err
        assert "kubectl delete jobs -A -l trainyard.dev/ready" in cli.err
    else:
        assert cluster.deleted == ["old"]


def test_a_cluster_without_stack_facts_is_an_error(cli: Cli, text: Text) -> None:
    assert ready(cli, LiveFake()) == 2
    text(cli.err)


def test_invalid_arguments_are_rejected_before_anything_starts(cli: Cli, text: Text) -> None:
    cluster = whole()
    assert ready(cli, cluster, "--pool", "sport") == 2
    text(cli.err)
    assert ready(cli, cluster, "--team", "x") == 2
    assert "--team: got 'x'; expected one of research, serving" in cli.err
    assert cluster.created == []


NOW = dt.datetime(2026, 11, 21, 12, tzinfo=dt.UTC)


def _found(*checks: Check, stage: str = "gpu-smoke") -> StageResult:
    return StageResult(stage=stage, title="", checks=checks)


def test_a_skip_keeps_the_older_result_and_removed_pools_are_dropped() -> None:
    before = [_found(passed("pool a", "good"), failed("pool b", "bad", "do"))]
    known = results.merge({}, before, NOW, {"pool a", "pool b"})
    later = results.merge(known, [_found(skipped("pool a", "asleep"))], NOW, {"pool a"})
    assert later == {"gpu-smoke": {"pool a": known["gpu-smoke"]["pool a"]}}


@pytest.mark.parametrize("text", ["", "[]", "{", '{"gpu-smoke": {"pool a": {}}}'])
def test_unreadable_results_are_ignored(text: str) -> None:
    cluster = LiveFake()
    metadata = {"name": results.NAME, "namespace": stack_facts.NAMESPACE}
    cluster.put({"kind": "ConfigMap", "metadata": metadata, "data": {results.KEY: text}})
    assert results.read(cluster) == {}  # type: ignore[arg-type]


def test_stack_facts_that_cannot_be_read_name_the_key() -> None:
    for content, key in (("{}", r"KeyError\('pools'\)"), ('{"pools": []}', "'stack'")):
        broken = facts()
        broken["data"][stack_facts.KEY] = content
        with pytest.raises(ClusterError, match=rf"^configmap/trainyard-stack .*stack.json .*{key}"):
            stack_facts.read(LiveFake(broken))  # type: ignore[arg-type]
