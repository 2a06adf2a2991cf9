"""Property values: what the engine sends comes back the same, and secrets stay marked."""

from __future__ import annotations

import pytest

from sandbox.aws_preview.properties import UNKNOWN, Secret, decode, encode, reveal

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
    assert reveal(tree["hidden"]) == {"list": [1, "x"]}


def test_null_in_an_object_equals_absence() -> None:
    assert decode(encode({"a": None, "b": 1})) == {"b": 1}


def test_a_secret_has_the_signature_that_the_engine_knows() -> None:
    fields = encode({"a": Secret("x")}).fields["a"].struct_value.fields
    assert fields[SIGNATURE].string_value == "1b47061264138c4ac30d75fd1eb44270"


def test_invalid_property_values_are_rejected() -> None:
    with pytest.raises(TypeError, match="not a property value: set"):
        encode({"a": {1}})
