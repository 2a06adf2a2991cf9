"""The state of a sweep: one ConfigMap in its team's namespace, so that any machine can continue it."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from infra.domain import naming
from ops import names, objects
from ops.cluster import Cluster, ClusterError, ConflictError
from ops.collect import CONFIG_MAPS
from ops.names import Named
from ops.objects import Json
from ops.sweep.state import WAITING, SweepState

_KEY: Final = "sweep.json"
_VERSION: Final = re.compile(r"-v(\d+)$")


class NoSuchSweepError(ClusterError):
    """No ConfigMap is the state of that sweep."""


@dataclass(frozen=True, kw_only=True)
class StoredSweep:
    """A sweep's state, and the version of the object that it was read from."""

    state: SweepState
    resource_version: str

    @property
    def namespace(self) -> str:
        return naming.namespace(self.state.team)


def object_name(sweep: str) -> str:
    return f"{naming.SWEEP_PREFIX}{sweep}"


def manifest(state: SweepState, user: str = "") -> Json:
    """Return the ConfigMap. `user`: the member of the team whose sweep it is; empty: CI's."""
    labels = naming.object_labels(naming.SWEEP_COMPONENT, state.team)
    labels |= {naming.SWEEP: state.sweep}
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {
            "name": object_name(state.sweep),
            "namespace": naming.namespace(state.team),
            "labels": labels,
            **({"annotations": {naming.LAUNCHED_BY: user}} if user else {}),
        },
        "data": {_KEY: state.to_json()},
    }


def open_sweep(cluster: Cluster, planned: SweepState, user: str = "") -> StoredSweep:
    """Return the stored state of a sweep, with runs that were added to its file; created if there is none.

    Raises ClusterError if the stored sweep has other runs.
    """
    namespace = naming.namespace(planned.team)
    found = cluster.get(CONFIG_MAPS, object_name(planned.sweep), namespace)
    if found is None:
        return _stored(cluster.create(CONFIG_MAPS, manifest(planned, user)))
    stored = _stored(found)
    return dataclasses.replace(stored, state=extended(stored.state, planned))


def extended(stored: SweepState, planned: SweepState) -> SweepState:
    """Return the stored state with the settings and the further runs of the file.

    Runs that have been submitted must be the same; raises ClusterError otherwise.
    """
    same = (stored.metric, stored.maximize) == (planned.metric, planned.maximize)
    known, wanted = (
        [(one.run_id, one.parameters) for one in state.trials] for state in (stored, planned)
    )
    common = min(len(known), len(wanted))
    dropped = [one.run_id for one in stored.trials[common:] if one.state != WAITING]
    if not same or known[:common] != wanted[:common] or dropped:
        raise ClusterError(
            f"sweep {stored.sweep}: exists with other runs or another metric; a version of a sweep does not "
            "change, except for runs at its end; raise `version`, or check out the commit that it began with"
        )
    trials = (*stored.trials[:common], *planned.trials[common:])
    return dataclasses.replace(planned, trials=trials)


def save(cluster: Cluster, stored: StoredSweep, state: SweepState) -> StoredSweep:
    """Write the state. Raises ClusterError if another process has written it meanwhile."""
    change = {
        "metadata": {"resourceVersion": stored.resource_version},
        "data": {_KEY: state.to_json()},
    }
    try:
        return _stored(
            cluster.patch(CONFIG_MAPS, object_name(state.sweep), change, stored.namespace)
        )
    except ConflictError:
        raise ClusterError(
            f"sweep {state.sweep}: another `trainyard sweep` command changed it; run the command again when that "
            "one has ended"
        ) from None


def list_sweeps(cluster: Cluster, namespace: str | None) -> list[StoredSweep]:
    """Return the sweeps of a namespace, or of all. Raises ForbiddenError."""
    selector = f"{naming.COMPONENT}={naming.SWEEP_COMPONENT},{naming.SWEEP}"
    return [_stored(one) for one in cluster.items(CONFIG_MAPS, namespace, selector)]


def find_sweep(known: Sequence[StoredSweep], wanted: str) -> StoredSweep:
    """Return the sweep NAME-vVERSION, or the highest version of NAME.

    Raises NoSuchSweepError; AmbiguousNameError if several teams have one.
    """
    newest = sorted(known, key=lambda one: _version(one.state.sweep), reverse=True)
    found = names.find("sweep", newest, wanted, _named)
    if found is None:
        existing = ", ".join(sorted(one.state.sweep for one in known)) or "none"
        raise NoSuchSweepError(f"sweep {wanted!r}: not found; existing sweeps: {existing}")
    return found


def _named(one: StoredSweep) -> Named:
    return Named(id=one.state.sweep, name=one.state.name, namespace=one.namespace)


def _version(sweep: str) -> int:
    found = _VERSION.search(sweep)
    return int(found[1]) if found else 0


def _stored(item: Json) -> StoredSweep:
    try:
        state = SweepState.from_json(str((item.get("data") or {}).get(_KEY)))
    except ValueError as error:
        raise ClusterError(f"configmap {objects.name(item)}: {error}") from None
    version = str(objects.meta(item).get("resourceVersion", ""))
    return StoredSweep(state=state, resource_version=version)
