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
            "Done",
            Unit.RATIO,
            f"max({series.STEP}{{{_RUN}}}) / max({series.PLANNED_STEPS}{{{_RUN}}})",
            "Steps done of the steps planned.",
            maximum=1.0,
        ),
        number("GPUs", Unit.COUNT, f"sum({series.RUN_GPUS}{{{_RUN}}})", "GPUs that its pods hold."),
        number(
            "Busy",
            Unit.RATIO,
            f"avg({series.RUN_GPU_UTILIZATION}{{{_RUN}}})",
            "Utilisation of its GPUs.",
            maximum=1.0,
            thresholds=((0.0, "red"), (0.4, "yellow"), (0.6, "green")),
        ),
        number(
            "Attempt",
            Unit.COUNT,
            f"max({series.ATTEMPT}{{{_RUN}}})",
            "Counted from 1; every interruption begins another.",
        ),
        number("Costs an hour", Unit.USD, _COST, "The part of nodes' prices that its GPUs have."),
        number(
            "Cost in this window",
            Unit.USD,
            f"sum(sum_over_time({series.RUN_COST}{{{_RUN}}}[$__range:1m])) / 60",
            "Price times hours over the time shown, a minute at a time.",
        ),
    ),
)

LEARNING: Final = Row(
    title="Learning",
    panels=(
        lines(
            "Loss",
            Unit.NONE,
            "Nats per token: of the newest step, and of held-out data.",
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
            "Of the newest step.",
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
            "Over all ranks: of the newest step, and over five minutes with every stall.",
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
            "What steps wait for",
            Unit.RATIO,
            "Parts of the steps' time: for samples, for other ranks, and (beside it) for saves to begin.",
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
            "Part of the devices' dense bf16 peak; missing where no peak is known.",
            (f"max({series.MFU}{{{_RUN}}})", "MFU"),
        ),
        lines(
            "GPU utilisation",
            Unit.RATIO,
            "By GPU. One that lags holds up all ranks.",
            (f"{series.GPU_UTILIZATION}{{{_RUN}}}", "{{node}} {{gpu}}"),
            maximum=1.0,
        ),
        lines(
            "Tensor cores",
            Unit.RATIO,
            "Part of the cycles in which tensor cores worked, by GPU; busy GPUs with idle tensor cores "
            "compute little.",
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
            "In use, by GPU.",
            (f"{series.GPU_MEMORY_USED}{{{_RUN}}}", "{{node}} {{gpu}}"),
        ),
        lines(
            "GPU power",
            Unit.WATTS,
            "By GPU.",
            (f"{series.GPU_POWER}{{{_RUN}}}", "{{node}} {{gpu}}"),
        ),
        lines(
            "GPU temperature",
            Unit.CELSIUS,
            "By GPU.",
            (f"{series.GPU_TEMPERATURE}{{{_RUN}}}", "{{node}} {{gpu}}"),
            thresholds=((85.0, "red"),),
        ),
        lines(
            "Pods by phase",
            Unit.COUNT,
            "Pods that have not ended.",
            (f"sum by (phase) ({_of_pods(str(series.POD_PHASE))})", "{{phase}}"),
            stacked=True,
        ),
        lines(
            "Restarts of containers in an hour",
            Unit.COUNT,
            "A gang that starts again has new pods: see the attempt above.",
            (f"sum by (pod) ({_of_pods(f'increase({series.POD_RESTARTS}[1h])')})", "{{pod}}"),
        ),
        Panel(
            title="Hardware errors",
            description="Its GPUs whose last XID is not 0, or that have uncorrectable ECC errors.",
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
            "Time to write a checkpoint",
            Unit.SECONDS,
            "From the begin of a save until it was committed; training goes on meanwhile.",
            (f"max({series.CHECKPOINT_WRITE_SECONDS}{{{_RUN}}})", "newest"),
        ),
        lines(
            "Age of the newest checkpoint",
            Unit.SECONDS,
            "What a crash would cost now.",
            (f"time() - max({series.CHECKPOINT_COMMIT_TIME}{{{_RUN}}})", "age"),
        ),
        lines(
            "Size of a checkpoint",
            Unit.BYTES,
            "Of the newest.",
            (f"max({series.CHECKPOINT_SIZE}{{{_RUN}}})", "newest"),
        ),
        lines(
            "Events",
            Unit.COUNT,
            "Of the attempts that the window shows: notices, failures, resumes, saves.",
            (f"sum by (event) ({series.EVENTS}{{{_RUN}}})", "{{event}}"),
            width=12,
        ),
        lines(
            "Lines in logs that tell of trouble",
            Unit.COUNT,
            "By pattern; infra/observability/log_patterns.py has their meaning.",
            (f"sum by (pattern) ({series.LOG_MATCHES}{{{_RUN}}})", "{{pattern}}"),
            width=12,
        ),
    ),
)

RUN: Final = Dashboard(
    uid=RUN_UID,
    title="Run",
    description="One run: whether it learns, how fast, what holds it up.",
    variables=(
        Variable(name="run_id", label="Run", query=f"label_values({series.RUN_POD}, run_id)"),
    ),
    rows=(NOW, LEARNING, SPEED, GROUND, CHECKPOINTS),
)
