"""Property values of the engine's protocol as plain Python values.

A decoded tree consists of dict, list, str, int, float, bool and two markers: UNKNOWN for a value that is
not computed yet, and Secret around a value that must not be shown. Nulls in objects are dropped, as in the
official plugin.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from google.protobuf import struct_pb2

_SIGNATURE_KEY = "4dabf18193072939515e22adb298388d"
_SECRET_SIGNATURE = "1b47061264138c4ac30d75fd1eb44270"
_UNKNOWN_TEXT = "04da6b54-80e4-46f7-96ec-b56ff0331ba9"
_UNKNOWN_TEXTS = frozenset(
    {
        _UNKNOWN_TEXT,
        "1c4a061d-8072-4f0a-a4cb-0ff528b18fe7",
        "3eeb2bf0-c639-47a8-9e75-3b44932eb421",
        "6a19a0b0-7e62-4c92-b797-7f8e31da9cc2",
        "030794c1-ac77-496b-92df-f27374a8bd58",
        "e48ece36-62e2-4504-bad9-02848725956a",
        "dd056dcd-154b-4c76-9bd3-c8f88648b5ff",
    }
)
"""Placeholders by type; all mean that the value is known only after the update."""


class Unknown:
    def __repr__(self) -> str:
        return "UNKNOWN"

    def __deepcopy__(self, memo: object) -> Unknown:
        return self


UNKNOWN: Final = Unknown()


@dataclass(frozen=True)
class Secret:
    """A value that the engine stores encrypted and never prints."""

    value: Any


def decode(struct: struct_pb2.Struct) -> dict[str, Any]:
    fields = {key: _decode(value) for key, value in struct.fields.items()}
    return {key: value for key, value in fields.items() if value is not None}


def _decode(value: struct_pb2.Value) -> Any:
    kind = value.WhichOneof("kind")
    if kind == "string_value":
        return UNKNOWN if value.string_value in _UNKNOWN_TEXTS else value.string_value
    if kind == "number_value":
        number = value.number_value
        return int(number) if number.is_integer() else number
    if kind == "bool_value":
        return value.bool_value
    if kind == "list_value":
        return [_decode(element) for element in value.list_value.values]
    if kind == "struct_value":
        fields = value.struct_value.fields
        if _SIGNATURE_KEY in fields and fields[_SIGNATURE_KEY].string_value == _SECRET_SIGNATURE:
            return Secret(_decode(fields["value"]))
        return decode(value.struct_value)
    return None


def encode(tree: Mapping[str, Any]) -> struct_pb2.Struct:
    """Encode an object for the protocol; the inverse of `decode`."""
    struct = struct_pb2.Struct()
    _encode_into(struct, tree)
    return struct


def _encode_into(struct: struct_pb2.Struct, tree: Mapping[str, Any]) -> None:
    for key, value in tree.items():
        if value is not None:
            _encode(struct.fields[key], value)


def _encode(target: struct_pb2.Value, value: Any) -> None:
    if isinstance(value, bool):
        target.bool_value = value
    elif isinstance(value, str):
        target.string_value = value
    elif isinstance(value, int | float):
        target.number_value = value
    elif isinstance(value, Mapping):
        target.struct_value.SetInParent()
        _encode_into(target.struct_value, value)
    elif isinstance(value, list):
        target.list_value.SetInParent()
        for element in value:
            _encode(target.list_value.values.add(), element)
    elif isinstance(value, Unknown):
        target.string_value = _UNKNOWN_TEXT
    elif isinstance(value, Secret):
        target.struct_value.fields[_SIGNATURE_KEY].string_value = _SECRET_SIGNATURE
        _encode(target.struct_value.fields["value"], value.value)
    elif value is None:
        target.null_value = struct_pb2.NULL_VALUE
    else:
        raise TypeError(f"not a property value: {type(value).__name__}")


def reveal(tree: Any) -> Any:
    """Return a copy of a tree without Secret markers."""
    if isinstance(tree, Secret):
        return reveal(tree.value)
    if isinstance(tree, dict):
        return {key: reveal(value) for key, value in tree.items()}
    if isinstance(tree, list):
        return [reveal(value) for value in tree]
    return tree
