"""`trainyard stack review`: what a change of a stack does."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
from pathlib import Path
from typing import Final

from rich.console import Console

from ops.cluster import ClusterError
from ops.commands import Group, printer

ROOT: Final = Path(__file__).resolve().parents[2]


def add(commands: Group) -> None:
    """Add `review` to the group `stack`."""
    review = commands.add_offline(
        "review",
        _review,
        "show what a change of a stack does: money, quotas, data and runs",
        [
            "stack review --stack dev                          # runs pulumi preview",
            "stack review --stack dev --preview preview.json   # of pulumi preview --json",
            "stack review --stack dev --comment 12             # in a GitHub workflow",
        ],
    )
    review.add_argument("--stack", required=True, metavar="STACK", help="such as dev")
    review.add_argument(
        "--preview",
        type=Path,
        metavar="FILE",
        help="what `pulumi preview --json` wrote; default: run it",
    )
    review.add_argument(
        "--comment",
        type=_number,
        metavar="NUMBER",
        help="also write it as the stack's one comment on this pull request; reads "
        "GITHUB_REPOSITORY, GITHUB_TOKEN and GITHUB_API_URL",
    )
    review.add_argument("--json", action="store_true", help="print one JSON object")


def _number(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not the number of a pull request, such as 12"
        )
    return int(text)


def _review(args: argparse.Namespace, console: Console) -> int:
    """Return 0, or 1 if a policy is violated, the preview fails or a run is edited in place."""
    from ops.review import comment, consequences, report, steps  # Imports the catalog.

    # Before the preview, which takes minutes.
    to = comment.github(os.environ) if args.comment else None
    if args.preview:
        place, text = str(args.preview), _read(args.preview)
    else:
        place, text = "pulumi preview", _preview(args.stack)
    found = consequences.review(steps.parse(text, place, args.stack))
    show = printer(console)
    show(json.dumps(report.to_json(found)) if args.json else report.text(found).rstrip("\n"))
    if to:
        comment.post(to, args.comment, found.stack, report.text(found))
    return 0 if found.passes else 1


def _read(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ClusterError(f"--preview: cannot read {file}: {error}") from None


def _preview(stack: str) -> str:
    """Run a preview with the policy pack and return what it wrote; also of one that fails with diagnostics."""
    settings = ROOT / "policies/stacks" / f"{stack}.json"
    command = ["pulumi", "preview", "--stack", stack, "--json", "--non-interactive"]
    command += ["--policy-pack", "policies"]
    if settings.is_file():
        command += ["--policy-pack-config", str(settings)]
    # The program that is previewed does not need the token that writes comments.
    rest = {name: value for name, value in os.environ.items() if name != "GITHUB_TOKEN"}
    try:
        done = subprocess.run(
            command,
            cwd=ROOT,
            env=rest,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
    except FileNotFoundError:
        raise ClusterError(
            "pulumi: not found on the PATH; install it, or pass --preview FILE"
        ) from None
    if done.returncode and not done.stdout.lstrip().startswith("{"):
        raise ClusterError(f"pulumi preview failed: {(done.stderr or done.stdout).strip()[-500:]}")
    return done.stdout
