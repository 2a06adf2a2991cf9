"""Property values of the engine's protocol as plain Python values.

Values that are not computed yet, and must not be shown, stay as the protocol has them: UNKNOWN, and objects with a
signature. Nulls in objects are dropped, as in the official plugin.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from google.protobuf import json_format, struct_pb2

UNKNOWN: Final = "04da6b54-80e4-46f7-96ec-b56ff0331ba9"
_SIGNATURE_KEY: Final = "4dabf18193072939515e22adb298388d"
_SECRET_SIGNATURE: Final = "1b47061264138c4ac30d75fd1eb44270"


def decode(struct: struct_pb2.Struct) -> dict[str, Any]:
    found: dict[str, Any] = _without_nulls(json_format.MessageToDict(struct))
    return found


def _without_nulls(tree: Any) -> Any:
    if isinstance(tree, dict):
        return {key: _without_nulls(one) for key, one in tree.items() if one is not None}
    return [_without_nulls(one) for one in tree] if isinstance(tree, list) else tree


def encode(tree: Mapping[str, Any]) -> struct_pb2.Struct:
    """Encode an object for the protocol; the inverse of `decode`."""
    struct = struct_pb2.Struct()
    struct.update(_without_nulls(dict(tree)))
    return struct


def reveal(tree: Any) -> Any:
    """Return a copy of a tree without the signatures around secrets."""
    if isinstance(tree, dict):
        if tree.get(_SIGNATURE_KEY) == _SECRET_SIGNATURE:
            return reveal(tree["value"])
        return {key: reveal(value) for key, value in tree.items()}
    return [reveal(value) for value in tree] if isinstance(tree, list) else tree
