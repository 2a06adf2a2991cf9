"""Restore the newest checkpoint of each run below ROOT to a scratch folder and compare every tensor.

Prints one JSON line per run and a summary as the last line; writes only to --scratch and --results.
Exit codes: 0 all checkpoints restorable (or none yet), 1 one is not or a ROOT is unreadable, 78
invalid arguments.
"""

from __future__ import annotations

import json
import shutil
import sys
import time
from argparse import Namespace
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from trainer.cli import Parser, report_runs
from trainer.drills.verify import RESTORED, Verdict, newest_runs, verify_run
from trainyard.contract import EXIT_DONE

_FAILED = 1


def main() -> int:
    """Verify the runs one after the other and print a summary; returns the exit code."""
    arguments = _parse()
    begun = time.monotonic()
    verdicts: list[Verdict] = []
    lines = _examine(arguments, verdicts)
    error = report_runs("drills", lines, "with --results the next call continues here")
    summary = _summarize(verdicts, time.monotonic() - begun, error)
    print(json.dumps(summary, sort_keys=True), flush=True)
    return EXIT_DONE if summary["ok"] else _FAILED


def _examine(arguments: Namespace, verdicts: list[Verdict]) -> Iterator[dict[str, Any]]:
    """Yield the verdict on each run, which is also added to `verdicts` and to the file of results."""
    largest, file = arguments.largest, arguments.results
    if largest is None:
        largest = shutil.disk_usage(arguments.scratch).free
    kept = _load_results(file)
    for root in arguments.roots:
        for run in newest_runs(root, arguments.newest):
            verdict = kept.get(run.place) or verify_run(run, largest, arguments.scratch)
            if verdict is None:
                continue
            verdicts.append(verdict)
            yield asdict(verdict)
            if file is not None and run.place not in kept:
                with file.open("a", encoding="utf-8") as out:
                    out.write(f"{json.dumps(asdict(verdict), sort_keys=True)}\n")


def _load_results(file: Path | None) -> dict[str, Verdict]:
    """Return the verdicts in a file by the run's place; a torn last line is ignored."""
    if file is None or not file.exists():
        return {}
    found = {}
    for text in file.read_text(encoding="utf-8").splitlines():
        try:
            verdict = Verdict(**json.loads(text))
        except (ValueError, TypeError):
            continue
        found[verdict.place] = verdict
    return found


def _summarize(verdicts: Sequence[Verdict], seconds: float, error: str) -> dict[str, Any]:
    """Return counts and the first failure. `error`: why listing runs failed."""
    failed = [verdict for verdict in verdicts if not verdict.ok]
    remedy = "see that the volume or the bucket is there" if error else ""
    return {
        "validation": "restore-drill",
        "ok": not failed and not error,
        "cause": f"{failed[0].run}: {failed[0].cause}" if failed else error,
        "remedy": failed[0].remedy if failed else remedy,
        "runs": len(verdicts),
        "passed": len(verdicts) - len(failed),
        "failed": len(failed),
        "restored": sum(verdict.ok and verdict.how == RESTORED for verdict in verdicts),
        "bytes": sum(verdict.bytes for verdict in verdicts),
        "seconds": round(seconds, 3),
    }


def _parse() -> Namespace:
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
