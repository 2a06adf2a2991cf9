"""The committed stacks' records as files: what stacks share once, each stack's own as differences.

`stacks/shared/AREA.yaml` holds the resources of two stacks or more, as most of them have them, and
the stacks that have them. `stacks/STACK.yaml` holds what only this stack has, and by path what it
has in another way (`changes`, `removed`). Left out, because it follows from the rest: a provider
that is the parent's, an empty `parent` or `dependsOn`, and `protect: false`. `all of COMPONENT` in
`dependsOn` means every resource within that component that is no component itself. `like: RESOURCE`
names one of the same type that is shown whole, from which this one differs as given.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from infra.cli.render import Record, in_order
from tests.golden.conftest import InlineList
from tests.golden.differences import applied, difference, lines

Stacks = Mapping[str, list[Record]]
Files = dict[str, list[Record]]

_ALL_OF = "all of "


def folded(stacks: Stacks) -> Files:
    """The documents of each file, by its path without `.yaml`."""
    areas: dict[str, str] = {}
    found: dict[str, dict[str, Record]] = {}
    for stack, records in stacks.items():
        tree = _Tree(records)
        for record in records:
            identity = _identity(record)
            areas.setdefault(identity, tree.area(identity))
            found.setdefault(identity, {})[stack] = tree.brief(record)
    files: Files = {stack: [] for stack in stacks}
    for identity, records_of in sorted(found.items(), key=lambda item: _by_name(item[0])):
        if len(records_of) == 1:
            [(stack, record)] = records_of.items()
            files[stack].append({"resource": identity, **record})
            continue
        base = _most_common(records_of.values())
        shared = {"resource": identity, "stacks": InlineList(sorted(records_of)), **base}
        files.setdefault(f"shared/{areas[identity]}", []).append(shared)
        for stack, record in records_of.items():
            changes, removed = difference(base, record)
            own = {"changes": changes, "removed": removed}
            if changes or removed:
                files[stack].append({"resource": identity, **{k: v for k, v in own.items() if v}})
    return _by_likeness(files)


def _by_likeness(files: Files) -> Files:
    """The same with a resource as differences to one of its type where that halves its lines."""
    whole: dict[str, list[Record]] = {}
    return {
        path: [_brief(document, whole) for document in files[path]]
        for path in sorted(files, key=lambda path: (not path.startswith("shared/"), path))
    }


def _brief(document: Record, whole: dict[str, list[Record]]) -> Record:
    if document.keys() & {"changes", "removed"}:
        return document
    body = _body(document)
    alike = whole.setdefault(document["resource"].rpartition("::")[0], [])
    briefs = [
        {
            **{key: document[key] for key in document.keys() - body.keys()},
            "like": other["resource"],
            **{key: edits for key, edits in zip(_EDITS, found, strict=True) if edits},
        }
        for other in alike
        for found in [difference(_body(other), body)]
    ]
    shortest = min(briefs, key=lines, default=document)
    if 2 * lines(shortest) <= lines(document):
        return {key: shortest[key] for key in (*_HEAD, "like", *_EDITS) if key in shortest}
    alike.append(document)
    return document


_HEAD = ("resource", "stacks")
_EDITS = ("changes", "removed")


def _body(document: Record) -> Record:
    return {key: value for key, value in document.items() if key not in _HEAD}


def expanded(files: Files) -> dict[str, list[Record]]:
    """Every stack's records, in the order in which they are rendered."""
    whole = {
        one["resource"]: one for documents in files.values() for one in documents if _is_whole(one)
    }
    files = {path: [_full(one, whole) for one in documents] for path, documents in files.items()}
    own = {path: docs for path, docs in files.items() if not path.startswith("shared/")}
    briefs: dict[str, dict[str, Record]] = {stack: {} for stack in own}
    for path in sorted(files.keys() - own.keys()):
        for document in files[path]:
            base = _body(document)
            for stack in document["stacks"]:
                assert document["resource"] not in briefs[stack], document["resource"]
                briefs[stack][document["resource"]] = base
    for stack, documents in own.items():
        for document in documents:
            identity = document["resource"]
            if _is_whole(document):
                assert identity not in briefs[stack], identity
                briefs[stack][identity] = _body(document)
            else:
                briefs[stack][identity] = _edited(briefs[stack][identity], document)
    return {stack: _complete(records) for stack, records in briefs.items()}


