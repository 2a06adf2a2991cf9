"""Runs that break, and whose logs say by what: the first of these causes that any of its pods tells."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from infra.domain import naming
from ops import logs
from ops.logs import Match
from ops.snapshot import Snapshot, pluralize
from ops.symptoms import terminal_states
from ops.symptoms.health import zone_lines
from ops.verdict import Verdict
from training import spec

_SHOWN: Final = 3
"""Lines that are shown, of as many pods."""


@dataclass(frozen=True, kw_only=True)
class Cause:
    """What a run can break by."""

    symptom: str
    patterns: tuple[str, ...]
    """Names of infra.observability.log_patterns."""
    what: str
    """Follows `failed: ` or `restarts: `."""
    remedy: tuple[str, ...]
    """RUN_DIR and NAMESPACE stand for the run's."""


CAUSES: Final = (
    Cause(
        symptom="gpu-driver",
        patterns=("driver-mismatch",),
        what="its containers cannot use the GPU driver of their node",
        remedy=(
            "the image's CUDA must not be newer than the node's driver: `nvidia-smi` on the node says"
            " which CUDA that can",
            "a driver that was updated under running pods needs a new node, or a restart of this one",
        ),
    ),
    Cause(
        symptom="gpu-out-of-memory",
        patterns=("cuda-out-of-memory",),
        what="model, batch and optimizer state do not fit the GPU's memory",
        remedy=(
            "lower batch.micro_samples (the global batch and the result stay the same), or set"
            " blocks.recompute",
            "or divide the model: parallel.shard over the ranks, more nodes, or a gpuModel with more"
            " memory",
        ),
    ),
    Cause(
        symptom="disk-full",
        patterns=("no-space",),
        what="a volume is full",
        remedy=(
            "kubectl get pvc -n NAMESPACE; remove old runs, keep fewer checkpoints"
            " (checkpoint.keep_latest), or raise the volume's size in the stack's file",
        ),
    ),
    Cause(
        symptom="restore-failed",
        patterns=("restore-failed",),
        what="it has checkpoints, and none of them can be restored",
        remedy=(
            "python -m training.checkpoint verify RUN_DIR says which file differs",
            "bring back an older version of the bucket's object, or move the folder away to begin at"
            " step 0",
            "docs/runbooks/ResumeFailed.md; the team's restore drill finds this before a run needs it:"
            " docs/restore-drill.md",
        ),
    ),
    Cause(
        symptom="diverged",
        patterns=("loss-not-finite",),
        what="its loss is not a number any more",
        remedy=("lower optimizer.learning_rate or optimizer.clip_norm, or warm up longer",),
    ),
    Cause(
        symptom="gpu-error",
        patterns=("cuda-error",),
        what="a GPU or its driver failed",
        remedy=(
            "an illegal memory access comes from the program; anything else: cordon the node and look"
            " for XID errors there",
        ),
    ),
    Cause(
        symptom="rendezvous-failed",
        patterns=("rendezvous-failed",),
        what="its pods did not find each other",
        remedy=(
            "did all of its pods start? one that came too late, or not at all, leaves the others"
            " waiting",
            f"ports {naming.RENDEZVOUS_PORTS[0]}-{naming.RENDEZVOUS_PORTS[1]} between its pods must be"
            " open: kubectl get networkpolicies, and the nodes' security group",
        ),
    ),
    Cause(
        symptom="collective-timeout",
        patterns=("nccl-timeout", "collective-timeout"),
        what="its ranks waited for each other in vain",
        remedy=(
            "a rank that died first is the cause: look at the pod that ended before all others",
            "if none did: python -m ops ready --until collective tests interfaces, MTU and bandwidth of"
            " a pool; docs/runbooks/NcclTimeout.md",
        ),
    ),
)
"""What explains more comes before: ranks of a broken gang all wait in vain for the one that broke."""


def matching_cause(snapshot: Snapshot) -> Verdict | None:
    """What the logs of a broken run say."""
    how = terminal_states.failure_mode(snapshot)
    if not how:
        return None
    for cause in CAUSES:
        found = logs.matches(snapshot.logs, *cause.patterns)
        if found:
            return Verdict(
                symptom=cause.symptom,
                headline=f"{how}: {cause.what}",
                evidence=_evidence(snapshot, found),
                remedy=(*_remedy_steps(snapshot, cause), *_log_command(snapshot, cause, found)),
            )
    return None


def _remedy_steps(snapshot: Snapshot, cause: Cause) -> list[str]:
    run_dir = f"{spec.CHECKPOINT_MOUNT}/{snapshot.run_id}"
    return [
        step.replace("RUN_DIR", run_dir).replace("NAMESPACE", snapshot.namespace)
        for step in cause.remedy
    ]


def _evidence(snapshot: Snapshot, found: list[Match]) -> tuple[str, ...]:
    pods = len({match.log.pod for match in found})
    more = [f"{pluralize(pods, 'pod')} say so"] if pods > _SHOWN else []
    first = terminal_states.first_exit(snapshot)
    return (
        *(match.evidence for match in found[:_SHOWN]),
        *more,
        *([first.evidence] if first else []),
        *zone_lines(snapshot),
    )


def _log_command(snapshot: Snapshot, cause: Cause, found: list[Match]) -> list[str]:
    if cause.symptom == "restore-failed":
        return []
    log = found[0].log
    previous = " --previous" if log.previous else ""
    return [f"kubectl logs -n {snapshot.namespace} {log.pod} -c {log.container}{previous}"]


def counted_matches(snapshot: Snapshot) -> list[str]:
    """What logs told, of pods that are gone too, as far as somebody counted."""
    if snapshot.vitals is None:
        return []
    return [
        f"its logs told of {name} {'once' if count < 2 else f'{count:.0f} times'}"
        for name, count in sorted(snapshot.vitals.log_matches.items())
    ]
