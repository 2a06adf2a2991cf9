"""Commands that submit, stop and extend runs: bad input is one line with the next step, and nothing is left."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest
import yaml

from infra.config import stack_values
from infra.domain import naming
from infra.domain.published_record import from_text, to_text
from infra.tenancy import team
from ops import __main__ as front_door
from ops.cluster import ForbiddenError, Kind
from ops.objects import Json
from ops.submission import create, queue_place, render
from tests.unit.ops.conftest import Cli
from tests.unit.ops.run_fixtures import RUN_ID, condition, run, workload
from tests.unit.ops.test_ops_commands import FakeCluster
from training import plan
from trainyard.contract import PROGRAM_FILE, TRAINER_CONFIG_FILE

ROOT = Path(__file__).resolve().parents[3]
HELLO = str(ROOT / "training/runs/hello.yaml")
ADA, BOB = "ada@example.com", "bob@example.com"


class Cluster(FakeCluster):
    """Keeps what is created; `fails` raises at the creation of the run itself."""

    def __init__(self, fails: Exception | None = None, **items: list[Json]) -> None:
        super().__init__(**items)
        self.fails = fails

    def create(self, kind: Kind, manifest: Json, *, dry_run: bool = False) -> Json:
        if kind.kind == "SelfSubjectReview":
            return {"status": {"userInfo": {"username": ADA}}}
        if kind.kind == "JobSet" and self.fails and not dry_run:
            raise self.fails
        manifest["metadata"]["uid"] = f"uid of {manifest['metadata']['name']}"
        if not dry_run:
            self._items.setdefault(kind.plural, []).append(manifest)
        return manifest

    def patch(self, *_: Any) -> None:
        """Accept every change."""

    def delete(self, kind: Kind, name: str, namespace: str | None = None) -> None:
        kept = self._items.get(kind.plural, [])
        self._items[kind.plural] = [one for one in kept if one["metadata"]["name"] != name]


def published(**changes: Any) -> Cluster:
    """A cluster that knows the local platform and has no runs."""
    known = world()._items
    record = next(
        one for one in known["configmaps"] if one["metadata"]["name"] == naming.PLATFORM_RECORD
    )
    return Cluster(**{"configmaps": [record], **changes})


def _without_record() -> Cluster:
    return Cluster(configmaps=[])


def _newer_stack() -> Cluster:
    cluster = published()
    data = cluster._items["configmaps"][0]["data"]
    values = json.loads(data[naming.PLATFORM_RECORD_KEY])
    values["platform"]["rings"] = [1]
    data[naming.PLATFORM_RECORD_KEY] = json.dumps(values)
    return cluster


@pytest.mark.parametrize(
    ("cluster", "words", "named"),
    [
        (_without_record, (), "team research: namespace team-research has no Platform record"),
        (
            _newer_stack,
            (),
            "are of different commits of 0.1.0; install trainyard[cli] from the commit",
        ),
        (published, ("--team", "production"), "--team: got 'production'"),
    ],
)
def test_a_submission_that_cannot_be_rendered_is_one_line(
    cli: Cli, cluster: Callable[[], Cluster], words: tuple[str, ...], named: str
) -> None:
    made = cluster()
    assert cli(made, "run", "submit", HELLO, *words) == 2
    error = cli.err
    assert named in error and len(error.splitlines()) == 1
    assert "jobsets" not in made._items


def test_a_run_that_exists_is_named_with_its_launcher_and_not_changed(cli: Cli) -> None:
    cluster = published()
    assert cli(cluster, "run", "submit", HELLO) == 0
    [run] = cluster._items["jobsets"]
    run["metadata"]["annotations"][naming.LAUNCHED_BY] = BOB
    before = json.dumps(cluster._items, sort_keys=True)
    assert cli(cluster, "run", "submit", HELLO) == 0
    assert f"exists already: {BOB} submitted it; it was not changed" in cli.out
    assert json.dumps(cluster._items, sort_keys=True) == before


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (("stop", "hello"), "has ended already"),
        (("resume", "hello"), "is not stopped"),
        (("stop", "helo"), "did you mean hello?"),
    ],
)
def test_what_cannot_be_stopped_or_resumed_is_one_line(
    cli: Cli, words: tuple[str, ...], named: str
) -> None:
    assert cli(world(), "run", *words) in (1, 2)
    error = cli.err
    assert named in error and len(error.splitlines()) == 1


def test_a_missing_permission_is_explained(cli: Cli) -> None:
    cluster = published()
    cluster.fails = ForbiddenError('jobsets is forbidden: User "ada" cannot create resource')
    assert cli(cluster, "run", "submit", HELLO) == 2
    assert front_door._PERMISSION_HINT in cli.err


WHY = f"trainyard run why {RUN_ID} explains why it waits"
MINE = "run-uid"


def waiting(uid: str, priority: int, second: int, queue: str = "research", done: str = "") -> Json:
    conditions = [condition(done)] if done else []
    found = workload(*conditions, run_id=uid, uid=uid, priority=priority, age_s=float(60 - second))
    found["spec"]["queueName"] = queue
    return found


def line(*workloads: Json) -> str:
    cluster = cast(Any, FakeCluster(workloads=list(workloads)))
    return queue_place.queue_line(cluster, run(), lambda _: None)


def test_the_place_is_by_priority_then_time_among_what_waits_in_the_queue() -> None:
    others = (
        waiting("older", 10, 1),
        waiting("later", 10, 9),
        waiting("urgent", 50, 9),
        waiting("started", 90, 1, done="QuotaReserved"),
        waiting("elsewhere", 90, 1, queue="dev"),
    )
    expected = f"queue research: place 3 of 4 that wait; {WHY}"
    assert line(*others, waiting(MINE, 10, 5)) == expected


def test_an_admitted_run_does_not_wait() -> None:
    assert line(waiting(MINE, 10, 5, done="Admitted")) == "queue research: admitted"


def test_without_a_workload_nothing_is_claimed() -> None:
    unknown = f"queue research: place not known; {WHY}"
    assert line(waiting("older", 10, 1)) == unknown


def test_a_workload_that_comes_late_is_awaited() -> None:
    cluster = FakeCluster(workloads=[])

    def sleep(_: float) -> None:
        cluster._items["workloads"] = [waiting(MINE, 10, 5)]

    text = queue_place.queue_line(cast(Any, cluster), run(), sleep)
    assert "place 1 of 1 that wait" in text


def test_a_run_without_a_queue_waits_for_nodes() -> None:
    alone = {"metadata": {"name": "a", "namespace": "team-research"}}
    assert "has no queue" in queue_place.queue_line(cast(Any, FakeCluster()), alone)


EXACT = "equal settings give the losses of a run that had 400 steps from the start"


def world(*settings: str, condition: str = "Completed", submitted: bool = True) -> Cluster:
    """A cluster with the run `hello` of 200 steps, which has ended."""
    planned = plan.make(
        stack_values(ROOT / "Pulumi.local.yaml") | {"runs": []}, "local", ROOT, preview=True
    )
    text = to_text(planned.platform, "research", planned.images)
    document = render.read(
        ROOT / "training/runs/hello.yaml", ("overrides.steps=200", *settings), ROOT
    )
    found = render.render(document, from_text(text), ADA).manifests
    manifests = create.with_source(found, document.values) if submitted else found
    run = manifests[-1] | {"status": {"conditions": [{"type": condition, "status": "True"}]}}
    record = team.platform_record("research", text)
    maps = [record, *(one for one in manifests if one["kind"] == "ConfigMap")]
    return Cluster(jobsets=[run], configmaps=maps)


def run_id(cluster: Cluster) -> str:
    return str(cluster._items["jobsets"][0]["metadata"]["name"])


def test_the_next_version_continues_the_finished_run_with_more_steps(cli: Cli) -> None:
    cluster = world("overrides.schedule.kind=constant")
    assert cli(cluster, "run", "extend", "hello", "--steps", "400", "--render") == 0
    made = list(yaml.safe_load_all(cli.out))
    assert made[-1]["metadata"]["labels"][naming.RUN_VERSION] == "2"
    [files] = [one for one in made if one["kind"] == "ConfigMap"]
    config = yaml.safe_load(files["data"][TRAINER_CONFIG_FILE])
    assert (config["steps"], config["schedule"]["kind"]) == (400, "constant")
    place = f"/checkpoints/{run_id(cluster)}"
    command = yaml.safe_load(files["data"][PROGRAM_FILE])["command"]
    assert command[command.index("--continue-from") + 1] == place


def _said(cli: Cli, cluster: Cluster, *words: str) -> str:
    assert cli(cluster, "run", "extend", "hello", *words) == 0
    return cli.out


def test_a_constant_schedule_is_extended_exactly(cli: Cli) -> None:
    cluster = world("overrides.schedule.kind=constant")
    said = _said(cli, cluster, "--steps", "400")
    assert f"continues {run_id(cluster)} from its last checkpoint, step 200, to step 400" in said
    assert EXACT in said and "not exact" not in said and "warning" not in said


def test_a_schedule_that_has_decayed_says_what_it_does_instead(cli: Cli) -> None:
    said = _said(cli, world(), "--steps", "400")
    assert EXACT not in said
    assert "not exact: the cosine schedule of the finished run ended at step 200" in said
    assert "from 0.0004 at step 200 to 0.00241 at step 201" in said
    kept = "overrides.schedule.kind=constant"
    assert "to 0.004 at step 201" in _said(cli, world(), "--steps", "400", "--set", kept)


def test_other_differences_are_named(cli: Cli) -> None:
    cluster = world("overrides.schedule.kind=constant")
    said = _said(cli, cluster, "--steps", "400", "--set", "overrides.seed=9")
    assert "warning: differs from" in said and "config.seed" in said


def test_a_stacks_run_is_extended_by_lines_of_its_run_file(cli: Cli) -> None:
    cluster = world(submitted=False)
    assert cli(cluster, "run", "extend", "hello", "--steps", "400") == 1
    said = cli.out
    for line in ("  version: 2", f"  continues: {run_id(cluster)}", "    steps: 400", "pulumi up"):
        assert line in said


@pytest.mark.parametrize(
    ("condition", "steps", "named"),
    [
        ("Failed", 400, "has failed"),
        ("Suspended", 400, "has not ended"),
        ("Completed", 200, "--steps: got 200; must be more than the 200 steps"),
    ],
)
def test_what_cannot_be_extended_is_one_line(
    cli: Cli,
    condition: str,
    steps: int,
    named: str,
) -> None:
    words = ["run", "extend", "hello", "--steps", str(steps)]
    assert cli(world(condition=condition), *words) == 2
    error = cli.err
    assert named in error and len(error.splitlines()) == 1


def test_checkpoints_in_s3_stay_where_they_are(cli: Cli) -> None:
    store = "overrides.checkpoint.store=s3://bucket/hello"
    cluster = world(store, submitted=False)
    assert cli(cluster, "run", "extend", "hello", "--steps", "400") == 1
    assert "continues:" not in cli.out
