"""Paths of the sandbox's state; other modules build none themselves.

`SANDBOX_HOME` moves the state (default `.sandbox/` in the project), so that several sandboxes can coexist.
They share built binaries in `TRAINYARD_CACHE` (default `$XDG_CACHE_HOME/trainyard`, else
`~/.cache/trainyard`).
"""

from __future__ import annotations

import os
from pathlib import Path

PROJECT = Path(__file__).resolve().parent.parent
"""The checkout: the folder that holds Pulumi.yaml."""


class State:
    """Folders and files of one sandbox."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.kubeconfig = home / "kubeconfig"
        """Kubeconfig of cluster-admin, mode 0600."""
        self.logs = home / "logs"
        """One `NAME.log` per supervised process."""
        self.pids = home / "pids"
        """One `NAME.json` per supervised process."""
        self.pki = home / "pki"
        """Certificates and keys of the control plane, mode 0700."""
        self.volumes = home / "volumes"
        """Backing folders of persistent volumes: `NAMESPACE/CLAIM/`."""
        self.images = home / "images"
        """Source snapshots used as container images: `sha256-DIGEST/`."""
        self.node = home / "node"
        """State of the node agent: one folder per pod."""
        self.backend = home / "pulumi"
        self.bin = home / "bin"
        """Folder that `sandbox env` puts first on PATH."""

    def kubeconfig_of(self, identity: str) -> Path:
        """Kubeconfig of one of the sandbox's programs, mode 0600."""
        return self.pki / f"{identity}.kubeconfig"


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
