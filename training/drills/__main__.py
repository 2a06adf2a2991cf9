"""`python -m training.drills ROOT...`: restore the newest checkpoint of each of a team's runs elsewhere.

ROOT is a folder of run directories, such as a team's checkpoint volume, or s3://BUCKET/PREFIX of the
same. One line of JSON per run, the last line sums up. Nothing is written but below --scratch and to
--results.

Exit 0 when every checkpoint is of use (also when there is none yet), 1 when one is not or a place
cannot be read, 78 for a mistake in the arguments.
"""

from __future__ import annotations

import argparse
import json
import shutil
import signal
import sys
import time
from pathlib import Path

from training.cli import Parser
from training.drills import results
from training.drills.runs import newest_runs
from training.drills.verify import Verdict, verify_run
from training.objects.location import BadLocation
from training.spec import EXIT_DONE

_FAILED = 1


def main() -> int:
    """Parse, examine one run after the other, sum up."""
    arguments = _parse()
    signal.signal(signal.SIGTERM, _interrupted)
    begun = time.monotonic()
    verdicts: list[Verdict] = []
    trouble = ""
    try:
        for root in arguments.roots:
            verdicts += _examine_all(root, arguments)
    except (BadLocation, OSError) as error:
        trouble = str(error)
    except KeyboardInterrupt:
        print(
            "drills: interrupted; with --results the next call goes on from here", file=sys.stderr
        )
        return 128 + signal.SIGINT
    told = results.summarize(verdicts, time.monotonic() - begun, trouble)
    print(json.dumps(told, sort_keys=True), flush=True)
    return EXIT_DONE if told["ok"] else _FAILED


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
        prog="python -m training.drills",
        description="Restore the newest checkpoint of each run elsewhere and compare every tensor.",
    )
    parser.add_argument(
        "roots", nargs="+", metavar="ROOT", help="folder of run directories, or s3://BUCKET/PREFIX"
    )
    parser.add_argument(
        "--scratch", required=True, type=Path, help="folder that checkpoints are restored under"
    )
    parser.add_argument(
        "--newest",
        type=int,
        default=3,
        metavar="N",
        help="of each ROOT, the N runs that saved last (default: %(default)s)",
    )
    parser.add_argument(
        "--largest",
        type=int,
        metavar="BYTES",
        help="a larger checkpoint is read and compared, not restored (default: what --scratch has "
        "free). A restore needs as much memory, too",
    )
    parser.add_argument(
        "--results",
        type=Path,
        metavar="FILE",
        help="keep verdicts here; runs that are in it already are not examined again",
    )
    arguments = parser.parse_args()
    if arguments.newest < 1:
        parser.error(f"--newest: got {arguments.newest}; allowed >= 1")
    if arguments.largest is not None and arguments.largest < 1:
        parser.error(f"--largest: got {arguments.largest}; allowed >= 1")
    if not arguments.scratch.is_dir():
        parser.error(f"--scratch: got {arguments.scratch}; allowed a folder that is there")
    return arguments


if __name__ == "__main__":
    sys.exit(main())
