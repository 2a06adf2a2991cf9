"""The provider's configuration: where the cluster is, and what makes it another one."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from sandbox.provider import config, kubeconfig
from sandbox.provider.errors import ProviderError
from sandbox.provider.kubeconfig import Choice
from sandbox.provider.properties import UNKNOWN, Secret


def text(server: str = "https://a:1", namespace: str = "") -> str:
    context = {"cluster": "c", "user": "u", **({"namespace": namespace} if namespace else {})}
    return yaml.safe_dump(
        {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "one",
            "contexts": [{"name": "one", "context": context}],
            "clusters": [
                {"name": "c", "cluster": {"server": server}},
                {"name": "d", "cluster": {"server": "https://d:1"}},
            ],
            "users": [{"name": "u", "user": {"token": "t"}}],
        }
    )


@pytest.fixture(autouse=True)
def clean(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("KUBECONFIG", "PULUMI_CONFIG", "PULUMI_K8S_DELETE_UNREACHABLE"):
        monkeypatch.delenv(name, raising=False)


def test_kubeconfig_is_a_text_a_path_or_from_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "kubeconfig"
    file.write_text(text("https://file:1"))
    monkeypatch.setenv("KUBECONFIG", str(file))
    for given, server in (
        (text(), "https://a:1"),
        (str(file), "https://file:1"),
        ("", "https://file:1"),
    ):
        choice = Choice(given)
        assert kubeconfig.active_cluster(kubeconfig.contents(choice), choice)["server"] == server


def test_first_kubeconfig_wins_and_paths_are_relative_to_their_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    second = text("https://second:1").replace("token: t", "client-key: key.pem")
    (tmp_path / "one").write_text(text("https://first:1").split("users:")[0])
    (tmp_path / "two").write_text(second)
    monkeypatch.setenv("KUBECONFIG", f"{tmp_path / 'one'}:{tmp_path / 'none'}:{tmp_path / 'two'}")
    merged = kubeconfig.contents(Choice())
    assert kubeconfig.active_cluster(merged, Choice())["server"] == "https://first:1"
    assert merged["users"][0]["user"]["client-key"] == str(tmp_path / "key.pem")


def test_the_cluster_and_the_namespace_come_from_the_context_unless_they_are_named() -> None:
    parsed = kubeconfig.contents(Choice(text(namespace="team")))
    assert kubeconfig.default_namespace(parsed, Choice()) == "team"
    assert kubeconfig.default_namespace(parsed, Choice(context="none")) == "default"
    named = Choice(text(), cluster="d")
    assert kubeconfig.configuration(parsed, named).host == "https://d:1"


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ("/nowhere/kubeconfig", "kubeconfig: /nowhere/kubeconfig does not exist"),
        ("a: [", "invalid YAML"),
        ("a: b", "has no clusters"),
    ],
)
def test_invalid_kubeconfig_is_a_one_line_error(given: str, reason: str) -> None:
    with pytest.raises(ProviderError, match=reason) as caught:
        kubeconfig.contents(Choice(given))
    assert "\n" not in str(caught.value)
    assert config.failures({"kubeconfig": Secret(given)})[0][0] == "kubeconfig"


def test_unsupported_options_are_rejected() -> None:
    found = config.failures({"enableServerSideApply": "false", "renderYamlToDirectory": "x"})
    assert [name for name, _ in found] == ["enableServerSideApply", "renderYamlToDirectory"]
    assert config.failures({"enableServerSideApply": True}) == []


def test_switches_come_from_the_provider_the_stack_and_the_environment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert not config.settings({}, {}).delete_unreachable
    assert config.settings({"deleteUnreachable": "true"}, {}).delete_unreachable
    assert config.settings({}, {"kubernetes:config:upsertExistingObjects": "true"}).upsert
    monkeypatch.setenv("PULUMI_K8S_DELETE_UNREACHABLE", "true")
    assert config.settings({}, {}).delete_unreachable
    assert not config.settings({"deleteUnreachable": False}, {}).delete_unreachable
    monkeypatch.setenv("PULUMI_CONFIG", '{"kubernetes:config:namespace": "team"}')
    assert config.settings({}, {}).namespace == "team"


def test_unknown_kubeconfig_yields_no_cluster() -> None:
    assert config.settings({"kubeconfig": UNKNOWN}, {}).choice is None


def test_another_server_is_another_cluster_and_another_credential_is_not() -> None:
    old = {"kubeconfig": text()}
    assert config.replacing_properties(old, {"kubeconfig": text("https://b:1")}) == ["kubeconfig"]
    assert (
        config.replacing_properties(old, {"kubeconfig": text().replace("token: t", "token: s")})
        == []
    )
    assert config.replacing_properties(old, {"kubeconfig": UNKNOWN}) == []


def test_cluster_identifier_alone_determines_cluster_identity() -> None:
    old = {"kubeconfig": text(), "clusterIdentifier": "one"}
    moved = {"kubeconfig": text("https://b:1"), "clusterIdentifier": "one"}
    assert config.replacing_properties(old, moved) == []
    assert config.replacing_properties(old, {**old, "clusterIdentifier": "two"}) == [
        "clusterIdentifier"
    ]
    assert config.replacing_properties({"kubeconfig": text()}, old) == []
