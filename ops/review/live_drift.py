"""What differs in the cluster from the recorded state that a preview starts from, read with the caller's rights.

`stack drift` refreshes every resource of the stack, for which it must read all of them. This compares the objects
of the cluster that the caller may read, so that a review by a role without Secrets has most of it.
"""

from __future__ import annotations

import functools
import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from ops import objects
from ops.cluster import Cluster, ClusterError, ForbiddenError, Kind
from ops.concurrent import gather_with_deadline
from ops.objects import Json
from ops.review import drift
from ops.review.drift import Difference
from ops.review.managers import Path, last_writer, shown_path, value_at
from ops.review.steps import SECRET, Change, Preview, Step

DEADLINE_S: Final = 120.0
"""For all objects of a stack."""

_KUBERNETES: Final = "kubernetes:"
_RELEASE: Final = "kubernetes:helm.sh/v3:Release"
_NO_SAMES: Final = "the preview lists only what changes; make it with `--show-sames`"
_NOT_COMPARED: Final = frozenset({"apiVersion", "kind", "status"})
_MISSING: Final = object()


@dataclass(frozen=True, kw_only=True)
class LiveDrift:
    """The differences of the objects that could be read."""

    differences: tuple[Difference, ...] = ()
    compared: int = 0
    """Objects."""
    gaps: tuple[str, ...] = ()
    """What was not compared, with the reason."""


def read(cluster: Cluster, preview: Preview) -> LiveDrift:
    """Compare the recorded objects with those in the cluster. What may not be read is a gap, not an error."""
    known = [one for one in preview.steps if not one.kind.startswith("pulumi:")]
    recorded = [one for one in known if one.recorded]
    is_new = known and all(one.change is Change.CREATE for one in known)
    if not is_new and all(one.change is not Change.SAME for one in recorded):
        return LiveDrift(gaps=(_NO_SAMES,))
    mine = [one for one in recorded if one.kind.startswith(_KUBERNETES)]
    others = len(recorded) - len(mine)
    releases = [one for one in mine if one.kind == _RELEASE]
    mine = [one for one in mine if one.kind != _RELEASE and not _is_file_of_run(one)]
    differences: list[Difference] = []
    compared = 0
    unread: Counter[tuple[str, str]] = Counter()
    for one, live in _objects(cluster, mine):
        if isinstance(live, str):
            unread[_api_kind(one)[1], live] += 1
        else:
            compared += 1
            differences += compare(one, live)
    gaps = [f"{number} {kind}: {why}" for (kind, why), number in sorted(unread.items())]
    if releases:
        gaps.append(f"{len(releases)} Helm releases: `stack drift` compares them")
    if others:
        gaps.append(f"{others} resources outside of the cluster: `stack drift` compares them")
    return LiveDrift(differences=tuple(differences), compared=compared, gaps=tuple(gaps))


def compare(step: Step, live: Json | None) -> Iterator[Difference]:
    """Yield the recorded inputs that an object has otherwise, though it had them after the last update. Pure.

    `live` None: the object does not exist.
    """
    resource = f"{_api_kind(step)[1]} {step.name}"
    if live is None:
        yield Difference(resource=resource, kind=drift.Kind.DELETED)
        return
    extra = list(drift.added(resource, step.old, live, step.ignored))
    yield from extra
    known = {one.field for one in extra}
    for path in _changed((), step.old, step.recorded, live):
        if shown_path(path) in known or any(path[: len(one)] == one for one in step.ignored):
            continue
        yield Difference(
            resource=resource,
            kind=drift.Kind.CHANGED,
            field=shown_path(path),
            recorded=drift.shown(value_at(step.old, path)),
            now=drift.shown(value_at(live, path)),
            by=last_writer(live, path),
        )


def _changed(path: Path, given: Any, before: Any, now: Any) -> Iterator[Path]:
    """Yield the paths of the inputs that differ from both the recorded object and the inputs."""
    if now in (before, given) or SECRET in (given, before) or before is _MISSING:
        return
    # An empty field has what somebody added; of others, what the program does not give is not compared.
    if given and all(isinstance(one, Mapping) for one in (given, before, now)):
        for key, value in given.items():
            if path or key not in _NOT_COMPARED:
                sides = before.get(key, _MISSING), now.get(key, _MISSING)
                yield from _changed((*path, key), value, *sides)
    elif _same_length(given, before, now):
        for index, value in enumerate(given):
            yield from _changed((*path, index), value, before[index], now[index])
    else:
        yield path


def _same_length(*lists: Any) -> bool:
    return all(isinstance(one, list) for one in lists) and len({len(one) for one in lists}) == 1


def _is_file_of_run(step: Step) -> bool:
    """Whether the object is immutable, never updated, and up to a MiB to read: files of a run."""
    return step.kind == "kubernetes:core/v1:ConfigMap" and ("data",) in step.ignored


def _api_kind(step: Step) -> tuple[str, str]:
    return str(step.recorded.get("apiVersion", "")), str(step.recorded.get("kind", ""))


def _kinds(cluster: Cluster, wanted: set[tuple[str, str]]) -> dict[tuple[str, str], Kind | None]:
    """Return how the cluster serves the kinds; None for one that it does not serve."""
    served: dict[tuple[str, str], Kind] = {}
    for api in sorted({api for api, _ in wanted}):
        text = cluster.text(f"/{'api' if api == 'v1' else 'apis'}/{api}", [])
        for one in json.loads(text)["resources"] if text else ():
            if "/" not in one["name"]:
                served[api, one["kind"]] = Kind(api, one["name"], one["kind"])
    return {one: served.get(one) for one in wanted}


def _objects(cluster: Cluster, steps: Sequence[Step]) -> Iterator[tuple[Step, Json | str | None]]:
    """Yield each step with its object, None if there is none, or why it was not read."""
    kinds = _kinds(cluster, {_api_kind(one) for one in steps})

    def get(step: Step, kind: Kind) -> Json | None:
        meta = objects.meta(dict(step.recorded))
        return cluster.get(kind, str(meta["name"]), meta.get("namespace"))

    questions = {
        one.urn: functools.partial(get, one, kind)
        for one in steps
        if (kind := kinds[_api_kind(one)])
    }
    found = gather_with_deadline(questions, DEADLINE_S)
    for one in steps:
        if one.urn not in questions:
            yield one, "the cluster does not serve this kind"
        elif one.urn not in found:
            yield one, "not read in time"
        else:
            yield one, _object(found[one.urn])


def _object(answer: Json | ClusterError | None) -> Json | str | None:
    if isinstance(answer, ForbiddenError):
        return "your role may not read them"
    return str(answer) if isinstance(answer, ClusterError) else answer
