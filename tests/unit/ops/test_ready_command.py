"""`trainyard stack ready`: exit codes, what scripts read."""

from __future__ import annotations

import json

from ops.cluster import UnreachableError
from ops.lease import LEASES
from ops.objects import Json
from ops.ready import result_store, stack_facts
from tests.unit.ops.conftest import Cli
from tests.unit.ops.ready_cluster import LiveFake, job_result, kind_of, passes, whole
from tests.unit.snapshots import Text


def ready(cli: Cli, cluster: LiveFake, *argv: str) -> int:
    return cli(cluster, "stack", "ready", *argv)


def left(cluster: LiveFake) -> list[str]:
    """Jobs, and the holder of the lease if it has one."""
    found = [lease["spec"]["holderIdentity"] for lease in cluster.items(LEASES)]
    return [*(job["metadata"]["name"] for job in cluster.jobs()), *filter(None, found)]


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


def test_dry_run_changes_nothing_in_the_cluster(cli: Cli) -> None:
    cluster = whole()
    ready(cli, cluster, "--look")
    assert (cluster.created, cluster.deleted) == ([], [])


def test_results_are_stored_and_the_lease_is_released(cli: Cli) -> None:
    cluster = whole()
    ready(cli, cluster, "--until", "collective")
    known = result_store.read(cluster)  # type: ignore[arg-type]
    assert known["collective"]["pool spot"].facts["bandwidth_gbps"] == 9.5
    assert left(cluster) == []


def test_jobs_of_an_earlier_check_are_deleted_first(cli: Cli) -> None:
    cluster = whole()
    labels = {"trainyard.dev/ready": "dead"}
    metadata = {"name": "old", "namespace": stack_facts.NAMESPACE, "labels": labels}
    cluster.put({"kind": "Job", "metadata": metadata, "spec": {}})
    ready(cli, cluster, "--until", "capacity")
    assert cluster.deleted[0] == "old"


def test_an_interrupted_check_exits_130_and_leaves_no_jobs(cli: Cli) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    cluster = whole(interrupt)
    assert ready(cli, cluster) == 130
    assert left(cluster) == []
    assert "interrupted" in cli.err


def test_results_before_an_interruption_are_stored(cli: Cli) -> None:
    def cut_off(cluster: LiveFake, job: Json) -> None:
        if kind_of(job) == "collective":
            raise UnreachableError("the API server does not answer")
        passes(cluster, job)

    cluster = whole(cut_off)
    assert ready(cli, cluster) == 2
    known = result_store.read(cluster)  # type: ignore[arg-type]
    assert {"gpu-smoke", "capacity"} <= set(known) and "collective" not in known


def test_a_cluster_without_stack_facts_is_an_error(cli: Cli, text: Text) -> None:
    assert ready(cli, LiveFake()) == 2
    text(cli.err)


def test_invalid_arguments_are_rejected_before_anything_starts(cli: Cli, text: Text) -> None:
    cluster = whole()
    assert ready(cli, cluster, "--pool", "sport") == 2
    text(cli.err)
    assert cluster.created == []
