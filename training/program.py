"""The program of a run that brings its own: what starts its ranks, and the source that is packed for it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

SOURCE_MOUNT: Final = "/etc/trainyard-source"
"""Folder with the parts of the source's archive."""
DEEPSPEED_FILE: Final = "deepspeed.json"
ACCELERATE_FILE: Final = "accelerate.yaml"
"""Files of the run's ConfigMap."""


@dataclass(frozen=True, kw_only=True)
class Source:
    """A folder of the repository, packed; equal contents have equal hashes."""

    folder: str
    """Path in the repository."""
    sha256: str
    """Hash of the tar stream, which does not depend on how it is compressed."""
    dirty: bool = False
    """Whether the folder differed from the commit."""
    archive: bytes = field(default=b"", repr=False)
    """The tar stream, compressed by gzip."""


@dataclass(frozen=True, kw_only=True)
class Program:
    """What a run starts instead of the built-in trainer."""

    launcher: str
    """One of trainyard.contract.LAUNCHERS."""
    command: tuple[str, ...]
    """With placeholders, which are expanded when it starts."""
    env: Mapping[str, str] = field(default_factory=dict)
    source: Source | None = None
    """None: the code is in the image."""
    tracking_uri: str = ""
    """MLflow tracking server; empty: none."""
    progress_timeout_s: int | None = None
    """Seconds without progress after which the ranks are ended; 0: never; None: the library's default."""
    files: Mapping[str, str] = field(default_factory=dict)
    """Texts of configuration files of the launcher, by their names in the run's ConfigMap."""

    def identity(self) -> dict[str, Any]:
        """Return what makes two programs different: the content of the source, not where it came from."""
        return {
            "launcher": self.launcher,
            "command": list(self.command),
            "env": dict(self.env),
            "source": self.source.sha256 if self.source else None,
            "tracking_uri": self.tracking_uri,
            "files": dict(self.files),
            "progress": self.progress_timeout_s,
        }

    def record(self) -> dict[str, Any]:
        """Return the part of the run record that says what ran."""
        source = self.source
        packed = source and {
            "folder": source.folder,
            "sha256": source.sha256,
            "dirty": source.dirty,
        }
        return {"launcher": self.launcher, "command": list(self.command), "source": packed}
