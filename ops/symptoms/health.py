"""Runs that train with problems: slow data or storage, idle or faulty GPUs, poor scaling.

Most checks require metrics; without them a run is reported as `running`. Thresholds that alerts share
are imported from them.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Final

from infra.domain import naming
from infra.observability import series
from infra.observability.alerts import THRESHOLDS
from ops import logs, objects
from ops.metrics import Vitals
from ops.snapshot import Snapshot, Symptom, Verdict
from ops.symptoms import culprits, gpus
from training import spec

SCALING: Final = 0.8
"""Minimum share of the speed per GPU to keep when nodes are added."""
STALLED_AFTER_S: Final = 900.0
"""A younger run may still load, compile or wait for its first step."""
STARVATION_RATIO: Final = 0.2
"""Maximum fraction of step time spent waiting for samples."""
STALL_SHARE: Final = 0.05
"""Maximum share of the time that training waits for saves, which are written in the background."""
COLLECTIVE_SHARE: Final = 0.2
"""Maximum share of the time that a rank waits for others; above it, a rank or the network is slow."""

NO_METRICS: Final = "no metrics: the program does not report any; see docs/runtime.md"

_Check = Callable[[Snapshot, Vitals], Verdict | None]


def _when_training(check: _Check) -> Symptom:
    """Apply a check only to runs that train and have metrics."""

    def symptom(snapshot: Snapshot) -> Verdict | None:
        vitals = _known_vitals(snapshot)
        if vitals is None or not snapshot.is_training:
            return None
        return check(snapshot, vitals)

    return symptom


def _known_vitals(snapshot: Snapshot) -> Vitals | None:
    """Return the run's metrics without the zeros of what a program did not report."""
    vitals = snapshot.vitals
    if vitals is None or not snapshot.has_program:
        return vitals
    return dataclasses.replace(
        vitals,
        tokens_per_s=vitals.tokens_per_s or None,
        loader=vitals.loader or None,
        collective=vitals.collective or None,
    )


def _trained_s(snapshot: Snapshot) -> float:
    started = max(str(objects.status(p).get("startTime") or "") for p in snapshot.live_pods)
    since = objects.time(started)
    return (snapshot.now - since).total_seconds() if since else 0.0


def unhealthy_gpu(snapshot: Snapshot) -> Verdict | None:
    found = gpus.gpu_faults(snapshot) if snapshot.is_training else []
    return gpus.fault_verdict("trains, but", found) if found else None


def checkpoint_failing(snapshot: Snapshot) -> Verdict | None:
    if not snapshot.is_training:
        return None
    found = logs.matches(snapshot.logs, "checkpoint-failed", "no-space")
    failed = snapshot.vitals.saves_failed if snapshot.vitals else 0.0
    counted = [f"{series.EVENTS}: {failed:.0f} saves of this attempt failed"] if failed else []
    if not found and not counted:
        return None
    return Verdict(
        symptom="checkpoint-failing",
        headline="trains, but a checkpoint failed to be written: a failure now would lose more steps",
        evidence=(*dict.fromkeys(match.evidence for match in found[:2]), *counted),
        remedy=(
            "no space left: keep fewer checkpoints (checkpoint.keep_latest) or raise the volume's size",
            "access denied by the bucket: check the team's role and the prefix;"
            " docs/runbooks.md#checkpointfailed",
            "previous save still in progress: use faster storage or a longer interval",
        ),
    )


@_when_training
def stalled(snapshot: Snapshot, vitals: Vitals) -> Verdict | None:
    new = _trained_s(snapshot) < STALLED_AFTER_S
    if vitals.steps_per_s is None or vitals.steps_per_s > 0 or new:
        return None
    did = "reported" if snapshot.has_program else "completed"
    return Verdict(
        symptom="stalled",
        headline=f"has all its pods but {did} no step for 5 minutes",
        evidence=(f"{series.STEPS}: 0 per second", *_busy_line(vitals), *zone_lines(snapshot)),
        remedy=(
            "evaluation takes long, or ranks wait for each other: the log's last line shows which",
            f"kubectl logs -n {snapshot.namespace} {objects.name(snapshot.live_pods[0])} --tail 20",
            "a program that reports less often than every 5 minutes looks the same"
            if snapshot.has_program
            else "a hanging collective ends after collective_timeout_s, and the run restarts",
        ),
    )


