"""Git commit of a deployment, who deploys, and when."""

from __future__ import annotations

import datetime as dt
import getpass
import os
import subprocess
from pathlib import Path
from typing import Final

from training.spec import Launch, RunSpec

_UNKNOWN: Final = "unknown"


def git_commit(root: Path) -> str:
    """Return the checkout's commit: 40 hexadecimal digits, or `unknown` outside of git."""
    found = _git(root, "rev-parse", "HEAD")
    return _UNKNOWN if found is None else found.strip()


def origin(run: RunSpec, root: Path) -> str:
    """Return the checkout's commit; outside of git the digest of the run's source, sha256:HEX, if it has one."""
    found = git_commit(root)
    source = run.program.source if run.program else None
    return f"sha256:{source.sha256}" if found == _UNKNOWN and source else found


def launch(root: Path) -> Launch:
    """Return whether the checkout has changes that are not committed, who deploys it, and the time of this update.

    The engine does not tell a program the number of its update; `pulumi stack history` has their times.
    """
    return Launch(dirty=is_dirty(root), by=_user(), at=_now())


def is_dirty(folder: Path) -> bool | None:
    """Return whether a folder differs from its commit; None outside of git.

    The salt that the engine writes into the stack file while the program runs is not a difference
    (docs/adr/01-stacks-and-configuration.md).
    """
    changes = _git(folder, "status", "--porcelain", "--", ".")
    if changes is None or not changes:
        return None if changes is None else False
    if any(line.startswith("??") for line in changes.splitlines()):
        return True
    without_salt = "--ignore-matching-lines=^encryptionsalt:"
    return _git(folder, "diff", "--no-ext-diff", without_salt, "HEAD", "--", ".") != ""


def _now() -> str:
    return dt.datetime.now(dt.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _user() -> str:
    """Return who started the workflow on GitHub, else the login name; empty without one."""
    if os.environ.get("GITHUB_ACTIONS") == "true":
        return os.environ.get("GITHUB_ACTOR", "")
    try:
        return getpass.getuser()
    except (OSError, KeyError):
        return ""


def _git(root: Path, *arguments: str) -> str | None:
    """Return what git prints; None if it fails."""
    try:
        done = subprocess.run(
            ["git", *arguments],
            cwd=root,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=10,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout
