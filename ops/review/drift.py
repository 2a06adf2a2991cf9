"""What differs from the recorded state of a stack, and who changed it: `pulumi refresh --preview-only --json`."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from ops.cluster import ClusterError
from ops.review.managers import Manager, Path, Writer, last_writer, parse_path, value_at

_CHANGED: Final = {"update", "replace"}
_CONFIDENTIAL: Final = "kubernetes:core/v1:Secret"
HIDDEN: Final = "(hidden)"
_LENGTH: Final = 60
"""Characters of a value that are shown."""


class Kind(StrEnum):
    """How a resource differs."""

    CHANGED = "changed"
    DELETED = "deleted"


@dataclass(frozen=True, kw_only=True)
class Difference:
    """One field that is not as recorded, or one resource that is gone."""

    resource: str
    """Its type's last word and its name in the program: `ClusterQueue queues-research`."""
    kind: Kind
    field: str = ""
    """The engine's path, such as `spec.stopPolicy`; empty for a deleted resource."""
    recorded: str = ""
    now: str = ""
    by: Manager | None = None
    """None: not recorded, as for deleted objects, removed fields and resources of a cloud."""

    @property
    def writer(self) -> Writer:
        """What kind of client changed it."""
        return self.by.writer if self.by else Writer.UNKNOWN


@dataclass(frozen=True, kw_only=True)
class Drift:
    """All differences of one stack, in the order of its resources."""

    stack: str
    resources: int
    """Resources that were compared."""
    differences: tuple[Difference, ...]


def parse(text: str, place: str, stack: str) -> Drift:
    """Read what the engine wrote. Raises ClusterError for other text, or for another stack.

    Differences of outputs alone (status, resource version) are not counted: no update would change them.
    """
    try:
        read = json.loads(text)
        steps = read.get("steps") or []
        errors = [
            " ".join(str(one["message"]).split())
            for one in read.get("diagnostics") or []
            if one.get("severity") == "error"
        ]
        urns = {str(one["urn"]) for one in steps}
        found = tuple(found for one in steps for found in _differences(one))
    except (ValueError, KeyError, TypeError, IndexError, AttributeError):
        raise ClusterError(
            f"{place}: not a refresh; expected what `pulumi refresh --stack {stack} --preview-only --json` writes"
        ) from None
    if errors:
        raise ClusterError("\n".join(f"{place}: failed: {one[:500]}" for one in errors))
    others = {urn.split("::")[0].removeprefix("urn:pulumi:") for urn in urns} - {stack}
    if others:
        raise ClusterError(
            f"{place}: is a refresh of {', '.join(sorted(others))}; expected {stack}; pass its --stack"
        )
    if not urns:
        raise ClusterError(f"{place}: has no steps; expected a whole refresh; run it again")
    return Drift(stack=stack, resources=len(urns), differences=found)


def _differences(step: Mapping[str, Any]) -> Iterator[Difference]:
    parent, name = step["urn"].split("::", 3)[2:]
    kind = parent.rsplit("$", 1)[-1]
    resource = f"{kind.rsplit(':', 1)[-1]} {name}"
    if step["op"] == "delete":
        yield Difference(resource=resource, kind=Kind.DELETED)
    elif step["op"] in _CHANGED:
        old, new = step.get("oldState") or {}, step.get("newState") or {}
        live = new.get("outputs") or {}
        for field, path in _paths(step, old, new):
            shown = (_value(one, path, secret=kind == _CONFIDENTIAL) for one in (old, new))
            recorded, now = shown
            yield Difference(
                resource=resource,
                kind=Kind.CHANGED,
                field=field,
                recorded=recorded,
                now=now,
                by=last_writer(live, path),
            )


def _paths(
    step: Mapping[str, Any], old: Mapping[str, Any], new: Mapping[str, Any]
) -> Iterator[tuple[str, Path]]:
    """Return the fields that the provider compared; without its comparison, the inputs that differ."""
    compared = step.get("detailedDiff")
    if compared:
        for field in sorted(compared):
            yield field, parse_path(field)
        return
    before, after = old.get("inputs") or {}, new.get("inputs") or {}
    for name in sorted({*before, *after}):
        if not name.startswith("__") and before.get(name) != after.get(name):
            yield name, (name,)


