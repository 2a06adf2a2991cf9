"""The rank that hangs, is slow or computes wrong values: its name, the evidence, and where both are recorded.

A verdict is one file in the run directory, created exclusively: whichever rank judges, a culprit is named once.
It is also an event, a line in the log and a metric, because none of these can be read by everybody.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import socket
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from trainyard.contract import CULPRIT_LINE, EVENTS_FILE, NODE_NAME_ENV, POD_NAME_ENV
from trainyard.run_logs import EventLog

FOLDER: Final = "flight"
"""In the run directory: what ranks record for each other, and whom they have named."""
_VERDICTS: Final = "culprits"

HUNG: Final = "hung"
CORRUPT: Final = "corrupt-rank"
SLOW_RANK: Final = "slow-rank"
SLOW_LOADER: Final = "slow-loader"
SYMPTOMS: Final = (HUNG, CORRUPT, SLOW_RANK, SLOW_LOADER)
"""What a rank can be named for; the worst first."""
NO_RANK: Final = -1
"""No single rank: all of them wait, or all are slow."""
_TEXT_MAX: Final = 300
_EVIDENCE_MAX: Final = 8


@dataclass(frozen=True, kw_only=True)
class Culprit:
    symptom: str
    """One of SYMPTOMS."""
    rank: int
    """The rank that is named; NO_RANK if none is to blame alone."""
    node: str
    pod: str
    step: int
    """The step that the rank was in."""
    attempt: int
    """The attempt of the run that the rank belonged to."""
    time: float
    """When it was named, or seen again, in Unix seconds."""
    what: str
    """What it does, in one clause: `does not leave the loader for 21 s`."""
    evidence: tuple[str, ...] = ()
    """Observations, the strongest first."""
    frame: str = ""
    """`FILE:LINE FUNCTION` of its main thread; empty if that could not be read."""

    @property
    def key(self) -> tuple[str, int, str]:
        """What makes two verdicts one and the same trouble."""
        return self.symptom, self.rank, self.node

    def line(self) -> str:
        return f"{CULPRIT_LINE}{json.dumps(asdict(self))}"


def node_name() -> str:
    """Return the name of the node; the host's where the platform names none."""
    return os.environ.get(NODE_NAME_ENV) or socket.gethostname()


def pod_name() -> str:
    """Return the name of the pod; empty where the platform names none."""
    return os.environ.get(POD_NAME_ENV, "")


def parse_line(text: str) -> Culprit | None:
    """Return the culprit that a line of a log names; None for other lines. Logs are not trusted."""
    _, found, content = text.partition(CULPRIT_LINE)
    if not found:
        return None
    try:
        return _checked(json.loads(content))
    except (ValueError, TypeError, KeyError):
        return None


def _checked(values: Mapping[str, Any]) -> Culprit:
    """Return a culprit of bounded size. Raises KeyError, TypeError, ValueError."""
    if values["symptom"] not in SYMPTOMS:
        raise ValueError(values["symptom"])
    evidence = values.get("evidence") or ()
    if not isinstance(evidence, list | tuple):
        raise TypeError("evidence")
    texts = {
        name: str(values.get(name) or "")[:_TEXT_MAX] for name in ("node", "pod", "what", "frame")
    }
    return Culprit(
        symptom=str(values["symptom"]),
        rank=int(values["rank"]),
        step=int(values["step"]),
        attempt=int(values["attempt"]),
        time=float(values["time"]),
        evidence=tuple(str(one)[:_TEXT_MAX] for one in evidence[:_EVIDENCE_MAX]),
        **texts,
    )


class Verdicts:
    """The verdicts of one run, as files."""

    def __init__(self, run_dir: Path) -> None:
        self.folder = run_dir / FOLDER / _VERDICTS
        self._events = run_dir / EVENTS_FILE

    def announce(self, name: str, culprit: Culprit) -> bool:
        """Record a verdict as a file, a line and an event of a run that has some; return whether it is the first.

        Any rank may have recorded one of this name before. Raises OSError.
        """
        if not self.claim(name, culprit):
            return False
        print(culprit.line(), file=sys.stderr, flush=True)
        if self._events.exists():
            shown = ("symptom", "rank", "node", "pod", "what", "evidence", "frame")
            events = EventLog(self._events, culprit.attempt, enabled=True)
            events.write("culprit", culprit.step, **{key: getattr(culprit, key) for key in shown})
            events.close()
        return True

    def claim(self, name: str, culprit: Culprit) -> bool:
        """Record a verdict under a name; return whether no rank has recorded one under it before.

        Raises OSError.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        temporary = self._write(culprit)
        try:
            os.link(temporary, self._file(name))
        except FileExistsError:
            return False
        finally:
            temporary.unlink()
        return True

    def renew(self, name: str, culprit: Culprit) -> None:
        """Record that the trouble of this name goes on. Raises OSError."""
        self._write(culprit).replace(self._file(name))

    def all(self) -> list[Culprit]:
        """Return all verdicts, the oldest first; without those that cannot be read."""
        found = []
        for file in self.folder.glob("*.json"):
            with contextlib.suppress(OSError, ValueError, TypeError, KeyError):
                found.append(_checked(json.loads(file.read_text(encoding="utf-8"))))
        return sorted(found, key=lambda culprit: culprit.time)

    def _file(self, name: str) -> Path:
        return self.folder / f"{name}.json"

    def _write(self, culprit: Culprit) -> Path:
        temporary = self.folder / f".{secrets.token_hex(8)}"
        temporary.write_text(json.dumps(asdict(culprit)) + "\n", encoding="utf-8")
        return temporary
