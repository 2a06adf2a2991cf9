"""The sandbox's kubeconfig is written again by its commands; the namespace that the user selected stays."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from sandbox.cluster import _keep_namespace


def document(namespace: str = "", name: str = "trainyard-sandbox") -> dict[str, object]:
    context = {"cluster": name, "user": name} | ({"namespace": namespace} if namespace else {})
    return {"contexts": [{"name": name, "context": context}], "current-context": name}


@pytest.mark.parametrize(
    ("known", "kept"),
    [
        (yaml.safe_dump(document("team-research")), "team-research"),
        (yaml.safe_dump(document("team-research", name="another")), ""),
        (yaml.safe_dump(document()), ""),
        ("", ""),
        ("[]", ""),
    ],
)
def test_the_selected_namespace_stays(tmp_path: Path, known: str, kept: str) -> None:
    file = tmp_path / "kubeconfig"
    file.write_text(known)
    fresh = document()
    _keep_namespace(file, fresh)
    assert fresh == document(kept)


def test_the_first_kubeconfig_has_none(tmp_path: Path) -> None:
    fresh = document()
    _keep_namespace(tmp_path / "kubeconfig", fresh)
    assert fresh == document()
