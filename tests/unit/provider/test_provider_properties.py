"""Property values: what the engine sends comes back the same, and secrets stay marked."""

from __future__ import annotations

import pytest

from sandbox.provider import state
from sandbox.provider.properties import UNKNOWN, Secret, decode, encode, has_unknown, reveal
from sandbox.provider.secret_values import mark_like, payload

SIGNATURE = "4dabf18193072939515e22adb298388d"


def test_property_tree_round_trips_with_its_markers() -> None:
    tree = {
        "text": "a",
        "whole": 3,
        "part": 0.5,
        "yes": True,
        "later": UNKNOWN,
        "hidden": Secret({"list": [1, Secret("x")]}),
        "empty": {},
        "none": [],
    }
    assert decode(encode(tree)) == tree


def test_null_in_an_object_equals_absence() -> None:
    assert decode(encode({"a": None, "b": 1})) == {"b": 1}


def test_a_secret_has_the_signature_that_the_engine_knows() -> None:
    fields = encode({"a": Secret("x")}).fields["a"].struct_value.fields
    assert fields[SIGNATURE].string_value == "1b47061264138c4ac30d75fd1eb44270"


def test_unknown_values_are_found_at_any_depth_and_in_secrets() -> None:
    assert has_unknown({"a": [{"b": Secret([UNKNOWN])}]})
    assert not has_unknown({"a": [{"b": Secret(["x"])}]})


def test_what_is_secret_in_the_inputs_is_secret_in_the_outputs() -> None:
    marked = {"data": {"a": Secret("1"), "b": "2"}, "list": [Secret("x")]}
    plain = {"data": {"a": "1", "b": "2", "c": "3"}, "list": ["x", "y"]}
    assert mark_like(plain, marked) == {
        "data": {"a": Secret("1"), "b": "2", "c": "3"},
        "list": Secret(["x", "y"]),
    }


def test_secret_objects_are_secret_even_if_unmarked() -> None:
    live = {
        "apiVersion": "v1",
        "kind": "Secret",
        "data": {"a": "MQ=="},
        "metadata": {
            "annotations": {"kubectl.kubernetes.io/last-applied-configuration": "{data}", "b": "c"}
        },
    }
    stored = state.compose(live, live, {}, "v1", "manager")
    for part in (stored, stored["__inputs"]):
        assert isinstance(part["data"], Secret)
        annotations = part["metadata"]["annotations"]
        assert isinstance(annotations["kubectl.kubernetes.io/last-applied-configuration"], Secret)
        assert annotations["b"] == "c"


def test_string_data_becomes_the_data_that_the_api_server_keeps() -> None:
    assert payload({"data": {"a": "MQ=="}, "stringData": {"b": "2"}}) == {"a": "MQ==", "b": "Mg=="}


def test_state_is_the_live_object_plus_three_properties() -> None:
    inputs = {"apiVersion": "v1", "kind": "ConfigMap", "data": {"a": "1"}}
    live = {**inputs, "metadata": {"uid": "u"}}
    stored = state.compose(live, inputs, inputs, "v1", "pulumi-kubernetes-0a1b2c3d")
    assert stored == {
        **live,
        "__inputs": inputs,
        "__initialApiVersion": "v1",
        "__fieldManager": "pulumi-kubernetes-0a1b2c3d",
    }
    taken = state.parse(stored)
    assert (taken.live, taken.inputs) == (live, inputs)
    assert (taken.api_version, taken.field_manager) == ("v1", "pulumi-kubernetes-0a1b2c3d")


def test_schema_extensions_have_dashes_in_manifests_and_underscores_in_states() -> None:
    manifest = {"schema": [{"x-kubernetes-preserve-unknown-fields": True, "x-other": 1}]}
    inputs = state.to_inputs(manifest, {})
    assert inputs == {"schema": [{"x_kubernetes_preserve_unknown_fields": True, "x-other": 1}]}
    assert state.to_manifest(inputs) == manifest


def test_inputs_lose_their_marks_and_what_only_the_api_server_writes() -> None:
    marked = {
        "apiVersion": "core/v1",
        "data": Secret({"a": "1"}),
        "metadata": {"name": "n", "uid": "u", "resourceVersion": "1", "managedFields": []},
    }
    expected = {"apiVersion": "v1", "data": {"a": "1"}, "metadata": {"name": "n"}}
    assert state.to_manifest(marked) == expected
    assert reveal(marked["data"]) == {"a": "1"}


def test_invalid_property_values_are_rejected() -> None:
    with pytest.raises(TypeError, match="not a property value: set"):
        encode({"a": {1}})
