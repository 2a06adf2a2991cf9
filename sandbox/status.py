"""`sandbox status`: tables of services, nodes, runs and alerts."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table

from infra.domain import naming
from sandbox import cluster, paths
from sandbox.monitoring import MonitoringError, prometheus_client
from sandbox.node.api import Client, Json, node_path
from sandbox.runs import RunReader
from sandbox.watch import state_line, training_line


def print_status(console: Console) -> int:
    """Print the tables; return 0 when every service is running, else 1."""
    rows = cluster.health()
    if len(rows) == 1:
        console.print("The sandbox is down; `make up` starts it.")
        return 1
    table = Table("service", "state", "pid", title="Services", title_justify="left")
    for row in rows:
        table.add_row(row.name, row.state, str(row.pid or ""))
    console.print(table)
    healthy = all(row.state == "running" for row in rows)
    if any(row.name == "apiserver" and row.state == "running" for row in rows):
        _print_nodes(console)
        _print_runs(console)
        _print_alerts(console)
    console.print(f"Logs: {paths.state().logs}", highlight=False)
    return 0 if healthy else 1


def _print_nodes(console: Console) -> None:
    nodes = Client(paths.state().kubeconfig).get(node_path())["items"]
    table = Table("node", "pool", "GPUs", "ready", title="Nodes", title_justify="left")
    for node in nodes:
        labels = node["metadata"].get("labels", {})
        gpus = node["status"].get("allocatable", {}).get(naming.GPU, "0")
        table.add_row(
            node["metadata"]["name"],
            labels.get(naming.POOL, ""),
            gpus,
            _ready_text(node),
        )
    console.print(table)


def _print_runs(console: Console) -> None:
    reader = RunReader(paths.state())
    runs = reader.runs()
    if not runs:
        return
    table = Table("run", "namespace", "state", "training", title="Runs", title_justify="left")
    for run in runs:
        status = reader.snapshot(run)
        table.add_row(run.run_id, run.namespace, state_line(status), training_line(status))
    console.print(table)


def _print_alerts(console: Console) -> None:
    base = prometheus_client.prometheus_url(paths.state())
    if base is None:
        return
    try:
        firing = prometheus_client.firing_alerts(base)
    except MonitoringError as error:
        console.print(str(error), highlight=False)
        return
    count = f"{len(firing)} alerts firing" if firing else "no alert firing"
    console.print(f"Prometheus: {base}, {count}", highlight=False)
    if firing:
        table = Table("alert", "severity", "labels", title="Alerts", title_justify="left")
        for alert in firing:
            table.add_row(alert.name, alert.severity, alert.labels)
        console.print(table)


def _ready_text(node: Json) -> str:
    conditions = {c["type"]: c["status"] for c in node["status"].get("conditions", [])}
    return "yes" if conditions.get("Ready") == "True" else "no"
