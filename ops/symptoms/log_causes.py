"""Match failed runs against known log signatures."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from infra.domain import naming
from ops import logs
from ops.logs import Match
from ops.runs import exits
from ops.snapshot import Snapshot, Verdict, pluralize
from ops.symptoms import terminal_states
from ops.symptoms.health import zone_lines
from trainyard import contract

_SHOWN: Final = 3
"""Matching lines shown, of at most as many pods."""


@dataclass(frozen=True, kw_only=True)
class Cause:
    """A known cause of failure."""

    symptom: str
    patterns: tuple[str, ...]
    """Names of infra.observability.log_patterns."""
    what: str
    """Follows `failed: ` or `restarts: `."""
    remedy: tuple[str, ...]
    """RUN_DIR and NAMESPACE are replaced with the run's."""


CAUSES: Final = (
    Cause(
        symptom="hung",
        patterns=("no-progress",),
        what="a rank hung: its program reported nothing more, and all ranks were ended",
        remedy=(
            "find the rank that does not wait in a collective: py-spy dump --pid PID, or"
            " faulthandler.register(signal.SIGTERM) in the program",
            "if its steps take longer, raise program.progressTimeoutSeconds in the run file; 0 turns it off",
        ),
    ),
    Cause(
        symptom="gpu-driver",
        patterns=("driver-mismatch",),
        what="its containers cannot use the GPU driver of their node",
        remedy=(
            "use an image whose CUDA version the node's driver supports: `nvidia-smi` on the node shows"
            " the maximum",
            "if the driver was updated under running pods, replace or restart the node",
        ),
    ),
    Cause(
        symptom="gpu-out-of-memory",
        patterns=("cuda-out-of-memory",),
        what="model, batch and optimizer state exceed the GPU's memory",
        remedy=(
            "lower batch.micro_samples (the global batch and the result stay the same), or set"
            " blocks.recompute",
            "or shard the model (parallel.shard), use more nodes, or a gpuModel with more memory",
        ),
    ),
    Cause(
        symptom="disk-full",
        patterns=("no-space",),
        what="a volume is full",
        remedy=(
            "kubectl get pvc -n NAMESPACE; remove old runs, keep fewer checkpoints"
            " (checkpoint.keep_latest), or raise the volume's size in the stack file",
        ),
    ),
    Cause(
        symptom="restore-failed",
        patterns=("restore-failed",),
        what="none of its checkpoints can be restored",
        remedy=(
            "python -m trainer.checkpoint verify RUN_DIR shows which file differs",
            "restore an older version of the bucket's object, or move the folder away to start at"
            " step 0",
            "docs/runbooks.md#checkpointfailed; restore drills detect this early: docs/recover.md",
        ),
    ),
    Cause(
        symptom="diverged",
        patterns=("loss-not-finite",),
        what="its loss or gradient norm is not finite (NaN or infinity)",
        remedy=("lower optimizer.learning_rate or optimizer.clip_norm, or warm up longer",),
    ),
    Cause(
        symptom="gpu-error",
        patterns=("cuda-error",),
        what="a GPU or its driver failed",
        remedy=(
            "an illegal memory access is a bug in the program; for anything else cordon the node and"
            " check it for XID errors",
        ),
    ),
    Cause(
        symptom="rendezvous-failed",
        patterns=("rendezvous-failed",),
        what="the rendezvous of its pods failed",
        remedy=(
            "check that all its pods started: the others wait for a late or missing pod",
            f"ports {naming.RENDEZVOUS_PORTS[0]}-{naming.RENDEZVOUS_PORTS[1]} between its pods must be"
            " open: check kubectl get networkpolicies and the nodes' security group",
        ),
    ),
    Cause(
        symptom="collective-timeout",
        patterns=("nccl-timeout", "collective-timeout"),
        what="a collective timed out: ranks waited for each other",
        remedy=(
            "if a rank failed first, it is the cause: check the pod that ended first",
            "else test the pool's interfaces, MTU and bandwidth: trainyard stack ready --until collective;"
            " docs/runbooks.md#nccltimeout",
        ),
    ),
)
"""Specific causes first: when one rank fails, all others report a timeout."""


def matching_cause(snapshot: Snapshot) -> Verdict | None:
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
    run_dir = f"{contract.CHECKPOINT_MOUNT}/{snapshot.run_id}"
    return [
        step.replace("RUN_DIR", run_dir).replace("NAMESPACE", snapshot.namespace)
        for step in cause.remedy
    ]


def _evidence(snapshot: Snapshot, found: list[Match]) -> tuple[str, ...]:
    pods = len({match.log.pod for match in found})
    more = [f"{pluralize(pods, 'pod')} logged this"] if pods > _SHOWN else []
    first = exits.first_exit(snapshot)
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
    """Return the log patterns that metrics counted, including those of deleted pods."""
    if snapshot.vitals is None:
        return []
    return [
        f"logged {name} {'once' if count < 2 else f'{count:.0f} times'}"
        for name, count in sorted(snapshot.vitals.log_matches.items())
    ]
