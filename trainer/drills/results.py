"""Verdicts as JSON lines; a results file lets an interrupted drill continue."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from trainer.drills.verify import RESTORED, Verdict


def format_line(verdict: Verdict) -> str:
    """Return a verdict as JSON."""
    return json.dumps(dataclasses.asdict(verdict), sort_keys=True)


def load_results(file: Path | None) -> dict[str, Verdict]:
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


def append_result(file: Path | None, verdict: Verdict) -> None:
    """Append a verdict to the file, if there is one. Raises OSError."""
    if file is not None:
        with file.open("a", encoding="utf-8") as out:
            out.write(f"{format_line(verdict)}\n")


def summarize(
    verdicts: Sequence[Verdict], seconds: float, listing_error: str = ""
) -> dict[str, Any]:
    """Return counts of a drill and the first failure. `listing_error`: why listing runs failed."""
    failed = [verdict for verdict in verdicts if not verdict.ok]
    cause = listing_error
    remedy = "see that the volume or the bucket is there" if listing_error else ""
    if failed:
        cause, remedy = f"{failed[0].run}: {failed[0].cause}", failed[0].remedy
    return {
        "validation": "restore-drill",
        "ok": not failed and not listing_error,
        "cause": cause,
        "remedy": remedy,
        "runs": len(verdicts),
        "passed": len(verdicts) - len(failed),
        "failed": len(failed),
        "restored": sum(verdict.ok and verdict.how == RESTORED for verdict in verdicts),
        "bytes": sum(verdict.bytes for verdict in verdicts),
        "seconds": round(seconds, 3),
    }
