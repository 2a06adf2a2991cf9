"""The committed stack files name the roles and image repositories that the bootstrap program creates."""

from __future__ import annotations

import json
from typing import Any, Final

import pytest
import yaml

from bootstrap import permissions
from bootstrap.settings import Settings, parse
from infra.cli.render import ROOT
from infra.config import stack_values
from tools.record_image import with_digest

STACKS: Final = ("dev", "prod")


def _settings() -> Settings:
    text = (ROOT / "bootstrap" / "Pulumi.account.yaml").read_text()
    values = yaml.safe_load(text)["config"]["trainyard-bootstrap:settings"]
    return parse(values, placeholders=True)


def _url(repository: str) -> str:
    """Return the URL of a repository in the account's registry."""
    settings = _settings()
    return f"{settings.account}.dkr.ecr.{settings.region}.amazonaws.com/{repository}"


def _values(stack: str) -> dict[str, Any]:
    return stack_values(ROOT / f"Pulumi.{stack}.yaml")


@pytest.mark.parametrize("stack", STACKS)
def test_a_stack_file_names_the_workflows_roles(stack: str) -> None:
    def role(purpose: str) -> str:
        return f"arn:aws:iam::{_settings().account}:role/{permissions.role_name(stack, purpose)}"

    cluster = _values(stack)["cluster"]
    named = {key: found for key, found in cluster.items() if "arn:aws:iam" in str(found)}
    assert named == {
        "admins": [role("deploy")],
        "viewers": [role("preview")],
        "driftDetectors": [role("drift")],
    }


@pytest.mark.parametrize("stack", STACKS)
def test_a_stack_file_and_its_policies_name_the_image_repositories(stack: str) -> None:
    settings, values = _settings(), _values(stack)
    trainer, ops = _url(settings.image_repository), _url(settings.ops_image_repository)
    assert values["images"]["trainer"].partition("@")[0] == trainer
    assert values["registries"] == [trainer]
    images = {trainer}
    if "steering" in values:
        assert values["steering"]["image"].partition("@")[0] == ops
        images.add(ops)
    policies = json.loads((ROOT / "policies" / "stacks" / f"{stack}.json").read_text())
    assert set(policies["images-by-digest"]["registries"]) == images


@pytest.mark.parametrize("stack", STACKS)
def test_a_new_digest_of_the_trainer_is_recorded_in_the_stack_file(stack: str) -> None:
    text = (ROOT / f"Pulumi.{stack}.yaml").read_text()
    digest = f"sha256:{'5e' * 32}"
    url = _url(_settings().image_repository)
    assert f"trainer: {url}@{digest}" in with_digest(text, url, digest)


def test_the_account_s_stacks_are_those_of_their_files() -> None:
    for one in _settings().stacks:
        values = _values(one.name)
        assert values["aws"]["account"] == _settings().account
        assert values["aws"]["region"] == (one.region or _settings().region)
        assert values["cluster"]["name"] == one.cluster
        assert values["storage"]["buckets"]["prefix"] == one.bucket_prefix
