"""A stack in which everything exists: every exported series with its documented labels.

Two pods of a run, one on a spot node and one on an on-demand node, with a GPU each. Made from the table of
series, so that an expression over a label that the table lacks finds nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import product
from typing import Final

from infra.observability import dcgm, series
from infra.observability.series import Series
from tests.sandbox.rule_case import RUN

PLACES: Final = (("hello-0", "n0", "spot"), ("hello-1", "n1", "on-demand"))
"""(pod, node, capacity)."""

_VALUES: Final = {
    "namespace": ("team-llm",),
    "run_id": (RUN,),
    "team": ("llm",),
    "event": ("notice", "checkpoint_commit"),
    "pattern": ("nccl-timeout",),
    "cluster_queue": ("team-llm",),
    "cohort": ("all",),
    "flavor": ("spot",),
    "priority_class": ("research",),
    "le": ("60", "+Inf"),
    "phase": ("Running", "Pending"),
    "container": ("trainer",),
    "unit": ("integer",),
    "reason": ("Preempted",),
    "condition": ("Ready", "DiskPressure"),
    "persistentvolumeclaim": ("checkpoints",),
    "label_trainyard_dev_run_id": (RUN,),
    "label_trainyard_dev_run": ("hello",),
    "label_trainyard_dev_team": ("llm",),
    "label_workload_type": ("gpu-training",),
    "label_node_kubernetes_io_instance_type": ("p5.48xlarge",),
    "gpu": ("0",),
    "modelName": ("H100",),
    "bucket": ("productive", "replayed", "idle"),
    "pool": ("spot",),
    "capacity": ("spot",),
    "symptom": ("hung", "corrupt-rank", "slow-rank"),
    "state": ("ok", "warned", "held", "drained", "overridden"),
}
"""Values by label; the default is `x`."""
_BY_SERIES: Final = {
    (series.PENDING.name, "status"): ("active", "inadmissible"),
    (series.QUEUE_STATUS.name, "status"): ("active",),
    (series.NODE_CONDITION.name, "status"): ("true",),
    (series.POD_REQUESTS.name, "resource"): (series.GPU_RESOURCE,),
    (series.NODE_ALLOCATABLE.name, "resource"): (series.GPU_RESOURCE,),
    (series.QUOTA_NOMINAL.name, "resource"): ("nvidia.com/gpu",),
    (series.QUOTA_USED.name, "resource"): ("nvidia.com/gpu",),
    (series.QUOTA_RESERVED.name, "resource"): ("nvidia.com/gpu",),
}
_OF_RULES: Final = ("trainyard:", "ALERTS")


def world() -> dict[str, str]:
    """Series as promtool reads them: all rise by one a minute, but for flags and for what one divides by."""
    found = {}
    exported = [one for one in series.ALL.values() if not one.name.startswith(_OF_RULES)]
    fields = [Series(name=field.name, labels=dcgm.LABELS) for field in dcgm.FIELDS]
    fields.append(Series(name=dcgm.XID_COUNT.name, labels=(*dcgm.LABELS, "xid")))
    for one in (*exported, *fields):
        for labels in _labels(one):
            found[f"{one.name}{{{', '.join(labels)}}}"] = _samples(one, labels)
    return found


def _labels(one: Series) -> Iterator[tuple[str, ...]]:
    for pod, node, capacity in PLACES:
        here: Mapping[str, tuple[str, ...]] = {
            "pod": (pod,),
            "node": (node,),
            "UUID": (f"GPU-{node}",),
            "label_trainyard_dev_capacity": (capacity,),
            "label_trainyard_dev_pool": (capacity,),
        }
        choices = [
            [f'{label}="{value}"' for value in _choices(one.name, label, here)]
            for label in one.labels
        ]
        yield from product(*choices)


def _choices(name: str, label: str, here: Mapping[str, tuple[str, ...]]) -> tuple[str, ...]:
    return _BY_SERIES.get((name, label)) or here.get(label) or _VALUES.get(label, ("x",))


def _samples(one: Series, labels: tuple[str, ...]) -> str:
    """A phase is one or the other; a GPU has its last XID; flags and requests are 1."""
    if 'phase="Pending"' in labels:
        return "0+0x60"
    if one.name == dcgm.XID.name:
        return "79+0x60"
    constant = one.name.endswith(("_labels", "_info", "_phase", "_condition", "_status", "_state"))
    return "1+0x60" if constant or one == series.POD_REQUESTS else "1+1x60"
