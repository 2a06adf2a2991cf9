"""Send the metrics of a run directory to MLflow, once or, with --follow, while the run writes them."""

from __future__ import annotations

import argparse
import fcntl
import os
import select
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from training.trainer.config.reporting import uri_issues
from trainyard.tracking.mlflow_sync import LOCK_FILE, MlflowSync

_INTERVAL_S = 2.0
"""Seconds between two polls of the files."""
_LONGEST_PAUSE_S = 60.0
"""Longest pause between retries."""
FLUSH_S = 10.0
"""Seconds to send the rest once the trainer has ended."""


def main() -> int:
    """Send the run; returns the exit code, 1 when not everything was sent."""
    arguments = _parse()
    if arguments.follow:
        # Signals of a terminal or a launcher reach this process too; it ends when the trainer has.
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_IGN)
        os.nice(10)
    from training.tracking.mlflow_server import MlflowServer

    sender = MlflowSync(
        server=MlflowServer(arguments.uri),
        run_dir=arguments.run_dir,
        uri=arguments.uri,
        experiment=arguments.experiment,
        name=arguments.name or arguments.run_dir.resolve().name,
        tags=dict(tag.partition("=")[::2] for tag in arguments.tag),
    )
    with exclusive(arguments.run_dir):
        if arguments.follow:
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


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m training.tracking",
        description=__doc__,
        epilog="example:\n  python -m training.tracking runs/hello-v1 --uri sqlite:///mlflow.db",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("run_dir", type=Path, metavar="RUN_DIR", help="run directory")
    parser.add_argument(
        "--uri", required=True, help="tracking server: sqlite:///FILE or http(s)://SERVER"
    )
    parser.add_argument(
        "--experiment", default="trainyard", metavar="NAME", help="default: %(default)s"
    )
    parser.add_argument("--name", help="name of the MLflow run (default: name of RUN_DIR)")
    parser.add_argument(
        "--tag", action="append", default=[], metavar="KEY=VALUE", help="tag of the run; repeatable"
    )
    parser.add_argument(
        "--follow", action="store_true", help="keep sending until standard input is closed"
    )
    chosen = parser.parse_args()
    if not chosen.run_dir.is_dir():
        parser.error(f"RUN_DIR: {chosen.run_dir} is not a folder; name a run directory")
    for issue in uri_issues("--uri", chosen.uri):
        parser.error(str(issue))
    return chosen


if __name__ == "__main__":
    sys.exit(main())
