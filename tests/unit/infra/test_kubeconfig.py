"""A preview says first that no kubeconfig names the cluster, not that all its objects are replaced."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pulumi
import pytest
import yaml

from infra.cli.render import ROOT, render
from infra.config import stack_values
from infra.config.kubeconfig import missing_cluster
from infra.config.sections.cluster import ExistingClusterConfig, provider_args


def _cluster(**keys: Any) -> ExistingClusterConfig:
    return ExistingClusterConfig(provider="existing", name="own", **keys)


def _written(path: Path, *contexts: str, current: str = "") -> str:
    found = {
        "contexts": [{"name": one, "context": {}} for one in contexts],
        "current-context": current,
    }
    path.write_text(yaml.safe_dump(found))
    return str(path)


def test_a_context_that_the_kubeconfig_has_is_accepted(tmp_path: Path) -> None:
    one = _written(tmp_path / "one", "a", "b", current="a")
    other = _written(tmp_path / "other", "c")
    assert missing_cluster(_cluster(kubeconfigPath=one), {}) is None
    assert missing_cluster(_cluster(kubeconfigPath=one, context="b"), {}) is None
    assert missing_cluster(_cluster(), {"KUBECONFIG": one}) is None
    assert missing_cluster(_cluster(context="c"), {"KUBECONFIG": f"{one}:{other}"}) is None
    # In a pod the provider uses the pod's own account.
    assert missing_cluster(_cluster(), {"KUBERNETES_SERVICE_HOST": "10.0.0.1"}) is None


def test_a_kubeconfig_without_a_cluster_is_named(tmp_path: Path) -> None:
    empty = tmp_path / "empty"
    empty.write_text("")
    (tmp_path / "list").write_text("- a\n")
    one = _written(tmp_path / "one", "a", current="gone")
    for path, keys, expected in (
        (str(empty), {}, "has not a current context"),
        (str(tmp_path / "list"), {}, "has not a current context"),
        (str(tmp_path / "none"), {}, "has not a current context"),
        (one, {}, "has not the context 'gone'"),
        (one, {"context": "b"}, "has not the context 'b'"),
    ):
        warning = missing_cluster(_cluster(**keys), {"KUBECONFIG": path})
        assert warning and warning.startswith(f"KUBECONFIG: {path} {expected}; "), warning
    warning = missing_cluster(_cluster(kubeconfigPath=str(empty)), {})
    assert warning and warning.startswith(f"cluster.kubeconfigPath: {empty} has not")


def test_a_preview_warns_and_an_update_does_not(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    values = stack_values(ROOT / "Pulumi.local.yaml")
    values["cluster"]["kubeconfigPath"] = str(tmp_path / "none")
    said: list[str] = []
    monkeypatch.setattr(pulumi.log, "warn", said.append)
    render("local", values)
    [warning] = said
    assert "shows every object of the cluster as replaced" in warning
    monkeypatch.setattr(pulumi.runtime, "is_dry_run", lambda: False)
    render("local", values)
    assert said == [warning]


def test_another_context_of_the_named_cluster_is_the_same_cluster() -> None:
    by_file, by_context = (
        provider_args(_cluster(kubeconfigPath="~/.kube/own")),
        provider_args(_cluster(context="renamed")),
    )
    assert by_file.cluster_identifier == by_context.cluster_identifier == "own"
