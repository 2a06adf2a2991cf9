"""Runs of replica groups: one run in lists, verdicts, logs and submissions, whatever its groups do."""

from __future__ import annotations

import json
from typing import Any

import pytest

from infra.domain import naming
from ops import groups, objects, release, stopped
from ops.objects import Json
from ops.runs import list_command, states, why_command
from ops.runs.listing import RunSummary, summarize
from ops.runs.log_reader import pod_of_group
from ops.symptoms import explain, history
from tests.unit.ops.conftest import Cli
from tests.unit.ops.group_fixtures import admitted, ended, gang, pod_of, queued, seen, started
from tests.unit.ops.run_fixtures import NOW, RUN_ID, at, condition, workload
from tests.unit.ops.test_ops_commands import FakeCluster

BAD_CONFIGURATION = "FailJobSetFailurePolicyAction"


def state(gangs: list[Json], workloads: list[Json] | None = None, *pods: Json) -> RunSummary:
    [whole] = groups.merged(gangs)
    return summarize([whole], workloads or [], pods, {})[0]


def test_what_another_user_named_after_the_run_is_not_a_group_of_it() -> None:
    mine = [gang(0, launched_by="ada"), gang(1, launched_by="ada")]
    foreign = ended(2, launched_by="eve")
    found = groups.merged([*mine, foreign])
    assert len(found) == 2
    assert not objects.status(found[0])["conditions"]


@pytest.mark.parametrize(
    ("gangs", "expected"),
    [
        ([gang(0), gang(1), gang(2)], states.QUEUED),
        ([started(0), gang(1), gang(2)], states.RUNNING),
        # The first group that is done has reached the last step; the others are released.
        ([ended(0), gang(1), gang(2)], states.FINISHED),
        ([ended(0), ended(1, "Failed"), gang(2)], states.FINISHED),
        # It may still export the model.
        ([ended(1), started(0), gang(2)], states.RUNNING),
        ([ended(0, "Failed"), gang(1), gang(2)], states.QUEUED),
        ([ended(0, "Failed", BAD_CONFIGURATION), gang(1), gang(2)], states.FAILED),
        ([ended(0, "Failed"), ended(1, "Failed"), ended(2, "Failed")], states.FAILED),
    ],
)
def test_the_state_follows_from_those_of_its_groups(gangs: list[Json], expected: str) -> None:
    waits = gangs[0]["spec"]["suspend"]
    workloads = [queued(0) if waits else admitted(0), queued(1), queued(2)]
    assert state(gangs, workloads, *([] if waits else [pod_of(0)])).state == expected


def test_a_run_fails_when_fewer_groups_are_left_than_it_needs() -> None:
    lost = ended(0, "Failed", of=2, least=2)
    assert state([lost, gang(1, of=2, least=2)], [queued(1)]).state == states.FAILED
    lost = ended(0, "Failed", of=3, least=2)
    left = [gang(number, of=3, least=2) for number in (1, 2)]
    assert state([lost, *left], [queued(1), queued(2)]).state == states.QUEUED


def test_a_group_whose_object_was_deleted_still_counts() -> None:
    found = state([started(0), gang(1)], [admitted(0), queued(1)], pod_of(0))
    assert (found.groups_total, len(found.groups)) == (3, 2)


def test_a_list_has_one_line_for_it(monkeypatch: pytest.MonkeyPatch, cli: Cli) -> None:
    monkeypatch.setattr(list_command, "_now", lambda: NOW)
    cluster = FakeCluster(
        jobsets=[started(0), started(1), gang(2)],
        workloads=[admitted(0), admitted(1), queued(2)],
        pods=[pod_of(0), pod_of(1, ready=False)],
    )
    assert cli(cluster, "run", "list") == 0
    [_, line] = cli.out.splitlines()
    assert line.split() == [RUN_ID, "running", "research", "1/3", "groups", *"---1", "5", "min"]
    assert cli(cluster, "run", "list", "--json") == 0
    [one] = json.loads(cli.out)["runs"]
    assert [group["state"] for group in one["groups"]] == ["running", "starting", "queued"]


def test_a_run_that_lacks_a_group_says_which_one_and_why() -> None:
    gone = condition("Evicted", "False")
    lost = queued(2)
    lost["status"]["conditions"].append(gone)
    taken = seen(
        [started(0), started(1), gang(2)],
        [admitted(0), admitted(1), lost],
        [pod_of(0), pod_of(1)],
    )
    found = explain(taken)
    assert found.symptom == "groups-missing"
    assert found.headline.startswith(
        "trains with 2 of 3 groups, and has lacked one for 60 s; group 2 "
    )
    assert f"jobset/{RUN_ID}-g0" in " ".join(found.evidence)


def test_a_run_whose_groups_all_train_is_named_with_its_nodes() -> None:
    gangs = [started(number) for number in range(3)]
    taken = seen(gangs, [admitted(n) for n in range(3)], [pod_of(n) for n in range(3)])
    found = explain(taken)
    assert (found.symptom, found.headline) == (
        "running",
        "trains with all its 3 groups on spot-0, spot-1, spot-2",
    )


def test_below_min_the_group_that_is_missing_explains_the_run() -> None:
    gangs = [started(0, of=2, least=2), gang(1, of=2, least=2)]
    taken = seen(gangs, [admitted(0), queued(1)], [pod_of(0, ready=False)])
    found = explain(taken)
    assert found.headline.startswith(
        "does not train: 1 of the 2 groups that it needs are there; group 1 "
    )
    assert "takes part" not in found.headline
    assert any("does not take part yet" in line for line in found.evidence)


