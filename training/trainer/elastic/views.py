"""The membership of a run as a log of numbered views in the run directory.

A view is one file, created exclusively under the next number: the first to create it decides, all others follow.
So two parts of a divided run cannot both go on, and there is no coordinator to lose. A view without members ends
the run.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import secrets
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from trainyard.disk import fsync_folder, write_durably

FOLDER: Final = "groups"
_LEASE: Final = "lease"
_TOKEN: Final = "token"
TOKEN_BYTES: Final = 32
_RETRY_S: Final = 0.2


@dataclass(frozen=True)
class Member:
    """One replica group, as the others reach it."""

    id: str
    """16 hexadecimal digits, new for each time that a process joins."""
    addresses: tuple[tuple[str, int], ...]
    """Host and port of each of its ranks, in their order."""

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> Member:
        """Return the member of these values, as `asdict` gives them."""
        return cls(values["id"], tuple((host, port) for host, port in values["addresses"]))


@dataclass(frozen=True, kw_only=True)
class View:
    """Who takes part from one step on; the first member, the longest in the run, leads."""

    number: int
    members: tuple[Member, ...]
    formed: bool
    """Whether `min` groups were present in this view or an earlier one since the run was started."""
    reason: str
    """What changed: for people."""
    attempt: int = 0
    """Attempt number of the leader, which no other leader of the run has: it grows with each new one, so that a
    former leader that claims its number late is fenced out."""
    ready: tuple[str, ...] = ()
    """Groups that have the state and are no members: they replace members that are lost before the next round."""

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> View:
        """Return the view of these values, as `asdict` gives them."""
        members = tuple(map(Member.from_json, values["members"]))
        return cls(**{**values, "members": members, "ready": tuple(values.get("ready", ()))})

    def position(self, member_id: str) -> int | None:
        """Return the index of a member; None when it is not in this view."""
        ids = [member.id for member in self.members]
        return ids.index(member_id) if member_id in ids else None

    @property
    def ended(self) -> bool:
        """Whether the run has ended: the next to come starts it again."""
        return not self.members


class ViewLog:
    """The views of one run directory; needs only that creating a link is exclusive."""

    def __init__(self, run_dir: Path, patience_s: float = 0.0) -> None:
        """`patience_s`: for how long a view is tried again while the file system refuses it."""
        self.run_dir = run_dir
        self.folder = run_dir / FOLDER
        self.folder.mkdir(parents=True, exist_ok=True)
        self._patience_s = patience_s

    def create(self, view: View, waiting: Callable[[], None] = lambda: None) -> View:
        """Record this view, or return the one that has its number already.

        `waiting` is called before each further try. Raises OSError, after the patience.
        """
        limit, reported = time.monotonic() + self._patience_s, False
        while True:
            try:
                return self._create(view)
            except OSError as error:
                file, text = self._file(view.number), error.strerror or str(error)
                if time.monotonic() > limit:
                    problem = f"not written for {self._patience_s:.0f} s: {text}; this group ends"
                    raise OSError(error.errno, problem, str(file)) from error
                if not reported:
                    print(
                        f"{file}: not written: {text}; the run directory must be writable; tried again for "
                        f"{self._patience_s:.0f} s",
                        file=sys.stderr,
                        flush=True,
                    )
                reported = True
                time.sleep(_RETRY_S)
                waiting()

    def _create(self, view: View) -> View:
        file, temporary = self._file(view.number), self.folder / f".{secrets.token_hex(8)}"
        try:
            # Durable before it has a name: an empty view after a power loss would stop the run for good.
            write_durably(temporary, (json.dumps(asdict(view)) + "\n").encode())
            os.link(temporary, file)
        except FileExistsError:
            return self.read(view.number)
        finally:
            with contextlib.suppress(OSError):
                temporary.unlink()
        fsync_folder(self.folder)
        return view

    def read(self, number: int) -> View:
        """Return one view. Raises OSError, also for a file that is not a view."""
        file = self._file(number)
        try:
            values = json.loads(file.read_text(encoding="utf-8"))
        except ValueError as error:
            problem = f"not a view ({error}); remove it while no group of the run is alive"
            raise OSError(errno.EIO, problem, str(file)) from error
        return View.from_json(values)

    def newest(self) -> View | None:
        """Return the view with the highest number; None for a run that never began."""
        numbers = [name[5:13] for name in os.listdir(self.folder) if name.startswith("view-")]
        return self.read(max(map(int, numbers))) if numbers else None

    def exists(self, number: int) -> bool:
        """Return whether a view is known to have this number already."""
        with contextlib.suppress(OSError):
            return self._file(number).exists()
        return False

    def token(self) -> bytes:
        """Return the secret that members of this run show each other; the first to ask makes it."""
        file, temporary = self.folder / _TOKEN, self.folder / f".{secrets.token_hex(8)}"
        if not file.exists():
            descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with os.fdopen(descriptor, "wb") as stream:
                stream.write(secrets.token_bytes(TOKEN_BYTES))
            with contextlib.suppress(FileExistsError):
                os.link(temporary, file)
            temporary.unlink()
        return file.read_bytes()

    def renew_lease(self) -> None:
        """Show newcomers that the run is alive; its leader does so about once a second. Raises OSError."""
        temporary = self.folder / f".{secrets.token_hex(8)}"
        temporary.write_text(secrets.token_hex(8))
        temporary.replace(self.folder / _LEASE)

    def lease(self) -> str:
        """Return a text that changes with every renewal; compare it, clocks differ between nodes."""
        with contextlib.suppress(OSError):
            return (self.folder / _LEASE).read_text()
        return ""

    def _file(self, number: int) -> Path:
        return self.folder / f"view-{number:08d}.json"
