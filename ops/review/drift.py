"""What differs from the recorded state of a stack: the event log of a refresh."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Final

from ops.cluster import ClusterError

_CHANGED: Final = {"update", "replace"}
ADDED: Final = "added"
"""In place of what was recorded."""
_OF_CONTROLLERS: Final = frozenset({"Node"})
"""Kinds to whose lists controllers add."""
_CONFIDENTIAL: Final = "kubernetes:core/v1:Secret"
HIDDEN: Final = "(hidden)"
DELETED: Final = "deleted"
_LENGTH: Final = 60
"""Characters of a value that are shown."""
_SHOWN: Final = 20
"""Rows of the table; --json has all."""
_PART: Final = re.compile(r'\["((?:[^"\\]|\\.)*)"\]|\[(\d+)\]|\.?([^.\[]+)')


@dataclass(frozen=True, kw_only=True)
class Difference:
    """One field that is not as recorded, or one resource that is gone."""

    resource: str
    """Its type's last word and its name in the program: `ClusterQueue queues-research`."""
    field: str = ""
    """The engine's path, such as `spec.stopPolicy`; empty for a deleted resource."""
    recorded: str = ""
    now: str = DELETED


@dataclass(frozen=True, kw_only=True)
class Drift:
    """All differences of one stack, in the order of its resources."""

    stack: str
    resources: int
    """Resources that were compared."""
    differences: tuple[Difference, ...]


def parse(text: str, place: str, stack: str) -> Drift:
    """Read the event log of a refresh. Raises ClusterError for other text, or for another stack.

    Differences of outputs alone (status, resource version) are not counted: no update would change them.
    """
    try:
        events = [json.loads(line) for line in text.splitlines() if line.strip()]
        steps = [one["resOutputsEvent"]["metadata"] for one in events if "resOutputsEvent" in one]
        errors = [
            " ".join(str(one["message"]).split())
            for one in (event.get("diagnosticEvent") or {} for event in events)
            if one.get("severity") == "error"
        ]
        urns = {
            str(one["resourcePreEvent"]["metadata"]["urn"])
            for one in events
            if "resourcePreEvent" in one
        }
        found = tuple(found for one in steps for found in _differences(one))
    except (ValueError, KeyError, TypeError, IndexError, AttributeError):
        raise ClusterError(
            f"{place}: not the event log of a refresh; expected what `PULUMI_DEBUG_COMMANDS=true pulumi refresh"
            f" --stack {stack} --preview-only --event-log FILE` writes; refresh again"
        ) from None
    if errors:
        raise ClusterError("\n".join(f"{place}: failed: {one[:500]}" for one in errors))
    others = {urn.split("::")[0].removeprefix("urn:pulumi:") for urn in urns} - {stack}
    if others:
        raise ClusterError(
            f"{place}: is a refresh of {', '.join(sorted(others))}; expected {stack}; pass its --stack"
        )
    if not urns:
        raise ClusterError(f"{place}: has no resources; expected a whole refresh; run it again")
    return Drift(stack=stack, resources=len(urns), differences=found)


def _differences(step: Mapping[str, Any]) -> Iterator[Difference]:
    parent, name = step["urn"].split("::", 3)[2:]
    kind = parent.rsplit("$", 1)[-1]
    resource = f"{kind.rsplit(':', 1)[-1]} {name}"
    if step["op"] == "delete":
        yield Difference(resource=resource)
    elif step["op"] in _CHANGED:
        sides = step.get("old") or {}, step.get("new") or {}
        for path in _paths(step, *sides):
            recorded, now = (_value(one, path, secret=kind == _CONFIDENTIAL) for one in sides)
            yield Difference(resource=resource, field=path, recorded=recorded, now=now)
    if kind.startswith("kubernetes:") and kind.rsplit(":", 1)[-1] not in _OF_CONTROLLERS:
        inputs, live = ((step.get(side) or {}) for side in ("old", "new"))
        for path, extra in _additions(inputs.get("inputs") or {}, live.get("outputs") or {}, ""):
            now = HIDDEN if kind == _CONFIDENTIAL else _short(extra)
            yield Difference(resource=resource, field=path, recorded=ADDED, now=now)


