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
            "Running nodes that were bought as spot.",
        ),
        number(
            "GPUs on spot",
            Unit.RATIO,
            f"sum({series.RUN_GPUS} * on (run_id) group_left () "
            f"(max by (run_id) ({series.RUN_COST}{{{_SPOT}}}) * 0 + 1)) / sum({series.RUN_GPUS})",
            "Fraction of the GPUs in use that belong to runs with spot nodes.",
            maximum=1.0,
        ),
        number("Spot cost per hour", Unit.USD, _COST, "Price of all running spot nodes."),
        number(
            "On-demand equivalent",
            Unit.USD,
            _AS_ON_DEMAND,
            "Hourly on-demand price of these nodes, where it is known.",
        ),
        number(
            "Savings",
            Unit.RATIO,
            f"1 - {_COST} / {_AS_ON_DEMAND}",
            "Fraction of the on-demand price, not counting the cost of interruptions.",
            maximum=1.0,
        ),
        number(
            "Notices per day",
            Unit.COUNT,
            f"sum(max_over_time({_NOTICES}[1d])) or vector(0)",
            "Attempts that received a notice of a reclaim, a drain or a preemption.",
        ),
    ),
)

OVER_TIME: Final = Row(
    title="Over time",
    panels=(
        lines(
            "Cost per hour",
            Unit.USD,
            "Price of all nodes, by capacity type.",
            (f"sum by (capacity) ({series.NODE_COST})", "{{capacity}}"),
            stacked=True,
        ),
        lines(
            "Nodes",
            Unit.COUNT,
            "By pool; a drop in a spot pool is a reclaim or the removal of an idle node.",
            (f"count by (pool, capacity) ({series.NODE_INFO})", "{{pool}} {{capacity}}"),
            stacked=True,
        ),
        lines(
            "Age of the youngest node",
            Unit.SECONDS,
            "By capacity type; low values indicate many interruptions.",
            (
                f"time() - max by (capacity) ({series.NODE_CREATED} {_BY_CAPACITY})",
                "{{capacity}}",
            ),
        ),
        lines(
            "Notices",
            Unit.COUNT,
            "By run, of the current attempts.",
            (f"sum by (run_id) ({_NOTICES})", "{{run_id}}"),
            stacked=True,
        ),
        lines(
            "Evictions per hour",
            Unit.COUNT,
            "By reason; NodeFailures are lost nodes.",
            (f"sum by (reason) (increase({series.EVICTED}[1h]))", "{{reason}}"),
            stacked=True,
        ),
        lines(
            "Cost per million tokens",
            Unit.USD,
            "Hourly cost divided by hourly tokens, by run; replayed steps raise it.",
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
            "Node price per hour",
            Unit.USD,
            "From the catalog that the stack was deployed with.",
            (
                f"max by (instance_type, capacity) ({series.NODE_PRICE})",
                "{{instance_type}} {{capacity}}",
            ),
            width=12,
        ),
        lines(
            "Attempts",
            Unit.COUNT,
            "By training run; each interruption adds one.",
            (f"max by (run_id) ({series.ATTEMPT})", "{{run_id}}"),
            width=12,
        ),
    ),
)

SPOT: Final = Dashboard(
    uid=f"{naming.PROJECT}-spot",
    title="Spot economy",
    description="Savings of spot capacity, and its interruptions.",
    rows=(NOW, OVER_TIME, PRICES),
    since="now-24h",
)
