"""Dashboard of one run: loss, throughput, stalls, GPUs and checkpoints."""

from __future__ import annotations

from typing import Final

from infra.observability import series
from infra.observability.dashboards.model import (
    RUN_UID,
    Dashboard,
    Kind,
    Panel,
    Query,
    Row,
    Unit,
    Variable,
    lines,
    number,
)

_RUN: Final = 'run_id="$run_id"'
_STEPS: Final = f"sum(rate({series.STEP_SECONDS}{{{_RUN}}}[5m]))"
_COST: Final = f"sum({series.RUN_COST}{{{_RUN}}})"


def _of_pods(expression: str) -> str:
    """Restrict series of kube-state-metrics to the pods of this run."""
    return f"{expression} * on (namespace, pod) group_left (run_id) {series.RUN_POD}{{{_RUN}}}"


NOW: Final = Row(
    title="Now",
    panels=(
        number(
            "Progress",
            Unit.RATIO,
            f"max({series.STEP}{{{_RUN}}}) / max({series.PLANNED_STEPS}{{{_RUN}}})",
            "Completed fraction of the planned steps.",
            maximum=1.0,
        ),
        number("GPUs", Unit.COUNT, f"sum({series.RUN_GPUS}{{{_RUN}}})", "GPUs held by its pods."),
        number(
            "Mean GPU utilisation",
            Unit.RATIO,
            f"avg({series.RUN_GPU_UTILIZATION}{{{_RUN}}})",
            "Mean utilisation of its GPUs.",
            maximum=1.0,
            thresholds=((0.0, "red"), (0.4, "yellow"), (0.6, "green")),
        ),
        number(
            "Attempt",
            Unit.COUNT,
            f"max({series.ATTEMPT}{{{_RUN}}})",
            "Starts at 1; every interruption starts another.",
        ),
        number("Cost per hour", Unit.USD, _COST, "The share of its nodes' price for its GPUs."),
        number(
            "Cost in the time range",
            Unit.USD,
            f"sum(sum_over_time({series.RUN_COST}{{{_RUN}}}[$__range:1m])) / 60",
            "Hourly cost, integrated over the selected time range.",
        ),
    ),
)

LEARNING: Final = Row(
    title="Training",
    panels=(
        lines(
            "Loss",
            Unit.NONE,
            "In nats per token, of the newest step and of held-out data.",
            (f"max({series.LOSS}{{{_RUN}}})", "training"),
            (f"max({series.EVALUATION_LOSS}{{{_RUN}}})", "held out"),
            minimum=None,
        ),
        lines(
            "Gradient norm",
            Unit.NONE,
            "2-norm of all gradients before clipping.",
            (f"max({series.GRADIENT_NORM}{{{_RUN}}})", "norm"),
            minimum=None,
            logarithmic=True,
        ),
        lines(
            "Learning rate",
            Unit.NONE,
            "Learning rate of the newest step.",
            (f"max({series.LEARNING_RATE}{{{_RUN}}})", "rate"),
        ),
    ),
)

SPEED: Final = Row(
    title="Speed",
    panels=(
        lines(
            "Tokens per second",
            Unit.TOKENS_PER_SECOND,
            "Over all ranks: of the newest step, and over five minutes including stalls.",
            (f"max({series.TOKENS_PER_SECOND}{{{_RUN}}})", "newest step"),
            (f"sum({series.RUN_TOKENS}{{{_RUN}}})", "five minutes"),
        ),
        lines(
            "Step time",
            Unit.SECONDS,
            "Mean over five minutes.",
            (f"{_STEPS} / sum(rate({series.STEPS}{{{_RUN}}}[5m]))", "step"),
        ),
        lines(
            "Step time spent waiting",
            Unit.RATIO,
            "Fraction of step time spent waiting for samples and other ranks, and stalls at the start of saves.",
            (f"avg({series.RUN_LOADER}{{{_RUN}}})", "data"),
            (f"avg({series.RUN_COLLECTIVE}{{{_RUN}}})", "other ranks"),
            (
                f"sum(rate({series.CHECKPOINT_STALL_SECONDS}{{{_RUN}}}[5m])) / ({_STEPS} > 0)",
                "checkpoint",
            ),
            stacked=True,
        ),
        lines(
            "Model FLOPs utilisation",
            Unit.RATIO,
            "Fraction of the GPUs' dense bf16 peak; absent if the peak is unknown.",
            (f"max({series.MFU}{{{_RUN}}})", "MFU"),
        ),
        lines(
            "GPU utilisation",
            Unit.RATIO,
            "By GPU. One slow GPU delays all ranks.",
            (f"{series.GPU_UTILIZATION}{{{_RUN}}}", "{{node}} {{gpu}}"),
            maximum=1.0,
        ),
        lines(
            "Tensor cores",
            Unit.RATIO,
            "Fraction of cycles in which tensor cores were active, by GPU; low values on busy GPUs "
            "indicate inefficient computation.",
            (f"{series.GPU_TENSOR}{{{_RUN}}}", "{{node}} {{gpu}}"),
            maximum=1.0,
        ),
    ),
)

