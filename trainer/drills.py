"""Restore the newest checkpoint of each run below ROOT to a scratch folder and compare every byte.

Prints one JSON line per run and a summary as the last line; writes only to --scratch. Exit codes: 0 all
checkpoints restorable (or none yet), 1 one is not or a ROOT is unreadable, 78 invalid arguments.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from trainer.cli import Parser, report_runs
from trainyard.contract import CHECKPOINTS_DIR, EXIT_DONE
from trainyard.objects import Objects
from trainyard.objects.location import is_location
from trainyard.store.factory import find_checkpoints
from trainyard.store.interface import CheckpointStore, folder_name
from trainyard.store.manifest import CorruptCheckpoint, UnknownFormat

RESTORED: Final = "restored"
"""Copied to the scratch folder, and every tensor loaded from there."""
VERIFIED: Final = "verified"
"""All checksums match; too large to restore."""
_FAILED: Final = 1
_REACH: Final = "see that the volume or the bucket answers, and that its reader may read it"
_TRIES: Final = 3
"""Attempts with a newer checkpoint when a running run deletes the one being verified."""


@dataclass(frozen=True, kw_only=True)
class Run:
    name: str
    """Name of its folder: the run's id."""
    place: str
    """Its folder or URL."""
    saved_at: float
    """Time of its last save in Unix seconds; infinite if unreadable."""


@dataclass(frozen=True, kw_only=True)
class Verdict:
    run: str
    place: str
    step: int = 0
    ok: bool
    how: str = VERIFIED
    bytes: int = 0
    seconds: float = 0.0
    cause: str = ""
    remedy: str = ""


def main() -> int:
    """Verify the runs one after the other and print a summary; returns the exit code."""
    arguments = _parse()
    begun = time.monotonic()
    largest = arguments.largest or shutil.disk_usage(arguments.scratch).free
    verdicts: list[Verdict] = []

    def examined() -> Iterator[dict[str, Any]]:
        for root in arguments.roots:
            for run in newest_runs(root, arguments.newest):
                if verdict := verify_run(run, largest, arguments.scratch / "drill"):
                    verdicts.append(verdict)
                    yield asdict(verdict)

    error = report_runs("drills", examined(), "the next call begins anew")
    summary = _summarize(verdicts, time.monotonic() - begun, error)
    print(json.dumps(summary, sort_keys=True), flush=True)
    return EXIT_DONE if summary["ok"] else _FAILED


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


def newest_runs(root: str, count: int) -> list[Run]:
    """Return at most `count` runs below a folder or s3://BUCKET/PREFIX, most recently saved first.

    Unreadable runs and those with a corrupt newest manifest come first. Raises BadLocation or OSError.
    """
    found = [run for place in _folders(root) if (run := _run(place))]
    return sorted(found, key=lambda run: (-run.saved_at, run.name))[:count]


def _folders(root: str) -> Iterator[str]:
    if is_location(root):
        objects = Objects.at(root)
        yield from (objects.location.url(name) for name in objects.folders())
        return
    for entry in os.scandir(root):
        if entry.is_dir() and os.path.isdir(os.path.join(entry.path, CHECKPOINTS_DIR)):
            yield entry.path


def _run(place: str) -> Run | None:
    name = place.rstrip("/").rpartition("/")[2]
    saved_at = float("inf")  # where it cannot be read, `verify_run` reports the reason
    try:
        store, steps = find_checkpoints(place)
        if not steps:
            return None
        saved_at = store.manifest(steps[-1]).saved_at
    except (CorruptCheckpoint, UnknownFormat, OSError):
        pass
    return Run(name=name, place=place, saved_at=saved_at)


def verify_run(run: Run, largest: int, scratch: Path) -> Verdict | None:
    """Restore the run's newest checkpoint in `scratch`; above `largest` bytes only checksums are verified.

    Returns None if the run has no checkpoint any more.
    """
    verdict = None
    for _ in range(_TRIES):
        try:
            store, steps = find_checkpoints(run.place)
            if not steps:
                return None
            verdict = _verify(run, store, steps[-1], largest, scratch)
            if verdict.ok or steps[-1] in store.steps():
                return verdict
        except OSError as error:
            cause = f"cannot be read: {error}"
            return Verdict(run=run.name, place=run.place, ok=False, cause=cause, remedy=_REACH)
    return verdict


def _verify(run: Run, store: CheckpointStore, step: int, largest: int, scratch: Path) -> Verdict:
    begun, name = time.monotonic(), folder_name(step)
    how, size, cause, remedy = VERIFIED, 0, "", ""
    try:
        size = store.manifest(step).bytes
        if size <= largest:
            how = RESTORED
            cause, remedy = _restore(store, step, scratch)
        elif issues := store.verify(step):
            raise CorruptCheckpoint(issues[0])
    except CorruptCheckpoint as error:
        cause = f"{name} is corrupt: {error}"
        remedy = f"python -m trainer.checkpoint verify {run.place} names every damaged file"
    except UnknownFormat as error:
        cause, remedy = f"{name}: {error}", "use the image of the run for its drills"
    except OSError as error:
        cause, remedy = f"{name} cannot be read: {error}", _REACH
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    return Verdict(
        run=run.name,
        place=run.place,
        step=step,
        ok=not cause,
        how=how,
        bytes=size,
        seconds=round(time.monotonic() - begun, 3),
        cause=cause,
        remedy=remedy,
    )


def _restore(store: CheckpointStore, step: int, scratch: Path) -> tuple[str, str]:
    """Return cause and remedy if the checkpoint or the scratch folder is of no use; empty if it is restored."""
    # Late import: torch takes a second to load.
    from trainer.checkpoint.restore import RestoreError, run_drill

    shutil.rmtree(scratch, ignore_errors=True)
    try:
        scratch.mkdir(parents=True)
        run_drill(store, step, scratch)
    except RestoreError as error:
        return f"{folder_name(step)}: {error}", "compare the trainer's version with the run's"
    except OSError as error:
        if not str(error.filename or "").startswith(str(scratch)):
            raise
        return f"the scratch folder: {error.strerror}", "give the drill more scratch space"
    return "", ""


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
