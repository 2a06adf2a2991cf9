"""Restore the newest checkpoint of each run below ROOT to a scratch folder and compare every tensor.

Prints one JSON line per run and a summary as the last line; writes only to --scratch and --results.
Exit codes: 0 all checkpoints restorable (or none yet), 1 one is not or a ROOT is unreadable, 78
invalid arguments.
"""

from __future__ import annotations

import argparse
import json
import shutil
import signal
import sys
import time
from pathlib import Path

from trainer.cli import Parser
from trainer.drills import results
from trainer.drills.runs import newest_runs
from trainer.drills.verify import Verdict, verify_run
from trainyard.contract import EXIT_DONE
from trainyard.objects.location import BadLocation

_FAILED = 1


def main() -> int:
    """Verify the runs one after the other and print a summary; returns the exit code."""
    arguments = _parse()
    signal.signal(signal.SIGTERM, _interrupted)
    begun = time.monotonic()
    verdicts: list[Verdict] = []
    listing_error = ""
    try:
        for root in arguments.roots:
            verdicts += _examine_all(root, arguments)
    except (BadLocation, OSError) as error:
        listing_error = str(error)
    except KeyboardInterrupt:
        print("drills: interrupted; with --results the next call continues here", file=sys.stderr)
        return 128 + signal.SIGINT
    summary = results.summarize(verdicts, time.monotonic() - begun, listing_error)
    print(json.dumps(summary, sort_keys=True), flush=True)
    return EXIT_DONE if summary["ok"] else _FAILED


def _examine_all(root: str, arguments: argparse.Namespace) -> list[Verdict]:
    kept = results.load_results(arguments.results)
    largest = arguments.largest
    if largest is None:
        largest = shutil.disk_usage(arguments.scratch).free
    verdicts = []
    for run in newest_runs(root, arguments.newest):
        verdict = kept.get(run.place) or verify_run(run, largest, arguments.scratch)
        if verdict is None:
            continue
        print(results.format_line(verdict), flush=True)
        if run.place not in kept:
            results.append_result(arguments.results, verdict)
        verdicts.append(verdict)
    return verdicts


def _interrupted(_number: int, _frame: object) -> None:
    raise KeyboardInterrupt


def _parse() -> argparse.Namespace:
    parser = Parser(
        prog="python -m trainer.drills",
        description=__doc__,
        epilog="example:\n  python -m trainer.drills /checkpoints --scratch /scratch",
    )
    parser.add_argument(
        "roots", nargs="+", metavar="ROOT", help="folder of run directories, or s3://BUCKET/PREFIX"
    )
    parser.add_argument(
        "--scratch", required=True, type=Path, metavar="DIR", help="existing folder to restore into"
    )
    parser.add_argument(
        "--newest",
        type=int,
        default=3,
        metavar="N",
        help="check the N most recently saved runs of each ROOT (default: %(default)s)",
    )
    parser.add_argument(
        "--largest",
        type=int,
        metavar="BYTES",
        help="verify checksums only, without a restore, above this size (default: free space of "
        "--scratch); a restore needs as much memory",
    )
    parser.add_argument(
        "--results",
        type=Path,
        metavar="FILE",
        help="append verdicts to this file and skip runs that are in it",
    )
    arguments = parser.parse_args()
    if arguments.newest < 1:
        parser.error(f"--newest: got {arguments.newest}; must be at least 1")
    if arguments.largest is not None and arguments.largest < 1:
        parser.error(f"--largest: got {arguments.largest}; must be at least 1")
    if not arguments.scratch.is_dir():
        parser.error(f"--scratch: {arguments.scratch} is not an existing folder; create it")
    return arguments


if __name__ == "__main__":
    sys.exit(main())
