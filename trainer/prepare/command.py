"""What the commands of preparation Jobs share: progress on stderr and in the state file, and exit codes."""

from __future__ import annotations

import argparse
import signal
import sys
import threading
from collections.abc import Callable
from pathlib import Path

from trainer.prepare.progress import ProgressCallback, ProgressReporter
from trainer.prepare.state import StateReporter
from trainyard.contract import EXIT_BAD_CONFIG, EXIT_DONE


class RetryableError(Exception):
    """A failure that another attempt may not have; one line."""


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--state", type=Path, metavar="FILE", help="file with progress and result, for waiting runs"
    )
    parser.add_argument(
        "--attempts",
        type=int,
        default=1,
        metavar="N",
        help="attempts after which --state reports a failure (default: %(default)s)",
    )


def run_reported(
    name: str,
    arguments: argparse.Namespace,
    work: Callable[[ProgressCallback], tuple[str, str]],
    *final: type[Exception],
) -> int:
    """Run `work`, which returns the result for waiting runs and the line to print; returns the exit code.

    0 done, 78 after one of the errors `final`, 1 after others that may pass, 130 when interrupted.
    """
    stopped = threading.Event()

    def stop(*_: object) -> None:
        stopped.set()
        raise KeyboardInterrupt

    signal.signal(signal.SIGTERM, stop)
    reporter = ProgressReporter()
    state = StateReporter(arguments.state, arguments.attempts)

    def progress(what: str, done: int, total: int = 0, /) -> None:
        if stopped.is_set():  # in a thread that the interrupted one waits for
            raise KeyboardInterrupt
        reporter(what, done, total)
        state.progress(what, done, total)

    def fail(error: str, code: int) -> int:
        state.failed(error, final=code == EXIT_BAD_CONFIG)
        for line in error.splitlines():
            print(f"{name}: {line}", file=sys.stderr)
        return code

    try:
        result, summary = work(progress)
    except final as error:
        return fail(str(error), EXIT_BAD_CONFIG)
    except RetryableError as error:
        return fail(str(error), 1)
    except OSError as error:
        return fail(f"{error.filename or arguments.out}: {error.strerror or error}", 1)
    except KeyboardInterrupt:
        state.interrupted()
        print(f"{name}: interrupted; run it again to continue", file=sys.stderr)
        return 128 + signal.SIGINT
    state.ready(result)
    print(summary)
    return EXIT_DONE
