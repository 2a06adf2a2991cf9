"""Dashboard of spot savings and interruptions."""

from __future__ import annotations

from typing import Final

from infra.domain import naming
from infra.observability import series
from infra.observability.dashboards.model import Dashboard, Row, Unit, lines, number

_SPOT: Final = 'capacity="spot"'
_COST: Final = f"sum({series.NODE_COST}{{{_SPOT}}})"
_AS_ON_DEMAND: Final = (
    f"sum({series.NODE_INFO}{{{_SPOT}}} * on (instance_type) group_left () "
    f'max by (instance_type) ({series.NODE_PRICE}{{capacity="on-demand"}}))'
)
_BY_CAPACITY: Final = f"* on (node) group_left (capacity) {series.NODE_INFO}"
_NOTICES: Final = f'{series.EVENTS}{{event="notice"}}'

NOW: Final = Row(
    title="Now",
    panels=(
        number(
            "Spot nodes",
            Unit.COUNT,
            f"count({series.NODE_INFO}{{{_SPOT}}}) or vector(0)",
            "Nodes of spot pools that are up.",
        ),
        number(
            "Part of GPUs on spot",
            Unit.RATIO,
            f"sum({series.RUN_GPUS} * on (run_id) group_left () "
            f"(max by (run_id) ({series.RUN_COST}{{{_SPOT}}}) * 0 + 1)) / sum({series.RUN_GPUS})",
            "Of the GPUs that runs hold, those of runs with spot nodes.",
            maximum=1.0,
        ),
        number("Spot an hour", Unit.USD, _COST, "Price of all spot nodes that are up."),
        number(
            "The same on demand",
            Unit.USD,
            _AS_ON_DEMAND,
            "What these nodes would cost an hour on demand, where that price is known.",
        ),
        number(
            "Saved",
            Unit.RATIO,
            f"1 - {_COST} / {_AS_ON_DEMAND}",
            "Of the on-demand price, before what interruptions cost.",
            maximum=1.0,
        ),
        number(
            "Notices in a day",
            Unit.COUNT,
            f"sum(max_over_time({_NOTICES}[1d])) or vector(0)",
            "Attempts that were told to stop, by a reclaim, a drain or a preemption.",
        ),
    ),
)

OVER_TIME: Final = Row(
    title="Over time",
    panels=(
        lines(
            "Cost an hour",
            Unit.USD,
            "Of all nodes, by how they are bought.",
            (f"sum by (capacity) ({series.NODE_COST})", "{{capacity}}"),
            stacked=True,
        ),
        lines(
            "Nodes",
            Unit.COUNT,
            "By pool; a step down on a spot pool is a reclaim or an idle node that went.",
            (f"count by (pool, capacity) ({series.NODE_INFO})", "{{pool}} {{capacity}}"),
            stacked=True,
        ),
        lines(
            "Youngest node",
            Unit.SECONDS,
            "Age by pool: short lives mean many interruptions.",
            (
                f"time() - max by (capacity) ({series.NODE_CREATED} {_BY_CAPACITY})",
                "{{capacity}}",
            ),
        ),
        lines(
            "Notices",
            Unit.COUNT,
            "By run, over the attempts that are up.",
            (f"sum by (run_id) ({_NOTICES})", "{{run_id}}"),
            stacked=True,
        ),
        lines(
            "Evictions an hour",
            Unit.COUNT,
            "Of queues, by reason: NodeFailures are nodes that were lost.",
            (f"sum by (reason) (increase({series.EVICTED}[1h]))", "{{reason}}"),
            stacked=True,
        ),
        lines(
            "Price of a million tokens",
            Unit.USD,
            "Cost an hour over tokens an hour, by run; replayed steps make it dearer.",
            (
                f"sum by (run_id) ({series.RUN_COST})"
                f" / (sum by (run_id) ({series.RUN_TOKENS}) * 3600 / 1e6 > 0)",
                "{{run_id}}",
            ),
        ),
    ),
)

PRICES: Final = Row(
    title="Prices",
    panels=(
        lines(
            "Price of a node",
            Unit.USD,
            "An hour, as in the catalog that the stack was deployed with.",
            (
                f"max by (instance_type, capacity) ({series.NODE_PRICE})",
                "{{instance_type}} {{capacity}}",
            ),
            width=12,
        ),
        lines(
            "Attempts",
            Unit.COUNT,
            "Of runs that train; each interruption adds one.",
            (f"max by (run_id) ({series.ATTEMPT})", "{{run_id}}"),
            width=12,
        ),
    ),
)

SPOT: Final = Dashboard(
    uid=f"{naming.PROJECT}-spot",
    title="Spot economy",
    description="What spot capacity saves, and what its interruptions cost.",
    rows=(NOW, OVER_TIME, PRICES),
    since="now-24h",
)
