"""Runs whose results the Job `results-copy` could not copy to the team's bucket."""

from __future__ import annotations

import json
from typing import Any

from ops import objects
from ops.objects import Json
from ops.snapshot import Snapshot


def not_copied(snapshot: Snapshot) -> list[str]:
    """Return why the newest finished Job left out this run; nothing if it copied it, or there is none."""
    pod = snapshot.results_pod
    summary = _summary(pod)
    why = summary.get("cause") or (summary.get("causes") or {}).get(snapshot.run_id)
    if pod is None or not why:
        return []
    where = f"{summary.get('store')}/{snapshot.run_id}"
    name = objects.name(pod)
    return [
        f"results not copied to {where} ({snapshot.ago(_ended(pod).get('finishedAt'))} ago): {why}",
        f"they stay on the team's volume; kubectl logs -n {snapshot.namespace} {name}",
    ]


def finished(pod: Json) -> bool:
    return bool(_ended(pod))


def _ended(pod: Json) -> Json:
    first = next(iter(objects.containers(pod)), {})
    return objects.state(first, "terminated")


def _summary(pod: Json | None) -> dict[str, Any]:
    """Return what the program wrote as its termination message; empty if it was killed before."""
    try:
        found = json.loads(str(_ended(pod or {}).get("message") or ""))
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}