@_when_training
def slow_loader(snapshot: Snapshot, vitals: Vitals) -> Verdict | None:
    if vitals.loader is None or vitals.loader <= STARVATION_RATIO:
        return None
    return Verdict(
        symptom="slow-loader",
        headline=f"trains, but waits for data {_percent(vitals.loader)} of the time",
        evidence=(
            f"{series.RUN_LOADER}: {vitals.loader:.2f}",
            *_busy_line(vitals),
        ),
        remedy=(
            f"{_copy_first(snapshot)}, and raise resources.cpu if its pods use all of theirs",
            "check that the dataset is sharded, in the pool's zone, and not on the file system that"
            " checkpoints are written to",
            "adding GPUs does not help before this is fixed: docs/runbooks.md#slowloaderhint",
        ),
    )


@_when_training
def slow_storage(snapshot: Snapshot, vitals: Vitals) -> Verdict | None:
    took, expected = vitals.checkpoint_write_s, expected_save_s(snapshot)
    late = took is not None and expected is not None and took > expected
    stall = vitals.stall or 0.0
    if not late and stall <= STALL_SHARE:
        return None
    return Verdict(
        symptom="slow-storage",
        headline=f"trains, but a checkpoint takes {took:.0f} s to write (planned: {expected:.0f} s)"
        if late
        else f"trains, but waits for its checkpoints {_percent(stall)} of the time",
        evidence=(
            *([f"{series.CHECKPOINT_WRITE_SECONDS}: {took:.1f}"] if took is not None else []),
            f"{series.CHECKPOINT_STALL_SECONDS}: {_percent(stall)} of the time",
        ),
        remedy=(
            "raise saveSeconds in the run file: a preempted pod is killed before a save of this length"
            " ends",
            "or make saves faster: more file system throughput, fewer concurrent saves, a longer"
            " checkpoint.every_steps; docs/runbooks.md#checkpointslow",
        ),
    )


def expected_save_s(snapshot: Snapshot) -> float | None:
    """Return the planned save time: the pods' grace period less the shutdown overhead."""
    for pod in snapshot.live_pods:
        grace = pod["spec"].get("terminationGracePeriodSeconds")
        if grace is not None:
            return float(max(1, spec.max_save_seconds(int(grace))))
    return None


@_when_training
def slower_per_gpu(snapshot: Snapshot, vitals: Vitals) -> Verdict | None:
    mine = vitals.speeds.get(snapshot.run_id)
    if mine is None:
        return None
    fewer = {run: (s, n) for run, (s, n) in vitals.speeds.items() if n < mine[1]}
    if not fewer:
        return None
    other, (speed, count) = max(fewer.items(), key=lambda item: item[1][0] / item[1][1])
    before, now = speed / count, mine[0] / mine[1]
    if now >= SCALING * before:
        return None
    waiting = vitals.collective
    return Verdict(
        symptom="slow-after-scaling",
        headline=f"trains, but each of its {mine[1]:.0f} GPUs reaches {_percent(now / before)} of the"
        f" speed per GPU on {count:.0f}",
        evidence=(
            f"{series.TOKENS_PER_SECOND}: {now:,.0f} per GPU, {before:,.0f} in {other}",
            *([f"{series.RUN_COLLECTIVE}: {waiting:.2f}"] if waiting is not None else []),
            *zone_lines(snapshot),
        ),
        remedy=(
            "communication may cost more than it gains: raise batch.global_samples with the nodes, or"
            " use fewer nodes",
            "measure the pool's bandwidth: trainyard stack ready --until collective; fastest are pools with"
            " EFA, one zone and one placement group",
        ),
    )