def _is_whole(document: Record) -> bool:
    return not document.keys() & {"like", *_EDITS}


def _full(document: Record, whole: Mapping[str, Record]) -> Record:
    if "like" not in document:
        return document
    head = {key: document[key] for key in _HEAD if key in document}
    return {**head, **_edited(_body(whole[document["like"]]), document)}


def _edited(base: Record, document: Record) -> Record:
    edited: Record = applied(base, document.get("changes", {}), document.get("removed", []))
    return edited


def _most_common(records: Iterable[Record]) -> Record:
    """Of several as common the first one."""
    candidates = list(records)
    return max(candidates, key=candidates.count)


def _identity(record: Record) -> str:
    return f"{record['type']}::{record['name']}"


def _by_name(identity: str) -> tuple[str, str]:
    kind, _, name = identity.rpartition("::")
    return name, kind


def _is_component(identity: str) -> bool:
    return identity.startswith("trainyard:")


class _Tree:
    """The resources of one stack by their parents."""

    def __init__(self, records: Iterable[Record]) -> None:
        self._records = {_identity(record): record for record in records}
        self._within: dict[str, set[str]] = {}
        for identity in self._records:
            if not _is_component(identity):
                for above in self._above(identity):
                    self._within.setdefault(above, set()).add(identity)
        # The largest first, so that a component is named rather than its parts.
        self._components = sorted(
            (name for name, within in self._within.items() if len(within) > 1),
            key=lambda name: (-len(self._within[name]), name),
        )

    def _above(self, identity: str) -> Iterator[str]:
        while identity := self._records[identity]["parent"]:
            yield identity

    def area(self, identity: str) -> str:
        """The component that a resource belongs to; for what AWS has, the part of that component."""
        path = [*reversed(list(self._above(identity))), identity]
        components = [one.rpartition("::")[2] for one in path if _is_component(one)]
        if not components:
            return "providers"
        return components[min(len(components) - 1, 1 if components[0] == "aws" else 0)]

    def brief(self, record: Record) -> Record:
        """A record without its identity and what follows from other records."""
        inherited = self._records[record["parent"]]["provider"] if record["parent"] else ""
        brief = {
            "parent": record["parent"],
            "provider": None if record["provider"] == inherited else record["provider"],
            "dependsOn": self._brief_dependencies(record["dependsOn"]),
            "protect": record["protect"],
            **{key: record[key] for key in sorted(record.keys() - _KEYS)},
            "inputs": _sorted(record["inputs"]),
        }
        empty: Record = {
            "parent": "",
            "provider": None,
            "dependsOn": [],
            "protect": False,
            "inputs": {},
        }
        return {k: v for k, v in brief.items() if k not in empty or v != empty[k]}

    def _brief_dependencies(self, identities: list[str]) -> list[str]:
        left = Counter(identities)
        components = []
        for component in self._components:
            if self._within[component] <= left.keys():
                components.append(_ALL_OF + component)
                left -= Counter(self._within[component])
        return sorted(components) + sorted(left.elements())

    def full_dependencies(self, brief: list[str]) -> list[str]:
        """What `brief` gave for these dependencies, in full."""
        full: list[str] = []
        for one in brief:
            full += self._within[one[len(_ALL_OF) :]] if one.startswith(_ALL_OF) else [one]
        return sorted(full)


def _sorted(value: Any) -> Any:
    """The same with the keys of every mapping in order: the engine has none."""
    if isinstance(value, dict):
        return {key: _sorted(value[key]) for key in sorted(value)}
    return [_sorted(item) for item in value] if isinstance(value, list) else value


_KEYS = {"type", "name", "parent", "provider", "dependsOn", "protect", "inputs"}


def _complete(briefs: Mapping[str, Record]) -> list[Record]:
    def provider(identity: str) -> str:
        brief = briefs[identity]
        if "provider" in brief:
            return str(brief["provider"])
        return provider(brief["parent"]) if brief.get("parent") else ""

    empty: Record = {"parent": "", "dependsOn": [], "protect": False, "inputs": {}}
    records: list[Record] = []
    for identity, brief in briefs.items():
        kind, _, name = identity.rpartition("::")
        record = {**empty, **brief, "type": kind, "name": name, "provider": provider(identity)}
        records.append(record)
    tree = _Tree(records)
    for record in records:
        record["dependsOn"] = tree.full_dependencies(record["dependsOn"])
    return in_order(records)
