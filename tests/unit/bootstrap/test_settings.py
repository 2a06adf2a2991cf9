"""The settings of an account: every mistake is one line with its path."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from bootstrap.settings import parse
from infra.cli.render import ROOT
from infra.config import ConfigError

GOOD: dict[str, Any] = {
    "account": "123456789012",
    "region": "eu-central-1",
    "repository": "tests/training",
    "stateBucket": "tests-state",
    "imageRepository": "trainyard/trainer",
    "opsImageRepository": "trainyard/ops",
    "stacks": [{"name": "dev", "cluster": "training-dev", "bucketPrefix": "tests-dev"}],
}


def issues(values: Any, *, placeholders: bool = False) -> list[tuple[str, str]]:
    try:
        parse(values, placeholders=placeholders)
    except ConfigError as error:
        return [(one.code, one.path) for one in error.issues if not isinstance(one, str)]
    return []


def test_the_committed_file_can_be_previewed_and_not_deployed() -> None:
    text = (ROOT / "bootstrap" / "Pulumi.account.yaml").read_text()
    values = yaml.safe_load(text)["config"]["trainyard-bootstrap:settings"]
    assert issues(values, placeholders=True) == []
    own = {"account", "repository", "stateBucket", "stacks[0].bucketPrefix"}
    assert {path for code, path in issues(values) if code == "placeholder"} == own


@pytest.mark.parametrize(
    ("change", "code", "path"),
    [
        ({"account": 123456789012}, "account-id", "account"),
        ({"region": "Frankfurt"}, "region", "region"),
        ({"region": "us-gov-west-1"}, "unsupported-partition", "region"),
        ({"repository": "training"}, "repository", "repository"),
        ({"stateBucket": "Tests_State"}, "bucket", "stateBucket"),
        ({"stateBuckt": "x"}, "unknown-key", "stateBuckt"),
        ({"stacks": []}, "too-few", "stacks"),
        ({"stacks": [GOOD["stacks"][0] | {"region": "Frankfurt"}]}, "region", "stacks[0].region"),
        ({"quotas": {"P instances": 4}}, "quota", "quotas.P instances"),
        ({"stacks": GOOD["stacks"] * 2}, "double", "stacks[1].name"),
    ],
)
def test_a_mistake_is_one_issue_with_its_path(change: dict[str, Any], code: str, path: str) -> None:
    assert issues(GOOD) == []
    assert (code, path) in issues(GOOD | change)


def test_all_mistakes_are_told_at_once() -> None:
    assert len(issues(GOOD | {"region": "x", "account": "1", "repository": "x"})) == 3
