"""What differs from the recorded state of a stack, and who changed it: the event log of a refresh."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from ops.cluster import ClusterError
from ops.review.managers import (
    Manager,
    Path,
    Writer,
    additions,
    last_writer,
    parse_path,
    shown_path,
    value_at,
)

_CHANGED: Final = {"update", "replace"}
_CONFIDENTIAL: Final = "kubernetes:core/v1:Secret"
HIDDEN: Final = "(hidden)"
_LENGTH: Final = 60
"""Characters of a value that are shown."""


class Kind(StrEnum):
    """How a resource differs."""

    CHANGED = "changed"
    ADDED = "added"
    """A field, or an entry of a list, that the program does not give."""
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
        yield Difference(resource=resource, kind=Kind.DELETED)
        return
    old, new = step.get("old") or {}, step.get("new") or {}
    live = new.get("outputs") or {}
    changed = list(_paths(step, old, new)) if step["op"] in _CHANGED else []
    for path in changed:
        recorded, now = (_value(one, path, secret=kind == _CONFIDENTIAL) for one in (old, new))
        yield Difference(
            resource=resource,
            kind=Kind.CHANGED,
            field=shown_path(path),
            recorded=recorded,
            now=now,
            by=last_writer(live, path),
        )
    hidden = {"data": HIDDEN, "stringData": HIDDEN} if kind == _CONFIDENTIAL else {}
    yield from added(resource, old.get("inputs") or {}, {**live, **hidden}, changed)


def added(
    resource: str, given: Mapping[str, Any], live: Mapping[str, Any], known: Sequence[Path]
) -> Iterator[Difference]:
    """Yield what others added to an object, except below the paths in `known`."""
    for path, what, by in additions(given, live):
        if not any(path[: len(one)] == one for one in known):
            yield Difference(
                resource=resource,
                kind=Kind.ADDED,
                field=shown_path(path),
                recorded=shown(value_at(given, path)),
                now=shown(what),
                by=by,
            )


def _paths(
    step: Mapping[str, Any], old: Mapping[str, Any], new: Mapping[str, Any]
) -> Iterator[Path]:
    """Yield the fields that the provider compared; without its comparison, the inputs that differ."""
    compared = step.get("detailedDiff")
    if compared:
        yield from map(parse_path, sorted(compared))
        return
    before, after = old.get("inputs") or {}, new.get("inputs") or {}
    for name in sorted({*before, *after}):
        if not name.startswith("__") and before.get(name) != after.get(name):
            yield (name,)


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
_ADDED: Final = "- added: no update removes it; remove it with `kubectl edit`"
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
    writers = {one.writer for one in found if one.kind is not Kind.ADDED}
    lines += [f"- {writer}: {_ADVICE[writer]}" for writer in Writer if writer in writers]
    if any(one.kind is Kind.ADDED for one in found):
        lines.append(_ADDED)
    return "\n".join(lines) + "\n"


def _row(one: Difference) -> str:
    by = one.writer.value
    if one.by:
        by += f": {one.by.name}" + (f", {one.by.at}" if one.by.at else "")
    now = {Kind.DELETED: "deleted", Kind.ADDED: f"added: {one.now}"}.get(one.kind, one.now)
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
