"""The manifests of example runs as files: what launchers share once, the rest as differences.

`launchers/shared.yaml` holds a ConfigMap and a pod template; each launcher's file has in their
places `like: NAME` and what differs by path. A scheduler's file holds what differs from the same
run under Kueue. `RUN_ID` stands for the run's ID, which each file gives.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from tests.golden.differences import applied, difference

Manifests = list[dict[str, Any]]

_RUN_ID = "RUN_ID"
_STANDS_FOR_ID = re.compile(rf"(?<!TRAINYARD_){_RUN_ID}")
"""Not the variable of that name."""
_EXAMPLE = "jobset"


def difference_of_run(base_id: str, base: Manifests, run_id: str, run: Manifests) -> dict[str, Any]:
    """What a run has in another way than a base run has it."""
    changes, removed = difference(_without_id(base_id, base), _without_id(run_id, run))
    return {"runId": run_id, **_edits(changes, removed)}


def folded(runs: Mapping[str, tuple[str, Manifests]]) -> dict[str, Manifests]:
    """The documents of each file, by its name; from each launcher's run ID and manifests."""
    plain = {launcher: _without_id(*run) for launcher, run in runs.items()}
    shared: dict[str, Any] = {}
    _collect(plain[_EXAMPLE], shared)
    files = {"shared": [{"name": name, "value": value} for name, value in sorted(shared.items())]}
    for launcher, manifests in plain.items():
        files[launcher] = [{"runId": runs[launcher][0]}, *_brief(manifests, shared)]
    return files


def expanded(files: Mapping[str, Manifests]) -> dict[str, Manifests]:
    """Each launcher's manifests."""
    shared = {document["name"]: document["value"] for document in files["shared"]}
    return {
        launcher: _with_id(documents[0]["runId"], _full(documents[1:], shared))
        for launcher, documents in files.items()
        if launcher != "shared"
    }


def _part(value: Any) -> str:
    """The name by which a value is shared; empty if it is not."""
    if not isinstance(value, dict):
        return ""
    if value.get("kind") == "ConfigMap":
        return "configMap"
    spec = value.get("spec")
    return "podTemplate" if isinstance(spec, dict) and "containers" in spec else ""


def _collect(value: Any, shared: dict[str, Any]) -> None:
    if name := _part(value):
        shared.setdefault(name, value)
        return
    for below in value.values() if isinstance(value, dict) else value:
        if isinstance(below, (dict, list)):
            _collect(below, shared)


def _brief(value: Any, shared: Mapping[str, Any]) -> Any:
    if name := _part(value):
        return {"like": name, **_edits(*difference(shared[name], value))}
    if isinstance(value, dict):
        return {key: _brief(below, shared) for key, below in value.items()}
    return [_brief(below, shared) for below in value] if isinstance(value, list) else value


def _full(value: Any, shared: Mapping[str, Any]) -> Any:
    if isinstance(value, dict) and "like" in value:
        edits = value.get("changes", {}), value.get("removed", [])
        return applied(shared[value["like"]], *edits)
    if isinstance(value, dict):
        return {key: _full(below, shared) for key, below in value.items()}
    return [_full(below, shared) for below in value] if isinstance(value, list) else value


def _edits(changes: dict[str, Any], removed: list[str]) -> dict[str, Any]:
    return {
        **({"changes": changes} if changes else {}),
        **({"removed": removed} if removed else {}),
    }


def _without_id(run_id: str, manifests: Manifests) -> Manifests:
    text = json.dumps(manifests)
    assert not _STANDS_FOR_ID.search(text)
    return json.loads(text.replace(run_id, _RUN_ID))  # type: ignore[no-any-return]


def _with_id(run_id: str, manifests: Manifests) -> Manifests:
    return json.loads(_STANDS_FOR_ID.sub(run_id, json.dumps(manifests)))  # type: ignore[no-any-return]