def _value(state: Mapping[str, Any], path: Path, *, secret: bool) -> str:
    """Return an input, or an output where there is no such input, in one short line."""
    value = value_at(state.get("inputs") or {}, path)
    if value is None:
        value = value_at(state.get("outputs") or {}, path)
    return HIDDEN if secret and value and path[0] in ("data", "stringData") else shown(value)


def shown(value: Any) -> str:
    """Return a value as one short line; `-`: there is none."""
    if value is None:
        return "-"
    text = " ".join(
        (value if isinstance(value, str) else json.dumps(value, sort_keys=True)).split()
    )
    return text if len(text) <= _LENGTH else text[: _LENGTH - 3] + "..."


_ADVICE: Final[Mapping[Writer, str]] = {
    Writer.PERSON: "`pulumi up --refresh` undoes it; to keep it, write it into the stack file or the program",
    Writer.PROGRAM: "an update stopped midway, or ran with another state; run `pulumi up --refresh`",
    Writer.CONTROLLER: "an update and the controller would undo each other; let the program leave the field out",
    Writer.UNKNOWN: "the API server's audit log or CloudTrail names who it was; `pulumi up --refresh` undoes it",
}
_SHOWN: Final = 15
"""Rows of the table; --json has all."""


def marker(stack: str) -> str:
    """Return the line by which the issue of a stack is found and edited."""
    return f"<!-- trainyard-drift {stack} -->"


def text(drift: Drift) -> str:
    """Return the drift as Markdown of at most 30 lines."""
    found = drift.differences
    if not found:
        return f"**{drift.stack}**: {drift.resources} resources are as recorded\n"
    differing = len({one.resource for one in found})
    lines = [
        marker(drift.stack),
        f"**{drift.stack}**: {differing} of {drift.resources} resources differ from what was deployed",
        "",
        "| resource | field | recorded | now | changed by |",
        "|---|---|---|---|---|",
        *(_row(one) for one in found[:_SHOWN]),
    ]
    if len(found) > _SHOWN:
        lines.append(f"\n{len(found) - _SHOWN} more: `stack drift --json`")
    lines.append("")
    writers = {one.writer for one in found}
    lines += [f"- {writer}: {_ADVICE[writer]}" for writer in Writer if writer in writers]
    return "\n".join(lines) + "\n"


def _row(one: Difference) -> str:
    by = one.writer.value
    if one.by:
        by += f": {one.by.name}" + (f", {one.by.at}" if one.by.at else "")
    now = "deleted" if one.kind is Kind.DELETED else one.now
    cells = (one.resource, one.field or "-", one.recorded or "-", now, by)
    return "| " + " | ".join(_cell(cell) for cell in cells) + " |"


def _cell(value: str) -> str:
    """Return a value that neither ends the cell nor is read as HTML or as a mention."""
    escaped = value.replace("&", "&amp;").replace("<", "&lt;").replace("|", "\\|")
    return escaped.replace("@", "&#64;")


def line(one: Difference) -> str:
    """Return a difference as one line of text."""
    change = "deleted" if one.kind is Kind.DELETED else f"{one.field}: {one.recorded} -> {one.now}"
    by = f", {one.by.name}" if one.by else ""
    return f"{one.resource} {change} ({one.writer}{by})"


def to_json(drift: Drift) -> dict[str, Any]:
    """Return the drift with the keys that docs/previews.md lists."""
    return {
        "stack": drift.stack,
        "resources": drift.resources,
        "differences": rows(drift.differences),
    }


def rows(differences: Sequence[Difference]) -> list[dict[str, Any]]:
    """Return differences as JSON objects."""
    return [
        {
            "resource": one.resource,
            "kind": one.kind.value,
            "field": one.field,
            "recorded": one.recorded,
            "now": one.now,
            "by": one.by.name if one.by else None,
            "at": one.by.at if one.by else None,
            "writer": one.writer.name.lower(),
        }
        for one in differences
    ]
