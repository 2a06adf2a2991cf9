"""Bad input of the commands that submit and stop runs: one line with the next step, and nothing is left."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from infra.domain import naming
from ops import __main__ as front_door
from ops.cluster import ForbiddenError, Kind
from ops.objects import Json
from tests.unit.ops import test_extend
from tests.unit.ops.conftest import Cli
from tests.unit.ops.test_ops_commands import FakeCluster

ROOT = Path(__file__).resolve().parents[3]
HELLO = str(ROOT / "training/runs/hello.yaml")
ADA, BOB = "ada@example.com", "bob@example.com"


class Cluster(FakeCluster):
    """Keeps what is created; `fails` raises at the creation of the run itself."""

    def __init__(self, fails: Exception | None = None, **items: list[Json]) -> None:
        super().__init__(**items)
        self.fails = fails
        self.denied: tuple[str, ...] = ()

    def get(self, kind: Kind, name: str, namespace: str | None = None) -> Json | None:
        if kind.plural in self.denied:
            raise ForbiddenError(f"{kind.plural} {name!r} is forbidden")
        return super().get(kind, name, namespace)

    def create(self, kind: Kind, manifest: Json, *, dry_run: bool = False) -> Json:
        if kind.kind == "SelfSubjectReview":
            return {"status": {"userInfo": {"username": ADA}}}
        if kind.kind == "JobSet" and self.fails and not dry_run:
            raise self.fails
        manifest["metadata"]["uid"] = f"uid of {manifest['metadata']['name']}"
        if not dry_run:
            self._items.setdefault(kind.plural, []).append(manifest)
        return manifest

    def delete(self, kind: Kind, name: str, namespace: str) -> None:
        kept = self._items.get(kind.plural, [])
        self._items[kind.plural] = [one for one in kept if one["metadata"]["name"] != name]

    def patch(self, kind: Kind, name: str, change: Any, namespace: str = "") -> None:
        """Accept every change."""

    def of_runs(self) -> list[str]:
        """Names of what a submission has left."""
        return [
            str(one["metadata"]["name"])
            for plural in ("configmaps", "services", "jobsets")
            for one in self._items.get(plural, [])
            if naming.RUN_ID in one["metadata"].get("labels", {})
        ]


def published(**changes: Any) -> Cluster:
    """A cluster that knows the local platform and has no runs."""
    known = test_extend.world()._items
    record = next(
        one for one in known["configmaps"] if one["metadata"]["name"] == naming.PLATFORM_RECORD
    )
    return Cluster(**{"configmaps": [record], **changes})


def _text_of_record(change: Callable[[Json], Any]) -> Cluster:
    cluster = published()
    [record] = cluster._items["configmaps"]
    values = json.loads(record["data"][naming.PLATFORM_RECORD_KEY])
    change(values)
    record["data"][naming.PLATFORM_RECORD_KEY] = json.dumps(values)
    return cluster


def _without_record() -> Cluster:
    return Cluster(configmaps=[])


def _not_a_member() -> Cluster:
    cluster = published()
    cluster.denied = ("configmaps",)
    return cluster


def _newer_stack() -> Cluster:
    return _text_of_record(lambda record: record["platform"].update(rings=[1]))


@pytest.mark.parametrize(
    ("cluster", "words", "named"),
    [
        (_without_record, (), "team research: namespace team-research has no Platform record"),
        (_not_a_member, (), "team research: you may not read its Platform record"),
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
    assert made.of_runs() == []


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
    assert cli(test_extend.world(), "run", *words) in (1, 2)
    error = cli.err
    assert named in error and len(error.splitlines()) == 1


def test_a_missing_permission_is_explained(cli: Cli) -> None:
    cluster = published()
    cluster.fails = ForbiddenError('jobsets is forbidden: User "ada" cannot create resource')
    assert cli(cluster, "run", "submit", HELLO) == 2
    assert front_door._PERMISSION_HINT in cli.err
