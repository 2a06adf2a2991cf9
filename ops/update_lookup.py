"""`trainyard stack update`: the update of a stack that launched a run."""

from __future__ import annotations

import argparse
import datetime as dt
import json
import os
import subprocess
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from rich.console import Console

from ops.cluster import ClusterError
from ops.commands import Group, printer

_PAGE: Final = 50
"""Updates that are read at a time."""
_TIMEOUT_S: Final = 120.0
_COMMIT: Final = "git.head"
_AUTHOR: Final = "git.author"

Page = Callable[[int], str]
"""The JSON of a page of `pulumi stack history`, from 1."""


@dataclass(frozen=True, kw_only=True)
class Update:
    """One update of a stack, as its backend records it."""

    number: int | None
    """None: the backend does not number updates; only Pulumi Cloud does."""
    kind: str
    started: dt.datetime
    ended: dt.datetime | None
    """None: it still runs."""
    result: str
    commit: str
    by: str
    """Author of the commit; empty: not recorded."""
    message: str

    def covers(self, at: dt.datetime) -> bool:
        """Whether it ran at this time. Times in a history are whole seconds."""
        second = at.replace(microsecond=0)
        return self.started <= second and (self.ended is None or second <= self.ended)

    def to_json(self) -> dict[str, Any]:
        """Return it for `--json`; times in UTC."""
        return {
            "number": self.number,
            "kind": self.kind,
            "started": _stamp(self.started),
            "ended": _stamp(self.ended) if self.ended else None,
            "result": self.result,
            "commit": self.commit,
            "by": self.by,
            "message": self.message,
        }


def add(commands: Group) -> None:
    """Add `update` to the group `stack`."""
    command = commands.add_offline(
        "update",
        _update,
        "show the update of a stack that ran at a time, such as `launched_at` of a run",
        [
            "run show hello                                          # prints launched_at",
            "stack update --stack dev --at 2026-11-23T09:44:00Z",
        ],
    )
    command.add_argument("--stack", required=True, metavar="STACK", help="such as dev")
    command.add_argument(
        "--at", required=True, type=_time, metavar="TIME", help="with an offset, or Z for UTC"
    )
    command.add_argument("--json", action="store_true", help="print one JSON object")


def parse(text: str) -> list[Update]:
    """Return the updates of a page, newest first. Raises ValueError, KeyError for another format."""
    return [_of(one) for one in json.loads(text)]


def find(page: Page, at: dt.datetime) -> Update | None:
    """Return the update that ran at a time; None if no recorded one did. Updates of a stack do not overlap."""
    number = 1
    while updates := parse(page(number)):
        for one in updates:
            if one.covers(at):
                return one
        if updates[-1].started <= at:
            return None  # all further ones are older
        number += 1
    return None


def _update(args: argparse.Namespace, console: Console) -> int:
    """Return 0, or 1 if no update is found."""
    try:
        found = find(lambda number: _history(args.stack, number), args.at)
    except (ValueError, KeyError, TypeError) as error:
        raise ClusterError(
            f"pulumi stack history: unexpected output ({error!r}); the tested CLI is 3.259.0"
        ) from None
    show = printer(console)
    if args.json:
        show(json.dumps(found.to_json() if found else None))
    elif found:
        for line in _lines(found):
            show(line)
    else:
        show(
            f"{args.stack}: no recorded update ran at {_stamp(args.at)}; one that still runs is recorded at its "
            "end, and `run submit` launches runs without an update"
        )
    return 0 if found else 1


def _lines(update: Update) -> Iterable[str]:
    number = "none: this backend does not number updates, they go by their start"
    values = update.to_json() | {"number": update.number if update.number is not None else number}
    for key, value in values.items():
        if value not in (None, ""):
            yield f"{key:8} {str(value).splitlines()[0]}"


def _of(one: Mapping[str, Any]) -> Update:
    environment = one.get("environment") or {}
    ended = one.get("endTime")
    return Update(
        number=int(one["version"]) or None,
        kind=str(one["kind"]),
        started=_time(one["startTime"]),
        ended=_time(ended) if ended else None,
        result=str(one.get("result") or ""),
        commit=str(environment.get(_COMMIT, "")),
        by=str(environment.get(_AUTHOR, "")),
        message=str(one.get("message") or ""),
    )


def _history(stack: str, page: int) -> str:
    command = ["pulumi", "stack", "history", "--stack", stack, "--json", "--non-interactive"]
    command += [f"--page-size={_PAGE}", f"--page={page}"]
    try:
        done = subprocess.run(
            command,
            env=os.environ | {"PULUMI_SKIP_UPDATE_CHECK": "true"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_TIMEOUT_S,
            check=False,
        )
    except FileNotFoundError:
        raise ClusterError("pulumi: not found on the PATH; install it") from None
    except subprocess.TimeoutExpired:
        raise ClusterError(
            f"pulumi stack history: no answer in {_TIMEOUT_S:g} s; is the state's backend reachable?"
        ) from None
    if done.returncode:
        raise ClusterError(f"pulumi stack history failed: {done.stderr.strip()[-500:]}")
    return done.stdout


def _time(text: str) -> dt.datetime:
    try:
        found = dt.datetime.fromisoformat(text)
    except ValueError:
        found = None
    if found is None or found.tzinfo is None:
        raise argparse.ArgumentTypeError(f"{text!r} is no time, such as 2026-11-23T09:44:00Z")
    return found


def _stamp(at: dt.datetime) -> str:
    return at.astimezone(dt.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
