"""Create the objects of a run as the user, with a number of requests that does not depend on other runs.

The run itself is created last, after the API server has admitted it in a dry run, so that nothing starts without
its files and a rejected run leaves nothing. Its files carry a label until they belong to the run: what a lost
connection leaves behind is found by it, and deleted by the user's next submission.
"""

from __future__ import annotations

import contextlib
import copy
import datetime as dt
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from infra.domain import naming
from ops import groups, objects, stopped
from ops.cluster import Cluster, ClusterError, ConflictError, ForbiddenError, Kind
from ops.collect import CONFIG_MAPS
from ops.objects import Json

OWNED_BY_RUN: Final = ("ConfigMap", "Service")
"""Kinds that name the run as their owner; others may not, see infra/tenancy/admission/immutability.py."""
_SUBMITTING: Final = dt.timedelta(minutes=10)
"""Longer than any submission takes; another one of the same user may be in progress."""
_PREPARATIONS: Final = (naming.DATASET_COMPONENT, naming.WEIGHTS_COMPONENT)


class ExistsError(ClusterError):
    """A run of this id exists, or another user submits it."""


@dataclass(frozen=True, kw_only=True)
class Created:
    """What was done."""

    run: Json
    new: bool
    """False: the run existed already."""


def kind_of(manifest: Json) -> Kind:
    """Return the API coordinates of an object; all kinds of a run have regular plurals."""
    kind = str(manifest["kind"])
    return Kind(str(manifest["apiVersion"]), f"{kind.lower()}s", kind)


def launched_by(item: Json) -> str:
    """Return the user who submitted an object; empty: a stack deployed it."""
    return str((objects.meta(item).get("annotations") or {}).get(naming.LAUNCHED_BY, ""))


def split(manifests: Sequence[Json]) -> tuple[list[Json], list[Json]]:
    """Return the parts of a run, and what is queued for it: the last object, or those of its groups."""
    gangs = [one for one in manifests if groups.number_of(one) is not None] or [manifests[-1]]
    return [one for one in manifests if one not in gangs], gangs


def as_user(manifest: Json, user: str) -> Json:
    """Return an object with the name of its launcher."""
    found = copy.deepcopy(manifest)
    found["metadata"].setdefault("annotations", {})[naming.LAUNCHED_BY] = user
    return found


def _unfinished(manifest: Json) -> Json:
    found = copy.deepcopy(manifest)
    found["metadata"].setdefault("labels", {})[naming.UNFINISHED] = "true"
    return found


def create(cluster: Cluster, manifests: Sequence[Json], user: str) -> Created:
    """Create a run; one that the same user began to submit is continued.

    Raises ExistsError for a run of this id of another user, and other ClusterErrors. After a rejection nothing of
    it is left.
    """
    parts, gangs = split([as_user(one, user) for one in manifests])
    run_id, namespace = objects.run_id_of(gangs[0]), gangs[0]["metadata"]["namespace"]
    existing = [found for gang in gangs if (found := _existing(cluster, gang))]
    if any(objects.meta(one).get("deletionTimestamp") for one in existing):
        raise ExistsError(
            f"run {run_id}: it is being stopped; submit it again when its pods have ended"
        )
    foreign = [one for one in existing if launched_by(one) != user]
    if foreign or len(existing) == len(gangs):
        if not foreign:
            _finish(cluster, parts, existing)
        return Created(run=groups.merged(existing)[0], new=False)
    with contextlib.suppress(ForbiddenError):
        delete_leftovers(cluster, namespace, user, keep=run_id)
    names = {objects.name(one) for one in existing}
    missing = [gang for gang in gangs if objects.name(gang) not in names]
    for gang in missing:
        cluster.create(kind_of(gang), gang, dry_run=True)
    made: list[Json] = []
    try:
        for part in parts:
            if _create_part(cluster, part, user):
                made.append(part)
        there = [*existing, *(_create_gang(cluster, gang, made) for gang in missing)]
    except ConflictError:
        raise ExistsError(
            f"run {run_id}: another command has just submitted it; trainyard run show {run_id} shows it"
        ) from None
    except (ClusterError, KeyboardInterrupt):
        _delete_all(cluster, made)
        raise
    _finish(cluster, parts, there)
    return Created(run=groups.merged(there)[0], new=True)


