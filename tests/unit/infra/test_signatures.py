"""Signed images: authorities, namespaces, and permissions of policy-controller."""

from __future__ import annotations

from infra.addons import policy_controller
from infra.sections.signatures import KeylessConfig, SignaturesConfig
from infra.sites.aws import controller_roles

SUBJECT = "https://github.com/acme/training/.github/workflows/image.yml@refs/heads/main"
ISSUER = "https://token.actions.githubusercontent.com"
KEY = "arn:aws:kms:us-east-1:111122223333:key/01234567-89ab-cdef-0123-456789abcdef"
KEYLESS = SignaturesConfig(keyless=KeylessConfig(issuer=ISSUER, subject=SUBJECT))


def test_key_authority_refers_to_the_key_location() -> None:
    [authority] = policy_controller.image_policy(SignaturesConfig(kms_key=KEY))["spec"][
        "authorities"
    ]
    assert authority["key"] == {"kms": f"awskms:///{KEY}"}
    assert "keyless" not in authority


def test_a_controller_that_verifies_a_key_starts_without_public_services() -> None:
    key = policy_controller.plan(SignaturesConfig(kms_key=KEY)).values["webhook"]
    assert key["extraArgs"] == {"disable-tuf": "true"}
    keyless = policy_controller.plan(KEYLESS).values["webhook"]
    assert "extraArgs" not in keyless
    assert {name for name in key if name != "extraArgs"} == set(keyless)


def test_policy_controller_has_read_only_access() -> None:
    document = controller_roles.read_policy(
        ["arn:aws:ecr:us-east-1:111122223333:repository/trainer"], KEY
    )
    actions = [action for s in document["Statement"] for action in s["Action"]]
    assert all(
        action.partition(":")[2].startswith(("Get", "BatchGet", "BatchCheck", "Describe"))
        for action in actions
    )
    wide = [s for s in document["Statement"] if s["Resource"] == "*"]
    assert [s["Action"] for s in wide] == [["ecr:GetAuthorizationToken"]]
