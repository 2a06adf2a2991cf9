"""Runs that `run stop` has stopped: what is left of them in the cluster, as the objects that they were.

A stopped run has no object of its own. Its ConfigMap keeps the object's manifest, and `run resume` creates it
again. Pure.
"""

from __future__ import annotations

import json
from typing import Any, Final

from infra.domain import naming
from ops import objects
from ops.objects import Json

SELECTOR: Final = f"{naming.STOPPED}=true"
CONDITION: Final = "Stopped"
"""Condition of a stopped run; no controller sets it."""


def is_stopped(run: Json) -> bool:
    """Whether `run stop` has stopped a run, so that `run resume` continues it."""
    return objects.condition_is_true(run, CONDITION)


def run_of(files: Json) -> Json | None:
    """Return the run that a ConfigMap with the label STOPPED is left of; None if it is not one of a run."""
    run_id = objects.label(files, naming.RUN_ID)
    notes = objects.meta(files).get("annotations") or {}
    try:
        manifest: Any = json.loads(notes.get(naming.RUN_MANIFEST, ""))
    except ValueError:
        return None
    if not isinstance(manifest, dict) or objects.name(files) != run_id:
        return None
    kept = {key: objects.meta(files).get(key) for key in ("name", "namespace", "creationTimestamp")}
    condition = {
        "type": CONDITION,
        "status": "True",
        "lastTransitionTime": _changed(files),
        "message": f"stopped by `trainyard run stop`; trainyard run resume {run_id} continues it",
    }
    return manifest | {
        "metadata": objects.meta(manifest) | kept,
        "status": {"conditions": [condition]},
    }


def _changed(files: Json) -> str:
    """Return when an object was written last, RFC 3339; empty if that is not recorded."""
    written = objects.meta(files).get("managedFields") or []
    return max((str(one.get("time") or "") for one in written), default="")
