"""`trainyard stack review`, what a change of a stack does, and `stack drift`, what differs from its record."""

from __future__ import annotations

import argparse
import datetime as dt
import json
import os
import subprocess
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Final

from rich.console import Console

from ops import metrics
from ops.cluster import Cluster, ClusterError
from ops.commands import Group, add_prometheus, printer

if TYPE_CHECKING:
    from ops.review.steps import Preview

ROOT: Final = Path(__file__).resolve().parents[2]


def add(commands: Group) -> None:
    review = commands.add_offline(
        "review",
        _review,
        "show what a change of a stack does: money, quotas, data and runs",
        [
            "stack review --stack dev                          # runs pulumi preview",
            "stack review --stack dev --preview preview.json --events events.json",
            "stack review --stack dev --save-plan plan.json    # then pulumi up --plan plan.json",
            "stack review --stack dev --comment comment.md     # in a GitHub workflow, which posts it",
        ],
    )
    review.add_argument("--stack", required=True, metavar="STACK", help="such as dev")
    source = review.add_mutually_exclusive_group()
    source.add_argument(
        "--preview",
        type=Path,
        metavar="FILE",
        help="what `pulumi preview --json` wrote; default: run it",
    )
    review.add_argument(
        "--events",
        type=Path,
        metavar="FILE",
        help="with --preview: what its `--event-log FILE` wrote, which names violated policies",
    )
    source.add_argument(
        "--save-plan",
        type=Path,
        metavar="FILE",
        help="write the plan that `pulumi up --plan FILE` carries out",
    )
    review.add_argument(
        "--comment",
        type=Path,
        metavar="FILE",
        help="also write the text to this file, within the length of a comment on GitHub",
    )
    review.add_argument(
        "--live",
        action="store_true",
        help="also read the stack's cluster: nodes that run now, and what stopped runs lose",
    )
    review.add_argument(
        "--kubeconfig", type=Path, metavar="FILE", help="kubeconfig; default as kubectl"
    )
    review.add_argument("--context", metavar="NAME", help="its context; default the current one")
    add_prometheus(review)
    review.add_argument("--json", action="store_true", help="print one JSON object")
    drift = commands.add_offline(
        "drift",
        _drift,
        "show what differs from the recorded state of a stack",
        [
            "stack drift --stack dev                           # runs pulumi refresh --preview-only",
            "stack drift --stack dev --events events.json      # of a refresh that was made before",
        ],
    )
    drift.add_argument("--stack", required=True, metavar="STACK", help="such as dev")
    drift.add_argument(
        "--events",
        type=Path,
        metavar="FILE",
        help="what `PULUMI_DEBUG_COMMANDS=true pulumi refresh --preview-only --event-log FILE` wrote; "
        "default: run it",
    )
    drift.add_argument("--json", action="store_true", help="print one JSON object")


def _review(args: argparse.Namespace, console: Console) -> int:
    """Return 0, or 1 if a policy is violated, the preview fails or a run is edited in place."""
    from ops.review import consequences, report  # Imports the catalog.
    from ops.review import live as live_state

    cluster = Cluster(args.kubeconfig, args.context) if args.live else None
    preview = _preview(args)
    found = consequences.review(preview)
    live = None
    if cluster:
        prometheus = metrics.connect(args.prometheus, cluster)
        live, found = live_state.read(cluster, preview, found, prometheus, dt.datetime.now(dt.UTC))
    said = report.text(found, live)
    printer(console)(json.dumps(report.to_json(found, live)) if args.json else said.rstrip("\n"))
    if args.comment:
        args.comment.write_text(report.fitted(said), encoding="utf-8")
    return 0 if found.passes else 1


def _drift(args: argparse.Namespace, console: Console) -> int:
    """Return 0, or 1 if something differs. Changes neither the state nor a resource."""
    from ops.review import drift

    if args.events:
        place, text = str(args.events), _read(args.events, "--events")
    else:
        place = "pulumi refresh"
        _, text = _logged(["refresh", "--stack", args.stack, "--preview-only"], "--events")
    found = drift.parse(text, place, args.stack)
    show = printer(console)
    show(json.dumps(drift.to_json(found)) if args.json else drift.text(found).rstrip("\n"))
    return 1 if found.differences else 0


def _read(file: Path, option: str) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ClusterError(f"{option}: cannot read {file}: {error}") from None


def _preview(args: argparse.Namespace) -> Preview:
    """Read the preview from the files that were given, or run it."""
    from ops.review import steps

    if args.preview:
        text = _read(args.preview, "--preview")
        events = _read(args.events, "--events") if args.events else None
        violated = None if events is None else steps.parse_violations(events, str(args.events))
        return steps.parse(text, str(args.preview), args.stack, violated)
    if args.events:
        raise ClusterError("--events: has no preview; requires --preview FILE; pass both files")
    text, events = _run_preview(args.stack, args.save_plan)
    return steps.parse(
        text, "pulumi preview", args.stack, steps.parse_violations(events, "its event log")
    )


def _run_preview(stack: str, plan: Path | None) -> tuple[str, str]:
    """Run a preview with the policy pack; return its JSON and its events, also if it fails with diagnostics."""
    settings = ROOT / "policies/stacks" / f"{stack}.json"
    words = ["preview", "--stack", stack, "--policy-pack", "policies"]
    if settings.is_file():
        words += ["--policy-pack-config", str(settings)]
    if plan:
        words += ["--save-plan", str(plan.absolute())]
    return _logged([*words, "--show-sames"], "--preview")


def _logged(words: list[str], option: str) -> tuple[str, str]:
    """Run the engine; return the JSON and the events that it wrote. `option`: what takes files instead."""
    with tempfile.TemporaryDirectory() as folder:  # Only this user may read it.
        log = Path(folder) / "events.json"
        try:
            done = subprocess.run(
                ["pulumi", *words, "--event-log", str(log), "--json", "--non-interactive"],
                cwd=ROOT,
                env=os.environ | {"PULUMI_DEBUG_COMMANDS": "true"},  # Has --event-log.
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                check=False,
            )
        except FileNotFoundError:
            raise ClusterError(
                f"pulumi: not found on the PATH; install it, or pass {option} FILE"
            ) from None
        if done.returncode and not done.stdout.lstrip().startswith("{"):
            reason = (done.stderr or done.stdout).strip()[-500:]
            raise ClusterError(f"pulumi {words[0]} failed: {reason}")
        return done.stdout, log.read_text(encoding="utf-8") if log.exists() else ""
