"""Signed images: authorities, namespaces, and permissions of policy-controller."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest

from infra.addons import policy_controller, signatures
from infra.cli.render import Record, render
from infra.sections.signatures import KeylessConfig, SignaturesConfig
from infra.sites.aws import signature_reader
from infra.tenancy import team
from tests.unit.infra.example_eks import stack_values

SUBJECT = "https://github.com/acme/training/.github/workflows/image.yml@refs/heads/main"
ISSUER = "https://token.actions.githubusercontent.com"
KEY = "arn:aws:kms:us-east-1:111122223333:key/01234567-89ab-cdef-0123-456789abcdef"
KEYLESS = SignaturesConfig(keyless=KeylessConfig(issuer=ISSUER, subject=SUBJECT))
OPT_IN = "policy.sigstore.dev/include"


def test_keyless_identity_is_exact_and_has_its_issuer() -> None:
    spec = signatures.image_policy(KEYLESS)["spec"]
    [authority] = spec["authorities"]
    assert authority["keyless"]["identities"] == [{"issuer": ISSUER, "subject": SUBJECT}]
    assert authority["ctlog"]["url"] == "https://rekor.sigstore.dev"


def test_key_authority_refers_to_the_key_location() -> None:
    [authority] = signatures.image_policy(SignaturesConfig(kms_key=KEY))["spec"]["authorities"]
    assert authority["key"] == {"kms": f"awskms:///{KEY}"}
    assert "keyless" not in authority


def test_every_image_requires_a_signature_and_unmatched_images_are_rejected() -> None:
    spec = signatures.image_policy(KEYLESS)["spec"]
    assert spec["images"] == [{"glob": "**"}]
    assert spec["mode"] == "enforce"
    webhook = policy_controller.VALUES["webhook"]
    assert webhook["failurePolicy"] == "Fail"
    assert webhook["configData"]["no-match-policy"] == "deny"
    assert webhook["replicaCount"] > 1


def test_a_controller_that_verifies_a_key_starts_without_public_services() -> None:
    key = policy_controller.plan(SignaturesConfig(kms_key=KEY)).values["webhook"]
    assert key["extraArgs"] == {"disable-tuf": "true"}
    keyless = policy_controller.plan(KEYLESS).values["webhook"]
    assert "extraArgs" not in keyless
    assert {name for name in key if name != "extraArgs"} == set(keyless)


def test_only_opted_in_namespaces_are_checked_and_teams_opt_in() -> None:
    [expression] = policy_controller.VALUES["webhook"]["namespaceSelector"]["matchExpressions"]
    assert expression == {"key": OPT_IN, "operator": "In", "values": ["true"]}
    assert team.namespace("research", signed=True)["metadata"]["labels"][OPT_IN] == "true"
    assert OPT_IN not in team.namespace("research")["metadata"]["labels"]


def _rendered(signed: dict[str, Any] | None) -> list[Record]:
    values = copy.deepcopy(stack_values())
    if signed:
        values["signatures"] = signed
    return render("example", values)


@pytest.mark.parametrize(
    "signed", [{"keyless": {"issuer": ISSUER, "subject": SUBJECT}}, {"kmsKey": KEY}]
)
def test_teams_depend_on_the_image_policy(signed: dict[str, Any]) -> None:
    records = {f"{r['type']}::{r['name']}": r for r in _rendered(signed)}
    [policy] = [r for r in records.values() if r["inputs"].get("kind") == "ClusterImagePolicy"]
    [controller] = [name for name in policy["dependsOn"] if "helm.sh/v3:Release" in name]
    assert records[controller]["inputs"]["name"] == "policy-controller"
    teams = [r for r in records.values() if r["type"] == "trainyard:infra:Team"]
    assert teams
    for one in teams:
        namespace = records[f"kubernetes:core/v1:Namespace::{one['name']}-namespace"]
        assert namespace["inputs"]["metadata"]["labels"][OPT_IN] == "true"
        assert f"{policy['type']}::{policy['name']}" in one["dependsOn"]
    documents = [
        r["inputs"]["policy"]
        for r in records.values()
        if r["name"].endswith("-signatures-signatures")
    ]
    assert len(documents) == 1
    assert ("kms:GetPublicKey" in documents[0]) == ("kmsKey" in signed)


def test_without_signatures_no_controller_is_installed_and_no_team_opts_in() -> None:
    text = json.dumps(_rendered(None))
    assert OPT_IN not in text
    assert "policy-controller" not in text


def test_policy_controller_has_read_only_access() -> None:
    document = signature_reader.read_policy(
        ["arn:aws:ecr:us-east-1:111122223333:repository/trainer"], KEY
    )
    actions = [action for s in document["Statement"] for action in s["Action"]]
    assert all(
        action.partition(":")[2].startswith(("Get", "BatchGet", "BatchCheck", "Describe"))
        for action in actions
    )
    wide = [s for s in document["Statement"] if s["Resource"] == "*"]
    assert [s["Action"] for s in wide] == [["ecr:GetAuthorizationToken"]]
