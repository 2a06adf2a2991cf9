"""Runs of replica groups: an object for each group, and one run to everything that lists and explains runs. Pure.

A run with groups is shown as an object of its own, which no cluster has: the objects of its groups below the key
`groups`, and conditions that follow from theirs.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Final

from infra.domain import naming
from ops import objects
from ops.objects import Json

LABEL: Final = naming.GROUP
"""Label of everything that belongs to one group."""
_NEVER_RETRIED: Final = "FailJobSetFailurePolicyAction"
"""JobSet's reason of a failure that is never retried: an invalid configuration, which all groups share."""


def number_of(item: Json) -> int | None:
    """Return the number of the group that an object belongs to; None for one of a whole run."""
    text = objects.label(item, naming.GROUP)
    return int(text) if text.isdecimal() else None


def gangs(run: Json) -> list[Json]:
    """Return the objects that are queued for a run: its groups', or its own."""
    found: list[Json] = run.get(objects.MEMBERS) or [run]
    return found


def has_groups(run: Json) -> bool:
    return objects.MEMBERS in run


def total(run: Json) -> int:
    """Return the number of a run's groups, those included whose objects are gone."""
    text = objects.label(run, naming.GROUPS)
    return max(int(text) if text.isdecimal() else 1, len(gangs(run)))


def needed(run: Json) -> int:
    text = objects.label(run, naming.GROUPS_MIN)
    return int(text) if text.isdecimal() else 1


def merged(items: Iterable[Json]) -> list[Json]:
    """Return the runs of these objects, in the order of their first ones.

    Only groups that the same user launched as parts of as many are one run: a member of the team may create an
    object with the id of another's run.
    """
    found: dict[tuple[str, ...], list[Json]] = defaultdict(list)
    for number, item in enumerate(items):
        meta = objects.meta(item)
        by = str((meta.get("annotations") or {}).get(naming.LAUNCHED_BY, ""))
        key = (str(meta.get("namespace")), objects.run_id_of(item), by)
        alone = () if number_of(item) is not None else (str(number),)
        found[(*key, objects.label(item, naming.GROUPS), *alone)].append(item)
    return [_run(each) if number_of(each[0]) is not None else each[0] for each in found.values()]


def _run(members: Sequence[Json]) -> Json:
    ordered = sorted(members, key=lambda one: number_of(one) or 0)
    first = ordered[0]
    meta = dict(objects.meta(first))
    meta["name"] = objects.run_id_of(first)
    labels = {k: v for k, v in (meta.get("labels") or {}).items() if k != naming.GROUP}
    meta["labels"] = labels
    meta["creationTimestamp"] = min(str(objects.meta(m).get("creationTimestamp")) for m in ordered)
    leaving = [when for m in ordered if (when := objects.meta(m).get("deletionTimestamp"))]
    if leaving:
        meta["deletionTimestamp"] = min(leaving)
    about = {key: first.get(key) for key in ("apiVersion", "kind")}
    found: Json = {**about, "metadata": meta, objects.MEMBERS: ordered}
    restarts = sum(int(objects.status(m).get("restarts") or 0) for m in ordered)
    return found | {"status": {"conditions": _conditions(found), "restarts": restarts}}


def outcome(run: Json) -> Json | None:
    """Return the condition of a group by which its run has ended; None if the run goes on.

    One group that is done has reached the last step of the run. The run fails when fewer groups are left than it
    needs, or when one rejected the configuration that all share and none trains.
    """
    members = gangs(run)
    done = [c for one in members if _holds(c := objects.condition(one, "Completed"))]
    if done:
        return min(done, key=_when)
    lost = [c for one in members if _holds(c := objects.condition(one, "Failed"))]
    final = [one for one in lost if one.get("reason") == _NEVER_RETRIED]
    if final and not _open(members):
        return min(final, key=_when)
    return min(lost, key=_when) if lost and total(run) - len(lost) < needed(run) else None


def _conditions(run: Json) -> list[Json]:
    """Return how a run ended: nothing while a group of it has nodes, which may still save or export."""
    found = outcome(run)
    return [found] if found and not _open(gangs(run)) else []


def _open(members: Sequence[Json]) -> bool:
    """Whether a group that has not ended is let in by its queue."""
    return any(not has_ended(one) and not (one.get("spec") or {}).get("suspend") for one in members)


def has_ended(gang: Json) -> bool:
    return any(objects.condition_is_true(gang, kind) for kind in ("Completed", "Failed"))


def _holds(condition: Json) -> bool:
    return bool(condition.get("status") == "True")


def _when(condition: Json) -> str:
    return str(condition.get("lastTransitionTime") or "")