def _additions(inputs: Any, live: Any, path: str) -> Iterator[tuple[str, Any]]:
    """Yield what somebody has added to a list of the inputs, or to an empty mapping in them.

    The provider compares only what the inputs have, so a refresh does not see a further subject of a RoleBinding,
    or labels in an empty selector; no update removes them either.
    """
    if isinstance(inputs, Mapping) and isinstance(live, Mapping):
        if not inputs and live and path:
            yield path, live
        for name in inputs.keys() & live.keys():
            if not name.startswith("__"):
                yield from _additions(inputs[name], live[name], f"{path}.{name}" if path else name)
    elif isinstance(inputs, list) and isinstance(live, list):
        if len(live) > len(inputs):
            yield path, [one for one in live if one not in inputs] or live[len(inputs) :]
        else:
            for index, (mine, theirs) in enumerate(zip(inputs, live, strict=False)):
                yield from _additions(mine, theirs, f"{path}[{index}]")


def _paths(
    step: Mapping[str, Any], old: Mapping[str, Any], new: Mapping[str, Any]
) -> Iterator[str]:
    """Yield the fields that the provider compared; without its comparison, the inputs that differ."""
    compared = step.get("detailedDiff")
    if compared:
        yield from sorted(compared)
        return
    before, after = old.get("inputs") or {}, new.get("inputs") or {}
    for name in sorted({*before, *after}):
        if not name.startswith("__") and before.get(name) != after.get(name):
            yield name


def _value(state: Mapping[str, Any], path: str, *, secret: bool) -> str:
    """Return an input, or an output where there is no such input, in one short line."""
    value = _value_at(state.get("inputs") or {}, path)
    if value is None:
        value = _value_at(state.get("outputs") or {}, path)
    if value is None:
        return "-"
    if secret and path.startswith(("data", "stringData")):
        return HIDDEN
    return _short(value)


def _short(value: Any) -> str:
    text = " ".join(
        (value if isinstance(value, str) else json.dumps(value, sort_keys=True)).split()
    )
    return text if len(text) <= _LENGTH else text[: _LENGTH - 3] + "..."


def _value_at(tree: Any, path: str) -> Any:
    """Return the value at an engine's path, such as `labels["a/b"]` or `rules[0].verbs`; None without one."""
    for quoted, index, name in _PART.findall(path):
        if index:
            tree = tree[int(index)] if isinstance(tree, list) and int(index) < len(tree) else None
        else:
            key = json.loads(f'"{quoted}"') if quoted else name
            tree = tree.get(key) if isinstance(tree, Mapping) else None
    return tree


def text(drift: Drift) -> str:
    """Return the drift as Markdown of at most 30 lines."""
    found = drift.differences
    if not found:
        return f"**{drift.stack}**: {drift.resources} resources are as recorded\n"
    differing = len({one.resource for one in found})
    lines = [
        f"**{drift.stack}**: {differing} of {drift.resources} resources differ from what was deployed",
        "",
        "| resource | field | recorded | now |",
        "|---|---|---|---|",
        *(_row(one) for one in found[:_SHOWN]),
        "",
    ]
    if len(found) > _SHOWN:
        lines.append(f"{len(found) - _SHOWN} more: `stack drift --json`")
    lines.append(
        "`pulumi up --refresh` undoes it; to keep it, write it into the stack file. Who made a change:"
        " the API server's audit log, CloudTrail, or `kubectl get --show-managed-fields`"
    )
    return "\n".join(lines) + "\n"


def _row(one: Difference) -> str:
    cells = (one.resource, one.field or "-", one.recorded or "-", one.now)
    return "| " + " | ".join(_cell(cell) for cell in cells) + " |"


def _cell(value: str) -> str:
    """Return a value that neither ends the cell nor is read as HTML or as a mention."""
    escaped = value.replace("&", "&amp;").replace("<", "&lt;").replace("|", "\\|")
    return escaped.replace("@", "&#64;")


def to_json(drift: Drift) -> dict[str, Any]:
    """Return the drift with the keys that docs/previews.md lists."""
    return asdict(drift)
