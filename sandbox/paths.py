"""Paths of the sandbox's state; other modules build none themselves.

`SANDBOX_HOME` moves the state (default `.sandbox/` in the project), so that several sandboxes can coexist.
They share built binaries in `TRAINYARD_CACHE` (default `$XDG_CACHE_HOME/trainyard`, else
`~/.cache/trainyard`).
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

PROJECT = Path(__file__).resolve().parent.parent
"""The checkout: the folder that holds Pulumi.yaml."""


@dataclass(frozen=True)
class State:
    """Folders and files of one sandbox."""

    home: Path

    @property
    def kubeconfig(self) -> Path:
        """Kubeconfig of cluster-admin, mode 0600."""
        return self.home / "kubeconfig"

    def kubeconfig_of(self, identity: str) -> Path:
        """Kubeconfig of one of the sandbox's programs, mode 0600."""
        return self.pki / f"{identity}.kubeconfig"

    @property
    def logs(self) -> Path:
        """One `NAME.log` per supervised process."""
        return self.home / "logs"

    @property
    def pids(self) -> Path:
        """One `NAME.json` per supervised process."""
        return self.home / "pids"

    @property
    def pki(self) -> Path:
        """Certificates and keys of the control plane, mode 0700."""
        return self.home / "pki"

    @property
    def volumes(self) -> Path:
        """Backing folders of persistent volumes: `NAMESPACE/CLAIM/`."""
        return self.home / "volumes"

    @property
    def images(self) -> Path:
        """Source snapshots used as container images: `sha256-DIGEST/`."""
        return self.home / "images"

    @property
    def node(self) -> Path:
        """State of the node agent: one folder per pod."""
        return self.home / "node"

    @property
    def backend(self) -> Path:
        return self.home / "pulumi"

    @property
    def bin(self) -> Path:
        """Folder that `sandbox env` puts first on PATH."""
        return self.home / "bin"


def state() -> State:
    """Return the sandbox that the environment selects."""
    home = os.environ.get("SANDBOX_HOME")
    return State(Path(home).resolve() if home else PROJECT / ".sandbox")


def cache() -> Path:
    """Return the folder of built tools, shared by all sandboxes of this user."""
    named = os.environ.get("TRAINYARD_CACHE")
    if named:
        return Path(named).resolve()
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(base) / "trainyard"
