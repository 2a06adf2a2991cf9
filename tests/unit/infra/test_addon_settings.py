"""Settings of EKS add-ons against schemas as EKS publishes them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import boto3
import pytest
from botocore.stub import Stubber

from infra.cli import addon_settings
from infra.sites.aws import addon_versions, node_health
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
    """EKS with stubbed answers, in the order in which they are given."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        for key in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
            monkeypatch.setenv(key, "none")
        # A session of its own: the default one would keep these credentials for other tests.
        self.client = boto3.Session(region_name="us-east-1").client("eks")
        self.stubs = Stubber(self.client)
        self.stubs.activate()
        monkeypatch.setattr(boto3.Session, "client", lambda *_, **__: self.client)

    def offers(self, name: str, *versions: str, default: str = "", on: str = "1.35") -> None:
        """EKS offers these versions, newest first."""
        listed = [
            {"addonVersion": one, "compatibilities": [{"defaultVersion": one == default}]}
            for one in versions
        ]
        answer = {"addons": [{"addonName": name, "addonVersions": listed}]}
        asked = {"addonName": name, "kubernetesVersion": on}
        self.stubs.add_response("describe_addon_versions", answer, asked)

    def publishes(self, name: str, version: str, schema: Mapping[str, Any]) -> None:
        answer = {"addonName": name, "configurationSchema": json.dumps(schema)}
        asked = {"addonName": name, "addonVersion": version}
        self.stubs.add_response("describe_addon_configuration", answer, asked)


@pytest.fixture
def eks(monkeypatch: pytest.MonkeyPatch) -> Eks:
    monkeypatch.setattr(addon_settings, "render", lambda stack, _: committed.rendered(stack))
    return Eks(monkeypatch)


PINNED = addon_versions.load()["1.35"]


def prod_has(eks: Eks, schemas: Mapping[str, Mapping[str, Any]], lacks: str = "") -> None:
    """EKS offers what prod pins, except for one add-on, and publishes these schemas, others that take anything."""
    for name, (_, values) in sorted(addon_settings.inputs(committed.rendered("prod")).items()):
        if name == lacks:
            eks.offers(name, "v9.0.0-eksbuild.1")
            continue
        eks.offers(name, "v9.0.0-eksbuild.1", PINNED[name])
        if values:
            eks.publishes(name, PINNED[name], schemas.get(name, OPEN))


def test_settings_that_the_schemas_know_pass(eks: Eks, capsys: pytest.CaptureFixture[str]) -> None:
    found = addon_settings.inputs(committed.rendered("prod"))
    assert {name for name, (_, values) in found.items() if values} >= {"vpc-cni", NAME, "coredns"}
    prod_has(eks, {NAME: AGENT})
    assert addon_settings.main(["prod"]) == 0
    assert capsys.readouterr().err == ""
    eks.stubs.assert_no_pending_responses()


def test_each_unknown_or_wrong_setting_is_one_line(
    eks: Eks, capsys: pytest.CaptureFixture[str]
) -> None:
    numbers = {"type": "object", "properties": {"enableNetworkPolicy": {"type": "boolean"}}}
    old = {"type": "object", "additionalProperties": False, "properties": {"nodeAgent": {}}}
    prod_has(eks, {"vpc-cni": numbers, NAME: old})
    assert addon_settings.main(["prod"]) == 1
    lines = sorted(capsys.readouterr().err.splitlines())
    assert len(lines) == 2
    assert lines[0].startswith(f"error: {NAME} $: ") and "'dcgmAgent' was unexpected" in lines[0]
    assert f"must suit the schema of {PINNED[NAME]}" in lines[0]
    assert lines[1].startswith("error: vpc-cni $.enableNetworkPolicy: 'true' is not of type")


def test_pinned_version_that_eks_lacks_is_one_line(
    eks: Eks, capsys: pytest.CaptureFixture[str]
) -> None:
    prod_has(eks, {NAME: AGENT}, lacks="coredns")
    assert addon_settings.main(["prod"]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line == (
        f"error: coredns: EKS does not offer {PINNED['coredns']} for Kubernetes 1.35; must be one of "
        "v9.0.0-eksbuild.1; run python -m infra.cli.addon_settings --refresh"
    )


def test_a_role_that_may_not_ask_is_a_warning(eks: Eks, capsys: pytest.CaptureFixture[str]) -> None:
    eks.stubs.add_client_error("describe_addon_versions", "AccessDeniedException", "not allowed")
    assert addon_settings.main(["prod"]) == 0
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("warning: EKS add-ons were not checked: ")
    assert "AccessDeniedException" in line


@pytest.fixture
def table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A copy of the table with one version of Kubernetes and two add-ons."""
    file = tmp_path / "versions.yaml"
    file.write_text(f'# kept\n"1.35":\n  {NAME}: v1.7.2-eksbuild.1\n  coredns: v1.0.0\n')
    monkeypatch.setattr(addon_versions, "FILE", file)
    addon_versions.load.cache_clear()
    yield file
    addon_versions.load.cache_clear()


def test_refresh_pins_the_defaults_or_the_newest_where_settings_require_it(
    eks: Eks, table: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    eks.offers(NAME, "v1.8.0-eksbuild.1", "v1.7.0-eksbuild.1", default="v1.7.0-eksbuild.1")
    eks.offers("coredns", "v1.2.0", "v1.1.0", default="v1.1.0")
    assert addon_settings.main(["--refresh"]) == 0
    assert table.read_text() == f'# kept\n"1.35":\n  coredns: v1.1.0\n  {NAME}: v1.8.0-eksbuild.1\n'
    assert capsys.readouterr().out.splitlines() == [
        f"1.35 {NAME}: v1.7.2-eksbuild.1 -> v1.8.0-eksbuild.1",
        "1.35 coredns: v1.0.0 -> v1.1.0",
    ]


def test_refresh_changes_nothing_where_all_versions_are_too_old(
    eks: Eks, table: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = table.read_text()
    eks.offers(NAME, "v1.7.0", "v1.6.0", default="v1.6.0")
    assert addon_settings.main(["--refresh"]) == 1
    assert "must be v1.7.1 or newer" in capsys.readouterr().err
    assert table.read_text() == before


def test_without_credentials_or_eks_nothing_is_checked(
    eks: Eks, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert addon_settings.main(["local"]) == 0
    monkeypatch.setattr(boto3.Session, "get_credentials", lambda _: None)
    assert addon_settings.main(["prod"]) == 0
    assert capsys.readouterr() == ("", "")
