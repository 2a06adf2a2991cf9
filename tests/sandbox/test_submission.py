"""`trainyard run submit|stop|resume` on the real API server, as members of a team."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from infra.domain import naming
from infra.domain.published_record import to_text
from infra.tenancy import team
from ops import groups
from ops.cluster import Cluster as OpsCluster
from ops.cluster import ClusterError, ForbiddenError, UnreachableError
from ops.collect import PODS, find_stopped, list_runs, stopped_runs
from ops.objects import Json
from ops.stopped import is_stopped
from ops.submission import create, record, render, stopping
from ops.sweep import driver, store
from ops.sweep import submission as sweep_files
from tests.golden.example_runs import RUN_FILE, project_in
from tests.sandbox.conftest import Cluster
from tests.sandbox.escape_kit import GuardedCluster, standing
from tests.sandbox.escape_objects import IMAGE, RESEARCH, platform
from tests.sandbox.node_kit import until

pytestmark = [pytest.mark.sandbox, pytest.mark.long(17)]

NAMESPACE = naming.namespace(RESEARCH)
ADA, BOB, LEAD = "ada@example.com", "bob@example.com", "lead@example.com"


@pytest.fixture(scope="module")
def guarded(cluster: Cluster) -> Iterator[GuardedCluster]:
    with standing(cluster) as guarded:
        text = to_text(platform(), RESEARCH, {"trainer": IMAGE})
        cluster.apply(team.platform_record(RESEARCH, text))
        yield guarded


def as_user(cluster: Cluster, user: str, role: str = "researcher") -> OpsCluster:
    """The client of a member of the team."""
    found = OpsCluster(cluster.kubeconfig)
    found._api.set_default_header("Impersonate-User", user)
    found._api.set_default_header("Impersonate-Group", naming.group(RESEARCH, role))
    return found


class Losing(OpsCluster):
    """A connection that is lost at one of its writes, and stays lost."""

    def __init__(self, kubeconfig: Path, after: int) -> None:
        super().__init__(kubeconfig)
        self.left = after
        self.requests = 0

    def _send(self, method: str, *arguments: Any, **more: Any) -> Any:
        self.requests += 1
        if method != "GET":
            self.left -= 1
        if self.left < 0:
            raise UnreachableError("connection lost")
        return super()._send(method, *arguments, **more)


def run_file(folder: Path, name: str, **changes: Any) -> tuple[Path, Path]:
    project = project_in(folder)
    run = RUN_FILE | {
        "name": name,
        "team": RESEARCH,
        "nodes": 1,
        "jobKind": "job",
        "allowSpot": False,
        "maxHours": 2,
        "resources": {"cpu": "4", "memory": "8Gi", "shm": "1Gi"},
        "dataset": {"name": "stdlib"},
    }
    file = project / f"training/runs/{name}.yaml"
    file.write_text(yaml.safe_dump(run | changes))
    return project, file


def rendered(cluster: OpsCluster, folder: Path, name: str, **changes: Any) -> list[Json]:
    """The objects of a run, with what `submit` notes on them."""
    project, file = run_file(folder, name, **changes)
    document = render.read(file, [], project)
    found = render.render(document, record.read_record(cluster, RESEARCH), record.caller(cluster))
    return create.with_source(found.manifests, document.values)


def mine(cluster: OpsCluster, run_id: str) -> list[str]:
    return sorted(
        f"{one['kind']}/{one['metadata']['name']}"
        for one in [
            *stopping.parts_of(cluster, NAMESPACE, run_id),
            *(
                run
                for run in list_runs(cluster, NAMESPACE)
                if run["metadata"]["name"] == run_id and not is_stopped(run)
            ),
        ]
    )


def test_a_member_submits_stops_resumes_and_deletes_a_run(
    guarded: GuardedCluster, tmp_path: Path
) -> None:
    ada = as_user(guarded.cluster, ADA)
    manifests = rendered(ada, tmp_path, "mine")
    run_id = manifests[-1]["metadata"]["name"]
    created = create.create(ada, manifests, ADA)
    assert created.new and create.launched_by(created.run) == ADA
    assert mine(ada, run_id) == [f"ConfigMap/{run_id}", f"Job/{run_id}"]
    [files] = stopping.parts_of(ada, NAMESPACE, run_id)
    assert [o["uid"] for o in files["metadata"]["ownerReferences"]] == [
        created.run["metadata"]["uid"]
    ]
    assert naming.UNFINISHED not in files["metadata"]["labels"]
    assert f'"launched_by": "{ADA}"' in files["data"]["run.json"]
    assert not create.create(ada, manifests, ADA).new

    bob = as_user(guarded.cluster, BOB)
    assert not create.create(bob, manifests, BOB).new  # it exists, and is not changed
    for refused in (
        lambda: stopping.stop(bob, created.run | {"kind": "Job", "apiVersion": "batch/v1"}),
        lambda: stopping.remove(bob, NAMESPACE, run_id),
    ):
        with pytest.raises(ForbiddenError, match="launched by another user"):
            refused()
    assert mine(ada, run_id) == [f"ConfigMap/{run_id}", f"Job/{run_id}"]

    run = next(one for one in list_runs(ada, NAMESPACE) if one["metadata"]["name"] == run_id)
    assert stopping.stop(ada, run)
    stopping.wait_for_pods(ada, NAMESPACE, run_id, lambda line: None)
    until(lambda: mine(ada, run_id) == [f"ConfigMap/{run_id}"], "only its files are left")
    stopped = find_stopped(stopped_runs(ada, NAMESPACE), "mine")
    again = stopping.resume(ada, stopped, ADA)
    assert again["metadata"]["name"] == run_id
    assert stopped_runs(ada, NAMESPACE) == []

    lead = as_user(guarded.cluster, LEAD, "lead")
    [run] = [one for one in list_runs(lead, NAMESPACE) if one["metadata"]["name"] == run_id]
    lead.delete(create.kind_of(run), run_id, NAMESPACE)
    until(lambda: mine(ada, run_id) == [], "its files are deleted with it")
    assert ada.items(PODS, NAMESPACE, f"{naming.RUN_ID}={run_id}") == []


def test_a_member_stops_and_resumes_a_run_with_groups_as_one(
    guarded: GuardedCluster, tmp_path: Path
) -> None:
    ada, bob = as_user(guarded.cluster, ADA), as_user(guarded.cluster, BOB)
    more = {"jobKind": "jobset", "gpusPerNode": 1, "groups": {"max": 2}, "maxHours": 1}
    manifests = rendered(ada, tmp_path, "elastic", **more)
    created = create.create(ada, manifests, ADA)
    run_id = created.run["metadata"]["name"]
    gangs = {f"{run_id}-g0", f"{run_id}-g1"}
    assert {one["metadata"]["name"] for one in groups.gangs(created.run)} == gangs
    assert set(mine(ada, run_id)) == {f"ConfigMap/{run_id}", f"JobSet/{run_id}"}
    owners = stopping.parts_of(ada, NAMESPACE, run_id)[0]["metadata"]["ownerReferences"]
    assert {one["name"] for one in owners} == gangs

    # The same command creates the group that a lost connection has left out.
    jobsets = create.kind_of(created.run)
    ada.delete(jobsets, f"{run_id}-g1", NAMESPACE)
    until(lambda: ada.get(jobsets, f"{run_id}-g1", NAMESPACE) is None, "it is gone")
    assert create.create(ada, manifests, ADA).new
    [run] = [one for one in list_runs(ada, NAMESPACE) if one["metadata"]["name"] == run_id]
    with pytest.raises(ForbiddenError, match="launched by another user"):
        stopping.stop(bob, run)
    assert stopping.stop(ada, run)
    until(lambda: mine(ada, run_id) == [f"ConfigMap/{run_id}"], "only its files are left")

    stopped = find_stopped(stopped_runs(ada, NAMESPACE), "elastic")
    again = stopping.resume(ada, stopped, ADA)
    assert {one["metadata"]["name"] for one in groups.gangs(again)} == gangs
    assert stopping.stop(as_user(guarded.cluster, LEAD, "lead"), again)
    stopping.remove(ada, NAMESPACE, run_id)
    until(lambda: mine(ada, run_id) == [], "nothing of it is left")


def test_a_rejected_run_leaves_nothing(guarded: GuardedCluster, tmp_path: Path) -> None:
    ada = as_user(guarded.cluster, ADA)
    manifests = rendered(ada, tmp_path, "rejected")
    manifests[-1]["metadata"]["labels"][naming.QUEUE_NAME] = "esc-prod"
    with pytest.raises(ForbiddenError, match="trainyard-queue"):
        create.create(ada, manifests, ADA)
    assert mine(ada, manifests[-1]["metadata"]["name"]) == []


@pytest.mark.parametrize("writes", [1, 2, 3])
def test_the_same_command_continues_after_a_lost_connection(
    guarded: GuardedCluster, tmp_path: Path, writes: int
) -> None:
    ada = as_user(guarded.cluster, ADA)
    manifests = rendered(ada, tmp_path, f"lost-{writes}")
    run_id = manifests[-1]["metadata"]["name"]
    losing = Losing(guarded.cluster.kubeconfig, writes)
    losing._api.set_default_header("Impersonate-User", ADA)
    losing._api.set_default_header("Impersonate-Group", naming.group(RESEARCH, "researcher"))
    with pytest.raises(ClusterError, match="connection lost"):
        create.create(losing, manifests, ADA)
    kinds = {one.partition("/")[0] for one in mine(ada, run_id)}
    assert "Job" not in kinds or "ConfigMap" in kinds  # never a run without its files
    create.create(ada, manifests, ADA)
    assert mine(ada, run_id) == [f"ConfigMap/{run_id}", f"Job/{run_id}"]
    [files] = stopping.parts_of(ada, NAMESPACE, run_id)
    assert files["metadata"]["ownerReferences"][0]["name"] == run_id


def test_requests_of_a_submission_do_not_depend_on_other_runs(
    guarded: GuardedCluster, tmp_path: Path
) -> None:
    counts = []
    for number in range(3):
        ada = Losing(guarded.cluster.kubeconfig, 1000)
        ada._api.set_default_header("Impersonate-User", ADA)
        ada._api.set_default_header("Impersonate-Group", naming.group(RESEARCH, "researcher"))
        folder = tmp_path / str(number)
        folder.mkdir()
        create.create(ada, rendered(ada, folder, f"many-{number}"), ADA)
        counts.append(ada.requests)
    assert counts == [counts[0]] * 3


def test_another_users_files_under_the_same_id_are_not_used(
    guarded: GuardedCluster, tmp_path: Path
) -> None:
    ada, bob = as_user(guarded.cluster, ADA), as_user(guarded.cluster, BOB)
    manifests = rendered(bob, tmp_path, "taken")
    files = create.as_user(manifests[0], BOB)
    bob.create(create.kind_of(files), files)
    (tmp_path / "ada").mkdir()
    with pytest.raises(create.ExistsError, match=BOB):
        create.create(ada, rendered(ada, tmp_path / "ada", "taken"), ADA)
    assert mine(ada, manifests[-1]["metadata"]["name"]) == [
        f"ConfigMap/{files['metadata']['name']}"
    ]


def test_a_team_that_the_caller_is_not_a_member_of_is_named(guarded: GuardedCluster) -> None:
    ada = as_user(guarded.cluster, ADA)
    with pytest.raises(ForbiddenError, match="team esc-prod: you may not read"):
        record.read_record(ada, "esc-prod")


@pytest.mark.long(17)
def test_a_member_runs_a_sweep_within_the_walls_and_caps_of_the_team(
    guarded: GuardedCluster, tmp_path: Path
) -> None:
    ada, bob = as_user(guarded.cluster, ADA), as_user(guarded.cluster, BOB)
    rates = {"optimizer.learning_rate": [0.001, 0.002, 0.003]}
    plan = {"method": "grid", "parameters": rates, "parallel": 2, "metric": "loss"}
    project, file = run_file(tmp_path, "rates", sweep=plan)
    published = record.read_record(ada, RESEARCH)
    planned = sweep_files.load_published(file, published, record.caller(ada), project)
    work = driver.Driver(
        cluster=ada,
        namespace=NAMESPACE,
        manifests=planned.manifests,
        read_values=lambda trials, pods: {},
        asha=None,
        report=lambda line: None,
    )
    stored = driver.run_round(work, store.open_sweep(ada, planned.state, planned.user))
    made = driver.runs_of(ada, NAMESPACE, "rates-v1")
    assert len(made) == 2
    assert {create.launched_by(one) for one in made.values()} == {ADA}

    known = store.list_sweeps(bob, NAMESPACE)
    theirs = store.find_sweep(known, "rates")
    with pytest.raises(ForbiddenError, match="launched by another user"):
        driver.stop(bob, theirs, dt.datetime.now(dt.UTC))
    over = planned.manifests(planned.state.trials[2].run_id)
    over[-1]["spec"] |= {"parallelism": 5, "completions": 5}
    with pytest.raises(ForbiddenError, match=r"caps\.nodes"):
        driver.create_run(ada, over)

    stored = driver.stop(ada, stored, dt.datetime.now(dt.UTC))
    until(lambda: driver.runs_of(ada, NAMESPACE, "rates-v1") == {}, "its runs are deleted")
    driver.delete(ada, stored)
    assert [one for one in store.list_sweeps(ada, NAMESPACE) if one.state.name == "rates"] == []
