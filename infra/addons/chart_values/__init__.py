"""Keys and types of charts' values, to check the values of plans.

Helm ignores misspelt values. So a test checks every value that a plan sets against keys of the chart's
values.yaml, which `python -m infra.cli.chart_values` refreshes. That works for charts in a Go module on the
module proxy: `AddOn.chart_source`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from infra.addons.registry import ADD_ONS, CHART_SOURCES

FOLDER: Final = Path(__file__).resolve().parent

ANYTHING: Final = ("map", "null")
"""Kinds that do not restrict values below: an empty mapping, and null."""

PASSED_ON: Final = (
    *("affinity", "nodeSelector", "resources", "tolerations"),
    *("containerSecurityContext", "podSecurityContext", "securityContext"),
)
"""Values that charts copy into pods; Kubernetes defines their contents."""


def module_version(add_on: str) -> str:
    return CHART_SOURCES[add_on].version or f"v{ADD_ONS[add_on].version.removeprefix('v')}"


def keys_file(add_on: str) -> Path:
    return FOLDER / f"{add_on}.json"


def keys(add_on: str) -> dict[str, Any]:
    """Return a chart's keys, nested as in its values; each leaf is the kind of its default."""
    found: dict[str, Any] = json.loads(keys_file(add_on).read_text(encoding="utf-8"))["keys"]
    return found


def key_kinds(values: Mapping[str, Any]) -> dict[str, Any]:
    return {key: _kind(value) for key, value in sorted(values.items())}


def _kind(value: Any) -> Any:
    if isinstance(value, Mapping):
        return key_kinds(value) if value else "map"
    kinds = {bool: "bool", int: "number", float: "number", str: "text", list: "list"}
    return kinds.get(type(value), "null")


def value_errors(
    values: Mapping[str, Any], known: Mapping[str, Any], path: str = ""
) -> Iterator[str]:
    """Yield one line per value without a key in the chart, or of another kind."""
    for key, value in values.items():
        here = f"{path}.{key}" if path else key
        if key not in known:
            yield f"{here} is not a value of the chart"
        elif key in PASSED_ON:
            continue
        elif isinstance(known[key], Mapping):
            if isinstance(value, Mapping):
                yield from value_errors(value, known[key], here)
            else:
                yield f"{here} is a mapping in the chart"
        elif known[key] not in ANYTHING and _kind(value) != known[key]:
            yield f"{here} is {known[key]} in the chart, not {_named(value)}"


def _named(value: Any) -> str:
    return "a mapping" if isinstance(value, Mapping) else str(_kind(value))