GROUND: Final = Row(
    title="GPUs and pods",
    panels=(
        lines(
            "GPU memory",
            Unit.BYTES,
            "Memory in use, by GPU.",
            (f"{series.GPU_MEMORY_USED}{{{_RUN}}}", "{{node}} {{gpu}}"),
        ),
        lines(
            "GPU power",
            Unit.WATTS,
            "Power draw, by GPU.",
            (f"{series.GPU_POWER}{{{_RUN}}}", "{{node}} {{gpu}}"),
        ),
        lines(
            "GPU temperature",
            Unit.CELSIUS,
            "Temperature, by GPU.",
            (f"{series.GPU_TEMPERATURE}{{{_RUN}}}", "{{node}} {{gpu}}"),
            thresholds=((85.0, "red"),),
        ),
        lines(
            "Pods by phase",
            Unit.COUNT,
            "Pods that have not terminated.",
            (f"sum by (phase) ({_of_pods(str(series.POD_PHASE))})", "{{phase}}"),
            stacked=True,
        ),
        lines(
            "Replica groups",
            Unit.COUNT,
            "Groups that take part, and that may; absent for a run of one gang.",
            (f"max({series.GROUPS}{{{_RUN}}})", "take part"),
            (f"max({series.PLANNED_GROUPS}{{{_RUN}}})", "may take part"),
        ),
        lines(
            "Container restarts per hour",
            Unit.COUNT,
            "A gang that restarts has new pods: see the attempt above.",
            (f"sum by (pod) ({_of_pods(f'increase({series.POD_RESTARTS}[1h])')})", "{{pod}}"),
        ),
        Panel(
            title="Hardware errors",
            description="GPUs of the run with a last XID other than 0, or with uncorrectable ECC errors.",
            unit=Unit.NONE,
            kind=Kind.TABLE,
            queries=(
                Query(
                    expression=f"{series.GPU_XID}{{{_RUN}}} > 0 or {series.GPU_ECC}{{{_RUN}}} > 0"
                ),
            ),
            columns=("node", "gpu", "UUID", "pod"),
        ),
    ),
)

CHECKPOINTS: Final = Row(
    title="Checkpoints and events",
    panels=(
        lines(
            "Checkpoint write time",
            Unit.SECONDS,
            "From the start of a save to its commit; training continues meanwhile.",
            (f"max({series.CHECKPOINT_WRITE_SECONDS}{{{_RUN}}})", "newest"),
            (f"max({series.SAVE_SECONDS}{{{_RUN}}})", "saveSeconds"),
        ),
        lines(
            "Age of the newest checkpoint",
            Unit.SECONDS,
            "Training time that a crash would lose now.",
            (f"time() - max({series.CHECKPOINT_COMMIT_TIME}{{{_RUN}}})", "age"),
        ),
        lines(
            "Checkpoint size",
            Unit.BYTES,
            "Size of the newest checkpoint.",
            (f"max({series.CHECKPOINT_SIZE}{{{_RUN}}})", "newest"),
        ),
        lines(
            "Resumes",
            Unit.COUNT,
            "Attempts after a save of an earlier one, and those of them that loaded a checkpoint.",
            (f"max({series.RESUMES_DUE}{{{_RUN}}})", "due"),
            (f"max({series.RESUMES_DONE}{{{_RUN}}})", "done"),
        ),
        lines(
            "Storage latency",
            Unit.SECONDS,
            "Time that the newest line of events.jsonl took to reach the run's volume.",
            (f"max({series.VOLUME_SYNC_SECONDS}{{{_RUN}}})", "fsync"),
        ),
        lines(
            "Events",
            Unit.COUNT,
            "Notices, failures, resumes and saves of the attempts in the time range.",
            (f"sum by (event) ({series.EVENTS}{{{_RUN}}})", "{{event}}"),
        ),
        lines(
            "Log lines of collective time-outs",
            Unit.COUNT,
            "By pattern: of NCCL, and of Gloo or the trainer.",
            (f"sum by (pattern) ({series.LOG_MATCHES}{{{_RUN}}})", "{{pattern}}"),
            width=24,
        ),
    ),
)

RUN: Final = Dashboard(
    uid=RUN_UID,
    title="Run",
    description="One run: loss, throughput and stalls.",
    variables=(
        Variable(name="run_id", label="Run", query=f"label_values({series.RUN_POD}, run_id)"),
    ),
    rows=(NOW, LEARNING, SPEED, GROUND, CHECKPOINTS),
)
