"""Send a run directory once, or while the run writes it; a server that is away never matters to the run."""

from __future__ import annotations

import argparse
import fcntl
import os
import select
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from trainyard.tracking.mlflow_sync import LOCK_FILE, MlflowSync, TrackingServer

EXPERIMENT: Final = "trainyard"
"""Default experiment."""
_INTERVAL_S: Final = 2.0
"""Seconds between two polls of the files."""
_LONGEST_PAUSE_S: Final = 60.0
"""Longest pause between retries."""
FLUSH_S: Final = 10.0
"""Seconds to send the rest once the run's process has ended."""


def main(
    arguments: Sequence[str],
    connect: Callable[[str], TrackingServer],
    uri_errors: Callable[[str], Sequence[str]],
    prog: str,
) -> int:
    """Send the run; returns the exit code, 1 when not everything was sent.

    `connect`: the server of a URI; `uri_errors`: what is wrong with one.
    """
    options = _parse(arguments, uri_errors, prog)
    if options.follow:
        # Signals of a terminal or a launcher reach this process too; it ends when the run's has.
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_IGN)
        os.nice(10)
    sender = MlflowSync(
        server=connect(options.uri),
        run_dir=options.run_dir,
        uri=options.uri,
        experiment=options.experiment,
        name=options.name or options.run_dir.resolve().name,
        tags=dict(tag.partition("=")[::2] for tag in options.tag),
        wait_for_metrics=options.wait_for_metrics,
    )
    with exclusive(options.run_dir):
        if options.follow:
            follow(sender)
        return 0 if finish(sender, FLUSH_S) else 1


@contextmanager
def exclusive(run_dir: Path) -> Iterator[None]:
    """Hold the run's lock: the process of an earlier attempt may still be sending."""
    with (run_dir / LOCK_FILE).open("w") as stream:
        with suppress(OSError):  # a file system without locks: then two may send the same
            fcntl.flock(stream, fcntl.LOCK_EX)
        yield


def follow(sender: MlflowSync) -> None:
    """Send new lines periodically until standard input ends; back off while the server is away."""
    pause = _INTERVAL_S
    while not _input_ended(pause):
        pause = _INTERVAL_S if _tried(sender, ending=False) else min(2 * pause, _LONGEST_PAUSE_S)


def finish(sender: MlflowSync, seconds: float) -> bool:
    """Send the rest and the run's status; return whether that succeeded in time."""
    limit, pause = time.monotonic() + seconds, 0.05
    while not _tried(sender, ending=True):
        if time.monotonic() + pause > limit:
            return False
        time.sleep(pause)
        pause = min(2 * pause, 1.0)
    return True


def _tried(sender: MlflowSync, *, ending: bool) -> bool:
    try:
        sender.send()
        if ending:
            sender.end()
    except Exception as error:  # whatever goes wrong here must not matter to the run
        text = " ".join(str(error).split())[:200]
        print(f"mlflow: {sender.uri}: {text}; the run directory keeps all metrics", file=sys.stderr)
        return False
    return True


def _input_ended(seconds: float) -> bool:
    ready, _, _ = select.select([sys.stdin], [], [], seconds)
    return bool(ready) and not os.read(sys.stdin.fileno(), 64)


def _parse(
    arguments: Sequence[str], uri_errors: Callable[[str], Sequence[str]], prog: str
) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog=f"python -m {prog}",
        description="Send the metrics of a run directory to MLflow, once or while the run writes them.",
        epilog=f"example:\n  python -m {prog} runs/hello-v1 --uri https://mlflow.example.com",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("run_dir", type=Path, metavar="RUN_DIR", help="run directory")
    parser.add_argument("--uri", required=True, help="tracking server")
    parser.add_argument(
        "--experiment", default=EXPERIMENT, metavar="NAME", help="default: %(default)s"
    )
    parser.add_argument("--name", help="name of the MLflow run (default: name of RUN_DIR)")
    parser.add_argument(
        "--tag", action="append", default=[], metavar="KEY=VALUE", help="tag of the run; repeatable"
    )
    parser.add_argument(
        "--follow", action="store_true", help="keep sending until standard input is closed"
    )
    parser.add_argument(
        "--wait-for-metrics",
        action="store_true",
        help="make no MLflow run before metrics.jsonl has a line",
    )
    chosen = parser.parse_args(arguments)
    if not chosen.run_dir.is_dir():
        parser.error(f"RUN_DIR: {chosen.run_dir} is not a folder; name a run directory")
    for error in uri_errors(chosen.uri):
        parser.error(error)
    return chosen
