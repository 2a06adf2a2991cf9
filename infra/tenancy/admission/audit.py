"""Who launched which run with which configuration, in the API server's own audit log."""

from __future__ import annotations

from infra.domain import naming
from infra.kubernetes import pod_templates
from infra.kubernetes.admission_policy import policy
from infra.kubernetes.objects import Manifest

_ID = pod_templates.label(naming.RUN_ID)
_IMAGES = "dyn(variables.containers).map(cs, cs.map(c, c.?image.orValue('')).join(',')).join(';')"

_NOTES = {
    "run-id": f"{_ID} == '' ? object.metadata.?name.orValue('unnamed') : {_ID}",
    "config": f"{_ID} == '' ? 'none' : 'configmaps/' + object.metadata.namespace + '/' + {_ID}",
    "team": "variables.team",
    "queue": pod_templates.label(naming.QUEUE_NAME),
    "images": _IMAGES,
}


def audit_launches() -> Manifest:
    """Notes on the creation of runs; it refuses nothing.

    The configuration is the ConfigMap of the run's name, and is in the last part of the run's id, too: a hash
    over all of it.
    """
    return policy(
        "audit",
        matches=pod_templates.runs(operations=("CREATE",)),
        variables={**pod_templates.TEAM, **pod_templates.PODS},
        audited={key: f"string({value})" for key, value in _NOTES.items()},
    )
