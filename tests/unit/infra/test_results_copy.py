"""Copies of a team's results: which teams have them, what the CronJob does, and mistakes in the section."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest

from infra.config import StackConfig, parse
from infra.domain import naming
from infra.sections.teams import ResultsConfig
from infra.tenancy import results_copy
from tests.golden.example_runs import IMAGE
from tests.golden.example_runs import stack_values as existing
from tests.unit.infra.config_issues import check_issues
from tests.unit.infra.example_eks import stack_values as eks
from trainyard import contract

Edit = Callable[[dict[str, Any]], object]
STORE = "s3://elsewhere/copies"


def results(team: int = 0, **section: Any) -> Edit:
    return lambda s: s["teams"][team].update(results=section)


def on(values: Callable[[], dict[str, Any]], *edits: Edit) -> dict[str, Any]:
    found = copy.deepcopy(values())
    for edit in edits:
        edit(found)
    return found


def image(values: dict[str, Any]) -> None:
    values["images"] = {"trainer": IMAGE}


def efs(values: dict[str, Any]) -> None:
    """A stack on AWS with EFS and an image."""
    image(values)
    values["storage"].pop("fsx", None)
    values["storage"]["efs"] = {}


BAD: dict[str, tuple[Callable[[], dict[str, Any]], list[Edit], str]] = {
    "no bucket": (
        existing,
        [results(enabled=True)],
        "teams[0].results.store: missing",
    ),
    "an unknown image": (
        existing,
        [results(store=STORE, image="trainr")],
        "teams[0].results.image: unknown-name",
    ),
    "an unknown secret": (
        existing,
        [results(store=STORE, secretName="bucket")],
        "teams[0].results.secretName: unknown-name",
    ),
    "the store of another team": (
        existing,
        [results(0, store=STORE), results(1, store=STORE)],
        "teams[1].results.store: duplicate",
    ),
    "what FSx exports": (
        eks,
        [image, results(enabled=True)],
        "teams[0].results: results-exported",
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_each_mistake_is_one_issue(name: str) -> None:
    values, edits, expected = BAD[name]
    check_issues("results", name, on(values, *edits), expected)


def test_store_outside_of_the_teams_prefix_requires_credentials() -> None:
    first = eks()["teams"][0]["name"]
    values = on(eks, efs, results(store="s3://elsewhere/copies"))
    check_issues("results", "a foreign bucket", values, "teams[0].results.store: foreign-prefix")
    prefix = values["storage"]["buckets"]["prefix"]
    parse(on(eks, efs, results(store=f"s3://{prefix}-artifacts/{first}/runs")))
    with_secret = on(eks, efs, results(store=STORE, secretName="bucket"))
    with_secret["teams"][0]["secrets"] = [{"name": "bucket", "env": ["AWS_ACCESS_KEY_ID"]}]
    parse(with_secret)


@pytest.mark.parametrize(
    ("section", "exported", "own_bucket", "has_image", "wanted"),
    [
        (ResultsConfig(), False, True, True, True),
        (ResultsConfig(), True, True, True, False),
        (ResultsConfig(), False, True, False, False),
        (ResultsConfig(), False, False, True, False),
        (ResultsConfig(store=STORE), False, False, True, True),
        (ResultsConfig(enabled=False, store=STORE), False, True, True, False),
    ],
)
def test_results_are_copied_where_a_bucket_is_and_no_file_system_exports(
    section: ResultsConfig, exported: bool, own_bucket: bool, has_image: bool, wanted: bool
) -> None:
    found = section.wanted(exported=exported, own_bucket=own_bucket, has_image=has_image)
    assert found is wanted


def test_secret_of_the_team_gives_the_variables() -> None:
    values = on(existing, results(store=STORE, secretName="bucket"))
    values["teams"][0]["secrets"] = [
        {"name": "bucket", "env": ["AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"]}
    ]
    config: StackConfig = parse(values)
    made = results_copy.cron_job(config.teams[0], IMAGE, "", {naming.POOL: "cpu"})
    job = made["spec"]["jobTemplate"]["spec"]
    [container] = job["template"]["spec"]["containers"]
    assert container["command"] == [
        *("python", "-m", "trainer.results", contract.CHECKPOINT_MOUNT, STORE)
    ]
    named = [one for one in container["env"] if "valueFrom" in one]
    keys = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY")
    assert named == [
        {"name": key, "valueFrom": {"secretKeyRef": {"name": "bucket", "key": key}}} for key in keys
    ]
    assert job["template"]["spec"]["nodeSelector"] == {naming.POOL: "cpu"}
