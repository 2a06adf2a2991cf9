"""`sandbox status`: tables of services, nodes, runs and alerts."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence

from rich.console import Console

from infra.domain import naming
from ops import metrics, objects
from ops.cluster import Cluster
from ops.collect import NODES
from ops.commands import printer
from ops.metrics import MetricsUnknownError, PrometheusClient
from ops.objects import Json
from ops.runs import columns
from ops.runs.listing import read_listing
from sandbox import cluster as embedded
from sandbox import monitoring, paths


def print_status(console: Console) -> int:
    """Print the tables; return 0 when every service is running, else 1."""
    rows = embedded.health()
    if len(rows) == 1:
        console.print("The sandbox is down; `make up` starts it.")
        return 1
    services = [(row.name, row.state, str(row.pid or "")) for row in rows]
    _print_table("Services", [("SERVICE", "STATE", "PID"), *services], console)
    healthy = all(row.state == "running" for row in rows)
    if any(row.name == "apiserver" and row.state == "running" for row in rows):
        api = Cluster(paths.state().kubeconfig)
        nodes = sorted(_node_row(one) for one in api.items(NODES))
        _print_table("Nodes", [("NODE", "POOL", "GPUS", "READY"), *nodes], console)
        url = monitoring.prometheus_url(paths.state())
        prometheus = metrics.connect(url or "", api)
        _print_runs(prometheus, api, console)
        if url:
            _print_alerts(prometheus, console)
    console.print(f"Logs: {paths.state().logs}", highlight=False)
    return 0 if healthy else 1


def _node_row(node: Json) -> tuple[str, ...]:
    gpus = objects.status(node).get("allocatable", {}).get(naming.GPU, "0")
    ready = "yes" if objects.condition_is_true(node, "Ready") else "no"
    return objects.name(node), objects.label(node, naming.POOL), gpus, ready


def _print_runs(prometheus: PrometheusClient, cluster: Cluster, console: Console) -> None:
    listing = read_listing(cluster, None, prometheus)
    _print_lines("Runs", columns.lines(listing, dt.datetime.now(dt.UTC)), console)


def _print_alerts(prometheus: PrometheusClient, console: Console) -> None:
    try:
        firing = prometheus.query('ALERTS{alertstate="firing"}')
    except MetricsUnknownError as error:
        console.print(str(error), highlight=False)
        return
    count = f"{len(firing)} alerts firing" if firing else "no alert firing"
    console.print(f"Prometheus: {prometheus.place}, {count}", highlight=False)
    if firing:
        rows = sorted(_alert_row(dict(one.labels)) for one in firing)
        _print_table("Alerts", [("ALERT", "SEVERITY", "LABELS"), *rows], console)


def _alert_row(labels: dict[str, str]) -> tuple[str, str, str]:
    name, severity = labels.pop("alertname"), labels.pop("severity", "")
    hidden = ("__name__", "alertstate", "owner")
    rest = " ".join(f"{k}={v}" for k, v in sorted(labels.items()) if k not in hidden)
    return name, severity, rest


def _print_table(title: str, rows: Sequence[Sequence[str]], console: Console) -> None:
    _print_lines(title, columns.table(rows), console)


def _print_lines(title: str, lines: Sequence[str], console: Console) -> None:
    show = printer(console)
    show(title)
    for line in lines:
        show(f"  {line}")
