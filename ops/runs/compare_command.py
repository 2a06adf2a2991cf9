"""`trainyard run compare`."""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from typing import Final

from rich.console import Console

from infra.domain import naming
from infra.observability import series
from ops import collect, metrics, objects
from ops.cluster import Cluster, ClusterError
from ops.collect import PODS
from ops.commands import Group, add_prometheus, printer
from ops.metrics import MetricsUnknownError, PrometheusClient
from ops.objects import Json
from ops.promql import Expression, any_of, select
from ops.readable import Reader
from ops.runs import log_progress, record
from ops.runs.columns import table
from ops.runs.record import RunRecordView
from ops.runs.scope import read_in_scope

RUNS_MAX: Final = 20
"""More do not fit into a table."""
DEADLINE_S: Final = 15.0
_SHOWN: Final = 60
"""Characters of a value in the table; JSON has all of it."""


def add(commands: Group) -> None:
    command = commands.add(
        "compare",
        run,
        "compare runs: settings, origin and last losses",
        [
            "run compare hello-v1-0a1b2c3d hello-v2-4e5f6a7b",
            "run compare base wide deep --json",
        ],
    )
    command.add_argument(
        "run_names", nargs="+", metavar="RUN", help="run ids or names; at least two"
    )
    command.add_argument("--json", action="store_true", help="print one JSON object")
    add_prometheus(command)


def run(args: argparse.Namespace, cluster: Cluster, console: Console) -> int:
    if not 2 <= len(args.run_names) <= RUNS_MAX:
        raise ClusterError(f"RUN: got {len(args.run_names)} runs; 2 to {RUNS_MAX} can be compared")
    known = read_in_scope(args, cluster, lambda space: collect.list_runs(cluster, space))
    runs = [collect.find_run(known, name) for name in args.run_names]
    ids = [objects.run_id_of(one) for one in runs]
    if twice := sorted({one for one in ids if ids.count(one) > 1}):
        raise ClusterError(f"RUN: {', '.join(twice)} is named twice; name different runs")
    records = record.read_records(cluster, runs, DEADLINE_S)
    losses = read_losses(cluster, runs, metrics.connect(args.prometheus, cluster))
    if args.json:
        print(to_json(records, losses))
        return 0
    show = printer(console)
    for line in lines(records, losses):
        show(line)
    return 0


def read_losses(
    cluster: Cluster, runs: Sequence[Json], prometheus: PrometheusClient
) -> dict[str, tuple[int | None, float]]:
    """Return step and last loss by run id, by the metrics of the last days, else by the pods' logs."""
    ids = [objects.run_id_of(one) for one in runs]
    found = _recorded_losses(ids, prometheus)
    pods = [
        pod
        for one in runs
        if objects.run_id_of(one) not in found
        for pod in Reader(cluster).items(
            PODS, str(objects.meta(one)["namespace"]), f"{naming.RUN_ID}={objects.run_id_of(one)}"
        )
    ]
    for run_id, at in log_progress.read_progress(cluster, pods).items():
        if at.loss is not None:
            found[run_id] = (at.step, at.loss)
    return found


def _recorded_losses(
    ids: Sequence[str], prometheus: PrometheusClient
) -> dict[str, tuple[int | None, float]]:
    def last(one: series.Series) -> Expression:
        mine = select(one, run_id=any_of(ids))
        return Expression(f"last_over_time({{}}[{metrics.HISTORY}])", mine)

    try:
        # Each attempt has series of its own: the loss is that of the one that came furthest.
        losses = prometheus.query(
            Expression(
                "max by (run_id) ({} and on (run_id, pod) topk by (run_id) (1, {}))",
                last(series.LOSS),
                last(series.STEP),
            )
        )
        steps = prometheus.query(Expression("max by (run_id) ({})", last(series.STEP)))
    except MetricsUnknownError:
        return {}
    at = {one.labels.get("run_id"): int(one.value) for one in steps}
    return {
        run_id: (at.get(run_id), one.value)
        for one in losses
        if (run_id := one.labels.get("run_id", "")) in ids
    }


def to_json(
    records: Mapping[str, RunRecordView], losses: Mapping[str, tuple[int | None, float]]
) -> str:
    """Return one JSON object: runs, differences (configuration, lineage), losses, gaps."""
    configuration, lineage = differences_between(records)
    found = {
        "runs": list(records),
        "configuration": configuration,
        "lineage": lineage,
        "losses": {run_id: {"step": step, "loss": loss} for run_id, (step, loss) in losses.items()},
        "gaps": [f"{run_id}: {one.gap}" for run_id, one in records.items() if one.gap],
    }
    return json.dumps(found, indent=2)


def differences_between(
    records: Mapping[str, RunRecordView],
) -> tuple[dict[str, dict[str, str]], dict[str, dict[str, str]]]:
    """Return by key and run id in what configuration and lineage differ. Pure."""
    known = {run_id: one for run_id, one in records.items() if not one.gap}
    return (
        record.differences({run_id: one.configuration for run_id, one in known.items()}),
        record.differences({run_id: one.lineage for run_id, one in known.items()}),
    )


def lines(
    records: Mapping[str, RunRecordView], losses: Mapping[str, tuple[int | None, float]]
) -> list[str]:
    """Return a table with one column per run: what differs, and the last losses."""
    configuration, lineage = differences_between(records)
    ids = list(records)
    rows = [("", *ids)]
    for title, found in (("configuration", configuration), ("lineage", lineage)):
        rows += [(f"{title} differs:" if found else f"{title}: the same", *[""] * len(ids))]
        rows += [
            (f"  {key}", *(_short(values.get(run_id, "?")) for run_id in ids))
            for key, values in found.items()
        ]
    rows.append(("last loss", *(_loss(losses.get(run_id)) for run_id in ids)))
    gaps = [f"{run_id}: {one.gap}" for run_id, one in records.items() if one.gap]
    return [*table(rows), *gaps]


def _short(text: str) -> str:
    one_line = " ".join(text.split())
    return one_line if len(one_line) <= _SHOWN else f"{one_line[: _SHOWN - 3]}..."


def _loss(found: tuple[int | None, float] | None) -> str:
    if found is None:
        return "not known"
    step, loss = found
    return f"{loss:.4f}" + (f" at step {step}" if step is not None else "")