@_when_training
def idle_gpus(snapshot: Snapshot, vitals: Vitals) -> Verdict | None:
    if vitals.gpu_busy is None or vitals.gpu_busy >= THRESHOLDS["hint_gpu_ratio"]:
        return None
    waits = (vitals.collective or 0.0) > COLLECTIVE_SHARE
    return Verdict(
        symptom="low-utilization",
        headline=f"trains, but its GPUs are only {_percent(vitals.gpu_busy)} utilized",
        evidence=(
            *_busy_line(vitals),
            *([f"{series.RUN_LOADER}: {vitals.loader:.2f}"] if vitals.loader is not None else []),
            *([f"{series.RUN_COLLECTIVE}: {vitals.collective:.2f}"] if waits else []),
            *zone_lines(snapshot),
        ),
        remedy=(
            "ranks wait for each other: find the slowest pod, and check the network"
            if waits
            else "the CPU may be the bottleneck: raise resources.cpu, or "
            + (
                "give each step more work"
                if snapshot.has_program
                else "batch.micro_samples for more work per step"
            ),
            f"a data loader may be slow: {_copy_first(snapshot)};"
            " docs/runbooks.md#lowgpuutilization",
        ),
    )


def _copy_first(snapshot: Snapshot) -> str:
    """Return how shards of the dataset get to the node before steps need them."""
    if snapshot.has_program:
        return "copy shards to {scratch} first"
    return "set data.staging to copy shards to the node first"


CHECKS: Final[tuple[Symptom, ...]] = (
    culprits.holds_up,
    unhealthy_gpu,
    stalled,
    checkpoint_failing,
    slow_loader,
    slow_storage,
    slower_per_gpu,
    idle_gpus,
)
"""Checks of runs that train, most severe first."""


def notes(snapshot: Snapshot) -> list[str]:
    """Return the metrics of a run that trains, and its problems after the first."""
    snapshot = snapshot.training_part
    found = [verdict for check in CHECKS if (verdict := check(snapshot))]
    return [*_numbers(snapshot), *(f"{v.symptom}: {v.headline}" for v in found[1:])]


def _numbers(snapshot: Snapshot) -> list[str]:
    vitals = _known_vitals(snapshot)
    if vitals is None or not snapshot.is_training:
        return []
    shares = (
        ("GPU utilization", vitals.gpu_busy),
        ("waiting for data", vitals.loader),
        ("waiting for ranks", vitals.collective),
    )
    parts = [f"{vitals.tokens_per_s:,.0f} tokens/s"] if vitals.tokens_per_s is not None else []
    if vitals.tokens_per_s is None and vitals.steps_per_s is not None:
        parts.append(f"{vitals.steps_per_s:.2g} steps/s")
    parts += [f"{what} {_percent(share)}" for what, share in shares if share is not None]
    if vitals.checkpoint_write_s is not None:
        parts.append(f"last checkpoint written in {vitals.checkpoint_write_s:.1f} s")
    # A new program may not have come to its first report.
    silent = snapshot.has_program and vitals.reported is False
    unknown = [NO_METRICS] if silent and _trained_s(snapshot) >= STALLED_AFTER_S else []
    return [*(["; ".join(parts)] if parts else []), *unknown]


def zone_lines(snapshot: Snapshot) -> list[str]:
    """Return a line if its pods span zones: collectives across zones are slower."""
    mine = {str(pod["spec"].get("nodeName", "")) for pod in snapshot.pods}
    nodes = [node for node in snapshot.nodes if objects.name(node) in mine]
    zones = sorted({zone for node in nodes if (zone := objects.label(node, naming.ZONE))})
    return [f"its pods span zones {', '.join(zones)}"] if len(zones) > 1 else []


def _busy_line(vitals: Vitals) -> list[str]:
    if vitals.gpu_busy is None:
        return []
    return [f"{series.RUN_GPU_UTILIZATION}: {vitals.gpu_busy:.2f}"]


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %"
