"""The environment of a container, composed without a cluster."""

from __future__ import annotations

import base64

import pytest

from sandbox.node.api import Json
from sandbox.node.downward_api import InvalidReference, Placement, format_entries, pod_field
from sandbox.node.env import container_argv, environment, expand

PLACEMENT = Placement(
    pod_ip="127.1.0.1", host_ip="127.0.0.1", allocatable={"memory": "2Gi", "cpu": "4"}
)
POD: Json = {
    "metadata": {
        "name": "p",
        "namespace": "n",
        "uid": "u",
        "labels": {"a/b": "1", "c": 'say "x"'},
    },
    "spec": {"nodeName": "node", "containers": [{"name": "side", "resources": {}}]},
}
SECRET = {"data": {"k": base64.b64encode(b"hidden").decode()}}
OBJECTS = {("configmaps", "cm"): {"data": {"K": "v", "L": "w"}}, ("secrets", "s"): SECRET}


def _fetch(kind: str, name: str) -> Json | None:
    return OBJECTS.get((kind, name))


def _environment(*entries: Json, **container: object) -> dict[str, str]:
    spec: Json = {"name": "c", "env": list(entries), **container}
    return environment(POD, spec, {"BASE": "image"}, PLACEMENT, _fetch)


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


def test_env_overrides_env_from_and_the_image() -> None:
    source = [{"configMapRef": {"name": "cm"}}, {"prefix": "P_", "configMapRef": {"name": "cm"}}]
    values = _environment({"name": "K", "value": "own"}, envFrom=source)
    assert values == {"BASE": "image", "K": "own", "L": "w", "P_K": "v", "P_L": "w"}


def test_a_secret_key_is_decoded() -> None:
    ref = {"secretKeyRef": {"name": "s", "key": "k"}}
    assert _environment({"name": "X", "valueFrom": ref})["X"] == "hidden"


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ({"configMapKeyRef": {"name": "none", "key": "k"}}, "configmap 'none' not found"),
        ({"secretKeyRef": {"name": "s", "key": "z"}}, "couldn't find key z in secret 's'"),
        (
            {"fieldRef": {"fieldPath": "spec.hostname"}},
            "^fieldPath 'spec.hostname': must be one of",
        ),
        ({"fileKeyRef": {}}, "^env X: valueFrom .* is not supported"),
    ],
)
def test_invalid_reference_is_named(source: Json, message: str) -> None:
    with pytest.raises(InvalidReference, match=message):
        _environment({"name": "X", "valueFrom": source})


def test_optional_missing_reference_is_omitted() -> None:
    ref = {"configMapKeyRef": {"name": "none", "key": "k", "optional": True}}
    source = [{"secretRef": {"name": "none", "optional": True}}]
    assert _environment({"name": "X", "valueFrom": ref}, envFrom=source) == {"BASE": "image"}


def test_resources_are_rounded_up_and_default_to_what_the_node_has() -> None:
    def ask(resource: str, divisor: str = "0") -> str:
        ref = {"resourceFieldRef": {"resource": resource, "divisor": divisor}}
        limits = {"limits": {"cpu": "1500m"}}
        return _environment({"name": "X", "valueFrom": ref}, resources=limits)["X"]

    assert ask("limits.cpu") == "2" and ask("limits.cpu", "1m") == "1500"
    assert ask("limits.memory", "1Mi") == "2048"
    assert ask("requests.cpu") == "2"


def test_labels_are_written_one_a_line_sorted_and_quoted() -> None:
    assert format_entries(POD["metadata"]["labels"]) == 'a/b="1"\nc="say \\"x\\""'
    assert pod_field(POD, "metadata.labels['a/b']", PLACEMENT) == "1"
    assert pod_field(POD, "metadata.annotations['none']", PLACEMENT) == ""


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
