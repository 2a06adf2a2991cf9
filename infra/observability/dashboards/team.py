"""Dashboard of one team: its runs, queue and costs."""

from __future__ import annotations

from typing import Final

from infra.domain import naming
from infra.observability import series
from infra.observability.dashboards.model import (
    TEAM_UID,
    Dashboard,
    Row,
    Unit,
    Variable,
    lines,
    number,
)

_TEAM: Final = 'team="$team"'
_NAMESPACE: Final = f'namespace="{naming.namespace("$team")}"'
_QUEUE: Final = f'cluster_queue="{naming.cluster_queue("$team")}"'

NOW: Final = Row(
    title="Now",
    panels=(
        number("GPUs", Unit.COUNT, f"sum({series.RUN_GPUS}{{{_TEAM}}})", "GPUs held by its runs."),
        number(
            "Mean GPU utilisation",
            Unit.RATIO,
            f"avg({series.RUN_GPU_UTILIZATION}{{{_TEAM}}})",
            "Mean over its runs, each run counted once.",
            maximum=1.0,
            thresholds=((0.0, "red"), (0.4, "yellow"), (0.6, "green")),
        ),
        number(
            "Waiting runs",
            Unit.COUNT,
            f"sum({series.PENDING}{{{_QUEUE}}})",
            "Workloads in its queue that are not admitted. `trainyard run why RUN` explains each.",
        ),
        number(
            "Current cost per hour",
            Unit.USD,
            f"sum({series.RUN_COST}{{{_TEAM}}})",
            "The share of nodes' prices for the GPUs that its runs hold.",
        ),
        number(
            "On-demand budget used",
            Unit.RATIO,
            f'sum({series.RUN_COST}{{{_TEAM}, capacity="on-demand"}})'
            f" / sum({series.TEAM_BUDGET}{{{_TEAM}}})",
            "Cost of its on-demand nodes as a fraction of onDemandUsdPerHour in the stack file.",
            thresholds=((0.8, "yellow"), (1.0, "red")),
        ),
        number(
            "Month's budget used",
            Unit.RATIO,
            f"max({series.BUDGET_USED}{{{_TEAM}}})",
            "Of USD or GPU-hours, whichever is used more; only with the section `costs`.",
            thresholds=((0.8, "yellow"), (1.0, "red")),
        ),
        number(
            "Firing alerts",
            Unit.COUNT,
            f'count({series.FIRING}{{alertstate="firing", {_TEAM}}}) or vector(0)',
            "Firing alerts about its runs.",
            thresholds=((1.0, "red"),),
        ),
    ),
)

RUNS: Final = Row(
    title="Runs",
    panels=(
        lines(
            "GPU utilisation",
            Unit.RATIO,
            "By run. Below 60 % the data loader is the usual cause.",
            (f"{series.RUN_GPU_UTILIZATION}{{{_TEAM}}}", "{{run_id}}"),
            maximum=1.0,
        ),
        lines(
            "GPUs by run",
            Unit.COUNT,
            "GPUs held by the pods of each run.",
            (f"{series.RUN_GPUS}{{{_TEAM}}}", "{{run_id}}"),
            stacked=True,
        ),
        lines(
            "Tokens per second",
            Unit.TOKENS_PER_SECOND,
            "Over the last five minutes, including stalls.",
            (f"{series.RUN_TOKENS}{{{_TEAM}}}", "{{run_id}}"),
        ),
        lines(
            "Step time spent waiting for data",
            Unit.RATIO,
            "Fraction of step time. Above 20 % for 15 minutes an alert fires.",
            (f"{series.RUN_LOADER}{{{_TEAM}}}", "{{run_id}}"),
            maximum=1.0,
        ),
        lines(
            "Age of the newest checkpoint",
            Unit.SECONDS,
            "Training time that a crash would lose now.",
            (
                f"time() - max by (run_id) ({series.CHECKPOINT_COMMIT_TIME}{{{_TEAM}}})",
                "{{run_id}}",
            ),
        ),
        lines(
            "Cost per hour",
            Unit.USD,
            "By run and capacity type.",
            (
                f"sum by (run_id, capacity) ({series.RUN_COST}{{{_TEAM}}})",
                "{{run_id}} {{capacity}}",
            ),
            stacked=True,
        ),
    ),
)

QUEUE: Final = Row(
    title="Queue and storage",
    panels=(
        lines(
            "Waiting and admitted",
            Unit.COUNT,
            "Workloads of its queue.",
            (f"sum({series.PENDING}{{{_QUEUE}}})", "waiting"),
            (f"sum({series.ADMITTED_ACTIVE}{{{_QUEUE}}})", "admitted"),
        ),
        lines(
            "Admission wait",
            Unit.SECONDS,
            "Median and 95th percentile over one hour.",
            *(
                (
                    f"histogram_quantile({quantile}, sum by (le) "
                    f"(rate({series.ADMISSION_WAIT}{{{_QUEUE}}}[1h])))",
                    legend,
                )
                for quantile, legend in ((0.5, "median"), (0.95, "95 %"))
            ),
        ),
        lines(
            "Free space of volumes",
            Unit.RATIO,
            "Below 10 % an alert fires; checkpoints fail when the volume is full.",
            (
                f"{series.VOLUME_FREE_RATIO}{{{_NAMESPACE}}}",
                "{{persistentvolumeclaim}}",
            ),
            maximum=1.0,
        ),
    ),
)

TEAM: Final = Dashboard(
    uid=TEAM_UID,
    title="Team",
    description="Runs, queue and costs of one team.",
    variables=(Variable(name="team", label="Team", query=f"label_values({series.RUN_POD}, team)"),),
    rows=(NOW, RUNS, QUEUE),
    since="now-24h",
)
