"""`trainyard run list`."""

from __future__ import annotations

import argparse
import datetime as dt
import json
import sys
import time
from collections.abc import Callable, Sequence

from rich.console import Console
from rich.live import Live
from rich.text import Text

from ops import metrics
from ops.cluster import Cluster
from ops.commands import Group, add_prometheus, printer
from ops.runs import columns, following, states
from ops.runs.listing import Listing, read_listing
from ops.runs.scope import read_in_scope
from ops.watched import Watched


def add(commands: Group) -> None:
    command = commands.add(
        "list",
        run,
        "list runs with state, place in the queue and progress",
        [
            "run list                         # all runs that you may see, newest first",
            "run list --state queued --watch  # what waits, until Ctrl-C",
            "run list --team research --json  # for scripts",
        ],
    )
    command.add_argument(
        "--state",
        action="append",
        default=[],
        choices=states.STATES,
        metavar="STATE",
        help=f"only runs in this state; repeatable: {', '.join(states.STATES)}",
    )
    shown = command.add_mutually_exclusive_group()
    shown.add_argument("--json", action="store_true", help="print one JSON object")
    shown.add_argument("--watch", action="store_true", help="show changes until Ctrl-C")
    add_prometheus(command)


def run(args: argparse.Namespace, cluster: Cluster, console: Console) -> int:
    """Print the runs once, or until Ctrl-C. Return 0."""
    if args.watch:
        cluster = Watched(cluster)

    def read() -> Listing:
        prometheus = metrics.connect(args.prometheus, cluster)
        found = read_in_scope(args, cluster, lambda space: read_listing(cluster, space, prometheus))
        return _selected(found, args.state)

    listing = read()
    if args.json:
        print(to_json(listing))
    elif args.watch:
        _watch(listing, read, console)
    else:
        show = printer(console)
        for line in columns.lines(listing, _now()):
            show(line)
        for note in notes(listing):
            print(note, file=sys.stderr)
    return 0


def _selected(found: Listing, wanted: Sequence[str]) -> Listing:
    runs = tuple(one for one in found.runs if not wanted or one.state in wanted)
    return Listing(runs=runs, hidden=found.hidden, gap=found.gap)


def to_json(listing: Listing) -> str:
    """Return one JSON object: runs, hidden (plurals that may not be read), gap (why there is no progress)."""
    found = {
        "runs": [columns.to_json(one) for one in listing.runs],
        "hidden": list(listing.hidden),
        "gap": listing.gap,
    }
    return json.dumps(found, indent=2)


def notes(listing: Listing) -> list[str]:
    hidden = ", ".join(listing.hidden)
    found = [f"not readable with your role: {hidden}; states may be incomplete"] if hidden else []
    return [*found, *([listing.gap] if listing.gap else [])]


def _watch(listing: Listing, read: Callable[[], Listing], console: Console) -> None:
    if console.is_terminal:
        with Live(_screen(listing), console=console, auto_refresh=False) as live:
            while True:
                time.sleep(following.POLL_S)
                listing = following.read_again(read, live.console.print)
                live.update(_screen(listing), refresh=True)
    show = printer(console)
    shown: dict[str, str] = {}
    while True:
        shown = _print_changes(listing, shown, show)
        time.sleep(following.POLL_S)
        listing = following.read_again(read, show)


def _screen(listing: Listing) -> Text:
    return Text("\n".join([*columns.lines(listing, _now()), *notes(listing)]), no_wrap=True)


def _print_changes(
    listing: Listing, shown: dict[str, str], show: Callable[[str], None]
) -> dict[str, str]:
    """Print a line for each run that changed, but for its age; return the lines by run id."""
    now = _now()
    found = {one.run_id: columns.change_line(one, now) for one in listing.runs}
    for run_id, line in found.items():
        if shown.get(run_id) != line:
            show(line)
    for run_id in shown.keys() - found.keys():
        show(f"{run_id}  gone")
    return found


def _now() -> dt.datetime:
    return dt.datetime.now(dt.UTC)
