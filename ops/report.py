"""Print a run's verdict as text or JSON."""

from __future__ import annotations

import json
from typing import Any

from rich.console import Console
from rich.markup import escape

from ops import objects
from ops.snapshot import Snapshot
from ops.symptoms import explain, health, history


def to_json(snapshot: Snapshot) -> str:
    return json.dumps(values(snapshot), indent=2)


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
    verdict = explain(snapshot)
    _print(console, f"[bold]{escape(snapshot.run_id)}[/bold] {escape(verdict.headline)}")
    for line in verdict.evidence:
        _print(console, f"  {escape(line)}")
    for line in health.notes(snapshot):
        _print(console, f"  [dim]health:[/dim] {escape(line)}")
    for line in history(snapshot):
        _print(console, f"  [dim]history:[/dim] {escape(line)}")
    for line in verdict.remedy:
        _print(console, f"  [green]->[/green] {escape(line)}")
    if snapshot.hidden:
        plurals = ", ".join(sorted(snapshot.hidden))
        _print(
            console,
            f"  [dim]not readable with your role: {plurals}; a platform engineer sees more[/dim]",
        )
    for line in snapshot.gaps:
        _print(console, f"  [dim]{escape(line)}[/dim]")
    _print(console, f"  [dim]kubectl get {escape(objects.reference(snapshot.run))} -o yaml[/dim]")


def _print(console: Console, text: str) -> None:
    # Users copy commands from here: no added line breaks or colors.
    console.print(text, highlight=False, soft_wrap=True)
