"""Settings of EKS add-ons against schemas as EKS publishes them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import boto3
import pytest
from botocore.stub import Stubber

from infra.cli import addon_settings
from infra.sites.aws import node_health
from tests import committed

OPEN = {"type": "object"}
AGENT = {
    "$schema": "http://json-schema.org/draft-06/schema#",
    "$ref": "#/definitions/Agent",
    "definitions": {
        "Agent": {
            "type": "object",
            "additionalProperties": False,
            "properties": {
                "dcgmAgent": {
                    "type": "object",
                    "additionalProperties": False,
                    "properties": {"enabled": {"type": "boolean"}},
                },
                "nodeAgent": {"type": "object"},
            },
        }
    },
}
"""In the form of EKS' own schemas."""
NAME = node_health.NAME


class Eks:
    """EKS with one add-on per name: the default version, the newest, and the schema of the one asked for."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        for key in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
            monkeypatch.setenv(key, "none")
        # A session of its own: the default one would keep these credentials for other tests.
        self.client = boto3.Session(region_name="us-east-1").client("eks")
        self.stubs = Stubber(self.client)
        self.stubs.activate()
        monkeypatch.setattr(boto3.Session, "client", lambda *_, **__: self.client)

    def offers(self, name: str, default: str, newest: str) -> None:
        versions = [
            {"addonVersion": one, "compatibilities": [{"defaultVersion": one == default}]}
            for one in dict.fromkeys((newest, default))
        ]
        answer = {"addons": [{"addonName": name, "addonVersions": versions}]}
        asked = {"addonName": name, "kubernetesVersion": "1.35"}
        self.stubs.add_response("describe_addon_versions", answer, asked)

    def publishes(self, name: str, version: str, schema: Mapping[str, Any]) -> None:
        answer = {"addonName": name, "configurationSchema": json.dumps(schema)}
        asked = {"addonName": name, "addonVersion": version}
        self.stubs.add_response("describe_addon_configuration", answer, asked)


@pytest.fixture
def eks(monkeypatch: pytest.MonkeyPatch) -> Eks:
    monkeypatch.setattr(addon_settings, "render", lambda stack, _: committed.rendered(stack))
    return Eks(monkeypatch)


def prod_has(eks: Eks, cni: Mapping[str, Any], agent: Mapping[str, Any]) -> None:
    eks.offers(NAME, "v1.7.0-eksbuild.1", "v1.8.0-eksbuild.1")
    # The default lacks these settings, so the stack takes the newest.
    eks.publishes(NAME, "v1.8.0-eksbuild.1", agent)
    eks.offers("vpc-cni", "v1.20.0-eksbuild.1", "v1.21.0-eksbuild.1")
    eks.publishes("vpc-cni", "v1.20.0-eksbuild.1", cni)


def test_settings_that_the_schemas_know_pass(eks: Eks, capsys: pytest.CaptureFixture[str]) -> None:
    assert set(addon_settings.settings(committed.rendered("prod"))) == {"vpc-cni", NAME}
    prod_has(eks, OPEN, AGENT)
    assert addon_settings.main(["prod"]) == 0
    assert capsys.readouterr().err == ""
    eks.stubs.assert_no_pending_responses()


def test_each_unknown_or_wrong_setting_is_one_line(
    eks: Eks, capsys: pytest.CaptureFixture[str]
) -> None:
    numbers = {"type": "object", "properties": {"enableNetworkPolicy": {"type": "boolean"}}}
    old = {"type": "object", "additionalProperties": False, "properties": {"nodeAgent": {}}}
    prod_has(eks, numbers, old)
    assert addon_settings.main(["prod"]) == 1
    lines = sorted(capsys.readouterr().err.splitlines())
    assert len(lines) == 2
    assert lines[0].startswith(f"error: {NAME} $: ") and "'dcgmAgent' was unexpected" in lines[0]
    assert "must suit the schema of v1.8.0-eksbuild.1" in lines[0]
    assert lines[1].startswith("error: vpc-cni $.enableNetworkPolicy: 'true' is not of type")


def test_versions_that_are_all_too_old_are_an_error(
    eks: Eks, capsys: pytest.CaptureFixture[str]
) -> None:
    eks.offers(NAME, "v1.6.0-eksbuild.1", "v1.7.0-eksbuild.1")
    eks.offers("vpc-cni", "v1.20.0-eksbuild.1", "v1.20.0-eksbuild.1")
    eks.publishes("vpc-cni", "v1.20.0-eksbuild.1", OPEN)
    assert addon_settings.main(["prod"]) == 1
    assert "its settings require v1.7.1 or newer" in capsys.readouterr().err


def test_a_role_that_may_not_ask_is_a_warning(eks: Eks, capsys: pytest.CaptureFixture[str]) -> None:
    eks.stubs.add_client_error("describe_addon_versions", "AccessDeniedException", "not allowed")
    assert addon_settings.main(["prod"]) == 0
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("warning: settings of EKS add-ons were not checked: ")
    assert "AccessDeniedException" in line


def test_without_credentials_or_eks_nothing_is_checked(
    eks: Eks, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert addon_settings.main(["local"]) == 0
    monkeypatch.setattr(boto3.Session, "get_credentials", lambda _: None)
    assert addon_settings.main(["prod"]) == 0
    assert capsys.readouterr() == ("", "")
