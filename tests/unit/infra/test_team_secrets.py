"""Secrets of teams: names in the program, values in Kubernetes or in a store."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest

from infra.cli.render import render
from infra.config import parse, platform_record
from infra.sections.teams import TeamSecretConfig
from infra.sites.aws.cloud import Aws
from infra.tenancy import secrets
from tests.golden.example_runs import stack_values
from tests.unit.infra.example_eks import stack_values as eks_values

AWS = Aws(region="us-east-1", account="111122223333", cluster="training", notice_sidecar=False)
OWN = AWS.secret_store("research")
THERE = TeamSecretConfig(name="tracking", env=("WANDB_API_KEY",))
REMOTE = TeamSecretConfig(name="hub", env=("HF_TOKEN", "HF_USER"), remote_key="acme/hub")
ELSEWHERE = TeamSecretConfig(name="bus", env=("BUS_KEY",), remote_key="bus", store="vault")


def test_existing_secret_needs_no_objects() -> None:
    assert secrets.manifests("research", (THERE,), OWN) == []


def test_secrets_manager_secret_is_read_with_the_team_identity_per_key() -> None:
    store, external = secrets.manifests("research", (THERE, REMOTE), OWN)
    assert store["spec"]["provider"]["aws"] == {
        "service": "SecretsManager",
        "region": "us-east-1",
        "role": "arn:aws:iam::111122223333:role/training-secrets-of-team-research",
    }
    assert external["metadata"]["namespace"] == "team-research"
    assert external["spec"]["secretStoreRef"] == {"kind": "SecretStore", "name": "team"}
    assert external["spec"]["target"]["name"] == "hub"
    assert [one["secretKey"] for one in external["spec"]["data"]] == ["HF_TOKEN", "HF_USER"]
    assert {one["remoteRef"]["key"] for one in external["spec"]["data"]} == {"acme/hub"}


def test_secret_from_another_store_creates_no_team_store() -> None:
    [external] = secrets.manifests("research", (ELSEWHERE,), OWN)
    assert external["spec"]["secretStoreRef"] == {"kind": "ClusterSecretStore", "name": "vault"}


def test_runs_get_variables_of_their_team_secrets_only() -> None:
    values = copy.deepcopy(stack_values())
    values["teams"][0]["secrets"] = [{"name": "tracking", "env": ["WANDB_API_KEY"]}]
    platform = platform_record.platform(parse(values), "example")
    assert platform.teams["research"].secrets == {"tracking": ("WANDB_API_KEY",)}
    assert platform.teams["production"].secrets == {}


def _eks(**secret: Any) -> list[dict[str, Any]]:
    values = copy.deepcopy(eks_values())
    values["operators"]["externalSecrets"] = {"provided": False}
    values["teams"][0]["secrets"] = [{"name": "hub", "env": ["HF_TOKEN"], **secret}]
    return render("example", values)


def test_store_on_eks_uses_the_role_of_the_stack() -> None:
    records = _eks(remoteKey="acme/hub")
    [store] = [r for r in records if r["inputs"].get("kind") == "SecretStore"]
    [reader] = [
        r
        for r in records
        if r["type"] == "aws:iam/role:Role" and "secrets-of-team" in str(r["inputs"].get("name"))
    ]
    role = store["inputs"]["spec"]["provider"]["aws"]["role"]
    assert role.endswith(f":role/{reader['inputs']['name']}")
    assert [r for r in records if r["inputs"].get("name") == "externalsecrets"]


@pytest.mark.parametrize("secret", [{}, {"remoteKey": "acme/hub", "store": "vault"}])
def test_no_role_is_created_for_secrets_outside_secrets_manager(
    secret: dict[str, str],
) -> None:
    assert "secrets-of-team" not in json.dumps(_eks(**secret))
