"""Secrets of teams: names in the program, values in Kubernetes or in a store."""

from __future__ import annotations

import copy

from infra.config import parse, platform_record
from infra.sections.teams import TeamSecretConfig
from infra.sites.aws.cloud import Aws
from infra.tenancy import secrets
from tests.golden.example_runs import stack_values

AWS = Aws(region="us-east-1", account="111122223333", cluster="training", notice_sidecar=False)
OWN = AWS.secret_store("research")
THERE = TeamSecretConfig(name="tracking", env=("WANDB_API_KEY",))
ELSEWHERE = TeamSecretConfig(name="bus", env=("BUS_KEY",), remote_key="bus", store="vault")


def test_existing_secret_needs_no_objects() -> None:
    assert secrets.manifests("research", (THERE,), OWN) == []


def test_secret_from_another_store_creates_no_team_store() -> None:
    [external] = secrets.manifests("research", (ELSEWHERE,), OWN)
    assert external["spec"]["secretStoreRef"] == {"kind": "ClusterSecretStore", "name": "vault"}


def test_runs_get_variables_of_their_team_secrets_only() -> None:
    values = copy.deepcopy(stack_values())
    values["teams"][0]["secrets"] = [{"name": "tracking", "env": ["WANDB_API_KEY"]}]
    platform = platform_record.platform(parse(values), "example")
    assert platform.teams["research"].secrets == {"tracking": ("WANDB_API_KEY",)}
    assert platform.teams["production"].secrets == {}
