"""`trainyard run why`: the verdict on a run as text or JSON."""

from __future__ import annotations

import argparse
import datetime as dt
import json
from typing import Any, Final

from rich.console import Console
from rich.markup import escape

from ops import collect, metrics, objects
from ops.cluster import Cluster
from ops.commands import Group, add_prometheus
from ops.runs.scope import named_run
from ops.runs.show_command import add_run
from ops.snapshot import Snapshot
from ops.symptoms import explain, health, history

_SHOWN: Final = {
    "evidence": "",
    "health": "[dim]health:[/dim] ",
    "history": "[dim]history:[/dim] ",
    "remedy": "[green]->[/green] ",
}
"""What stands before the lines of each value."""


def add(commands: Group) -> None:
    why = commands.add(
        "why",
        run,
        "explain why a run waits, fails or is slow",
        [
            "run why hello                  # the newest run of this name",
            "run why hello-v2-a1b2 --json",
        ],
    )
    add_run(why)
    why.add_argument("--json", action="store_true", help="print one JSON object")
    add_prometheus(why)


def run(args: argparse.Namespace, cluster: Cluster, console: Console) -> int:
    found = named_run(args, cluster)
    prometheus = metrics.connect(args.prometheus, cluster)
    taken = collect.take_snapshot(cluster, found, dt.datetime.now(dt.UTC), prometheus)
    if args.json:
        print(json.dumps(values(taken), indent=2))
    else:
        print_report(taken, console)
    return 0


def values(snapshot: Snapshot) -> dict[str, Any]:
    """Return run, kind, namespace, team, symptom, headline, evidence, health, history, remedy, hidden
    (plurals that may not be read), gaps (what else could not be read, and why)."""
    verdict = explain(snapshot)
    return {
        "run": snapshot.run_id,
        "kind": snapshot.run.get("kind"),
        "namespace": snapshot.namespace,
        "team": snapshot.team,
        "symptom": verdict.symptom,
        "headline": verdict.headline,
        "evidence": list(verdict.evidence),
        "health": health.notes(snapshot),
        "history": history(snapshot),
        "remedy": list(verdict.remedy),
        "hidden": sorted(snapshot.hidden),
        "gaps": list(snapshot.gaps),
    }


def print_report(snapshot: Snapshot, console: Console) -> None:
    told = values(snapshot)

    def show(text: str) -> None:
        # Users copy commands from here: no added line breaks or colors.
        console.print(text, highlight=False, soft_wrap=True)

    show(f"[bold]{escape(told['run'])}[/bold] {escape(told['headline'])}")
    for name, mark in _SHOWN.items():
        for line in told[name]:
            show(f"  {mark}{escape(line)}")
    if told["hidden"]:
        plurals = ", ".join(told["hidden"])
        show(
            f"  [dim]not readable with your role: {plurals}; a platform engineer sees more[/dim]",
        )
    for line in told["gaps"]:
        show(f"  [dim]{escape(line)}[/dim]")
    show(f"  [dim]kubectl get {escape(objects.reference(snapshot.run))} -o yaml[/dim]")
