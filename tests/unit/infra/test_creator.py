"""The role that creates the cluster is refused in the lists of the stack file, before anything is created."""

from __future__ import annotations

from typing import Any

import pulumi
import pytest

from bootstrap import permissions
from infra.cli.render import ROOT, looked_up, render
from infra.config import stack_values
from infra.sites.aws.creator import role_of
from tests.aws.programs import OWN

DEPLOY = permissions.role_name("dev", "deploy")
DRIFT = permissions.role_name("dev", "drift")
ADMIN = "arn:aws:iam::111122223333:role/platform-admin"
SESSIONS = "arn:aws:sts::111122223333:assumed-role"


@pytest.mark.parametrize(
    ("caller", "expected"),
    [
        (f"{SESSIONS}/platform-admin/ada", ADMIN),
        (f"{SESSIONS}/platform-admin2/ada", None),
        (f"{SESSIONS}/another/platform-admin", None),
        ("arn:aws:sts::444455556666:assumed-role/platform-admin/ada", None),
        ("arn:aws:iam::111122223333:user/platform-admin", None),
        (f"{SESSIONS}/in-path/ada", "arn:aws:iam::111122223333:role/teams/ml/in-path"),
    ],
)
def test_a_session_is_compared_by_account_and_name_of_its_role(
    caller: str, expected: str | None
) -> None:
    listed = {ADMIN: "cluster.admins", "arn:aws:iam::111122223333:role/teams/ml/in-path": "x"}
    assert role_of(caller, listed) == expected


def _run(
    monkeypatch: pytest.MonkeyPatch, role: str, clusters: list[str], *, preview: bool
) -> list[str]:
    """Run dev's program as this role, with its placeholders replaced, and return its warnings."""

    def answer(token: str) -> dict[str, Any]:
        if token.endswith(":getCallerIdentity"):
            return {"arn": f"arn:aws:sts::123456789012:assumed-role/{role}/ada"}
        return {"names": clusters} if token.endswith(":getClusters") else looked_up(token)

    said: list[str] = []
    monkeypatch.setattr("infra.cli.render.looked_up", answer)
    monkeypatch.setattr(pulumi.log, "warn", said.append)
    monkeypatch.setattr(pulumi.runtime, "is_dry_run", lambda: preview)
    values = stack_values(ROOT / "Pulumi.dev.yaml")
    render("dev", _replaced(values))
    return said


def _replaced(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _replaced(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [_replaced(inner) for inner in value]
    if isinstance(value, str):
        for placeholder, own in OWN.items():
            value = value.replace(placeholder, own)
    return value


def test_an_update_as_a_listed_role_is_refused_before_the_cluster_exists(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with pytest.raises(pulumi.RunError, match=rf"cluster\.admins: .*role/{DEPLOY} is the role"):
        _run(monkeypatch, DEPLOY, [], preview=False)
    with pytest.raises(pulumi.RunError, match=rf"cluster\.driftDetectors: .*role/{DRIFT} is the"):
        _run(monkeypatch, DRIFT, [], preview=False)


def test_a_preview_warns_of_an_admin_who_would_create_the_cluster(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    [warning] = _run(monkeypatch, DEPLOY, ["other"], preview=True)
    assert "cluster training-dev; EKS makes that role an administrator" in warning


@pytest.mark.parametrize(
    ("role", "clusters", "preview"),
    [
        (DEPLOY, ["training-dev"], False),
        ("platform-admin", [], False),
        # The workflow's role for pull requests creates nothing.
        (permissions.role_name("dev", "preview"), [], True),
    ],
)
def test_other_callers_and_later_updates_are_accepted(
    monkeypatch: pytest.MonkeyPatch, role: str, clusters: list[str], preview: bool
) -> None:
    assert _run(monkeypatch, role, clusters, preview=preview) == []
