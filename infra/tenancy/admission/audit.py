"""Who launched which run with which configuration, in the API server's own audit log."""

from __future__ import annotations

from infra.domain import naming
from infra.kubernetes.objects import Manifest
from infra.tenancy.admission import pods
from infra.tenancy.admission.policy import policy

_ID = pods.label(naming.RUN_ID)
_IMAGES = "dyn(variables.containers).map(cs, cs.map(c, c.?image.orValue('')).join(',')).join(';')"

_NOTES = {
    "run-id": f"{_ID} == '' ? object.metadata.?name.orValue('unnamed') : {_ID}",
    "config": f"{_ID} == '' ? 'none' : 'configmaps/' + object.metadata.namespace + '/' + {_ID}",
    "team": "variables.team",
    "queue": pods.label(naming.QUEUE_NAME),
    "images": _IMAGES,
}


def launches() -> Manifest:
    """Notes on the creation of runs; it refuses nothing.

    The configuration is the ConfigMap of the run's name, and is in the last part of the run's id, too: a hash
    over all of it.
    """
    return policy(
        "audit",
        matches=pods.runs(operations=("CREATE",)),
        variables={**pods.TEAM, **pods.PODS},
        audited={key: f"string({value})" for key, value in _NOTES.items()},
    )
