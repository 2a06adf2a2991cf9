"""Copy the runs in ROOT to STORE, each to STORE/RUN: what is new or has changed.

Prints one JSON line for each run with changes or a failure, and a summary as the last line, which is also the
container's termination message. Exit codes: 0 all copies are up to date, 1 some are not, 78 invalid arguments.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from trainer.cli import Parser, report_runs
from trainer.results.copying import Copied, copy_run
from trainyard.contract import EXIT_DONE, RUN_ID_FORM, TERMINATION_LOG
from trainyard.objects import AccessDenied, ObjectError, Objects, ObjectsUnavailable
from trainyard.objects.location import BadLocation
from trainyard.objects.upload import Uploader

_FAILED: Final = 1
_CAUSE_MAX: Final = 300
"""Characters of a cause."""
_NAMED_MAX: Final = 8
"""Failed runs in the termination message, which can have 4,096 bytes."""


def main() -> int:
    """Copy the runs one after the other and print a summary; returns the exit code."""
    arguments = _parse()
    total, failed = dict.fromkeys(("runs", "files", "bytes", "deleted"), 0), dict[str, str]()
    lines = _copy_all(arguments, total, failed)
    cause = report_runs("results", lines, "the next call continues here")[:_CAUSE_MAX]
    summary = {
        "ok": not failed and not cause,
        "store": arguments.store,
        **total,
        "failed": len(failed),
        "cause": cause,
        "causes": dict(list(failed.items())[:_NAMED_MAX]),
    }
    text = json.dumps(summary, sort_keys=True)
    print(text, flush=True)
    with contextlib.suppress(OSError):  # outside of a container
        Path(TERMINATION_LOG).write_text(text, encoding="utf-8")
    return EXIT_DONE if summary["ok"] else _FAILED


def _copy_all(
    arguments: argparse.Namespace, total: dict[str, int], failed: dict[str, str]
) -> Iterator[dict[str, Any]]:
    """Yield what changed in each run or why it could not be copied; adds it to `total` and `failed`."""
    folders = sorted(
        one
        for one in arguments.root.iterdir()
        if RUN_ID_FORM.fullmatch(one.name) and one.is_dir() and not one.is_symlink()
    )
    store, uploader = Objects.at(arguments.store), Uploader()
    for folder in folders:
        copied, why = _copy(folder, store, uploader)
        total["runs"] += 1
        for name in ("files", "bytes", "deleted"):
            total[name] += getattr(copied, name)
        if why:
            failed[folder.name] = why
        if copied.files or copied.deleted or why:
            yield {"run": folder.name, **asdict(copied), "cause": why}


def _copy(folder: Path, store: Objects, uploader: Uploader) -> tuple[Copied, str]:
    """Copy one run; return what changed and why it is not complete.

    Raises ObjectError where the next run would fail in the same way: no permission, or a bucket that does not
    answer.
    """
    try:
        copied = copy_run(folder, store.below(folder.name), uploader)
    except (AccessDenied, ObjectsUnavailable):
        raise
    except (ObjectError, OSError) as error:
        return Copied(), " ".join(str(error).split())[:_CAUSE_MAX]
    return copied, copied.corrupt


def _parse() -> argparse.Namespace:
    parser = Parser(
        prog="python -m trainer.results",
        description=__doc__,
        epilog="example:\n  python -m trainer.results /checkpoints s3://bucket/research",
    )
    parser.add_argument("root", type=Path, metavar="ROOT", help="folder of run directories")
    parser.add_argument("store", metavar="STORE", help="s3://BUCKET/PREFIX")
    arguments = parser.parse_args()
    if not arguments.root.is_dir():
        parser.error(f"{arguments.root} is not an existing folder")
    try:
        Objects.at(arguments.store)
    except BadLocation as error:
        parser.error(str(error))
    return arguments


if __name__ == "__main__":
    sys.exit(main())