def _existing(cluster: Cluster, gang: Json) -> Json | None:
    about = gang["metadata"]
    found = cluster.get(kind_of(gang), about["name"], about["namespace"])
    return found and found | {key: gang[key] for key in ("apiVersion", "kind")}


def _create_gang(cluster: Cluster, gang: Json, made: list[Json]) -> Json:
    found = cluster.create(kind_of(gang), gang)
    made.append(gang)
    return found | {key: gang[key] for key in ("apiVersion", "kind")}


def _create_part(cluster: Cluster, part: Json, user: str) -> bool:
    """Create a part; False if an equal one exists. Raises ExistsError for one of another user."""
    shared = objects.label(part, naming.COMPONENT) in _PREPARATIONS
    try:
        cluster.create(kind_of(part), part if shared else _unfinished(part))
    except ConflictError:
        if shared:
            return False
        place = part["metadata"]["namespace"]
        found = cluster.get(kind_of(part), objects.name(part), place)
        if found is not None and launched_by(found) == user:
            return False
        raise ExistsError(
            f"run {objects.label(part, naming.RUN_ID)}: {part['kind']} {objects.name(part)} is "
            f"{(found and launched_by(found)) or 'the stack'}'s; a run of this id is theirs; change `version`, "
            "or ask them to delete it"
        ) from None
    return True


def with_source(manifests: Sequence[Json], document: Mapping[str, Any]) -> list[Json]:
    """Return the objects of a run with what `resume` and `clone` need, noted on the run's ConfigMap."""
    gangs = split(manifests)[1]
    notes = {
        naming.RUN_MANIFEST: stopped.kept(gangs),
        naming.RUN_FILE: json.dumps(dict(document), sort_keys=True, default=str),
    }
    found = []
    for manifest in manifests:
        if manifest["kind"] == "ConfigMap" and objects.name(manifest) == objects.run_id_of(
            gangs[0]
        ):
            own = objects.meta(manifest).get("annotations") or {}
            manifest = manifest | {"metadata": manifest["metadata"] | {"annotations": own | notes}}
        found.append(manifest)
    return found


def _finish(cluster: Cluster, parts: Sequence[Json], gangs: Sequence[Json]) -> None:
    """Make the run the owner of its parts, so that its deletion removes them."""
    for part in parts:
        if part["kind"] in OWNED_BY_RUN:
            adopt(cluster, part, gangs)


def adopt(cluster: Cluster, part: Json, gangs: Sequence[Json]) -> None:
    """Make a run the owner of a part: with groups all of them, so that the last one to go takes it along."""
    owners = [
        {
            "apiVersion": gang.get("apiVersion"),
            "kind": gang.get("kind"),
            "name": objects.name(gang),
            "uid": objects.meta(gang)["uid"],
        }
        for gang in gangs
    ]
    labels = {naming.UNFINISHED: None, naming.STOPPED: None}
    change = {"metadata": {"labels": labels, "ownerReferences": owners}}
    cluster.patch(kind_of(part), objects.name(part), change, part["metadata"]["namespace"])


def _delete_all(cluster: Cluster, made: Sequence[Json]) -> None:
    """Delete what a failed submission has created; what cannot be deleted now is deleted by the next one."""
    for part in made:
        with contextlib.suppress(ClusterError):
            cluster.delete(kind_of(part), objects.name(part), part["metadata"]["namespace"])


def delete_leftovers(cluster: Cluster, namespace: str, user: str, keep: str) -> None:
    """Delete what lost submissions of the user have left some time ago, except of the run `keep`."""
    selector = f"{naming.UNFINISHED}=true"
    lost = dt.datetime.now(dt.UTC) - _SUBMITTING
    for kind in (CONFIG_MAPS, Kind("v1", "services", "Service")):
        for item in cluster.items(kind, namespace, selector):
            made = objects.time(objects.meta(item).get("creationTimestamp"))
            other = launched_by(item) == user and objects.label(item, naming.RUN_ID) != keep
            if other and made is not None and made < lost:
                cluster.delete(kind, objects.name(item), namespace)