def test_a_finished_run_is_finished_though_groups_of_it_still_wait() -> None:
    taken = seen([ended(0), gang(1), gang(2)], [queued(1), queued(2)], [])
    found = explain(taken)
    assert found.symptom == "finished"
    assert "finished" in why_command.values(taken)["headline"]


def test_the_past_of_each_group_is_told_by_itself() -> None:
    evicted = {"evictions": [{"reason": "PodsReadyTimeout", "count": 2}]}
    taken = seen(
        [started(0), gang(1)], [admitted(0), queued(1, schedulingStats=evicted)], [pod_of(0)]
    )
    assert history(taken) == ["group 1: evicted 2 times: its pods were not all ready in time"]


def test_the_log_of_the_longest_member_is_the_runs() -> None:
    def ready_since(number: int, seconds: float) -> Json:
        since = condition("Ready") | {"lastTransitionTime": at(seconds)}
        return pod_of(number, conditions=[since])

    younger, older = ready_since(0, 10), ready_since(1, 50)
    assert pod_of_group([younger, older], 0, None) is older
    assert pod_of_group([younger, older], 0, 0) is younger
    joining = pod_of(2, ready=False, startTime=at(90))
    assert pod_of_group([younger, joining], 0, None) is younger
    assert pod_of_group([joining], 0, None) is joining
    assert pod_of_group([younger], 1, None) is None


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--group", "3"), "--group: got 3; the run has groups 0 to 2"),
        (("--group", "1"), "has no pod of rank 0"),
    ],
)
def test_a_group_without_a_log_is_one_line(cli: Cli, words: tuple[str, ...], said: str) -> None:
    cluster = FakeCluster(
        jobsets=[started(0), gang(1), gang(2)], workloads=[admitted(0)], pods=[pod_of(0)]
    )
    assert cli(cluster, "run", "logs", "hello", *words) == 2
    error = cli.err
    assert said in error and len(error.splitlines()) == 1


def test_what_is_left_of_a_stopped_run_are_all_its_groups() -> None:
    gangs = [gang(number, of=64) for number in range(64)]
    note = stopped.kept(gangs)
    assert len(note) < 20_000
    assert stopped.gangs_in(note) == gangs
    files = {
        "metadata": {
            "name": RUN_ID,
            "namespace": "team-research",
            "labels": {naming.RUN_ID: RUN_ID},
            "annotations": {naming.RUN_MANIFEST: note},
        }
    }
    found = stopped.run_of(files)
    assert found is not None and stopped.is_stopped(found)
    assert len(groups.gangs(found)) == 64
    assert summarize([found], [], [], {})[0].state == states.STOPPED


@pytest.mark.parametrize("text", ["", "{", "[]", '{"gangs": 5}', '{"gangs": "eJwDAAAAAAE="}'])
def test_a_note_that_is_none_is_no_run(text: str) -> None:
    found: list[Any] = stopped.gangs_in(text)
    assert found == []


def test_a_group_that_reached_its_time_limit_does_not_stop_the_run() -> None:
    limit = condition(
        "Evicted", reason="Deactivated", message="exceeded the maximum execution time"
    )
    over = workload(limit, uid="uid-g1", nodes=1, active=False)
    found = state([started(0, of=2), gang(1, of=2)], [admitted(0), over], pod_of(0))
    assert (found.state, [one.state for one in found.groups]) == (
        states.RUNNING,
        [states.RUNNING, states.STOPPED],
    )


@pytest.mark.parametrize(
    ("gangs", "released"),
    [
        ([started(0), gang(1), gang(2)], set()),
        ([ended(0), gang(1), gang(2)], {1, 2}),
        # It takes part until its process ends: it may export the model.
        ([started(0), ended(1), gang(2)], {2}),
        ([ended(0, "Failed"), gang(1), gang(2)], set()),
        ([ended(0, "Failed", BAD_CONFIGURATION), gang(1), gang(2)], {1, 2}),
        ([ended(0, "Failed", of=2, least=2), gang(1, of=2, least=2)], {1}),
    ],
)
def test_groups_that_still_wait_are_released_when_the_run_has_ended(
    gangs: list[Json], released: set[int]
) -> None:
    takes_part = admitted(0)
    takes_part["status"]["conditions"].append(condition("PodsReady"))
    found = release.waiting(gangs, [takes_part, queued(1), queued(2)])
    assert {groups.number_of(one) for one in found} == released


def test_releasing_changes_nothing_twice_and_nothing_in_a_dry_run() -> None:
    waits = queued(1)
    cluster = FakeCluster(jobsets=[ended(0), gang(1)], workloads=[admitted(0), waits])
    said: list[str] = []
    assert _releaser(cluster, said.append, dry_run=True).step() == 1
    assert cluster.patched == []
    assert _releaser(cluster, said.append).step() == 1
    [(name, change)] = cluster.patched
    assert (name, change["spec"]) == (f"jobset-{RUN_ID}-g1", {"active": False})
    waits["spec"]["active"] = False
    assert _releaser(cluster, said.append).step() == 0
    assert said[-1] == f"team-research/jobset-{RUN_ID}-g1: released, its run has ended"


def _releaser(cluster: FakeCluster, show: Any, **options: Any) -> release.Releaser:
    cluster.patch = lambda kind, name, change, namespace: cluster.patched.append((name, change))  # type: ignore[assignment,misc]
    return release.Releaser(cluster, show, **options)  # type: ignore[arg-type]
