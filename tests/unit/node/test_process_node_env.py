"""The environment of a container, composed without a cluster."""

from __future__ import annotations

import base64

import pytest

from sandbox.node.api import Json
from sandbox.node.env import (
    InvalidReference,
    container_argv,
    environment,
    expand,
    pod_field,
)

IP = "127.1.0.1"
POD: Json = {
    "metadata": {
        "name": "p",
        "namespace": "n",
        "uid": "u",
        "labels": {"a/b": "1"},
    },
    "spec": {"nodeName": "node", "containers": [{"name": "side", "resources": {}}]},
}
SECRET = {"data": {"k": base64.b64encode(b"hidden").decode()}}
OBJECTS = {("configmaps", "cm"): {"data": {"K": "v", "L": "w"}}, ("secrets", "s"): SECRET}


def _fetch(kind: str, name: str) -> Json | None:
    return OBJECTS.get((kind, name))


def _environment(*entries: Json) -> dict[str, str]:
    spec: Json = {"name": "c", "env": list(entries)}
    return environment(POD, spec, {"BASE": "image"}, IP, _fetch)


@pytest.mark.parametrize(
    ("text", "expanded"),
    [
        ("$(A)/$(B)", "1/$(B)"),
        ("$$(A)", "$(A)"),
        ("$$$(A)", "$1"),
        ("$A ${A} $(", "$A ${A} $("),
        ("100$", "100$"),
        ("$(A$(A))", "$(A1)"),
    ],
)
def test_references_are_expanded_as_the_kubelet_does(text: str, expanded: str) -> None:
    assert expand(text, {"A": "1"}) == expanded


def test_a_variable_sees_those_before_it_and_not_those_after() -> None:
    values = _environment(
        {"name": "EARLY", "value": "$(LATE)"},
        {"name": "LATE", "value": "$(BASE)"},
    )
    assert values == {"BASE": "image", "EARLY": "$(LATE)", "LATE": "image"}


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ({"configMapKeyRef": {"name": "none", "key": "k"}}, "configmap 'none' not found"),
        ({"secretKeyRef": {"name": "s", "key": "z"}}, "couldn't find key z in secret 's'"),
        (
            {"fieldRef": {"fieldPath": "spec.hostname"}},
            "^fieldPath 'spec.hostname': must be one of",
        ),
        ({"resourceFieldRef": {}}, "^env X: valueFrom .* is not supported"),
    ],
)
def test_invalid_reference_is_named(source: Json, message: str) -> None:
    with pytest.raises(InvalidReference, match=message):
        _environment({"name": "X", "valueFrom": source})


def test_a_label_that_a_pod_lacks_is_empty() -> None:
    assert pod_field(POD, "metadata.labels['a/b']", IP) == "1"
    assert pod_field(POD, "metadata.annotations['none']", IP) == ""


def test_a_command_replaces_the_entrypoint_and_arguments_are_appended() -> None:
    values = {"N": "2"}
    assert container_argv({"name": "c", "args": ["-n", "$(N)"]}, ["run"], values) == [
        "run",
        "-n",
        "2",
    ]
    assert container_argv({"name": "c", "command": ["x"]}, ["run"], values) == ["x"]
    with pytest.raises(InvalidReference, match="no command"):
        container_argv({"name": "c"}, [], values)
