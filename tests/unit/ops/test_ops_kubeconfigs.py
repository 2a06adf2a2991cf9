"""Kubeconfigs without a usable cluster: one line with cause and remedy."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from ops import __main__ as front_door
from ops.cluster import (
    Cluster,
    ClusterError,
    ForbiddenError,
    UnknownCallerError,
    UnreachableError,
    WebhookError,
    _decode,
)
from ops.collect import NODES
from ops.reachability import unreachable_warning
from tests.unit.snapshots import Text

VERSION = "client.authentication.k8s.io/v1beta1"
SERVER = "http://127.0.0.1:1"
"""A port without a listener."""


def kubeconfig(folder: Path, *, user: Any = None, server: str = SERVER) -> Path:
    """A kubeconfig of one context."""
    cluster = {"server": server} if server else {}
    context = {"cluster": "c", "user": "u"}
    config = {
        "clusters": [{"name": "c", "cluster": cluster}],
        "contexts": [{"name": "x", "context": context}],
        "users": [{"name": "u", "user": {"token": "t"}} if user is None else user],
        "current-context": "x",
    }
    return written(folder, yaml.safe_dump(config))


def written(folder: Path, text: str) -> Path:
    path = folder / "kubeconfig"
    path.write_text(text, encoding="utf-8")
    return path


@pytest.mark.parametrize(
    "content",
    ["", "clusters: [", "[1]", "clusters: 5", "clusters: []"],
    ids=["empty", "no YAML", "a list", "clusters no list", "no context"],
)
def test_an_invalid_kubeconfig_is_reported_in_one_line(
    content: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    text: Text,
) -> None:
    path = written(tmp_path, content)
    assert front_door.main(["run", "why", "hello", "--kubeconfig", str(path)]) == 2
    message = capsys.readouterr().err
    assert message.count("\n") == 1
    text(message.replace(str(tmp_path), "FOLDER"))


def test_a_kubeconfig_without_server_is_reported(tmp_path: Path, text: Text) -> None:
    with pytest.raises(ClusterError) as raised:
        Cluster(kubeconfig(tmp_path, server=""))
    text(str(raised.value))


def test_a_token_in_the_wrong_place_is_not_printed(tmp_path: Path) -> None:
    with pytest.raises(ClusterError, match="Expected key user") as raised:
        Cluster(kubeconfig(tmp_path, user={"name": "u", "token": "hunter2"}))
    assert "hunter2" not in str(raised.value)


def _plugin(script: str) -> dict[str, Any]:
    """A user whose credentials come from a program, as on EKS."""
    run = {"apiVersion": VERSION, "command": sys.executable, "args": ["-c", script]}
    return {"name": "u", "user": {"exec": run}}


@pytest.mark.parametrize(
    ("script", "message"),
    [
        ("import sys; sys.exit('The SSO session has expired')", "The SSO session has expired"),
        ("import sys; sys.exit(1)", "exec: process returned 1"),
    ],
)
def test_expired_credentials_are_reported_before_any_request(
    script: str,
    message: str,
    tmp_path: Path,
    text: Text,
) -> None:
    with pytest.raises(UnknownCallerError) as raised:
        Cluster(kubeconfig(tmp_path, user=_plugin(script)))
    assert message in str(raised.value)
    text(str(raised.value))


@pytest.mark.parametrize(
    ("script", "message"),
    [
        ("print('hello')", "exec: failed to decode process output"),
        ("print('{}')", "exec: malformed response. missing key"),
        ("print('[]')", "exec: malformed response. missing key"),
        (
            'print(\'{"apiVersion": "v1", "kind": "x", "status": {}}\')',
            "exec: plugin api version v1 does not match",
        ),
        (
            f'print(\'{{"apiVersion": "{VERSION}", "kind": "x", "status": {{"clientCertificateData": "x"}}}}\')',
            "exec: missing clientKeyData",
        ),
        (None, "[Errno 2] No such file or directory: '/none'"),
    ],
)
def test_a_plugin_that_prints_no_credential_is_not_taken_for_an_expired_login(
    script: str | None, message: str, tmp_path: Path
) -> None:
    user = _plugin(script or "")
    if script is None:
        user["user"]["exec"]["command"] = "/none"
    with pytest.raises(UnknownCallerError) as raised:
        Cluster(kubeconfig(tmp_path, user=user))
    text = str(raised.value)
    assert message in text and "must exist and print an ExecCredential" in text
    assert "expired" not in text and len(text.splitlines()) == 1


def test_an_unreachable_api_server_is_named_without_client_internals(
    tmp_path: Path,
    text: Text,
) -> None:
    with pytest.raises(UnreachableError) as raised:
        Cluster(kubeconfig(tmp_path)).items(NODES)
    message = str(raised.value)
    text(message)
    assert "ConnectionPool" not in message


@pytest.mark.parametrize(
    ("status", "message", "kind"),
    [
        (401, "Unauthorized", UnknownCallerError),
        (403, 'User "system:anonymous" cannot list resource', UnknownCallerError),
        (403, 'User "jo" cannot list resource', ForbiddenError),
        (429, "too many requests", UnreachableError),
        (503, "the server is starting", UnreachableError),
        (500, "failed calling webhook mjob.kb.io: deadline exceeded", WebhookError),
    ],
)
def test_status_codes_map_to_error_classes(
    status: int, message: str, kind: type[ClusterError]
) -> None:
    body = b'{"message": "%s"}' % message.replace('"', "'").encode()
    with pytest.raises(kind) as raised:
        _decode(status, body, "GET /x")
    assert type(raised.value) is kind


def test_a_preview_says_that_the_cluster_does_not_answer(tmp_path: Path) -> None:
    dead = kubeconfig(tmp_path)
    warning = unreachable_warning(None, str(dead), None)
    assert warning and warning.startswith(f"cluster: API server {SERVER}: no answer: ")
    content = json.dumps(yaml.safe_load(dead.read_text()))
    assert unreachable_warning(content, None, None) == warning
    missing = unreachable_warning(None, str(tmp_path / "none"), "x")
    assert missing and missing.startswith("cluster: kubeconfig: not usable: ")
