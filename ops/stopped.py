"""Runs that `run stop` has stopped: what is left of them in the cluster, as the objects that they were.

A stopped run has no object of its own. Its ConfigMap keeps the object's manifest, and `run resume` creates it
again. Pure.
"""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Sequence
from typing import Any, Final

from infra.domain import naming
from ops import groups, objects
from ops.objects import Json

SELECTOR: Final = f"{naming.STOPPED}=true"
CONDITION: Final = "Stopped"
"""Condition of a stopped run; no controller sets it."""
_PACKED: Final = "gangs"
_UNPACKED_MAX: Final = 16 * 2**20
"""Bytes; members of the team write the note."""


def is_stopped(run: Json) -> bool:
    """Whether `run stop` has stopped a run, so that `run resume` continues it."""
    return objects.condition_is_true(run, CONDITION)


def kept(gangs: Sequence[Json]) -> str:
    """Return the note of what `run resume` creates again: a run's object, or those of its groups, packed.

    All annotations of an object have 256 KiB together, and groups are alike.
    """
    if groups.number_of(gangs[0]) is None:
        return json.dumps(gangs[0], sort_keys=True)
    packed = zlib.compress(json.dumps(list(gangs), sort_keys=True).encode(), 9)
    return json.dumps({_PACKED: base64.b64encode(packed).decode()})


def gangs_in(text: str) -> list[Json]:
    """Return the objects that `kept` noted; none if the text is not such a note."""
    try:
        found: Any = json.loads(text)
        if isinstance(found, dict) and _PACKED in found:
            unpacked = zlib.decompressobj().decompress(
                base64.b64decode(found[_PACKED]), _UNPACKED_MAX
            )
            found = json.loads(unpacked)
    except (ValueError, TypeError, zlib.error):
        return []
    return [one for one in (found if isinstance(found, list) else [found]) if isinstance(one, dict)]


def run_of(files: Json) -> Json | None:
    """Return the run that a ConfigMap with the label STOPPED is left of; None if it is not one of a run."""
    run_id = objects.label(files, naming.RUN_ID)
    notes = objects.meta(files).get("annotations") or {}
    gangs = gangs_in(str(notes.get(naming.RUN_MANIFEST, "")))
    if not gangs or objects.name(files) != run_id:
        return None
    about = {key: objects.meta(files).get(key) for key in ("namespace", "creationTimestamp")}
    condition = {
        "type": CONDITION,
        "status": "True",
        "lastTransitionTime": _changed(files),
        "message": f"stopped by `trainyard run stop`; trainyard run resume {run_id} continues it",
    }
    there = [
        one | {"metadata": objects.meta(one) | about, "status": {"conditions": [condition]}}
        for one in gangs
    ]
    run = groups.merged(there)[0]
    run["metadata"] = objects.meta(run) | {"name": run_id}
    return run | {"status": {"conditions": [condition]}}


def _changed(files: Json) -> str:
    """Return when an object was written last, RFC 3339; empty if that is not recorded."""
    written = objects.meta(files).get("managedFields") or []
    return max((str(one.get("time") or "") for one in written), default="")
