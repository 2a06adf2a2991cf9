"""The membership of a run as numbered views in its folder.

A view is one file, created exclusively under the next number: the first to create it decides, all others follow.
So two parts of a divided run cannot both go on, and there is no coordinator to lose.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import secrets
import sys
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from trainyard import shared_files
from trainyard.disk import fsync_folder, replace_text, write_durably
from trainyard.elastic.links import TOKEN_BYTES, Address

FOLDER: Final = "groups"
_TOKEN: Final = "token"
_LEASE: Final = "lease"
_RETRY_S: Final = 0.2


@dataclass(frozen=True)
class Member:
    """One group, as the others reach it."""

    id: str
    """14 hexadecimal digits, new for each time that a group asks to take part."""
    node: str
    """Its first rank's host name."""
    links: tuple[Address, ...]
    """Where each of its ranks listens for connections (links.py)."""
    stores: tuple[Address, ...]
    """Where each of its ranks lets the others meet (exchange.py)."""

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Member:
        """Return the member of these values, as `asdict` gives them."""
        links, stores = (
            tuple((str(host), int(port)) for host, port in values[name])
            for name in ("links", "stores")
        )
        return cls(values["id"], values["node"], links, stores)


@dataclass(frozen=True, kw_only=True)
class View:
    """Who takes part from one step on; the first member, the longest in the run, leads."""

    number: int
    members: tuple[Member, ...]
    reason: str
    """What changed: for people."""
    settings: Mapping[str, str]
    """What has to be the same in every group (same.py)."""
    formed: bool
    """Whether as many groups as the run needs were there, in this view or before."""
    attempt: int = 0
    """The attempt number of the group that leads: another leader has a higher one."""
    active: int = 0
    """Members that compute; those after them are spares. 0: all."""

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> View:
        """Return the view of these values, as `asdict` gives them."""
        return cls(**{**values, "members": tuple(map(Member.from_json, values["members"]))})

    @property
    def groups(self) -> int:
        """Members that compute."""
        return min(self.active or len(self.members), len(self.members))

    def details(self, seconds: float) -> dict[str, Any]:
        """Return what the event about this view says; `seconds`: until its members were connected."""
        spares = len(self.members) - self.groups
        found = {"view": self.number, "groups": self.groups, "reason": self.reason}
        return {**found, **({"spares": spares} if spares else {}), "seconds": round(seconds, 3)}

    def position(self, member_id: str) -> int | None:
        """Return the index of a member; None when it is not in this view."""
        ids = [member.id for member in self.members]
        return ids.index(member_id) if member_id in ids else None


class Views:
    """The views of one run; needs only that creating a link is exclusive."""

    def __init__(self, run_dir: Path, patience_s: float) -> None:
        """`patience_s`: for how long a write is tried again while the file system refuses it."""
        self.folder = run_dir / FOLDER
        self.folder.mkdir(parents=True, exist_ok=True)
        self._patience_s = patience_s

    def create(self, view: View) -> View:
        """Record this view, or return the one that has its number already. Raises OSError."""
        limit, reported = time.monotonic() + self._patience_s, False
        while True:
            try:
                return self._create(view)
            except OSError as error:
                file, why = self._file(view.number), error.strerror or str(error)
                if time.monotonic() > limit:
                    why = f"not written for {self._patience_s:.0f} s: {why}; this group ends"
                    raise OSError(error.errno, why, str(file)) from error
                if not reported:
                    print(
                        f"{file}: not written: {why}; the run's folder must be writable; tried again for "
                        f"{self._patience_s:.0f} s",
                        file=sys.stderr,
                        flush=True,
                    )
                reported = True
                time.sleep(_RETRY_S)

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
            return View.from_json(json.loads(file.read_text(encoding="utf-8")))
        except (ValueError, TypeError, KeyError) as error:
            problem = f"not a view ({error}); remove it while no group of the run is alive"
            raise OSError(errno.EIO, problem, str(file)) from error

    def newest(self) -> View | None:
        """Return the view with the highest number; None for a run that never began."""
        shared_files.refresh(self.folder)
        numbers = [name[5:13] for name in os.listdir(self.folder) if name.startswith("view-")]
        return self.read(max(map(int, numbers))) if numbers else None

    def renew_lease(self) -> None:
        """Show that the run is alive, also to groups that cannot reach its members. Raises OSError."""
        replace_text(self.folder / _LEASE, secrets.token_hex(8))

    def lease(self) -> str:
        """Return what changes while the run is alive."""
        with contextlib.suppress(OSError):
            return (self.folder / _LEASE).read_text(encoding="utf-8")
        return ""

    def ask(self, member: Member) -> None:
        """Ask to take part: publish how to reach this group."""
        shared_files.write(self.folder / f"join-{member.id}.json", asdict(member))

    def asking(self) -> list[Member]:
        found = []
        for file in sorted(self.folder.glob("join-*.json")):
            with contextlib.suppress(OSError, ValueError):  # taken back meanwhile
                found.append(Member.from_json(json.loads(file.read_text(encoding="utf-8"))))
        return found

    def answer(self, member_id: str) -> None:
        """Remove a request to take part, which is met or taken back."""
        (self.folder / f"join-{member_id}.json").unlink(missing_ok=True)

    def token(self) -> bytes:
        """Return the secret that ranks of this run show each other; the first to ask makes it."""
        file, temporary = self.folder / _TOKEN, self.folder / f".{secrets.token_hex(8)}"
        if not file.exists():
            descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with os.fdopen(descriptor, "wb") as stream:
                stream.write(secrets.token_bytes(TOKEN_BYTES))
            with contextlib.suppress(FileExistsError):
                os.link(temporary, file)
            temporary.unlink()
        return file.read_bytes()

    def _file(self, number: int) -> Path:
        return self.folder / f"view-{number:08d}.json"
